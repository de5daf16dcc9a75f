// Two passes, as a kernel without races has them: over queries for dQ and what a row's keys share, over keys for dK and
// dV.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"
#include "runtime/oracle/added_scores.h"
#include "runtime/oracle/dropout_mask.h"
#include "runtime/oracle/error_summary.h"
#include "runtime/oracle/output_bounds.h"
#include "runtime/oracle/parallel_for.h"
#include "runtime/oracle/reference_attention.h"
#include "runtime/oracle/sequences.h"
#include "runtime/oracle/sink_gradient.h"
#include "runtime/oracle/unpacked.h"

namespace attune {
namespace {

constexpr std::int64_t kRowsPerTask = 16;
// Rows whose keys are all hidden, or of whose scores the bias leaves nothing, have a smaller LSE and no gradient.
constexpr double kVanishingLse = -0x1p100;

// a[i] += x b[i]
void add_scaled(double* a, double x, const double* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) a[i] += x * b[i];
}

void add_scaled_abs(double* a, double x, const double* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) a[i] += x * std::abs(b[i]);
}

void add_scaled_squares(double* a, double x, const double* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) a[i] += x * b[i] * b[i];
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

class Backward {
 public:
  Backward(const AttentionProblem& problem, const BackwardInputs& inputs)
      : problem_(problem),
        sequences_(sequences_of(problem, inputs.terms)),
        columns_(problem.head_dim),
        group_(problem.heads_q / problem.heads_kv),
        rows_(problem.batch * problem.heads_q * problem.seq_q),
        unit_(gradient_bounds_of(problem.dtype).unit_roundoff),
        step_(gradient_bounds_of(problem.dtype).smallest_step),
        step_of_ds_(1 / (1 - static_cast<double>(problem.dropout))),
        forward_(reference_forward(problem, inputs.q, inputs.k, inputs.v, inputs.terms)),
        terms_(inputs.terms),
        added_(problem, terms_),
        dropout_(problem, terms_),
        q_(unpack<double>(problem, inputs.q, Operand::q, false)),
        k_(unpack<double>(problem, inputs.k, Operand::k, false)),
        v_(unpack<double>(problem, inputs.v, Operand::v, false)),
        d_o_(unpack<double>(problem, inputs.d_o, Operand::o, false)),
        delta_(static_cast<std::size_t>(rows_)),
        delta_error_(delta_.size()),
        delta_noise_(delta_.size()) {
    const auto allocate = [](ReferenceGradient& gradient, std::size_t count) {
      gradient.value.assign(count, 0.0);
      gradient.weight.assign(count, 0.0);
    };
    allocate(result_.d_q, q_.size());
    allocate(result_.d_k, k_.size());
    allocate(result_.d_v, v_.size());
    for (std::int64_t row = 0; row < rows_; ++row) {
      if (is_outside(row)) continue;  // delta is 0, whatever lies there
      const std::int64_t at = row * columns_;
      double delta = 0, error = 0;
      for (std::int64_t d = at; d < at + columns_; ++d) {
        const double o = forward_.o[d];
        delta += d_o_[d] * o;
        error += std::abs(d_o_[d]) * (2 * forward_.weight[d] + std::abs(o) + step_ / unit_);
      }
      delta_[row] = delta - (inputs.d_lse.empty() ? 0.0 : inputs.d_lse[row]);
      delta_error_[row] = error;
    }
  }

  ReferenceBackward run() {
    over_queries();
    over_keys();
    if (problem_.bias_gradient) over_bias();
    result_.d_sinks = sink_gradient(problem_, terms_.of<float>(Operand::sinks), statistics());
    return std::move(result_);
  }

  // After run().
  QueryStatistics statistics() const { return {forward_.lse, delta_, delta_error_, delta_noise_}; }

 private:
  struct Pair {
    double p = 0, slope = 0;  // slope: P times the derivative of the score
    double ds = 0;
    double difference = 0;  // dP - delta
    // The error of ds, where P or dS is so small that the dtype holds few of its bits, and by the tanh of a softcap.
    double lost = 0;
    double share = 1;  // what P counts in O and dV, and dP in dS
  };

  const MaskGeometry& sequence_of(std::int64_t query) const {
    return sequences_[query / (problem_.heads_q * problem_.seq_q)];
  }
  // Whether a query (of all heads) lies behind the last one of its sequence.
  bool is_outside(std::int64_t query) const { return query % problem_.seq_q >= sequence_of(query).seq_q; }

  // A query and a key that it attends to, both counted through all heads.
  Pair pair(std::int64_t query, std::int64_t key) const {
    const double *q = &q_[query * columns_], *k = &k_[key * columns_], *v = &v_[key * columns_],
                 *d_o = &d_o_[query * columns_];
    double score = 0, dp = 0;
    for (std::int64_t d = 0; d < columns_; ++d) {
      score += q[d] * k[d];
      dp += d_o[d] * v[d];
    }
    const double scaled = problem_.softmax_scale * score, cap = problem_.softcap;
    if (forward_.lse[query] <= kVanishingLse) return {};
    const double added = added_.of(query / problem_.seq_q, query % problem_.seq_q, key % problem_.seq_kv);
    const double share = dropout_.of(query / problem_.seq_q, query % problem_.seq_q, key % problem_.seq_kv),
                 difference = share * dp - delta_[query];
    if (cap == 0) {
      const double p = std::exp(scaled + added - forward_.lse[query]);
      return {p, p, p * difference, difference, step_ * (step_of_ds_ + std::abs(difference)), share};
    }
    const double cosine = std::cosh(scaled / cap), derivative = 1 / (cosine * cosine);
    const double p = std::exp(cap * std::tanh(scaled / cap) + added - forward_.lse[query]);
    return {p,
            p * derivative,
            p * derivative * difference,
            difference,
            step_ * (step_of_ds_ + std::abs(difference)) + kTanhError * (1 - derivative) * p * std::abs(difference),
            share};
  }

  double weight_of(const Pair& pair, std::int64_t query) const {
    return std::abs(pair.ds) + pair.lost / unit_ + pair.slope * delta_error_[query] / 2;
  }

  void over_queries() {
    const double scale = problem_.softmax_scale;
    const std::int64_t tasks = ceil_div(rows_, kRowsPerTask);
    std::vector<double> noise(static_cast<std::size_t>(tasks));
    parallel_for(noise.size(), [&](std::size_t task) {
      std::vector<double> p(static_cast<std::size_t>(problem_.seq_kv)), mean(static_cast<std::size_t>(columns_)),
          squares(mean.size());
      const std::int64_t first = static_cast<std::int64_t>(task) * kRowsPerTask;
      for (std::int64_t query = first; query < std::min(first + kRowsPerTask, rows_); ++query) {
        if (is_outside(query)) continue;
        const std::int64_t head = query / problem_.seq_q, at = query * columns_;
        const RowRange keys = attended_keys(sequence_of(query), query % problem_.seq_q);
        // The first key of batch and head: heads of all batch entries follow each other, on both sides.
        const std::int64_t first_key = head / group_ * problem_.seq_kv;
        double *value = &result_.d_q.value[at], *weight = &result_.d_q.weight[at];
        std::fill(mean.begin(), mean.end(), 0.0);
        std::fill(squares.begin(), squares.end(), 0.0);
        double lost_squares = 0;
        for (std::int64_t j = keys.begin; j < keys.end; ++j) {
          const double* k = &k_[(first_key + j) * columns_];
          const Pair at_key = pair(query, first_key + j);
          add_scaled(value, scale * at_key.ds, k, columns_);
          add_scaled_abs(weight, scale * weight_of(at_key, query), k, columns_);
          add_scaled(mean.data(), at_key.slope, k, columns_);
          const double kept = at_key.share * at_key.p;
          add_scaled_squares(squares.data(), kept * kept, &v_[(first_key + j) * columns_], columns_);
          double k_squares = 0;
          add_squares(k, &k_squares);
          lost_squares += k_squares * at_key.lost * at_key.lost;
        }
        double likely = 0, mean_squares = 0;
        add_squares(mean.data(), &mean_squares);
        for (std::int64_t d = 0; d < columns_; ++d) {
          const double o = forward_.o[at + d], d_o = d_o_[at + d];
          likely += d_o * d_o * (o * o + squares[d] + step_ / unit_ * (step_ / unit_));
        }
        delta_noise_[query] = unit_ * unit_ * likely;
        noise[task] += scale * scale * (mean_squares * delta_noise_[query] + lost_squares);
      }
    });
    result_.d_q.noise_squares = sum_of(noise);
  }

  void over_keys() {
    const double scale = problem_.softmax_scale;
    const std::int64_t all_keys = problem_.batch * problem_.heads_kv * problem_.seq_kv;
    const std::int64_t tasks = ceil_div(all_keys, kRowsPerTask);
    std::vector<double> noise_k(static_cast<std::size_t>(tasks)), noise_v(noise_k.size());
    parallel_for(noise_k.size(), [&](std::size_t task) {
      const std::int64_t first = static_cast<std::int64_t>(task) * kRowsPerTask;
      for (std::int64_t key = first; key < std::min(first + kRowsPerTask, all_keys); ++key) {
        const std::int64_t head_kv = key / problem_.seq_kv, at = key * columns_;
        const RowRange queries = attending_queries(sequences_[head_kv / problem_.heads_kv], key % problem_.seq_kv);
        for (std::int64_t row = 0; row < group_ * problem_.seq_q; ++row) {
          if (!queries.contains(row % problem_.seq_q)) continue;
          const std::int64_t query = head_kv * group_ * problem_.seq_q + row;
          const double *q = &q_[query * columns_], *d_o = &d_o_[query * columns_];
          const Pair at_query = pair(query, key);
          add_scaled(&result_.d_k.value[at], scale * at_query.ds, q, columns_);
          add_scaled_abs(&result_.d_k.weight[at], scale * weight_of(at_query, query), q, columns_);
          const double share = at_query.share;
          add_scaled(&result_.d_v.value[at], share * at_query.p, d_o, columns_);
          add_scaled_abs(&result_.d_v.weight[at], share * (at_query.p + step_ / unit_), d_o, columns_);
          double q_squares = 0, d_o_squares = 0;
          add_squares(q, &q_squares);
          add_squares(d_o, &d_o_squares);
          noise_k[task] += scale * scale * q_squares *
                           (at_query.slope * at_query.slope * delta_noise_[query] + at_query.lost * at_query.lost);
          noise_v[task] += d_o_squares * share * step_ * share * step_;
        }
      }
    });
    result_.d_k.noise_squares = sum_of(noise_k);
    result_.d_v.noise_squares = sum_of(noise_v);
  }

  // By rows of the bias, of all batch entries, heads and queries along which it repeats.
  void over_bias() {
    const OperandShape shape = operand_shape(problem_, Operand::d_bias);
    result_.d_bias.value.assign(static_cast<std::size_t>(shape.elements()), 0.0);
    result_.d_bias.weight.assign(result_.d_bias.value.size(), 0.0);
    std::vector<double> noise(static_cast<std::size_t>(shape.all_rows()));
    parallel_for(noise.size(), [&](std::size_t task) {
      const auto row = static_cast<std::int64_t>(task), plane = row / shape.rows;
      const auto range = [](std::int64_t extent, std::int64_t all, std::int64_t at) {
        return extent == all ? RowRange{at, at + 1} : RowRange{0, all};
      };
      const RowRange batch = range(shape.batch, problem_.batch, plane / shape.heads),
                     heads = range(shape.heads, problem_.heads_q, plane % shape.heads),
                     queries = range(shape.rows, problem_.seq_q, row % shape.rows);
      double *value = &result_.d_bias.value[row * shape.columns], *weight = &result_.d_bias.weight[row * shape.columns];
      for (std::int64_t b = batch.begin; b < batch.end; ++b) {
        for (std::int64_t h = heads.begin; h < heads.end; ++h) {
          for (std::int64_t i = queries.begin; i < queries.end; ++i) {
            const std::int64_t query = (b * problem_.heads_q + h) * problem_.seq_q + i;
            const std::int64_t first_key = (b * problem_.heads_kv + h / group_) * problem_.seq_kv;
            if (is_outside(query)) continue;
            const RowRange keys = attended_keys(sequence_of(query), i);
            for (std::int64_t j = keys.begin; j < keys.end; ++j) {
              const Pair at = pair(query, first_key + j);
              value[j] += at.p * at.difference;
              const double lost = at.lost - step_ * (step_of_ds_ - 1);  // its own dS is divided before it is rounded
              weight[j] += std::abs(at.p * at.difference) + lost / unit_ + at.p * delta_error_[query] / 2;
              noise[task] += at.p * at.p * delta_noise_[query] + lost * lost;
            }
          }
        }
      }
    });
    result_.d_bias.noise_squares = sum_of(noise);
  }

  void add_squares(const double* values, double* sum) const {
    for (std::int64_t d = 0; d < columns_; ++d) *sum += values[d] * values[d];
  }

  const AttentionProblem problem_;
  const std::vector<MaskGeometry> sequences_;  // of the batch entries
  const std::int64_t columns_, group_, rows_;  // rows_: queries of all heads
  // Dropout's kernels divide by the share that is kept what they have rounded.
  const double unit_, step_, step_of_ds_;
  const ReferenceForward forward_;
  const TermValues terms_;
  const AddedScores added_;
  const DropoutMask dropout_;
  const std::vector<double> q_, k_, v_, d_o_;  // (B, H, S, D)
  // For each query: delta, its largest error over unit_, and its likely one, squared.
  std::vector<double> delta_, delta_error_, delta_noise_;
  ReferenceBackward result_;
};

// One of packed sequences: where what it gives alone lies among that of all.
class PackedRows {
 public:
  // The rows from `first` on, `stored` of the `all` of each head; alone there are as many, or one where there are none.
  PackedRows(std::int64_t heads, std::int64_t first, std::int64_t stored, std::int64_t all)
      : heads_(heads), first_(first), stored_(stored), all_(all) {}

  template <class Value>
  void put(std::span<const Value> alone, std::int64_t columns, std::vector<double>* of_all) const {
    const std::int64_t rows = std::max<std::int64_t>(1, stored_);
    for (std::int64_t head = 0; head < heads_; ++head) {
      std::copy_n(alone.begin() + head * rows * columns, stored_ * columns,
                  of_all->begin() + (head * all_ + first_) * columns);
    }
  }
  std::vector<float> take(std::span<const float> of_all) const {
    std::vector<float> alone;
    for (std::int64_t head = 0; head < heads_ && !of_all.empty(); ++head) {
      for (std::int64_t row = 0; row < std::max<std::int64_t>(1, stored_); ++row)
        alone.push_back(row < stored_ ? of_all[head * all_ + first_ + row] : 0.0f);
    }
    return alone;
  }

 private:
  std::int64_t heads_, first_, stored_, all_;
};

// Adds the gradient of a bias that the sequence `batch` gives as a problem of its own. Its pairs are the first ones of
// a plane; of those for which the bias has no elements there is none.
void add_bias_gradient(const AttentionProblem& problem, std::int64_t batch, const AttentionProblem& alone,
                       const ReferenceGradient& from, ReferenceGradient* to) {
  const OperandShape all = operand_shape(problem, Operand::d_bias), of_alone = operand_shape(alone, Operand::d_bias);
  const std::int64_t first_plane = all.batch > 1 ? batch * all.heads : 0;
  const std::int64_t rows = std::min(all.rows, of_alone.rows), columns = std::min(all.columns, of_alone.columns);
  for (std::int64_t head = 0; head < all.heads; ++head) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t at = ((first_plane + head) * all.rows + row) * all.columns + column,
                           at_alone = (head * of_alone.rows + row) * of_alone.columns + column;
        to->value[at] += from.value[at_alone];
        to->weight[at] += from.weight[at_alone];
      }
    }
  }
  to->noise_squares += from.noise_squares;
}

// What each of packed sequences gives alone, in tensors of its own. Rows in no sequence are zeros.
ReferenceBackward reference_of_sequences(const AttentionProblem& problem, const BackwardInputs& inputs) {
  const std::int64_t columns = problem.head_dim;
  const auto zeros = [](std::int64_t heads, std::int64_t rows, std::int64_t of_row) {
    return std::vector<double>(static_cast<std::size_t>(heads * rows * of_row));
  };
  ReferenceBackward reference;
  for (ReferenceGradient* gradient : {&reference.d_q, &reference.d_k, &reference.d_v}) {
    const bool of_queries = gradient == &reference.d_q;
    gradient->value = gradient->weight =
        zeros(of_queries ? problem.heads_q : problem.heads_kv, of_queries ? problem.seq_q : problem.seq_kv, columns);
  }
  if (problem.bias_gradient) {
    const OperandShape shape = operand_shape(problem, Operand::d_bias);
    reference.d_bias.value = reference.d_bias.weight = zeros(shape.batch * shape.heads, shape.rows, shape.columns);
  }
  std::vector<double> lse = zeros(problem.heads_q, problem.seq_q, 1), delta = lse, delta_error = lse, delta_noise = lse;
  std::int64_t batch = 0;
  for (const PackedSequence& sequence : packed_sequences_of(problem, inputs.terms)) {
    const AttentionProblem& alone = sequence.problem;
    const PackedRows queries(problem.heads_q, sequence.first_query, sequence.stored_queries, problem.seq_q),
        keys(problem.heads_kv, sequence.first_key, sequence.stored_keys, problem.seq_kv);
    const auto of_queries = [&](std::span<const std::uint16_t> elements, Operand operand) {
      return rows_of(problem, elements, operand, sequence.first_query, alone.seq_q);
    };
    const auto of_keys = [&](std::span<const std::uint16_t> elements, Operand operand) {
      return rows_of(problem, elements, operand, sequence.first_key, alone.seq_kv);
    };
    const std::vector<std::uint16_t> q = of_queries(inputs.q, Operand::q), k = of_keys(inputs.k, Operand::k),
                                     v = of_keys(inputs.v, Operand::v), d_o = of_queries(inputs.d_o, Operand::o);
    const std::vector<float> d_lse = queries.take(inputs.d_lse);
    Backward backward(alone, {q, k, v, d_o, d_lse, sequence.terms});
    const ReferenceBackward result = backward.run();
    const auto put = [&](const ReferenceGradient& gradient, const PackedRows& rows, ReferenceGradient* to) {
      rows.put(std::span(gradient.value), columns, &to->value);
      rows.put(std::span(gradient.weight), columns, &to->weight);
      to->noise_squares += gradient.noise_squares;
    };
    put(result.d_q, queries, &reference.d_q);
    put(result.d_k, keys, &reference.d_k);
    put(result.d_v, keys, &reference.d_v);
    if (problem.bias_gradient) add_bias_gradient(problem, batch, alone, result.d_bias, &reference.d_bias);
    ++batch;
    const QueryStatistics statistics = backward.statistics();
    queries.put(statistics.lse, 1, &lse);
    queries.put(statistics.delta, 1, &delta);
    queries.put(statistics.delta_error, 1, &delta_error);
    queries.put(statistics.delta_noise, 1, &delta_noise);
  }
  reference.d_sinks =
      sink_gradient(problem, inputs.terms.of<float>(Operand::sinks), {lse, delta, delta_error, delta_noise});
  return reference;
}

}  // namespace

ReferenceBackward reference_backward(const AttentionProblem& problem, const BackwardInputs& inputs) {
  validate(problem);
  require_packed(problem, inputs.d_o, Operand::o, "d_o");
  const std::int64_t rows = problem.row_batch() * problem.heads_q * problem.seq_q;
  if (!inputs.d_lse.empty() && static_cast<std::int64_t>(inputs.d_lse.size()) != rows) {
    throw Error(ErrorCode::invalid_argument, "d_lse holds " + std::to_string(inputs.d_lse.size()) + " elements, " +
                                                 canonical_text(problem) + " has " + std::to_string(rows) + " rows");
  }
  return problem.packed ? reference_of_sequences(problem, inputs) : Backward(problem, inputs).run();
}

}  // namespace attune
