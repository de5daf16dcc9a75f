#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/sweep/shapes_file.h"

namespace attune {

/// Calls of a model's attention: sequences in a batch, and tokens of each.
struct ModelCall {
  std::int64_t batch = 1, tokens = 0;
  friend bool operator==(const ModelCall&, const ModelCall&) = default;
};

/// What a model is asked to do, on how many GPUs that share its heads.
struct ModelUse {
  std::int64_t tensor_parallel = 1;
  std::vector<ModelCall> training;  ///< forward and backward
  std::vector<ModelCall> prefill;   ///< forward of whole prompts
  std::vector<ModelCall> decoding;  ///< one query each, beside so many keys
};

/// "1x8192,64x4096": batch and tokens of calls. Throws Error(invalid_argument) that names the first mistake.
std::vector<ModelCall> parse_model_calls(std::string_view text);

/// The problems of a model, and in a sentence each what attention of its layers no problem says.
struct ModelProblems {
  std::vector<NamedProblem> problems;
  std::vector<std::string> left_out;
};

/// The problems of a model's attention layers by its configuration in the words of Transformers (config.json of a model
/// on the Hub): heads, groups and their width, sliding windows, softcaps, sinks, ALiBi, dropout in training and the
/// type of elements. Layers of one kind are one problem for each call. A `use` without any call has training and
/// prefill of one sequence of 4096 tokens, or as many as the model takes, and decoding of 32 beside as many.
///
/// With tensor parallelism a GPU has its share of the query heads, and of the key heads its share or one.
///
/// Throws Error(io) if the file cannot be read, Error(invalid_argument) that names file and field for what is no
/// configuration of a model with attention, heads that cannot be shared, and where no problem is left.
ModelProblems read_model_problems(const std::filesystem::path& path, const ModelUse& use);

/// The same from a text; `name` stands for the file in messages.
ModelProblems parse_model_problems(std::string_view text, const std::string& name, const ModelUse& use);

}  // namespace attune
