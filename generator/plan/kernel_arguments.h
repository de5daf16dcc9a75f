#pragma once

#include <compare>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "generator/problem/attention_problem.h"
#include "generator/problem/operand_shape.h"

namespace attune {

/// A field of a kernel's argument struct is a value: its name in the kernel, its C type, its bytes and what the host
/// puts there follow from it. A new operand or buffer needs no case anywhere.

/// Where an operand's tensor begins: `const` unless a kernel of some pass writes it.
struct Pointer {
  Operand operand;
  auto operator<=>(const Pointer&) const = default;
};

enum class Dimension { batch, head, row };
/// In elements, int64: "q_stride_batch".
struct Stride {
  Operand operand;
  Dimension dimension;
  auto operator<=>(const Stride&) const = default;
};

/// A tensor map of 128 bytes, as KernelLaunch::tensor_maps describes it: "q_map".
struct TensorMap {
  Operand operand;
  auto operator<=>(const TensorMap&) const = default;
};

/// For a tensor of pairs, int32: 1 where a tensor map can describe the call's; otherwise 0, and its map is zeros. Other
/// operands' maps are only asked for where they can be made. "bias_by_map".
struct ByTensorMap {
  Operand operand;
  auto operator<=>(const ByTensorMap&) const = default;
};

/// Device memory that is no operand's: by whom it is needed, by its name. `type` is the pointer's C type in templates.
struct Buffer {
  std::string_view name, type;
  auto operator<=>(const Buffer&) const = default;
};
/// Where a buffer begins: of the plan's workspace, or what a check hands over.
struct Workspace {
  Buffer buffer;
  auto operator<=>(const Workspace&) const = default;
};

/// A number of 8 bytes that is no part of the problem: what a check hands over, by its name.
struct Given {
  std::string_view name, type;
  auto operator<=>(const Given&) const = default;
};

/// A number of a call that no problem holds, uint64: where dropout's state is in no memory, or beside it.
enum class CallValue { dropout_seed, dropout_offset };

/// What a kernel computes with, from the problem and the launch: int32, but for the scales (float).
enum class Scalar {
  batch,
  heads_q,
  heads_kv,
  group_size,  ///< heads_q / heads_kv
  seq_q,
  seq_kv,
  query_tiles,         ///< ceil(seq_q / rows_per_tile)
  key_tiles,           ///< the same of seq_kv
  section_heads,       ///< KernelLaunch::section_heads()
  first_offset,        ///< of a query's first key; clamped to int32: what hides all keys or none stays so
  mask_offset,         ///< of its last key; the same
  diagonals_move,      ///< 1 where these are of sequences of all rows and move with the ends of shorter ones
  softmax_scale,       ///< float
  softmax_scale_log2,  ///< float: scale * log2(e), with a softcap softcap * log2(e)
  softcap,             ///< float
  tanh_scale,          ///< float: scale / softcap
  tiles,               ///< KernelLaunch::tiles()
  key_parts,           ///< KernelLaunch::split, of the problem
  bias_batch,          ///< extents of a bias: 1 along which it repeats
  bias_heads,
  bias_rows,
  attention_mask_batch,  ///< the same of an attention mask
  attention_mask_heads,
  attention_mask_rows,
  max_seq_q,  ///< queries for which tensors of pairs have elements
  max_seq_kv,
  dropout_bytes,  ///< dropout's threshold, as attention/dropout compares bytes with it and rounds it
  dropout_join,
  dropout_part,
  dropout,        ///< float: the probability that is asked for
  dropout_scale,  ///< float: what is kept counts so many times as much
};

using KernelArgument = std::variant<Pointer, Stride, TensorMap, ByTensorMap, Workspace, Given, CallValue, Scalar>;
using Arguments = std::vector<KernelArgument>;

std::string to_string(const KernelArgument& argument);  ///< its name in the kernel
std::string_view type_text(
    const KernelArgument& argument);                  ///< in templates: "const void*", "i64", "i32", "float", ...
std::size_t size_of(const KernelArgument& argument);  ///< in bytes
inline constexpr std::size_t kTensorMapArgumentBytes = 128, kTensorMapArgumentAlignment = 64;

void append(Arguments* fields, std::initializer_list<KernelArgument> more);
void append_pointers(Arguments* fields, std::initializer_list<Operand> operands);
/// What a kernel's predicates compute with: the offsets of a query's first and last key, of a mask that has them.
void append_mask(Arguments* fields, const AttentionProblem& problem);
/// What LSE is counted in: the scale, with a softcap that; nothing where something is added to scores.
void append_score_unit(Arguments* fields, const AttentionProblem& problem);
/// What a forward kernel multiplies scores by: in the exponentials, or before something is added to them.
void append_score_scale(Arguments* fields, const AttentionProblem& problem);
/// What the kernels' RowEnd computes with, beside the score unit.
void append_row_end(Arguments* fields, const AttentionProblem& problem);
/// How many rows each sequence has, of a problem whose sequences do not have all: what attention/sequence_* asks beside
/// seq_q and seq_kv. Of packed sequences with tensors of pairs also what these have elements for.
void append_lengths(Arguments* fields, const AttentionProblem& problem);
/// What attention/dropout draws and compares; nothing where nothing is dropped.
void append_dropout(Arguments* fields, const AttentionProblem& problem);
/// By how much a kernel multiplies what was summed of the elements that are kept.
void append_dropout_scale(Arguments* fields, const AttentionProblem& problem);
/// The tensors of pairs that a problem has, with their strides.
void append_pair_tensors(Arguments* fields, const AttentionProblem& problem);
/// The arguments that say for how many queries and keys they have elements; templates name them by to_string().
Scalar pair_queries_of(const AttentionProblem& problem);
Scalar pair_keys_of(const AttentionProblem& problem);
/// Their tensor maps, and whether there are such: for kernels that hold tiles of them.
void append_pair_maps(Arguments* fields, const AttentionProblem& problem);
/// What the kernels' ScoreFunction, ALiBi and tensors of pairs compute with.
void append_score(Arguments* fields, const AttentionProblem& problem);
/// The three strides of each.
void append_strides(Arguments* fields, std::initializer_list<Operand> operands);

/// The argument struct of a kernel: its fields in order, aligned as C++ aligns them.
struct ArgumentLayout {
  Arguments fields;
  std::vector<std::size_t> offsets;  ///< of each field, in bytes
  std::size_t bytes = 0;             ///< size of the struct
  std::size_t alignment = 1;

  /// Throws Error(internal) if a field appears twice.
  static ArgumentLayout of(Arguments fields);
};

}  // namespace attune
