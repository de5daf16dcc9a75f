#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// What the templates of every forward kernel name: dtype, mask, order of tiles, whether keys are split.
void bind_forward(const AttentionProblem& problem, const KernelConfig& config, TemplateBindings* bindings);

/// How the rows of an invariant problem are summed, and that those of another are not.
void bind_invariance(const AttentionProblem& problem, const KernelConfig& config, TemplateBindings* bindings);

/// Those of the members of ScoreTerms that the problem's have.
std::string initializers(const AttentionProblem& problem, const std::string& alibi, const std::string& pairs);

/// The name of the template that is bound for a choice: its word, with '_' for '-'.
std::string partial_name(std::string_view word);

/// Bytes of K and V that TileOrder::l2_sections_reversed counts on to stay in L2.
std::size_t section_bytes(const KernelConfig& config, const DeviceSpec& device);
}  // namespace attune
