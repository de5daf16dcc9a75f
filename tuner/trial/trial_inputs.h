#pragma once

#include <cstdint>

#include "runtime/oracle/term_values.h"
#include "tuner/trial/default_forward.h"
#include "tuner/trial/trial_tensors.h"

namespace attune {

/// Fills all copies of a problem's inputs: q, k, v, dO and dLSE with random normal numbers of `seed`, O and LSE of a
/// backward problem with what its forward gives, by `forward`'s kernel on a GPU, else by the oracle. `oracle` is that
/// of a GPU, else null. `terms`: what its terms read. Throws Error.
void fill_trial_inputs(TrialTensors& tensors, const AttentionProblem& problem, std::uint64_t seed,
                       const TermValues& terms, DeviceOracle* oracle, DefaultForward& forward);

}  // namespace attune
