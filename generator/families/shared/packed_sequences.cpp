#include "generator/families/shared/packed_sequences.h"

namespace attune {

bool supports_packed_sequences(const AttentionProblem& problem, Reasons* reasons) {
  if (!problem.packed || !problem.invariant) return true;
  reasons->push_back(
      "packed sequences of an invariant problem: sums of parts of the keys have their places by tiles of whole "
      "tensors; leave one of the two words out");
  return false;
}

}  // namespace attune
