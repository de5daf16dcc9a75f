#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/problem/attention_problem.h"
#include "runtime/device.h"
#include "runtime/oracle/term_values.h"

namespace attune {

/// What a forward kernel should have computed, in double precision from the same rounded inputs. Packed (B, Hq, Sq, D)
/// and (B, Hq, Sq), always in this order whatever the problem's layout.
struct ReferenceForward {
  std::vector<double> o;
  std::vector<double> lse;
  /// What the error bound of each element of o is relative to: the sum of (p + n / l) |v|, where n is two
  /// to the power of oracle_least_exponent() and l the sum of exp(s - max s). A kernel's P is p l or more.
  std::vector<double> weight;
};

/// Scalar code on the CPU, all cores. q, k, v hold packed tensors in problem.layout; `terms` what the problem's terms
/// read. Throws Error(invalid_argument) for tensors of a wrong size.
ReferenceForward reference_forward(const AttentionProblem& problem, std::span<const std::uint16_t> q,
                                   std::span<const std::uint16_t> k, std::span<const std::uint16_t> v,
                                   const TermValues& terms = {});

/// The same by the generated fp64 kernel on the device, for large shapes. `tensors` need q, k and v, and what its
/// terms read.
ReferenceForward reference_forward_on_device(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                             const Tensors& tensors);

/// Errors of one output against the reference.
struct OutputErrors {
  std::string name;     ///< "o", "lse", "dq", "dsinks"
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

/// The bounds of a correct forward (u is the unit roundoff of the dtype, 2^-8 for bf16 and 2^-11 for fp16; h is half of
/// its smallest subnormal number):
///   ||o - ref||^2 <= r^2 ||ref||^2 + n h^2, r = 3e-3 (bf16), 4e-4 (fp16), of n elements: those that are tiny, beside a
///   sink, are rounded by steps;   |o - ref| <= 2u weight + u |ref| + h elementwise;
///   |lse - ref| <= 1e-5 + 1e-6 |ref|, and -inf exactly where the reference has it; with ALiBi 2^-15 more. NaN is never
///   within.
/// The first is of an average: rounding costs 0.41 u of the norm for O and, spread evenly over the keys and the places
/// in a binade, no more for P. Where one key outweighs the others, all of its row has the error of that key's P, at
/// most u, and fewer than 256 rows average too little: then 1.1 u, which is u and 0.41 u added in squares. `o` is
/// packed in problem.layout, lse (B, Hq, Sq); an empty lse is not compared.
ForwardErrors compare_forward(const AttentionProblem& problem, const ReferenceForward& reference,
                              std::span<const std::uint16_t> o, std::span<const float> lse);

/// What the gradients are taken of: the loss whose derivatives by O and LSE are d_o and d_lse.
/// Packed tensors in problem.layout, d_o as O; d_lse is (B, Hq, Sq), or empty: the loss does not depend on LSE.
struct BackwardInputs {
  std::span<const std::uint16_t> q, k, v, d_o;
  std::span<const float> d_lse;
  TermValues terms = {};
};

/// One gradient in double precision, (B, H, S, D) in this order whatever the problem's layout.
struct ReferenceGradient {
  std::vector<double> value;
  std::vector<double> weight;  ///< of each element: what its error bound is relative to
  double noise_squares = 0;    ///< of all elements: the errors, squared, that remain where a gradient cancels
};

/// The gradient of sinks in double precision, (Hq), and what a correct kernel may be off; both empty without sinks.
struct ReferenceSinkGradient {
  std::vector<double> value, bound;
};

struct ReferenceBackward {
  ReferenceGradient d_q, d_k, d_v;
  ReferenceSinkGradient d_sinks;
  ReferenceGradient d_bias;  ///< of the bias's shape; empty where its gradient is not wanted
};

/// Scalar code on the CPU, all cores, from the same rounded inputs as a kernel's, but with an O and LSE of its own in
/// double:
///   P = exp(scale Q K^T - LSE)   delta = rowsum(dO o O) - dLSE   dS = P o (dO V^T - delta)
///   dV = P^T dO   dQ = scale dS K   dK = scale dS^T Q   (dK and dV summed over the query heads of a group)
///   dsink = -sum(exp(sink - LSE) delta) over the batch and the queries of its head
///   dbias = P o (dO V^T - delta), summed over what the bias repeats along
/// Queries that see nothing and keys that nobody sees have gradients of 0; dLSE of the former is not looked at.
ReferenceBackward reference_backward(const AttentionProblem& problem, const BackwardInputs& inputs);

struct BackwardErrors {
  std::vector<OutputErrors> outputs;  ///< dq, dk, dv, and dsinks and dbias of a problem that has them
  bool within() const;
};

/// The bounds of a correct backward that rounds P and dS to the dtype before their products, is handed an O that was
/// rounded to it, and sums in fp32. With u as in compare_forward(). For fp16 so is h; for bf16 it is 2^-119: kernels
/// flush a P below 2^-126, fp32's smallest normal number, to zero, and |dP - delta|, up to 2^8 here, multiplies what P
/// has lost.
///
/// Each element: |x - ref| <= 2u w + u |ref| + h. The last two are the rounding of the result. In w stands what the
/// roundings before it cost at most, taken twice because fp32 sums, LSE and exponentials err too (by far less):
///   dV: sum_i (P + h/u) |dO|. A rounded P is off by at most u P + h (P <= 1 is not scaled by its row's maximum, as
///       forward's is: in long rows of fp16 it is subnormal).
///   dQ: scale sum_j (|dS| + g/u + P e/2) |K|, dK: scale sum_i (|dS| + g/u + P e/2) |Q|, g = h (1 + |dP - delta|): a
///       kernel may multiply by the rounded P, too. Delta, the same number for a whole row, is off by u e = sum_d |dO|
///       (2u sum_j(p|v|) + u|o| + h) if O is as wrong as compare_forward() allows. It is subtracted from dP, which it
///       may cancel: with one key dS is 0, and what is left is this.
///
/// All elements: ||x - ref||^2 <= r^2 ||ref||^2 + noise^2, r = 4e-3 (bf16), 6e-4 (fp16). Rounding errors are
/// independent and spread evenly over a step, so that each rounding costs at most 0.41 u of the norm (u/sqrt 3,
/// averaged over the places in a binade) and the two of P or dS and of the result 0.58 u: 2.3e-3 and 2.8e-4. The noise
/// is of terms that do not shrink with the gradient: P times the likely error of delta, u sqrt(sum_d dO^2 (o^2 +
/// sum_j(p^2 v^2) + (h/u)^2)), and h or g for each rounded P or dS, added in squares. Fewer than 256 attended pairs are
/// too few for such an average: then the elements' bounds alone count. NaN is never within. Throws
/// Error(invalid_argument) for tensors of a wrong size.
///
/// A sink: |x - ref| <= min(sum P u e, 8 sqrt(sum (P noise of delta)^2)) + sum 2 P |delta| (1e-5 + 1e-6 |LSE|) + 1e-30,
/// P = exp(sink - LSE), over all its rows: what delta's errors come to, at most or as independent ones, and what those
/// of LSE and the sum.
///
/// A bias: |x - ref| <= 2u w + u' |ref| + h', with u' and h' of its own type and sum (|P (dP - delta)| + g/u + P e/2)
/// over the pairs of an element in w; all elements as those of other gradients, with the noise of P times the likely
/// error of delta and of g, of each pair. `d_bias` is packed.
BackwardErrors compare_backward(const AttentionProblem& problem, const ReferenceBackward& reference,
                                std::span<const std::uint16_t> d_q, std::span<const std::uint16_t> d_k,
                                std::span<const std::uint16_t> d_v, std::span<const float> d_sinks = {},
                                std::span<const std::byte> d_bias = {});

/// Conversions between storage and double, round to nearest even; NaN and infinities kept.
double to_double(DataType dtype, std::uint16_t bits);
std::uint16_t from_double(DataType dtype, double value);

/// Random normal values rounded to dtype; the same seed and count give the same bits on any machine.
std::vector<std::uint16_t> random_normal(DataType dtype, std::size_t count, std::uint64_t seed);

}  // namespace attune
