#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "generator/problem/attention_problem.h"
#include "runtime/oracle/used_lengths.h"

namespace attune::cli {

/// The tensors `q`, `k`, `v` of a safetensors file: 4-D, all F16 or all BF16, dimensions in the order of the layout,
/// bshd (batch, seq, head, dim) unless said otherwise. k and v have one shape; batch and dim are those of q.
struct QkvFile {
  AttentionProblem problem;  ///< dtype, sizes and layout; mask none
  std::vector<std::uint16_t> q, k, v;
};

/// Throws Error(invalid_argument) or Error(io) that names the file, the tensor and what is wrong.
QkvFile read_qkv(const std::filesystem::path& path, Layout layout);

/// What the terms of a problem read beside q, k and v.
struct TermInputs {
  std::vector<float> sinks;
  UsedLengths used;
};

/// From the file of a problem that has sinks the tensor `sinks`: F32, (query heads); of one with used lengths
/// `seqused_q` and `seqused_kv`, or one of them: I32, (batch). Throws as read_qkv().
TermInputs read_terms(const std::filesystem::path& path, const AttentionProblem& problem);

/// Writes random normal q, k and v of a problem, and its random_sinks() and used lengths (random ones, if none are
/// given) if it has some.
void write_random_qkv(const std::filesystem::path& path, const AttentionProblem& problem, std::uint64_t seed,
                      const std::optional<UsedLengths>& used = {});

/// Writes `o` (dtype and order of q) and `lse` (F32: batch, head, seq), over none of the inputs.
void write_output(const std::filesystem::path& path, const AttentionProblem& problem,
                  const std::vector<std::uint16_t>& o, const std::vector<float>& lse, const std::string& config,
                  const std::vector<std::filesystem::path>& inputs);

}  // namespace attune::cli
