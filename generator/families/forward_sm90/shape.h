#pragma once

#include <array>
#include <cstddef>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/families/shared/pair_tiles.h"
#include "generator/plan/shared_layout.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// Where barriers lie, and the numbers of tiles that the producer passes on behind them: bytes from the first barrier.
struct BarrierLayout {
  struct Ring {
    const char* name = "";
    int stages = 0;
    int full = 0, empty = 0;
  };
  std::array<Ring, 5> rings{};  ///< full and empty barriers of each stage; without stages there is no such ring
  int passing = 0;              ///< in a cluster one that says that a number has come
  int asked = 0;                ///< of packed sequences one that says that the next tile is wanted
  int tile_numbers = 0;         ///< of each tile of Q; in a cluster one more, that has come from its first CTA
  int tile_records = 0;         ///< of packed sequences: of each stage of their ring
  int bytes = 0;

  const Ring& q() const { return rings[0]; }
  const Ring& k() const { return rings[1]; }
  const Ring& v() const { return rings[2]; }
  Ring& pairs() { return rings[3]; }
  const Ring& pairs() const { return rings[3]; }
  Ring& records() { return rings[4]; }  ///< of what tiles of packed sequences are
  const Ring& records() const { return rings[4]; }
};

/// What follows from a config and a head dim for the sm90 forward kernel: sizes, offsets and register needs. Pure
/// arithmetic. Assumes fields that pass the first checks of infeasibility() (positive, block_q a multiple of 64).
struct ForwardSm90Shape {
  int consumers = 0;  ///< warpgroups that compute; one more copies
  int threads = 0;
  int group = 1;          ///< query heads whose rows lie in a tile
  int panel_columns = 0;  ///< of a panel of shared memory: its rows have the bytes of the swizzle's span
  int panels = 0;         ///< that hold a row; what lies beyond the head dim is zero
  int v_stages = 0;       ///< tiles of V in shared memory
  int kv_box_rows = 0;    ///< that a CTA loads of a tile of K or V; others of its cluster load the rest
  SharedLayout shared;
  BarrierLayout barriers;    ///< of its last buffer
  PairTiles pair_tiles;      ///< of a bias and of an attention mask, where the config has stages of them
  bool pairs_ahead = false;  ///< a thread has registers for all that these hold for a block, beside its product for S
  int p_panels = 0;          ///< of each consumer's P, if it lies in shared memory
  std::size_t q_tile_bytes = 0, kv_tile_bytes = 0, p_bytes = 0;
  int product_columns = 0;        ///< of the widest product: N of its wgmma
  int accumulator_registers = 0;  ///< of a consumer: O, S and, if held, P and Q
  int launch_registers = 0;       ///< of each thread as the launch takes them
  int producer_registers = 0;     ///< after setmaxnreg; 0: there is none, all keep what the launch took
  int consumer_registers = 0;
};

ForwardSm90Shape forward_sm90_shape(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device);

}  // namespace attune
