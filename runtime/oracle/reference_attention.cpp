#include "runtime/oracle/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "generator/oracle/oracle_kernels.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"
#include "runtime/oracle/added_scores.h"
#include "runtime/oracle/device_oracle.h"
#include "runtime/oracle/dropout_mask.h"
#include "runtime/oracle/error_summary.h"
#include "runtime/oracle/parallel_for.h"
#include "runtime/oracle/sequences.h"
#include "runtime/oracle/unpacked.h"

namespace attune {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kRowsPerTask = 16;

// One query of a sequence. `added`: what the score of a key gains; `kept`: what its probability counts, after dropout;
// `sink`: -inf for none. `k` is (D, Skv), `v` is (Skv,
// D), both of the query's head; p is scratch for Skv values. Writes o and weight (D each).
template <typename Added, typename Kept>
double attend(const AttentionProblem& problem, const RowRange& keys, const double* q, const float* k, const float* v,
              const Added& added, const Kept& kept, double sink, std::vector<double>& p, double* o, double* weight) {
  const std::int64_t columns = problem.head_dim;
  std::fill_n(o, columns, 0.0);
  std::fill_n(weight, columns, 0.0);
  if (keys.size() == 0) return sink;
  std::fill(p.begin() + keys.begin, p.begin() + keys.end, 0.0);
  for (std::int64_t d = 0; d < columns; ++d) {
    const float* key = k + d * problem.seq_kv;
    for (std::int64_t j = keys.begin; j < keys.end; ++j) p[j] += q[d] * key[j];
  }
  const double scale = problem.softmax_scale, cap = problem.softcap;
  double maximum = sink;
  bool sees = false;
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    p[j] *= scale;
    if (cap != 0) p[j] = cap * std::tanh(p[j] / cap);
    p[j] += added(j);
    maximum = std::max(maximum, p[j]);
    sees = sees || p[j] != -kInfinity;  // also NaN, which the maximum does not keep
  }
  if (!sees) return sink;
  const double least_p = std::ldexp(1.0, oracle_least_exponent(problem));
  double sum = std::exp(sink - maximum);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) sum += p[j] = std::exp(p[j] - maximum);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    const float* value = v + j * columns;
    const double share = kept(j);
    for (std::int64_t d = 0; d < columns; ++d) {
      o[d] += share * p[j] * value[d];
      weight[d] += share * (p[j] + least_p) * std::abs(value[d]);
    }
  }
  for (std::int64_t d = 0; d < columns; ++d) {
    o[d] /= sum;
    weight[d] /= sum;
  }
  return maximum + std::log(sum);
}

ReferenceForward allocate_reference(const AttentionProblem& problem) {
  const auto rows = static_cast<std::size_t>(operand_shape(problem, Operand::lse).elements());
  const std::size_t elements = rows * static_cast<std::size_t>(problem.head_dim);
  return {std::vector<double>(elements), std::vector<double>(rows), std::vector<double>(elements)};
}

// What each of packed sequences gives alone, in tensors of its own. Rows in no sequence are zeros.
ReferenceForward reference_of_sequences(const AttentionProblem& problem, std::span<const std::uint16_t> q,
                                        std::span<const std::uint16_t> k, std::span<const std::uint16_t> v,
                                        const TermValues& terms) {
  ReferenceForward reference = allocate_reference(problem);
  for (const PackedSequence& sequence : packed_sequences_of(problem, terms)) {
    const AttentionProblem& alone = sequence.problem;
    const ReferenceForward result =
        reference_forward(alone, rows_of(problem, q, Operand::q, sequence.first_query, alone.seq_q),
                          rows_of(problem, k, Operand::k, sequence.first_key, alone.seq_kv),
                          rows_of(problem, v, Operand::v, sequence.first_key, alone.seq_kv), sequence.terms);
    for (std::int64_t head = 0; head < problem.heads_q; ++head) {
      for (std::int64_t row = 0; row < sequence.stored_queries; ++row) {
        const auto to = static_cast<std::size_t>(head * problem.seq_q + sequence.first_query + row),
                   from = static_cast<std::size_t>(head * alone.seq_q + row);
        const auto columns = static_cast<std::size_t>(problem.head_dim);
        reference.lse[to] = result.lse[from];
        std::copy_n(&result.o[from * columns], columns, &reference.o[to * columns]);
        std::copy_n(&result.weight[from * columns], columns, &reference.weight[to * columns]);
      }
    }
  }
  return reference;
}

}  // namespace

ReferenceForward reference_forward(const AttentionProblem& problem, std::span<const std::uint16_t> q,
                                   std::span<const std::uint16_t> k, std::span<const std::uint16_t> v,
                                   const TermValues& terms) {
  validate(problem);
  require_packed(problem, q, Operand::q, "q");
  require_packed(problem, k, Operand::k, "k");
  require_packed(problem, v, Operand::v, "v");
  require_terms(problem, terms);
  if (problem.packed) return reference_of_sequences(problem, q, k, v, terms);
  const std::vector<float> keys = unpack<float>(problem, k, Operand::k, true),
                           values = unpack<float>(problem, v, Operand::v, false);
  const TensorView q_view = packed_view(problem, Operand::q);
  const std::int64_t columns = problem.head_dim, group = problem.heads_q / problem.heads_kv;
  const std::int64_t tasks_per_head = ceil_div(problem.seq_q, kRowsPerTask);
  const std::vector<MaskGeometry> sequences = sequences_of(problem, terms);
  const std::span<const float> sinks = terms.of<float>(Operand::sinks);
  const AddedScores added(problem, terms);
  const DropoutMask dropout(problem, terms);
  ReferenceForward reference = allocate_reference(problem);

  parallel_for(static_cast<std::size_t>(problem.batch * problem.heads_q * tasks_per_head), [&](std::size_t task) {
    const auto batch_head = static_cast<std::int64_t>(task) / tasks_per_head,
               first = static_cast<std::int64_t>(task) % tasks_per_head * kRowsPerTask;
    const std::int64_t batch = batch_head / problem.heads_q, head = batch_head % problem.heads_q;
    const std::int64_t head_kv = (batch * problem.heads_kv + head / group) * problem.seq_kv * columns;
    std::vector<double> query(static_cast<std::size_t>(columns)), p(static_cast<std::size_t>(problem.seq_kv));
    for (std::int64_t row = first; row < std::min(first + kRowsPerTask, problem.seq_q); ++row) {
      const std::uint16_t* from =
          q.data() + batch * q_view.stride_batch + head * q_view.stride_head + row * q_view.stride_row;
      std::transform(from, from + columns, query.begin(),
                     [&](std::uint16_t bits) { return to_double(problem.dtype, bits); });
      const std::int64_t at = batch_head * problem.seq_q + row;
      reference.lse[at] = attend(
          problem, attended_keys(sequences[batch], row), query.data(), keys.data() + head_kv, values.data() + head_kv,
          [&](std::int64_t key) { return added.of(batch_head, row, key); },
          [&](std::int64_t key) { return dropout.of(batch_head, row, key); }, problem.sink ? sinks[head] : -kInfinity,
          p, reference.o.data() + at * columns, reference.weight.data() + at * columns);
    }
  });
  return reference;
}

ReferenceForward reference_forward_on_device(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                             const Tensors& tensors) {
  return make_device_reference(device, problem, tensors).to_host(*device);
}

}  // namespace attune
