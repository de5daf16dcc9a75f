#pragma once

#include <string>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// dQ / scale, in the order of elements that mma_sync/sums_* define; dK / scale and dV the same, over the query heads
/// of a group.
inline constexpr Buffer kDqSums{"d_q_sums", "float*"}, kDkSums{"d_k_sums", "float*"}, kDvSums{"d_v_sums", "float*"};

/// Whether dS lacks a division by the share that dropout keeps until dQ and dK are stored, as statistics hold delta
/// times the share. dS that is itself a gradient is divided at once.
bool divides_at_store(const AttentionProblem& problem, const KernelConfig& config);
/// By what the sums of dQ and dK are multiplied when they are stored.
std::string ds_scale(const AttentionProblem& problem, const KernelConfig& config);

/// The launch of kernels/backward_convert, not rendered yet: dQ from its sums, or with `of_keys` dK and dV from theirs,
/// for the config's blocks of queries or tiles of keys; and what its template is bound to beside the type and the head
/// dim. transposed: the sums lie as mma_sync/sums_place_transposed says. programmatic: it may begin while the kernel
/// before it runs, and waits for that one's sums. followed: a programmatic launch follows, which may begin when this
/// one's CTAs have seen the end of the launch before.
KernelLaunch convert_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            bool of_keys, bool transposed, bool programmatic, bool followed,
                            TemplateBindings* bindings);

/// The partial mma_sync/sums_* by which a device adds to sums: four elements of a lane at once, or one by one.
const char* sums_order(const DeviceSpec& device);

}  // namespace attune
