// Normal numbers from a counter, by arithmetic alone: additions, multiplications, divisions and square roots are the
// same on every IEEE machine, logarithms of a library are not. This file is compiled without contraction into fused
// operations. The device's twin is templates/kernels/random_normal.cu: what changes here changes there.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

#include "generator/mix_bits.h"
#include "generator/rounding.h"
#include "runtime/oracle/parallel_for.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {
namespace {

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  return mix_bits(seed * 0xd1342543de82ef95u + (index + 1) * kGoldenRatio);
}

// In (0, 1), never 0.5 exactly: odd multiples of 2^-53.
double uniform(std::uint64_t bits) { return static_cast<double>((bits >> 12) * 2 + 1) * 0x1p-53; }

constexpr double kLn2 = 0.69314718055994530942;

// ln x for normal positive x: x = m 2^e with m in [1/sqrt 2, sqrt 2), ln m = 2 artanh((m - 1) / (m + 1)).
double natural_logarithm(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.41421356) {
    m *= 0.5;
    exponent += 1;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double series = 0;
  for (int odd = 23; odd >= 1; odd -= 2) series = series * s2 + 1.0 / odd;
  return exponent * kLn2 + 2 * s * series;
}

// a[0] + a[1] x + a[2] x^2 + ...
template <std::size_t kCount>
double polynomial(const double (&a)[kCount], double x) {
  double sum = 0;
  for (std::size_t i = kCount; i-- > 0;) sum = sum * x + a[i];
  return sum;
}

// The number that a standard normal one is below with probability p, within 1e-6 relative: far closer than 16-bit types
// tell apart. Wichura, Algorithm AS 241 (PPND7), Applied Statistics 37 (1988).
double normal_quantile(double p) {
  static constexpr double kA[] = {3.3871327179, 50.434271938, 159.29113202, 59.109374720};
  static constexpr double kB[] = {1.0, 17.895169469, 78.757757664, 67.187563600};
  static constexpr double kC[] = {1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103};
  static constexpr double kD[] = {1.0, 0.73700164250, 0.12021132975};
  static constexpr double kE[] = {6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997};
  static constexpr double kF[] = {1.0, 0.24197894225, 0.012258202635};
  constexpr double kCentral = 0.425, kTail = 5.0;
  const double q = p - 0.5;
  if (std::abs(q) <= kCentral) {
    const double r = kCentral * kCentral - q * q;
    return q * polynomial(kA, r) / polynomial(kB, r);
  }
  const double r = std::sqrt(-natural_logarithm(q < 0 ? p : 1 - p));
  const double x = r <= kTail ? polynomial(kC, r - 1.6) / polynomial(kD, r - 1.6)
                              : polynomial(kE, r - kTail) / polynomial(kF, r - kTail);
  return q < 0 ? -x : x;
}

constexpr std::size_t kChunk = 1 << 16;  // values of one task

std::vector<float> random_sinks(const AttentionProblem& problem, std::uint64_t seed) {
  std::vector<float> sinks;
  for (const std::uint16_t bits : random_normal(problem.dtype, static_cast<std::size_t>(problem.heads_q), seed))
    sinks.push_back(
        static_cast<float>(to_double(problem.dtype, bits) + natural_logarithm(static_cast<double>(problem.seq_kv))));
  return sinks;
}

// 2^(-8 h / H) for h = 1 to H, as models have them, each times a number between 3/4 and 5/4 of its own.
std::vector<float> random_slopes(const AttentionProblem& problem, std::uint64_t seed) {
  std::vector<float> slopes;
  for (std::int64_t at = 0; at < problem.batch * problem.heads_q; ++at) {
    const auto head = static_cast<double>(at % problem.heads_q + 1);
    const double factor = 0.75 + uniform(random_bits(seed, static_cast<std::uint64_t>(at))) / 2;
    slopes.push_back(static_cast<float>(factor * std::exp2(-8 * head / static_cast<double>(problem.heads_q))));
  }
  return slopes;
}

// Normal numbers, and -inf for one element in eight, so that masks and rows that see nothing come with it.
template <typename Element>
std::vector<Element> random_bias(const AttentionProblem& problem, Element (*element)(DataType, double),
                                 std::uint64_t seed) {
  std::vector<Element> bias(static_cast<std::size_t>(operand_shape(problem, Operand::bias).elements()));
  parallel_for(ceil_div(bias.size(), kChunk), [&](std::size_t chunk) {
    for (std::size_t i = chunk * kChunk; i < std::min(bias.size(), (chunk + 1) * kChunk); ++i) {
      const std::uint64_t bits = random_bits(seed, i);
      bias[i] = element(problem.dtype,
                        (bits & 7) == 0 ? -std::numeric_limits<double>::infinity() : normal_quantile(uniform(bits)));
    }
  });
  return bias;
}
float fp32_of(DataType, double value) { return static_cast<float>(value); }

// The number of a row's document, where `rows` rows are documents that follow each other and end at these shares.
template <std::size_t kEnds>
int document_of(std::int64_t row, std::int64_t rows, const double (&ends)[kEnds]) {
  const double place = (static_cast<double>(row) + 0.5) / static_cast<double>(rows);
  return static_cast<int>(std::count_if(std::begin(ends), std::end(ends), [&](double end) { return end < place; }));
}

// Queries attend to keys of their own document, of eight that follow each other, but for one pair in sixteen: blocks
// between them show no pair, as those of masks of models do. Without a dimension of queries there is one, which ends
// somewhere behind half of the keys, as before padding.
std::vector<std::uint8_t> random_mask(const AttentionProblem& problem, std::uint64_t seed) {
  const OperandShape shape = operand_shape(problem, Operand::attention_mask);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(shape.elements()));
  parallel_for(static_cast<std::size_t>(shape.batch * shape.heads), [&](std::size_t plane) {
    double ends[7];
    for (std::size_t i = 0; i < std::size(ends); ++i)
      ends[i] = uniform(random_bits(seed + 1, plane * std::size(ends) + i));
    if (shape.rows == 1) std::fill(std::begin(ends), std::end(ends), (1 + ends[0]) / 2);
    std::vector<int> documents;
    for (std::int64_t key = 0; key < shape.columns; ++key) documents.push_back(document_of(key, shape.columns, ends));
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const int document = shape.rows == 1 ? 0 : document_of(row, shape.rows, ends);
      const std::size_t begin =
          (plane * static_cast<std::size_t>(shape.rows) + static_cast<std::size_t>(row)) * documents.size();
      for (std::size_t key = 0; key < documents.size(); ++key)
        mask[begin + key] = documents[key] == document && (random_bits(seed, begin + key) & 15) != 0;
    }
  });
  return mask;
}

// Lengths up to `all`, the rows that each sequence can have; `stream` tells those of queries and of keys apart.
std::vector<std::int32_t> random_lengths(const AttentionProblem& problem, std::int64_t all, std::uint64_t seed,
                                         std::uint64_t stream) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    const auto at = 2 * static_cast<std::uint64_t>(batch) + stream;
    const auto drawn = static_cast<std::int64_t>(random_bits(seed, at) % static_cast<std::uint64_t>(all + 1));
    lengths.push_back(static_cast<std::int32_t>(batch == 0 && problem.batch > 1 ? all : drawn));
  }
  return lengths;
}

// Rows of packed sequences that are in one of `sequences`: all of them, cut anywhere.
std::vector<std::int32_t> random_begins(std::int64_t sequences, std::int64_t all, std::uint64_t seed) {
  std::vector<std::int32_t> begins = {0};
  for (std::int64_t cut = 1; cut < sequences; ++cut) {
    const std::uint64_t bits = random_bits(seed, static_cast<std::uint64_t>(cut));
    begins.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(all + 1)));
  }
  std::sort(begins.begin(), begins.end());
  begins.push_back(static_cast<std::int32_t>(all));
  return begins;
}

}  // namespace

std::vector<std::uint16_t> random_normal(DataType dtype, std::size_t count, std::uint64_t seed) {
  std::vector<std::uint16_t> values(count);
  parallel_for(ceil_div(count, kChunk), [&](std::size_t chunk) {
    const std::size_t end = std::min(count, (chunk + 1) * kChunk);
    for (std::size_t i = chunk * kChunk; i < end; ++i)
      values[i] = from_double(dtype, normal_quantile(uniform(random_bits(seed, i))));
  });
  return values;
}

TermValues random_terms(const AttentionProblem& problem, std::uint64_t seed) {
  TermValues terms;
  if (problem.sink) terms.set(Operand::sinks, random_sinks(problem, seed + static_cast<std::uint64_t>(Operand::sinks)));
  if (problem.alibi)
    terms.set(Operand::alibi_slopes, random_slopes(problem, seed + static_cast<std::uint64_t>(Operand::alibi_slopes)));
  if (problem.bias != PairTensor::none) {
    const std::uint64_t of_bias = seed + static_cast<std::uint64_t>(Operand::bias);
    if (problem.bias_fp32)
      terms.set(Operand::bias, random_bias<float>(problem, fp32_of, of_bias));
    else
      terms.set(Operand::bias, random_bias<std::uint16_t>(problem, from_double, of_bias));
  }
  if (problem.attention_mask != PairTensor::none)
    terms.set(Operand::attention_mask,
              random_mask(problem, seed + static_cast<std::uint64_t>(Operand::attention_mask)));
  if (problem.dropout != 0) {
    const std::uint64_t of_state = seed + static_cast<std::uint64_t>(Operand::dropout_state);
    terms.set(Operand::dropout_state, std::vector{static_cast<std::int64_t>(random_bits(of_state, 0)),
                                                  static_cast<std::int64_t>(random_bits(of_state, 1))});
  }
  if (problem.packed) {
    // About half of the sequences of equal lengths use all of their rows.
    terms.set(Operand::cu_seqlens_q, random_begins(problem.batch, problem.seq_q, seed));
    terms.set(Operand::cu_seqlens_kv, random_begins(problem.batch, problem.seq_kv, seed));
    terms.set(Operand::seqused_q, random_lengths(problem, 2 * ceil_div(problem.seq_q, problem.batch), seed, 0));
    terms.set(Operand::seqused_kv, random_lengths(problem, 2 * ceil_div(problem.seq_kv, problem.batch), seed, 1));
  } else if (problem.has_used_lengths()) {
    terms.set(Operand::seqused_q, random_lengths(problem, problem.seq_q, seed, 0));
    terms.set(Operand::seqused_kv, random_lengths(problem, problem.seq_kv, seed, 1));
  }
  return terms;
}

}  // namespace attune
