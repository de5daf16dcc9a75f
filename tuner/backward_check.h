#pragma once

#include <cstdint>
#include <vector>

#include "attune/attention.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {

/// Runs a prepared backward plan once on random inputs, packed in problem.layout, with a gradient of LSE, and compares
/// dQ, dK and dV with the CPU's oracle, which takes its time on large problems. Outputs are poisoned, with guards
/// around them, before; that an input or a guard was overwritten is an output's complaint. Throws Error.
std::vector<OutputErrors> check_backward(AttentionRuntime& runtime, const PreparedAttention& prepared,
                                         const AttentionProblem& problem, std::uint64_t seed);

}  // namespace attune
