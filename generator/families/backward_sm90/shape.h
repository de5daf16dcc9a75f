#pragma once

#include <array>
#include <cstddef>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/families/shared/pair_tiles.h"
#include "generator/plan/shared_layout.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// Rows of the largest blocks of queries and tiles of keys.
constexpr int kMostBlockQ = 128, kMostBlockKv = 192;
/// With wider heads ptxas spills the accumulators of two CTAs on an SM, or has their products wait for each other.
constexpr int kMostHeadDimOfTwoCtas = 32;

/// Where barriers lie: bytes from the first one.
struct BackwardBarriers {
  struct Ring {
    const char* name;
    int stages;
    int full, empty;
    int fillers, readers;  ///< arrivals that complete a phase of a full and of an empty barrier
  };
  /// Those of Q, dO, dS, of P where it passes from a warpgroup to another, of the numbers of a persistent CTA's tiles;
  /// else no stages.
  std::array<Ring, 5> rings{};
  int k_full = 0, v_full = 0;
  int k_empty = 0, v_empty = 0;  ///< of persistent CTAs
  int peer_ds_full = 0;          ///< in a cluster: of each stage of dS, that of the other CTA has come
  int bytes = 0;
};

/// Numbers of tiles that a persistent CTA holds at once: of the one it works on, and of the next.
constexpr int kTileNumbers = 2;

/// The products that compute dQ of 64 queries, one after the other: `count` of `columns` each, of which the last has
/// `last_columns` that exist.
struct DqProducts {
  int columns = 0, count = 0, last_columns = 0;
};

/// The parts of dQᵀ that softmax warpgroups compute: 64 of the head dim each, of `row_tiles`, and so many queries.
struct DqShares {
  int row_tiles = 0, queries = 0;
};

/// Whether dS takes another P than dV does: times the derivative of a softcap, or with signs that say what dropout
/// keeps.
inline bool has_slopes(const AttentionProblem& problem) { return problem.softcap != 0 || problem.dropout != 0; }
/// Where that P waits for dP.
enum class SlopesPlace {
  none,       ///< there is none
  p,          ///< it is P until dS has been made, since the product for dV comes later
  registers,  ///< beside P
  shared,     ///< in the buffer of dS, where registers are short
};

/// What follows from a config and a head dim for the sm90 kernel of key tiles: sizes, offsets and register needs. Pure
/// arithmetic. Assumes fields that pass the first checks of infeasibility() (tiles of keys that are multiples of 64).
struct BackwardSm90Shape {
  int softmax_warpgroups = 0;  ///< each, or two of them together, owns 64 keys; one more loads, and may compute dQ
  int threads = 0;
  int panel_columns = 0, panels = 0;  ///< of shared memory, as in ForwardSm90Shape
  int do_stages = 0;
  PairTiles pair_tiles;  ///< of a bias and of an attention mask, where the config has them
  SharedLayout shared;
  BackwardBarriers barriers;                          ///< of its last buffer
  int product_columns = 0;                            ///< of the widest product: N of its wgmma
  int softmax_accumulators = 0, dq_accumulators = 0;  ///< registers of a thread of either kind of warpgroup
  bool whole_apart =
      false;  ///< with tiles of pairs: registers for a way to the exponentials of blocks that hide nothing
  int launch_registers = 0;  ///< of each thread as the launch takes them
  int dq_registers = 0;      ///< of the one that loads, after setmaxnreg; 0: none, all keep what the launch took
  int softmax_registers = 0;
  SlopesPlace slopes = SlopesPlace::none;
};

/// Blocks of dO that shared memory holds: what the config says, else as many as of Q.
int do_stages_of(const KernelConfig& config);

BackwardSm90Shape backward_sm90_shape(const AttentionProblem& problem, const KernelConfig& config,
                                      const DeviceSpec& device);

/// One product of all columns, where config.dq_columns or hardly more are all there are; else as many of that width as
/// it takes. All are as wide, so that one's accumulators are the next one's.
DqProducts dq_products(const AttentionProblem& problem, const KernelConfig& config);

/// Where softmax warpgroups compute dQ. `queries` is 0 where they cannot divide it evenly: each takes one of the head
/// dim's row tiles, and an equal part of the queries, which must be a multiple of 8.
DqShares dq_shares(const AttentionProblem& problem, const KernelConfig& config);

}  // namespace attune
