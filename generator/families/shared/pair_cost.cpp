#include "generator/families/shared/pair_cost.h"

#include "generator/families/shared/copied_pairs.h"
#include "generator/problem/element_type.h"
#include "generator/problem/operand_shape.h"

namespace attune {

PairCost cost_of_pairs(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                       double pairs) {
  // A warp's load of 32 elements from global memory touches eight rows, and the L1 takes one in a clock. Those that
  // start anywhere come into tiles by such loads, and go on as others do.
  constexpr double kClocksOfLoad = 8.0 / 32, kClocksOfUnalignedTile = 2 * kClocksOfLoad;
  constexpr double kInstructions = 2, kSharedBytesPerClock = 128;
  PairCost cost;
  for (const Operand operand : term_inputs_of(problem)) {
    if (!is_of_pairs(operand)) continue;
    const OperandShape shape = operand_shape(problem, operand);
    const double bytes = size_of(shape.element);
    if (config.pair_stages == 0) {
      cost.clocks += pairs * kClocksOfLoad;
      continue;
    }
    cost.clocks += pairs * (kInstructions / device.alu_per_clock + bytes / kSharedBytesPerClock);
    if (config.copied_pairs || !has_unaligned_rows(problem, operand))
      cost.l2_bytes += pairs * bytes;
    else
      cost.clocks += pairs * kClocksOfUnalignedTile;
  }
  return cost;
}

}  // namespace attune
