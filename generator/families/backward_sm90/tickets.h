#pragma once

#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/families/backward_common/tile_sequence.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// The config with each number of blocks worth a trial that share a ticket, from 1 up, and with larger sections where
/// these need them; the config alone where it takes no tickets, or needs none. More blocks hold up the next tile.
std::vector<KernelConfig> with_ticket_choices(const AttentionProblem& problem, KernelConfig config,
                                              const DeviceSpec& device);

/// Steps that a slot spends, beside those it works, on tiles that wait for the ones behind them to be far enough ahead.
/// `steps`: of a tile, in the mean; `slots`: CTAs that run together.
double ticket_wait_steps(const AttentionProblem& problem, const KernelConfig& config, const TileSequence& sequence,
                         double steps, double slots);

}  // namespace attune
