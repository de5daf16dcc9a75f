#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/attention_problem.h"
#include "runtime/device.h"

namespace attune {

/// What a forward kernel should have computed, in double precision from the same rounded inputs. Packed (B, Hq, Sq, D)
/// and (B, Hq, Sq), always in this order whatever the problem's layout.
struct ReferenceForward {
  std::vector<double> o;
  std::vector<double> lse;
  std::vector<double> weight;  ///< sum of p |v| of each element of o: what its error bound is relative to
};

/// Scalar code on the CPU, all cores. q, k, v hold packed tensors in problem.layout.
ReferenceForward reference_forward(const AttentionProblem& problem, std::span<const std::uint16_t> q,
                                   std::span<const std::uint16_t> k, std::span<const std::uint16_t> v);

/// The same by the generated fp64 kernel on the device, for large shapes. `tensors` need q, k and v.
ReferenceForward reference_forward_on_device(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                             const ForwardTensors& tensors);

/// Errors of one output against the reference.
struct OutputErrors {
  std::string name;     ///< "o", "lse"
  double relative = 0;  ///< ||x - ref|| / ||ref|| (0 / 0 = 0)
  double max_abs = 0;
  double worst_ratio = 0;  ///< largest elementwise |x - ref| / bound
  std::int64_t worst_index = -1;
  double relative_bound = 0;
  bool within = false;
  std::string complaint;  ///< a sentence if not within: which bound, which element, both values
};

struct ForwardErrors {
  std::vector<OutputErrors> outputs;
  bool within() const;
};

/// The bounds of a correct forward (u is the unit roundoff of the dtype, 2^-8 for bf16 and 2^-11 for fp16):
///   ||o - ref|| / ||ref|| <= 3e-3 (bf16), 4e-4 (fp16);   |o - ref| <= 2u sum(p|v|) + u |ref| elementwise;
///   |lse - ref| <= 1e-5 + 1e-6 |ref|, and -inf exactly where the reference has it. NaN is never within.
/// `o` is packed in problem.layout, lse (B, Hq, Sq); an empty lse is not compared.
ForwardErrors compare_forward(const AttentionProblem& problem, const ReferenceForward& reference,
                              std::span<const std::uint16_t> o, std::span<const float> lse);

/// Conversions between storage and double, round to nearest even; NaN and infinities kept.
double to_double(DataType dtype, std::uint16_t bits);
std::uint16_t from_double(DataType dtype, double value);

/// Random normal values rounded to dtype; the same seed and count give the same bits on any machine.
std::vector<std::uint16_t> random_normal(DataType dtype, std::size_t count, std::uint64_t seed);

}  // namespace attune
