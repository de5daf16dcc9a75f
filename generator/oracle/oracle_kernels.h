#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"
#include "generator/text/template_set.h"

namespace attune {

/// What the oracle's kernels are handed beside operands. Outputs of the reference kernel of forward:
inline constexpr Buffer kOFp64{"o_fp64", "double*"}, kLseFp64{"lse_fp64", "double*"},
    kWeightFp64{"weight_fp64", "double*"};
/// and of those of the gradients, which read them: all values, then all weights.
inline constexpr Buffer kDqFp64{"d_q_fp64", "double*"}, kDkFp64{"d_k_fp64", "double*"}, kDvFp64{"d_v_fp64", "double*"},
    kDbiasFp64{"d_bias_fp64", "double*"};
inline constexpr Buffer kRowStatisticsFp64{"row_statistics", "double*"};  ///< what these kernels leave of each query
inline constexpr Buffer kPartials{"partials", "void*"};  ///< where each CTA of a check leaves its part of the result
inline constexpr Buffer kElements{"elements", "u16*"};   ///< of 16 bits: what a checksum reads or randomness fills
/// Bounds.
inline constexpr Given kUnitRoundoff{"unit_roundoff", "double"}, kStoredRoundoff{"stored_roundoff", "double"},
    kSmallestStep{"smallest_step", "double"};
/// How many random elements there are; their copies lie copy_stride elements apart.
inline constexpr Given kElementCount{"element_count", "i64"}, kCopies{"copies", "i64"},
    kCopyStride{"copy_stride", "i64"}, kSeed{"seed", "u64"};

/// What becomes of a product q·k in the reference's kernels: the partial templates/oracle/score_*, the formula, and
/// what it is computed with.
std::string oracle_score(const AttentionProblem& problem);
std::string oracle_score_formula(const AttentionProblem& problem);
/// What templates/oracle/added_score names: what a score gains beside its product.
void bind_oracle_added(const AttentionProblem& problem, TemplateBindings* bindings);
/// The partial templates/oracle/sequence_*: whose rows count.
std::string oracle_lengths(const AttentionProblem& problem);
void append_oracle_score(Arguments* fields, const AttentionProblem& problem);

/// The exponent of two of n, by how much a forward kernel's P may be wrong however small it is, over its unit roundoff:
/// the dtype's smallest normal number. Where a sink outweighs all keys, their P is small beside it in fp32, which the
/// GPU flushes below 2^-126: bf16 would otherwise be bounded by more than that. So are those that dropout leaves of a
/// row whose large ones it drops.
int oracle_least_exponent(const AttentionProblem& problem);

/// CTAs of the kernels below at most: each leaves one partial result.
constexpr int kMaxOracleCtas = 1024;

/// Compares an output of the shape's element and columns with a reference in double precision, both in device memory:
/// an error summary for each CTA. It is launched as of a problem whose queries have the shape, and whose O it is.
KernelLaunch generate_comparison(const OperandShape& shape, const DeviceSpec& device,
                                 const TemplateSet& templates = TemplateSet::embedded(),
                                 KernelTarget target = KernelTarget::cuda);

/// What large backward problems are checked against, in two launches: dQ by tiles of queries, then dK and dV by tiles
/// of keys, each gradient with the weights that its bounds are relative to, from the results of generate_reference().
/// What a query's keys share goes from one to the other (kRowStatistics doubles for each query), the noise of the
/// gradients to `partials`: a double for each query, then (another buffer, or the same again) two for each key, of dK
/// and of dV.
std::vector<KernelLaunch> generate_backward_reference(const AttentionProblem& problem, const DeviceSpec& device,
                                                      const TemplateSet& templates = TemplateSet::embedded(),
                                                      KernelTarget target = KernelTarget::cuda);

/// The same of the gradient of the bias, from what the first of these two leaves; the noise to `partials`, a double for
/// each CTA.
KernelLaunch generate_bias_reference(const AttentionProblem& problem, const DeviceSpec& device,
                                     const TemplateSet& templates = TemplateSet::embedded(),
                                     KernelTarget target = KernelTarget::cuda);
constexpr std::int64_t kRowStatistics = 3;

/// A checksum of 16-bit elements: a sum of 64 bits for each CTA. The grid is grid_of_elements().
KernelLaunch generate_checksum(const DeviceSpec& device, const TemplateSet& templates = TemplateSet::embedded(),
                               KernelTarget target = KernelTarget::cuda);

/// Random normal numbers, rounded to dtype, into any number of copies of a tensor. The grid is grid_of_elements().
KernelLaunch generate_random_normal(DataType dtype, const DeviceSpec& device,
                                    const TemplateSet& templates = TemplateSet::embedded(),
                                    KernelTarget target = KernelTarget::cuda);

/// CTAs of a checksum of so many elements, and of as many random ones.
std::uint32_t grid_of_elements(std::int64_t count);

}  // namespace attune
