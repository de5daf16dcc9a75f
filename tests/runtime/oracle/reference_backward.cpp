#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "generator/error.h"
#include "runtime/oracle/dropout_mask.h"
#include "runtime/oracle/reference_attention.h"
#include "tests/catch.h"

using namespace attune;

namespace {

std::size_t elements_of(const AttentionProblem& p, std::int64_t heads, std::int64_t rows) {
  return static_cast<std::size_t>(p.batch * heads * rows * p.head_dim);
}

// Random inputs, packed in problem.layout.
struct Case {
  AttentionProblem problem;
  std::vector<std::uint16_t> q, k, v, d_o;
  std::vector<float> d_lse;
  TermValues terms;  // used lengths: another one for each sequence, and one that is no length
  std::size_t moved_element = std::numeric_limits<std::size_t>::max();  // of the bias, by moved_by
  double moved_by = 0;

  Case(const AttentionProblem& asked, bool with_lse, std::uint64_t seed = 1) : problem(asked) {
    const std::size_t queries = elements_of(problem, problem.heads_q, problem.seq_q),
                      keys = elements_of(problem, problem.heads_kv, problem.seq_kv);
    q = random_normal(problem.dtype, queries, seed);
    k = random_normal(problem.dtype, keys, seed + 1);
    v = random_normal(problem.dtype, keys, seed + 2);
    d_o = random_normal(problem.dtype, queries, seed + 3);
    terms = random_terms(problem, seed + 5);
    if (problem.has_used_lengths()) {
      std::vector<std::int32_t> queries_of, keys_of;
      for (std::int64_t b = 0; b < problem.batch; ++b) {
        queries_of.push_back(static_cast<std::int32_t>(b == 0 ? problem.seq_q - 1 : problem.seq_q + 3));
        keys_of.push_back(static_cast<std::int32_t>(b == 0 ? (problem.seq_kv + 1) / 2 : problem.seq_kv));
      }
      terms.set(Operand::seqused_q, queries_of);
      terms.set(Operand::seqused_kv, keys_of);
    }
    if (!with_lse) return;
    for (const std::uint16_t bits : random_normal(problem.dtype, queries / problem.head_dim, seed + 4))
      d_lse.push_back(static_cast<float>(to_double(problem.dtype, bits)));
  }
  BackwardInputs inputs() const { return {q, k, v, d_o, d_lse, terms}; }
  std::span<const float> sinks() const { return terms.of<float>(Operand::sinks); }
  std::span<const std::int32_t> used(Operand operand) const { return terms.of<std::int32_t>(operand); }
  std::vector<double> values(const std::vector<std::uint16_t>& bits) const {
    std::vector<double> result;
    for (const std::uint16_t x : bits) result.push_back(to_double(problem.dtype, x));
    return result;
  }
};

// Where element d of row s of head h of batch entry b is in a packed tensor.
std::size_t place(const AttentionProblem& p, std::int64_t heads, std::int64_t rows, std::int64_t b, std::int64_t h,
                  std::int64_t s, std::int64_t d) {
  const std::int64_t row = p.layout == Layout::bshd ? (b * rows + s) * heads + h : (b * heads + h) * rows + s;
  return static_cast<std::size_t>(row * p.head_dim + d);
}

std::int64_t rows_of(std::span<const std::int32_t> lengths, std::int64_t b, std::int64_t all) {
  return lengths.empty() ? all : std::min<std::int64_t>(lengths[static_cast<std::size_t>(b)], all);
}

bool attends(const Case& c, std::int64_t b, std::int64_t query, std::int64_t key) {
  const AttentionProblem& p = c.problem;
  const std::int64_t queries = rows_of(c.used(Operand::seqused_q), b, p.seq_q),
                     keys = rows_of(c.used(Operand::seqused_kv), b, p.seq_kv);
  if (query >= queries || key >= keys) return false;
  if (p.lengths == Lengths::used) query += (keys - queries) - (p.seq_kv - p.seq_q);  // as the diagonals move
  if (p.mask == MaskKind::none) return true;
  if (p.mask == MaskKind::window && key < query + p.first_offset) return false;
  return key <= query + p.mask_offset;
}

double capped(const AttentionProblem& p, double score) {
  return p.softcap == 0 ? score : p.softcap * std::tanh(score / p.softcap);
}

// Where the element of a pair lies in a packed tensor of pairs.
std::size_t element_of_bias(const OperandShape& shape, std::int64_t b, std::int64_t h, std::int64_t query,
                            std::int64_t key) {
  const std::int64_t of_head = (b % shape.batch) * shape.heads + h % shape.heads;
  return static_cast<std::size_t>((of_head * shape.rows + query % shape.rows) * shape.columns + key);
}

double element_of(const Case& c, Operand operand, std::int64_t b, std::int64_t h, std::int64_t query,
                  std::int64_t key) {
  const OperandShape shape = operand_shape(c.problem, operand);
  const std::size_t at = element_of_bias(shape, b, h, query, key);
  if (shape.element == ElementType::boolean) return c.terms.of<std::uint8_t>(operand)[at];
  return shape.element == ElementType::fp32 ? c.terms.of<float>(operand)[at]
                                            : to_double(c.problem.dtype, c.terms.of<std::uint16_t>(operand)[at]);
}

// What is added to the score of a query and a key that it attends to.
double added(const Case& c, std::int64_t b, std::int64_t h, std::int64_t query, std::int64_t key) {
  const AttentionProblem& p = c.problem;
  double sum = 0;
  if (p.bias != PairTensor::none) {
    sum += element_of(c, Operand::bias, b, h, query, key);
    if (element_of_bias(operand_shape(p, Operand::bias), b, h, query, key) == c.moved_element) sum += c.moved_by;
  }
  if (p.attention_mask != PairTensor::none && element_of(c, Operand::attention_mask, b, h, query, key) == 0)
    sum = -std::numeric_limits<double>::infinity();
  if (!p.alibi) return sum;
  const std::int64_t diagonal =
      query + rows_of(c.used(Operand::seqused_kv), b, p.seq_kv) - rows_of(c.used(Operand::seqused_q), b, p.seq_q);
  return sum - c.terms.of<float>(Operand::alibi_slopes)[static_cast<std::size_t>(b * p.heads_q + h)] *
                   static_cast<double>(std::abs(diagonal - key));
}

// sum(dO o O) + sum(dLSE o LSE), of inputs that are any doubles.
double loss(const Case& c, const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
            const std::vector<double>& sinks) {
  const AttentionProblem& p = c.problem;
  const std::vector<double> d_o = c.values(c.d_o);
  const DropoutMask mask(p, c.terms);
  double sum = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      const std::int64_t h_kv = h * p.heads_kv / p.heads_q;
      for (std::int64_t i = 0; i < p.seq_q; ++i) {
        double weights = p.sink ? std::exp(sinks[h]) : 0, weighted = 0;
        for (std::int64_t j = 0; j < p.seq_kv; ++j) {
          if (!attends(c, b, i, j)) continue;
          double score = 0, dp = 0;
          for (std::int64_t d = 0; d < p.head_dim; ++d) {
            const std::size_t of_query = place(p, p.heads_q, p.seq_q, b, h, i, d),
                              of_key = place(p, p.heads_kv, p.seq_kv, b, h_kv, j, d);
            score += q[of_query] * k[of_key];
            dp += d_o[of_query] * v[of_key];
          }
          const double weight = std::exp(capped(p, p.softmax_scale * score) + added(c, b, h, i, j));
          weights += weight;
          weighted += weight * mask.of(b * p.heads_q + h, i, j) * dp;
        }
        if (weights == 0 || i >= rows_of(c.used(Operand::seqused_q), b, p.seq_q)) continue;
        sum += weighted / weights;
        if (!c.d_lse.empty()) sum += c.d_lse[(b * p.heads_q + h) * p.seq_q + i] * std::log(weights);
      }
    }
  }
  return sum;
}

// What a kernel does: P and dS rounded to the dtype, O handed over rounded, fp32 elsewhere. `mistake` leaves a step
// out.
struct Gradients {
  std::vector<std::uint16_t> d_q, d_k, d_v;
  std::vector<float> d_sinks;
  std::vector<std::byte> d_bias;
};
enum class Mistake {
  none,
  no_delta,
  lse_sign,
  no_scale,
  one_head_of_group,
  no_slope,
  no_last_row,
  slope_of_bias,
  undropped_dp
};

Gradients low_precision(const Case& c, Mistake mistake = Mistake::none) {
  const AttentionProblem& p = c.problem;
  const auto rounded = [&](double x) { return to_double(p.dtype, from_double(p.dtype, x)); };
  const std::vector<double> q = c.values(c.q), k = c.values(c.k), v = c.values(c.v), d_o = c.values(c.d_o);
  const ReferenceForward forward = reference_forward(p, c.q, c.k, c.v, c.terms);
  const DropoutMask mask(p, c.terms);
  std::vector<float> d_q(q.size()), d_k(k.size()), d_v(v.size()), d_sinks(c.sinks().size());
  const OperandShape bias = operand_shape(p, Operand::d_bias);
  std::vector<float> d_bias(static_cast<std::size_t>(p.bias_gradient ? bias.elements() : 0));
  const std::int64_t group = p.heads_q / p.heads_kv;
  for (std::int64_t row = 0; row < p.batch * p.heads_q * p.seq_q; ++row) {
    const std::int64_t b = row / p.seq_q / p.heads_q, h = row / p.seq_q % p.heads_q, i = row % p.seq_q;
    if (i >= rows_of(c.used(Operand::seqused_q), b, p.seq_q)) continue;
    const auto of_query = [&](std::int64_t d) { return place(p, p.heads_q, p.seq_q, b, h, i, d); };
    float delta = 0;
    for (std::int64_t d = 0; d < p.head_dim; ++d)
      delta += static_cast<float>(d_o[of_query(d)] * rounded(forward.o[row * p.head_dim + d]));
    if (mistake == Mistake::no_delta) delta = 0;
    if (!c.d_lse.empty()) delta += mistake == Mistake::lse_sign ? c.d_lse[row] : -c.d_lse[row];
    if (p.sink && !(mistake == Mistake::no_last_row && i + 1 == p.seq_q))
      d_sinks[h] -= std::exp(c.sinks()[h] - static_cast<float>(forward.lse[row])) * delta;
    for (std::int64_t j = 0; j < p.seq_kv; ++j) {
      if (!attends(c, b, i, j)) continue;
      const auto of_key = [&](std::int64_t d) { return place(p, p.heads_kv, p.seq_kv, b, h / group, j, d); };
      float score = 0, dp = 0;
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        score += static_cast<float>(q[of_query(d)] * k[of_key(d)]);
        dp += static_cast<float>(d_o[of_query(d)] * v[of_key(d)]);
      }
      const auto changed = static_cast<float>(capped(p, score * p.softmax_scale));
      const float slope =
          p.softcap == 0 || mistake == Mistake::no_slope ? 1 : 1 - (changed / p.softcap) * (changed / p.softcap);
      const float weight =
          std::exp(changed + static_cast<float>(added(c, b, h, i, j)) - static_cast<float>(forward.lse[row]));
      const double kept = mistake == Mistake::undropped_dp ? 1 : mask.of(b * p.heads_q + h, i, j);
      dp *= static_cast<float>(kept);
      const auto p16 = static_cast<float>(rounded(weight) * mask.of(b * p.heads_q + h, i, j)),
                 ds16 = static_cast<float>(rounded(weight * slope * (dp - delta)));
      const float scale = mistake == Mistake::no_scale ? 1.0f : p.softmax_scale;
      const bool summed = mistake != Mistake::one_head_of_group || h % group == 0;
      if (p.bias_gradient && !(mistake == Mistake::no_last_row && i + 1 == p.seq_q))
        d_bias[element_of_bias(bias, b, h, i, j)] +=
            weight * (mistake == Mistake::slope_of_bias ? slope : 1) * (dp - delta);
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        d_q[of_query(d)] += ds16 * scale * static_cast<float>(k[of_key(d)]);
        if (summed) d_k[of_key(d)] += ds16 * scale * static_cast<float>(q[of_query(d)]);
        if (summed) d_v[of_key(d)] += p16 * static_cast<float>(d_o[of_query(d)]);
      }
    }
  }
  const auto stored = [&](const std::vector<float>& values) {
    std::vector<std::uint16_t> bits;
    for (const float x : values) bits.push_back(from_double(p.dtype, x));
    return bits;
  };
  std::vector<std::byte> bias_bytes(p.bias_gradient ? bias.bytes() : 0);
  const std::vector<std::uint16_t> of_16_bits = stored(d_bias);
  std::memcpy(bias_bytes.data(),
              p.bias_fp32 ? static_cast<const void*>(d_bias.data()) : static_cast<const void*>(of_16_bits.data()),
              bias_bytes.size());
  return {stored(d_q), stored(d_k), stored(d_v), d_sinks, bias_bytes};
}

BackwardErrors errors_of(const Case& c, const Gradients& g) {
  return compare_backward(c.problem, reference_backward(c.problem, c.inputs()), g.d_q, g.d_k, g.d_v, g.d_sinks,
                          g.d_bias);
}

// Lengths both ways, groups, masks with rows that see nothing (offset below 0) and keys that nobody sees.
std::vector<AttentionProblem> tiny_problems() {
  std::vector<AttentionProblem> problems;
  for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
    for (const int group : {1, 3}) {
      for (const auto& [seq_q, seq_kv] : {std::pair{5, 3}, std::pair{3, 6}}) {
        for (const std::int64_t mask_offset : {-99, -2, 0, 1}) {
          AttentionProblem problem = make_problem(dtype, 2, 2 * group, seq_q, 8);
          problem.heads_kv = 2;
          problem.seq_kv = seq_kv;
          problem.mask = mask_offset == -99 ? MaskKind::none : MaskKind::causal;
          problem.mask_offset = mask_offset == -99 ? 0 : mask_offset;
          problem.layout = group == 1 ? Layout::bshd : Layout::bhsd;
          problems.push_back(problem);
          problem.softcap = 0.75f;
          problems.push_back(problem);
          problem.dropout = 0.4f;  // each after it with dropout, too
          problems.push_back(problem);
          problem.sink = true;
          problems.push_back(problem);
          problem.lengths = group == 1 ? Lengths::used : Lengths::used_top_left;
          problems.push_back(problem);
          problem.alibi = true;
          problems.push_back(problem);
          problem.bias = group == 1 ? PairTensor::bhqk : PairTensor::hqk;
          problem.bias_fp32 = group == 1;
          problem.attention_mask = PairTensor::bk;
          problems.push_back(problem);
          problem.pass = Pass::backward;
          problem.bias_gradient = true;
          for (const PairTensor bias : {problem.bias, PairTensor::k, PairTensor::bqk}) {
            problem.bias = bias;
            problems.push_back(problem);
          }
          problem.pass = Pass::forward;
          problem.bias_gradient = false;
          problem.bias = problem.attention_mask = PairTensor::none;
          problem.bias_fp32 = false;
          problem.softcap = problem.dropout = 0;
          problem.sink = false;
          problem.lengths = Lengths::whole;
          problems.push_back(problem);
        }
      }
    }
  }
  return problems;
}

}  // namespace

TEST_CASE("gradients of the oracle are those of finite differences", "[nogpu]") {
  constexpr double kStep = 1e-4;  // of central differences: errors of its square and of 1e-15 over it
  for (const AttentionProblem& problem : tiny_problems()) {
    for (const bool with_lse : {false, true}) {
      INFO(canonical_text(problem) << (with_lse ? ", gradient of LSE" : ""));
      const Case c(problem, with_lse);
      const ReferenceBackward reference = reference_backward(problem, c.inputs());
      std::vector<double> inputs[] = {c.values(c.q), c.values(c.k), c.values(c.v)};
      std::vector<double> sinks(c.sinks().begin(), c.sinks().end());
      const ReferenceGradient* gradients[] = {&reference.d_q, &reference.d_k, &reference.d_v};
      for (int input = 0; input < 3; ++input) {
        const std::int64_t heads = input == 0 ? problem.heads_q : problem.heads_kv,
                           rows = input == 0 ? problem.seq_q : problem.seq_kv;
        std::size_t index = 0;
        for (std::int64_t b = 0; b < problem.batch; ++b) {
          for (std::int64_t h = 0; h < heads; ++h) {
            for (std::int64_t s = 0; s < rows; ++s) {
              for (std::int64_t d = 0; d < problem.head_dim; ++d, ++index) {
                if (index % 3 != 0) continue;  // every third is enough, and as many in each row
                double& x = inputs[input][place(problem, heads, rows, b, h, s, d)];
                const double here = x;
                x = here + kStep;
                const double above = loss(c, inputs[0], inputs[1], inputs[2], sinks);
                x = here - kStep;
                const double below = loss(c, inputs[0], inputs[1], inputs[2], sinks);
                x = here;
                REQUIRE(gradients[input]->value[index] ==
                        Approx((above - below) / (2 * kStep)).epsilon(1e-6).margin(1e-7));
              }
            }
          }
        }
        CHECK(index == gradients[input]->value.size());
      }
      REQUIRE(reference.d_sinks.value.size() == sinks.size());
      for (std::size_t head = 0; head < sinks.size(); ++head) {
        const double here = sinks[head];
        sinks[head] = here + kStep;
        const double above = loss(c, inputs[0], inputs[1], inputs[2], sinks);
        sinks[head] = here - kStep;
        const double below = loss(c, inputs[0], inputs[1], inputs[2], sinks);
        sinks[head] = here;
        REQUIRE(reference.d_sinks.value[head] == Approx((above - below) / (2 * kStep)).epsilon(1e-6).margin(1e-7));
      }
      if (!problem.bias_gradient) continue;
      const OperandShape bias = operand_shape(problem, Operand::bias);
      REQUIRE(reference.d_bias.value.size() == static_cast<std::size_t>(bias.elements()));
      for (std::size_t at = 0; at < reference.d_bias.value.size(); at += 3) {
        const auto moved = [&](double by) {
          Case other = c;
          other.moved_element = at;
          other.moved_by = by;
          return loss(other, inputs[0], inputs[1], inputs[2], sinks);
        };
        REQUIRE(reference.d_bias.value[at] ==
                Approx((moved(kStep) - moved(-kStep)) / (2 * kStep)).epsilon(1e-6).margin(1e-7));
      }
    }
  }
}

TEST_CASE("queries that see nothing and keys that nobody sees have gradients of 0", "[nogpu]") {
  AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 4, 8, MaskKind::causal);
  problem.seq_kv = 5;
  problem.mask_offset = -2;  // queries 0 and 1 see nothing, keys 2 to 4 are seen by nobody
  Case c(problem, true);
  c.d_lse[0] = std::numeric_limits<float>::quiet_NaN();
  const ReferenceBackward r = reference_backward(problem, c.inputs());
  const auto count_zeros = [](const std::vector<double>& values, int rows) {
    return std::count(values.begin(), values.begin() + 8 * rows, 0.0);
  };
  CHECK(count_zeros(r.d_q.value, 2) == 16);
  CHECK(std::count(r.d_k.value.begin() + 16, r.d_k.value.end(), 0.0) == 24);
  CHECK(std::count(r.d_v.value.begin() + 16, r.d_v.value.end(), 0.0) == 24);
  CHECK(count_zeros(r.d_v.value, 2) == 0);
  CHECK(std::none_of(r.d_k.value.begin(), r.d_k.value.end(), [](double x) { return std::isnan(x); }));

  // There a kernel must give exactly 0.
  Gradients g = low_precision(c);
  CHECK(errors_of(c, g).within());
  g.d_q[3] = from_double(problem.dtype, 1e-30);
  CHECK_FALSE(errors_of(c, g).within());
}

TEST_CASE("tensors of a wrong size are refused by the gradients' oracle", "[nogpu]") {
  const Case c(make_problem(DataType::bf16, 1, 2, 4, 8), true);
  BackwardInputs inputs = c.inputs();
  inputs.d_o = inputs.d_o.first(8);
  CHECK_THROWS_AS(reference_backward(c.problem, inputs), Error);
  inputs = c.inputs();
  inputs.terms.set(Operand::sinks, std::vector<float>(2));  // of a problem without
  CHECK_THROWS_AS(reference_backward(c.problem, inputs), Error);
  inputs = c.inputs();
  inputs.d_lse = inputs.d_lse.first(7);
  CHECK_THROWS_AS(reference_backward(c.problem, inputs), Error);
  const Gradients g = low_precision(c);
  CHECK_THROWS_AS(compare_backward(c.problem, reference_backward(c.problem, c.inputs()), g.d_q, g.d_q, {}), Error);
}

TEST_CASE("gradients of a kernel's precision are within the bounds", "[nogpu]") {
  std::vector<AttentionProblem> problems = tiny_problems();
  for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
    problems.push_back(make_problem(dtype, 1, 2, 130, 64, MaskKind::causal));
    problems.push_back(make_problem(dtype, 1, 1, 300, 40));
    problems.push_back(make_problem(dtype, 1, 1, 70, 256));
    AttentionProblem grouped = make_problem(dtype, 1, 6, 60, 72, MaskKind::causal);
    grouped.heads_kv = 2;
    grouped.seq_kv = 90;
    grouped.mask_offset = 30;
    problems.push_back(grouped);
    AttentionProblem one_key = make_problem(dtype, 1, 3, 200, 64);  // dQ and dK are nothing but errors
    one_key.seq_kv = 1;
    problems.push_back(one_key);
    AttentionProblem sharp = make_problem(dtype, 1, 1, 128, 64);
    sharp.softmax_scale = 1;
    problems.push_back(sharp);
    for (const float softcap : {0.5f, 5.0f, 30.0f}) {  // all scores at the cap, most, and a few
      sharp.softcap = softcap;
      problems.push_back(sharp);
    }
    AttentionProblem dropped = make_problem(dtype, 2, 2, 90, 64, MaskKind::causal);
    for (const float dropout : {0.1f, 0.005f, 0.75f}) {
      dropped.dropout = dropout;
      problems.push_back(dropped);
    }
  }
  for (const AttentionProblem& problem : problems) {
    for (const bool with_lse : {false, true}) {
      INFO(canonical_text(problem) << (with_lse ? ", gradient of LSE" : ""));
      const Case c(problem, with_lse, 11);
      for (const OutputErrors& output : errors_of(c, low_precision(c)).outputs) {
        INFO(output.name << ": " << output.relative << " of " << output.relative_bound << ", element "
                         << output.worst_ratio);
        CHECK(output.within);
        CHECK(output.complaint.empty());
      }
    }
  }
}

TEST_CASE("the bounds of gradients are not far above a kernel's errors", "[nogpu]") {
  for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
    const Case c(make_problem(dtype, 1, 1, 256, 64), false);
    for (const OutputErrors& output : errors_of(c, low_precision(c)).outputs) {
      INFO(output.name);
      CHECK(output.relative > output.relative_bound / 4);
      CHECK(output.worst_ratio > 0.02);
    }
  }
}

TEST_CASE("wrong gradients are beyond the bounds", "[nogpu]") {
  for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
    AttentionProblem problem = make_problem(dtype, 1, 6, 40, 32, MaskKind::causal);
    problem.heads_kv = 2;
    const Case c(problem, true);
    for (const Mistake mistake : {Mistake::no_delta, Mistake::lse_sign, Mistake::no_scale, Mistake::one_head_of_group})
      CHECK_FALSE(errors_of(c, low_precision(c, mistake)).within());
    AttentionProblem capped = problem;
    capped.softcap = 2;
    const Case of_capped(capped, true);
    CHECK(errors_of(of_capped, low_precision(of_capped)).within());
    CHECK_FALSE(errors_of(of_capped, low_precision(of_capped, Mistake::no_slope)).within());
    AttentionProblem dropped = problem;
    dropped.dropout = 0.25f;
    const Case of_dropped(dropped, true);
    CHECK(errors_of(of_dropped, low_precision(of_dropped)).within());
    CHECK_FALSE(errors_of(of_dropped, low_precision(of_dropped, Mistake::undropped_dp)).within());
    CHECK_FALSE(errors_of(of_dropped, low_precision(c)).within());
    AttentionProblem with_sinks = problem;
    with_sinks.sink = true;
    const Case of_sinks(with_sinks, true);
    CHECK(errors_of(of_sinks, low_precision(of_sinks)).within());
    for (const Mistake mistake : {Mistake::no_delta, Mistake::lse_sign, Mistake::no_last_row}) {
      const OutputErrors d_sinks = errors_of(of_sinks, low_precision(of_sinks, mistake)).outputs.back();
      CHECK_FALSE(d_sinks.within);
      CHECK_THAT(d_sinks.complaint, ContainsSubstring("dsinks at head"));
    }

    for (const PairTensor bias : {PairTensor::hqk, PairTensor::qk, PairTensor::bk}) {
      AttentionProblem biased = capped;
      biased.pass = Pass::backward;
      biased.bias = bias;
      biased.bias_gradient = true;
      biased.bias_fp32 = bias == PairTensor::qk;
      const Case of_bias(biased, true);
      CHECK(errors_of(of_bias, low_precision(of_bias)).within());
      for (const Mistake mistake :
           {Mistake::no_delta, Mistake::lse_sign, Mistake::no_last_row, Mistake::slope_of_bias}) {
        const OutputErrors d_bias = errors_of(of_bias, low_precision(of_bias, mistake)).outputs.back();
        CHECK(d_bias.name == "dbias");
        CHECK_FALSE(d_bias.within);
      }
    }

    const auto complaint = [&](const Gradients& gradients, std::size_t output) {
      const BackwardErrors errors = errors_of(c, gradients);
      CHECK_FALSE(errors.within());
      return errors.outputs[output].complaint;
    };
    const Gradients good = low_precision(c);
    REQUIRE(errors_of(c, good).within());
    {
      Gradients bad = good;
      bad.d_k[place(problem, 2, 40, 0, 1, 7, 3)] = 0x7fff;
      CHECK_THAT(complaint(bad, 1), ContainsSubstring("dk at batch 0, head 1, row 7, column 3"));
    }
    {
      Gradients bad = good;
      std::swap(bad.d_v[place(problem, 2, 40, 0, 0, 7, 3)], bad.d_v[place(problem, 2, 40, 0, 1, 7, 3)]);
      CHECK_THAT(complaint(bad, 2), ContainsSubstring("dv at"));
    }
    {
      Gradients bad = good;
      for (std::int64_t d = 0; d < 32; ++d) bad.d_q[place(problem, 6, 40, 0, 5, 39, d)] = 0;  // a row not written
      CHECK_THAT(complaint(bad, 0), ContainsSubstring("dq at batch 0, head 5, row 39"));
    }
  }
}
