#include "tuner/cli/qkv_file.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <limits>

#include "generator/error.h"
#include "generator/problem/element_type.h"
#include "runtime/oracle/reference_attention.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/safetensors.h"
#include "tuner/database/output_file.h"

namespace attune::cli {
namespace {

struct Shape {
  std::int64_t batch, heads, seq, dim;
};

Shape shape_of(const std::filesystem::path& path, const std::string& name, const TensorInfo& tensor, Layout layout) {
  const char* order = layout == Layout::bshd ? "(batch, seq, head, dim)" : "(batch, head, seq, dim)";
  if (tensor.shape.size() != 4) {
    refuse_file(path, fmt::format("tensor '{}' has shape [{}]: expected 4 dimensions, {}", name,
                                  fmt::join(tensor.shape, ", "), order));
  }
  for (const std::uint64_t size : tensor.shape) {
    if (size == 0 || size > std::numeric_limits<std::int32_t>::max()) {
      refuse_file(path, fmt::format("tensor '{}' has shape [{}]: every dimension must be at least 1 and below 2^31",
                                    name, fmt::join(tensor.shape, ", ")));
    }
  }
  const auto at = [&](int index) { return static_cast<std::int64_t>(tensor.shape[index]); };
  return layout == Layout::bshd ? Shape{at(0), at(2), at(1), at(3)} : Shape{at(0), at(1), at(2), at(3)};
}

DataType dtype_of(const std::filesystem::path& path, const std::string& name, const TensorInfo& tensor) {
  for (const DataType dtype : {DataType::bf16, DataType::fp16})
    if (tensor.dtype == facts_of(dtype).safetensors) return dtype;
  refuse_file(path, fmt::format("tensor '{}' is {}: expected F16 or BF16; convert it first", name, tensor.dtype));
}

std::string element_name(const AttentionProblem& problem, Operand operand) {
  return std::string(facts_of(operand_shape(problem, operand).element).safetensors);
}

std::vector<std::uint64_t> shape_in(const AttentionProblem& problem, Operand operand) {
  const OperandShape shape = operand_shape(problem, operand);
  const auto size = [](std::int64_t extent) { return static_cast<std::uint64_t>(extent); };
  if (operand == Operand::sinks) return {size(shape.heads)};
  if (operand == Operand::alibi_slopes) return {size(shape.batch), size(shape.heads)};
  if (facts_of(operand).of == OperandOf::used_lengths || facts_of(operand).of == OperandOf::packed)
    return {size(shape.batch)};
  std::vector<std::uint64_t> sizes = {size(shape.batch), size(shape.heads), size(shape.rows)};
  if (!has_strides(operand)) return sizes;
  if (is_of_pairs(operand)) {
    sizes.push_back(size(shape.columns));
    return sizes;
  }
  if (problem.layout == Layout::bshd) std::swap(sizes[1], sizes[2]);
  sizes.push_back(size(shape.columns));
  return sizes;
}

// What there is a number for.
std::string_view unit_of(Operand operand) {
  return operand == Operand::sinks                   ? "query head"
         : operand == Operand::alibi_slopes          ? "batch entry and query head"
         : facts_of(operand).of == OperandOf::packed ? "sequence, and one more"
         : is_of_pairs(operand) ? "query and key of each batch entry and query head, with 1 where it repeats"
                                : "batch entry";
}

std::map<std::string, std::string> metadata_of(const AttentionProblem& problem) {
  return {
      {"format", "attune"}, {"layout", std::string(to_string(problem.layout))}, {"problem", canonical_text(problem)}};
}

}  // namespace

QkvFile read_qkv(const std::filesystem::path& path, Layout layout) {
  SafetensorsReader file(path);
  const TensorInfo &q = file.find("q"), &k = file.find("k"), &v = file.find("v");
  const Shape shape_q = shape_of(path, "q", q, layout);
  const Shape shape_k = shape_of(path, "k", k, layout);
  shape_of(path, "v", v, layout);
  const DataType dtype = dtype_of(path, "q", q);
  for (const auto& [name, tensor] : {std::pair("k", &k), std::pair("v", &v)}) {
    if (dtype_of(path, name, *tensor) != dtype) {
      refuse_file(path, fmt::format("tensor '{}' is {} but 'q' is {}: all three must have one dtype", name,
                                    tensor->dtype, q.dtype));
    }
  }
  if (v.shape != k.shape) {
    refuse_file(path, fmt::format("tensor 'v' has shape [{}] but 'k' has [{}]: they must be equal",
                                  fmt::join(v.shape, ", "), fmt::join(k.shape, ", ")));
  }
  const auto must_match = [&](const char* what, std::int64_t of_q, std::int64_t of_k) {
    if (of_q != of_k) {
      refuse_file(
          path,
          fmt::format(
              "'q' has {} {} but 'k' has {}: they must be equal (dimensions are read as {}; --layout changes that)",
              what, of_q, of_k, to_string(layout)));
    }
  };
  must_match("batch", shape_q.batch, shape_k.batch);
  must_match("head dimension", shape_q.dim, shape_k.dim);

  QkvFile result;
  AttentionProblem& problem = result.problem;
  problem.dtype = dtype;
  problem.layout = layout;
  problem.batch = shape_q.batch;
  problem.heads_q = shape_q.heads;
  problem.heads_kv = shape_k.heads;
  problem.seq_q = shape_q.seq;
  problem.seq_kv = shape_k.seq;
  problem.head_dim = static_cast<int>(shape_q.dim);
  problem.softmax_scale = default_softmax_scale(problem.head_dim);
  try {
    validate(problem);
  } catch (const Error& error) {
    refuse_file(path,
                fmt::format("{} (dimensions are read as {}; --layout changes that)", error.what(), to_string(layout)));
  }
  result.q = file.read_u16("q");
  result.k = file.read_u16("k");
  result.v = file.read_u16("v");
  return result;
}

AttentionProblem with_sequences_of(const std::filesystem::path& path, AttentionProblem problem) {
  if (!problem.packed) return problem;
  SafetensorsReader file(path);
  const std::string name(to_string(Operand::cu_seqlens_q));
  const std::vector<std::uint64_t>& shape = file.find(name).shape;
  if (shape.size() != 1 || shape[0] < 2) {
    refuse_file(path, fmt::format("tensor '{}' has shape [{}]: expected one number for each sequence, and one more",
                                  name, fmt::join(shape, ", ")));
  }
  const auto sequences = static_cast<std::int64_t>(shape[0]) - 1;
  if (problem.batch != 1 && problem.batch != sequences) {
    refuse_file(path,
                fmt::format("'{}' is of {} packed sequences, and the batch is {}: q, k and v have one batch entry "
                            "of all rows, and a problem as many as there are sequences",
                            name, sequences, problem.batch));
  }
  problem.batch = sequences;
  // A problem that does not say how long the longest one is has it from what has elements for its pairs.
  const bool said = problem.max_seq_q != 0 || problem.max_seq_kv != 0;
  for (const Operand operand : term_inputs_of(problem)) {
    const auto found = file.tensors().find(std::string(to_string(operand)));
    if (!is_of_pairs(operand) || said || found == file.tensors().end() || found->second.shape.size() != 4) continue;
    const std::vector<std::uint64_t>& sizes = found->second.shape;
    if (sizes[2] > 1) problem.max_seq_q = static_cast<std::int64_t>(sizes[2]);
    problem.max_seq_kv = static_cast<std::int64_t>(sizes[3]);
  }
  return problem;
}

TermValues read_terms(const std::filesystem::path& path, const AttentionProblem& problem) {
  TermValues terms;
  const OperandList operands = term_inputs_of(problem);
  if (operands.begin() == operands.end()) return terms;
  SafetensorsReader file(path);
  const auto is_there = [&](Operand operand) { return file.tensors().contains(std::string(to_string(operand))); };
  const bool has_lengths = problem.packed || is_there(Operand::seqused_q) || is_there(Operand::seqused_kv);
  for (const Operand operand : operands) {
    const bool may_lack = facts_of(operand).access(problem) == Access::may_read;
    if (may_lack && has_lengths && !is_there(operand)) continue;
    const std::string name(to_string(operand)), element = element_name(problem, operand);
    const TensorInfo& tensor = file.find(name);
    const std::vector<std::uint64_t> wanted = shape_in(problem, operand);
    if (tensor.shape != wanted) {
      refuse_file(path, fmt::format("tensor '{}' has shape [{}]: expected one number for each {}, [{}]", name,
                                    fmt::join(tensor.shape, ", "), unit_of(operand), fmt::join(wanted, ", ")));
    }
    if (tensor.dtype != element)
      refuse_file(path, fmt::format("tensor '{}' is {}: expected {}", name, tensor.dtype, element));
    terms.set(operand, file.read_bytes(name));
  }
  return terms;
}

void write_random_qkv(const std::filesystem::path& path, const AttentionProblem& problem, std::uint64_t seed,
                      const TermValues& given) {
  require_writable_output(path, {.binary = true});  // before the numbers are made
  std::vector<std::vector<std::uint16_t>> values;
  std::vector<NamedTensor> tensors;
  const auto add = [&](Operand operand, std::span<const std::byte> bytes) {
    tensors.push_back(
        {std::string(to_string(operand)), element_name(problem, operand), shape_in(problem, operand), bytes});
  };
  for (const Operand operand : {Operand::q, Operand::k, Operand::v}) {
    values.push_back(random_normal(problem.dtype, element_count(problem, operand), seed * 3 + values.size()));
    add(operand, std::as_bytes(std::span(values.back())));
  }
  const TermValues terms = random_terms(problem, seed);
  for (const Operand operand : term_inputs_of(problem))
    add(operand, given.bytes(operand).empty() ? terms.bytes(operand) : given.bytes(operand));
  std::map<std::string, std::string> metadata = metadata_of(problem);
  metadata["seed"] = std::to_string(seed);
  write_safetensors(path, tensors, metadata);
}

void write_output(const std::filesystem::path& path, const AttentionProblem& problem,
                  const std::vector<std::uint16_t>& o, const std::vector<float>& lse, const std::string& config,
                  const std::vector<std::filesystem::path>& inputs) {
  const NamedTensor tensors[] = {
      {"o", element_name(problem, Operand::o), shape_in(problem, Operand::o), std::as_bytes(std::span(o))},
      {"lse", element_name(problem, Operand::lse), shape_in(problem, Operand::lse), std::as_bytes(std::span(lse))}};
  std::map<std::string, std::string> metadata = metadata_of(problem);
  metadata["config"] = config;
  write_safetensors(path, tensors, metadata, inputs);
}

}  // namespace attune::cli
