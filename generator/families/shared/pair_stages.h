#pragma once

#include <initializer_list>
#include <vector>

#include "generator/families/kernel_family.h"

namespace attune {

/// The config with tiles of tensors of pairs or without, as the cost model takes it to be faster, and with one stage
/// less of others where shared memory holds no more. One that has tiles keeps them, where the problem has such tensors.
KernelConfig with_pair_stages(const AttentionProblem& problem, const DeviceSpec& device, const KernelConfig& config);

/// How many stages of tiles a space offers: of a problem with tensors of pairs none and these, else none.
std::vector<int> pair_stage_choices(const AttentionProblem& problem, std::initializer_list<int> stages);

/// KernelFamily::adapt's last step: with_pair_stages(), and what to say of it.
void adapt_pair_stages(const Question& question, Adaptation* adaptation);

/// Stages of tiles of tensors that the problem has not.
void check_pair_stages(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons);

}  // namespace attune
