#pragma once

#include "generator/families/kernel_family.h"

namespace attune {

/// The family's row of kernel_families(), and its parts that stand in files of their own.
KernelFamily backward_sm90_family();

void check_backward_sm90(const Question& question, const KernelConfig& config, Reasons* reasons);
void enumerate_backward_sm90(const Question& question, SpaceExtent extent, std::vector<KernelConfig>* configs);

}  // namespace attune
