#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/ladder/attention_algorithm.h"
#include "runtime/device.h"
#include "runtime/oracle/term_values.h"
#include "tests/kernels/data_kinds.h"

namespace attune::tests {

/// How the four tensors lie in memory.
enum class Placement {
  packed,    ///< in problem.layout
  padded,    ///< gaps after each row, head and batch entry; absurd strides for dimensions of extent 1
  reversed,  ///< rows from the last to the first; heads of K too; V is the same for all batch entries
};

/// One call of the forward kernel, with everything that can vary about it.
struct ForwardCase {
  AttentionProblem problem;
  KernelConfig config;
  std::optional<AttentionAlgorithm> algorithm;  ///< instead of the config
  bool looked_up = false;                       ///< instead of the config: what a call of the problem finds
  Placement placement = Placement::packed;
  bool with_lse = true;
  std::optional<DataKind> data;  ///< instead of the following fields as far as v_exponent
  double q_deviation = 1;        ///< standard deviation of Q; K and V have 1
  std::int64_t loud_key = -1;    ///< a key that is multiplied by loudness, in every head; -1: none
  double loudness = 1;
  double shift = 0;  ///< of the mean of the unscaled scores: Q and K have means of opposite signs if it is negative
  std::optional<double> sink;  ///< what the heads' sinks are near; else what the rows' LSE is near
  int v_exponent = 0;          ///< V is multiplied by so many powers of two
  std::uint32_t seed = 1;
};
std::string to_string(const ForwardCase& test);

/// A tensor's memory on the host and how to find an element in it.
struct TensorImage {
  std::vector<std::uint16_t> memory;  ///< elements of no row are NaN
  std::int64_t origin = 0;            ///< of element (0, 0, 0, 0)
  TensorView strides;
  std::vector<bool> used;  ///< whether an element belongs to a row

  std::int64_t index(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return origin + b * strides.stride_batch + h * strides.stride_head + s * strides.stride_row;
  }
};

struct ForwardData {
  TensorImage q, k, v, o;
  TermValues terms;  ///< some used lengths are no lengths
};
ForwardData make_data(const ForwardCase& test);

/// What a problem's terms read. Sinks: each head's another one of four, within 1.25 of `sinks_near`, or of what LSE is
/// near. Used lengths: some of them 0, all or none of these; those of queries, or of keys, are left out of some calls.
TermValues make_terms(const AttentionProblem& problem, std::uint32_t seed, std::optional<double> sinks_near);

/// What a number of used lengths stands for, of `all` rows of batch entry b.
std::int64_t used_rows(std::span<const std::int32_t> lengths, std::int64_t b, std::int64_t all);

/// A row of a tensor: whose it is, where it is there, and how many rows of that count.
struct SequenceRow {
  std::int64_t sequence = -1;  ///< the batch entry, or one of packed sequences, the last also behind it; -1: of none
  std::int64_t position = 0, used = 0;

  bool counts() const { return sequence >= 0 && position < used; }
};
/// That of batch entry b's row of queries, or of keys.
SequenceRow row_of(const AttentionProblem& problem, const TermValues& terms, bool of_queries, std::int64_t b,
                   std::int64_t row);

/// Whether a query sees a key, of batch entry b.
bool attends(const AttentionProblem& problem, const TermValues& terms, std::int64_t b, std::int64_t query,
             std::int64_t key);

/// The elements of Q or O (`operand` is one of these), or of K or V, in an image of memory: (B, H, S, D).
std::vector<double> unpacked(const AttentionProblem& problem, Operand operand, const TensorImage& image,
                             const std::vector<std::uint16_t>& memory);

/// Scalar attention in double precision on the rounded inputs. Packed (B, Hq, Sq, D) and (B, Hq, Sq).
struct Expected {
  std::vector<double> o, weight;        ///< weight: sum of (p + h/u) |v|, see forward_case.cpp
  std::vector<double> lse, lse_weight;  ///< the latter: scale sum_j p_j sum_d |q k|, what fp32 sums to get the scores
};
Expected expected_forward(const ForwardCase& test, const ForwardData& data);

/// What a call left in memory, guards included.
struct ForwardResult {
  std::vector<std::uint16_t> q, k, v, o;  ///< whole images
  std::vector<float> lse;                 ///< with kLseGuard elements before and after
  bool terms_changed = false;
};
constexpr std::size_t kLseGuard = 16;

ForwardResult run_forward(AttentionRuntime& runtime, const ForwardCase& test, const ForwardData& data,
                          Stream stream = nullptr);

/// Empty if the result is right: every output element written and within its bound, nothing else touched.
std::string complaint(const ForwardCase& test, const ForwardData& data, const Expected& expected,
                      const ForwardResult& result);

/// Whether two results agree in every bit.
bool same_bits(const ForwardResult& a, const ForwardResult& b);

}  // namespace attune::tests
