#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_arguments.h"
#include "generator/plan/key_split.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// For whom the source is rendered; only templates/primitives/ differ between them.
enum class KernelTarget { cuda, emulator };
std::string_view to_string(KernelTarget target);  ///< "cuda", "emulator": as templates name their parts

/// The number of tiles taken so far (backward: tiles of keys), zero at the start, at the beginning of a workspace that
/// holds it.
inline constexpr Buffer kTileCounter{"tile_counter", "u32*"};
constexpr std::size_t kTileCounterOffset = 0;

/// Where WorkspaceBuffers begin.
constexpr std::size_t kWorkspaceAlignment = 256;
/// Rows of a WorkspaceBuffer of scores start at multiples of so many floats.
constexpr std::int64_t kScoreRowKeys = 4;

/// How TMA copies tiles of an operand (batch, heads, rows, head_dim): boxes of `box_rows` rows of each of `box_heads`
/// heads by `box_columns` elements, all heads of a row together; what lies outside of the tensor is zero.
struct TensorMapSpec {
  Operand operand = Operand::q;
  int box_columns = 64;
  int box_rows = 64;
  int swizzle_bytes = 128;  ///< 128, 64 or 32: a row of the box has as many bytes
  int box_heads = 1;
  /// A map that can end where the rows of a sequence do, as attention/kv_source_used_tensor_map addresses it: what lies
  /// behind `size` rows is zero, though the tensor has more.
  bool ends_with_rows = false;
};

/// What a kernel's tiles are rows of: queries of a query head, or keys of a key/value head (but see
/// KernelLaunch::kv_grad_per_query_head).
/// A tile of all rows is a query head as a whole, of one batch entry or of all. Rows that follow each other are those
/// of all query heads and batch entries, in the order of LSE: a tile may hold queries of several heads. Tiles of pairs
/// are of so many queries and as many keys of each plane of a bias, of its one row where it repeats along the queries.
enum class TileRows { queries, keys, all, of_batch, following, pairs };

/// One launch of a plan. Independent of lengths, batch, heads and strides: those are arguments. Only a plan that packs
/// heads knows how many share K and V.
struct KernelLaunch {
  std::string source;               ///< complete; includes nothing
  std::string source_hash;          ///< hash_of_source(source)
  std::vector<TemplateLine> lines;  ///< where each line of source comes from
  std::string entry;                ///< extern "C" name
  std::string arch;                 ///< "sm_90a"
  KernelTarget target = KernelTarget::cuda;
  int threads = 0;               ///< of a CTA, in x
  std::size_t shared_bytes = 0;  ///< dynamic
  TileRows tile_rows = TileRows::queries;
  int rows_per_tile = 0;                ///< queries (or keys) of a tile; a cluster takes one as a whole
  int heads_per_tile = 1;               ///< query heads whose rows a tile holds
  bool kv_grad_per_query_head = false;  ///< each query head has its own tiles of the keys that its group shares
  int cluster = 1;                      ///< CTAs of a cluster
  /// May begin while the launch before it runs (programmatic dependent launch), for whose results it waits itself.
  bool programmatic_launch = false;
  int max_ctas = 0;  ///< of the grid: persistent CTAs take several tiles; 0: a CTA for each tile
  /// The parts of each tile's keys, or of the queries that a tile of keys walks through. A part of a tile counts as a
  /// tile; a launch over rows that follow each other takes all parts of its rows.
  KeySplit split;
  /// The size of a section, where TileOrder::l2_sections or l2_sections_reversed orders the tiles: bytes, and tiles of
  /// keys at most (0: any number).
  std::size_t section_bytes = 0;
  int section_tiles = 0;
  ArgumentLayout arguments;
  std::vector<TensorMapSpec> tensor_maps;  ///< of the arguments that are a TensorMap

  /// CTAs in x: a cluster per tile of queries, query head (or heads_per_tile of them) and batch entry, or max_ctas;
  /// or one per tile of keys, key/value head (query head, where heads are apart) and batch entry; or one per query head
  /// and batch entry, or per query head.
  /// Throws Error(unsupported) for more than 2^31 - 1 of them.
  std::uint32_t grid_x(const AttentionProblem& problem) const;
  std::int32_t query_tiles(const AttentionProblem& problem) const;
  std::int32_t key_tiles(const AttentionProblem& problem) const;
  /// Heads of a section, counted as tiles count them: sections of equal size whose K and V (for tiles of keys: Q, dO
  /// and fp32 dQ of one query head of each group, or a part of it) take at most section_bytes and that have at most
  /// section_tiles tiles of keys, or one head's each.
  std::int32_t section_heads(const AttentionProblem& problem) const;
  /// The tiles of all heads and batch entries, times the parts of their keys or queries; throws as grid_x().
  std::uint32_t tiles(const AttentionProblem& problem) const;
};

/// WorkspaceBuffer::rows of a buffer whose size no problem changes.
constexpr int kOnce = 0;

/// A part of a workspace whose size may grow with the problem: `bytes` for each `rows` queries (or what is left of
/// them) of each query head and batch entry; or for each `rows` keys of each key/value head.
struct WorkspaceBuffer {
  Buffer buffer;
  std::size_t bytes = 0;
  int rows = 1;         ///< kOnce: `bytes` as a whole, whatever the problem
  bool zeroed = false;  ///< must hold zeros before the first launch; such buffers come first
  TileRows rows_of = TileRows::queries;
  bool of_scores = false;              ///< instead: a float for each query and key, whose rows kScoreRowKeys pads
  KeySplit split = {};                 ///< all of this once for each part of the keys
  int keys = kOnce;                    ///< instead: for each `rows` queries and so many keys of a plane of pairs
  std::optional<Operand> copied = {};  ///< instead: what a copy of it takes (copy_strides())

  /// Throws Error(unsupported) for 2^60 bytes or more.
  std::size_t bytes_of(const AttentionProblem& problem) const;
};

/// A launch that copies an operand to rows of which a tensor map can be made. Other launches read the copy in its
/// place; where a map can be made of the operand itself there is no need of either.
struct OperandCopy {
  Operand operand{};
  Buffer buffer;
};

/// The value of a scalar in a launch.
std::variant<std::int32_t, float> value_of(Scalar scalar, const AttentionProblem& problem, const KernelLaunch& launch);

/// An ordered list of launches that answers a problem. Free of any device; a pure function of problem, config, device
/// spec, templates.
struct KernelPlan {
  AttentionProblem problem;  ///< the one it was generated for; any other of its kernel class may run it
  KernelConfig config;
  std::string kernel_class;
  std::vector<KernelLaunch> launches;
  std::size_t workspace_bytes = 0;       ///< that the launches need, whatever the lengths
  bool workspace_zeroed = false;         ///< whether these bytes must hold zeros before the first launch
  std::vector<WorkspaceBuffer> buffers;  ///< after them, each at a multiple of kWorkspaceAlignment
  std::vector<OperandCopy> copies;       ///< those that the first launches make, one each
  std::vector<Operand> ordered_outputs;  ///< outputs whose bits do not depend on scheduling
  double flops = 0;                      ///< counted, of `problem`
  double bytes = 0;                      ///< fewest bytes of device memory, of `problem`

  /// Provenance of what is measured: the hash of its one launch, or the hash of all launches' hashes in their order.
  std::string source_hash() const;

  /// The bytes that a call of any problem of the kernel class takes.
  std::size_t workspace_bytes_of(const AttentionProblem& launched) const;
  /// How many bytes from the start of the workspace must hold zeros before the first launch.
  std::size_t zeroed_bytes_of(const AttentionProblem& launched) const;
  /// Where a buffer begins, in bytes. Throws Error(internal) if the plan has none of its name.
  std::size_t buffer_offset(const Buffer& buffer, const AttentionProblem& launched) const;
};

}  // namespace attune
