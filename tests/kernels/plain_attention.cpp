#include "tests/kernels/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "runtime/oracle/parallel_for.h"
#include "tests/kernels/forward_case.h"
#include "tests/primitives/number_formats.h"

namespace attune::tests {
namespace {

using Floats = std::vector<float>;

float rounded(DataType dtype, float x) {
  return static_cast<float>(dtype == DataType::bf16 ? decode_bf16(encode_bf16(x)) : decode_f16(encode_f16(x)));
}

Floats floats_of(const std::vector<double>& values) { return {values.begin(), values.end()}; }

std::vector<double> rounded(DataType dtype, const Floats& values) {
  std::vector<double> result;
  result.reserve(values.size());
  for (const float value : values) result.push_back(rounded(dtype, value));
  return result;
}

float dot(const float* a, const float* b, std::size_t count) {
  float sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add(float* sum, float factor, const float* terms, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += factor * terms[i];
}

struct Shape {
  std::size_t dim, queries, keys, group;
  explicit Shape(const AttentionProblem& problem)
      : dim(static_cast<std::size_t>(problem.head_dim)),
        queries(static_cast<std::size_t>(problem.seq_q)),
        keys(static_cast<std::size_t>(problem.seq_kv)),
        group(static_cast<std::size_t>(problem.heads_q / problem.heads_kv)) {}
};

// P of one query, rounded: 0 for the keys that it does not see. slopes: derivatives of the scores, by the scaled ones.
void probabilities(const AttentionProblem& problem, const Shape& shape, std::size_t query, const float* q,
                   const float* k, bool rounds_scores, Floats* p, Floats* slopes = nullptr) {
  float largest = -HUGE_VALF, sum = 0;
  for (std::size_t j = 0; j < shape.keys; ++j) {
    const bool seen = attends(problem, {}, 0, static_cast<std::int64_t>(query), static_cast<std::int64_t>(j));
    (*p)[j] = seen ? problem.softmax_scale * dot(q, k + j * shape.dim, shape.dim) : -HUGE_VALF;
    if (seen && problem.softcap != 0) {
      const float capped = std::tanh((*p)[j] / problem.softcap);
      (*p)[j] = problem.softcap * capped;
      if (slopes != nullptr) (*slopes)[j] = 1 - capped * capped;
    }
    if (rounds_scores && seen) (*p)[j] = rounded(problem.dtype, (*p)[j]);
    largest = std::max(largest, (*p)[j]);
  }
  for (float& x : *p) {
    x = x == -HUGE_VALF ? 0 : std::exp(x - largest);
    sum += x;
  }
  for (float& x : *p) x = sum > 0 ? rounded(problem.dtype, x / sum) : 0;
}

}  // namespace

std::vector<double> plain_forward(const AttentionProblem& problem, const PlainInputs& inputs) {
  const Shape shape(problem);
  const Floats q = floats_of(inputs.q), k = floats_of(inputs.k), v = floats_of(inputs.v);
  Floats o(q.size());
  parallel_for(static_cast<std::size_t>(problem.batch * problem.heads_q), [&](std::size_t head) {
    const float* keys = &k[head / shape.group * shape.keys * shape.dim];
    const float* values = &v[head / shape.group * shape.keys * shape.dim];
    Floats p(shape.keys);
    for (std::size_t i = 0; i < shape.queries; ++i) {
      const std::size_t at = (head * shape.queries + i) * shape.dim;
      probabilities(problem, shape, i, &q[at], keys, false, &p);
      for (std::size_t j = 0; j < shape.keys; ++j) add(&o[at], p[j], values + j * shape.dim, shape.dim);
    }
  });
  return rounded(problem.dtype, o);
}

PlainGradients plain_backward(const AttentionProblem& problem, const PlainInputs& inputs, Delta delta_of) {
  const Shape shape(problem);
  const Floats q = floats_of(inputs.q), k = floats_of(inputs.k), v = floats_of(inputs.v), d_o = floats_of(inputs.d_o);
  Floats d_q(q.size()), d_k(k.size()), d_v(v.size());
  parallel_for(static_cast<std::size_t>(problem.batch * problem.heads_kv), [&](std::size_t head_kv) {
    const std::size_t first = head_kv * shape.keys * shape.dim;
    Floats p(shape.keys), slopes(shape.keys, 1), d_p(shape.keys), o(shape.dim);
    for (std::size_t head = head_kv * shape.group; head < (head_kv + 1) * shape.group; ++head) {
      for (std::size_t i = 0; i < shape.queries; ++i) {
        const std::size_t at = (head * shape.queries + i) * shape.dim;
        probabilities(problem, shape, i, &q[at], &k[first], true, &p, &slopes);
        float delta = 0;
        std::fill(o.begin(), o.end(), 0.0f);
        for (std::size_t j = 0; j < shape.keys; ++j) {
          if (p[j] == 0) continue;
          const float* value = &v[first + j * shape.dim];
          d_p[j] = rounded(problem.dtype, dot(&d_o[at], value, shape.dim));
          delta += p[j] * d_p[j];
          add(o.data(), p[j], value, shape.dim);
        }
        if (delta_of == Delta::saved_o) {
          for (float& x : o) x = rounded(problem.dtype, x);
          delta = dot(&d_o[at], o.data(), shape.dim);
        }
        for (std::size_t j = 0; j < shape.keys; ++j) {
          if (p[j] == 0) continue;
          const float d_s = problem.softmax_scale * rounded(problem.dtype, slopes[j] * p[j] * (d_p[j] - delta));
          const std::size_t key = first + j * shape.dim;
          add(&d_q[at], d_s, &k[key], shape.dim);
          add(&d_k[key], d_s, &q[at], shape.dim);
          add(&d_v[key], p[j], &d_o[at], shape.dim);
        }
      }
    }
  });
  return {rounded(problem.dtype, d_q), rounded(problem.dtype, d_k), rounded(problem.dtype, d_v)};
}

std::string rule_complaint(const AttentionProblem& problem, const RuleOutput& output) {
  const auto dim = static_cast<std::size_t>(problem.head_dim);
  const double unit = problem.dtype == DataType::bf16 ? 0x1p-8 : 0x1p-11;
  for (const bool of_offsets : {false, true}) {
    if (of_offsets && !output.offsets_apart) break;
    double largest = 0, sum = 0, largest_exact = 0, count = 0;
    double plain_largest = 0, plain_sum = 0, saved_sum = 0;
    for (std::size_t i = 0; i < output.exact.size(); ++i) {
      if (output.offsets_apart && (i % dim == 0) != of_offsets) continue;
      const auto error_of = [&](double x) { return std::fabs(x - output.exact[i]); };
      const double error = error_of(output.actual[i]), plain_error = error_of(output.plain[i]);
      const double saved_error = output.plain_of_saved_o.empty() ? 0 : error_of(output.plain_of_saved_o[i]);
      if (std::isnan(error)) return "An element of " + output.name + " is NaN.";
      largest = std::max(largest, error);
      plain_largest = std::max({plain_largest, plain_error, saved_error});
      sum += error;
      plain_sum += plain_error;
      saved_sum += saved_error;
      largest_exact = std::max(largest_exact, std::fabs(output.exact[i]));
      ++count;
    }
    plain_sum = std::max(plain_sum, saved_sum);
    const double bound = 2 * plain_largest + unit * largest_exact + output.floor;
    const double mean_bound = 2 * plain_sum / count + output.floor;
    const bool is_mean = largest <= bound;
    if (is_mean && (!output.averages || sum / count <= mean_bound)) continue;
    std::ostringstream text;
    text << "The " << (is_mean ? "mean" : "largest") << " error of " << output.name
         << (of_offsets ? " in element 0" : "") << " is " << (is_mean ? sum / count : largest)
         << "; FlashAttention's rule allows " << (is_mean ? mean_bound : bound) << ", plain attention errs by "
         << (is_mean ? plain_sum / count : plain_largest) << '.';
    return text.str();
  }
  return {};
}

}  // namespace attune::tests
