#include "generator/families/shared/packed_sequences.h"

namespace attune {

bool supports_packed_sequences(const AttentionProblem& problem, Reasons* reasons) {
  if (!problem.packed || !problem.invariant) return true;
  reasons->push_back(
      "packed sequences of an invariant problem: sums of parts of the keys have their places by tiles of whole "
      "tensors; leave one of the two words out");
  return false;
}

void adapt_tile_scheduler(const AttentionProblem& problem, Adaptation* adaptation) {
  if (!problem.packed || adaptation->config.tile_scheduler != TileScheduler::static_persistent) return;
  adaptation->config.tile_scheduler = TileScheduler::dynamic_persistent;
  adaptation->changes.push_back("with scheduler=dynamic-persistent, for sequences of any lengths");
}

}  // namespace attune
