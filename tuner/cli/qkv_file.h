#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "generator/problem/attention_problem.h"
#include "runtime/oracle/term_values.h"

namespace attune::cli {

/// The tensors `q`, `k`, `v` of a safetensors file: 4-D, all F16 or all BF16, dimensions in the order of the layout,
/// bshd (batch, seq, head, dim) unless said otherwise. k and v have one shape; batch and dim are those of q.
struct QkvFile {
  AttentionProblem problem;  ///< dtype, sizes and layout; mask none
  std::vector<std::uint16_t> q, k, v;
};

/// Throws Error(invalid_argument) or Error(io) that names the file, the tensor and what is wrong.
QkvFile read_qkv(const std::filesystem::path& path, Layout layout);

/// The problem with as many sequences as the file's `cu_seqlens_q` (I32, sequences + 1) says, where they are packed.
/// Throws as read_qkv().
AttentionProblem with_sequences_of(const std::filesystem::path& path, AttentionProblem problem);

/// What the terms of a problem read, from tensors of the operands' names: `sinks`, F32, (query heads);
/// `alibi_slopes`, F32, (batch, query heads); `bias`, as q or F32, and `attention_mask`, BOOL, (batch, query heads,
/// queries, keys) with 1 of those along which the problem says that they repeat; `seqused_q` and `seqused_kv`, or one
/// of them, I32, (batch); `cu_seqlens_q` and `cu_seqlens_kv`, I32, (sequences + 1). Throws as read_qkv().
TermValues read_terms(const std::filesystem::path& path, const AttentionProblem& problem);

/// Writes random normal q, k and v of a problem, and what its terms read: what is given, and random_terms() of the
/// rest.
void write_random_qkv(const std::filesystem::path& path, const AttentionProblem& problem, std::uint64_t seed,
                      const TermValues& given = {});

/// Writes `o` (dtype and order of q) and `lse` (F32: batch, head, seq), over none of the inputs.
void write_output(const std::filesystem::path& path, const AttentionProblem& problem,
                  const std::vector<std::uint16_t>& o, const std::vector<float>& lse, const std::string& config,
                  const std::vector<std::filesystem::path>& inputs);

}  // namespace attune::cli
