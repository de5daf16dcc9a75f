#include "runtime/oracle/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "generator/error.h"
#include "runtime/oracle/error_summary.h"
#include "tests/catch.h"

using namespace attune;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// float <-> bf16 by the bits of a float: another way than the code under test.
double bf16_value(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

std::vector<std::uint16_t> bf16_of(const std::vector<double>& values) {
  std::vector<std::uint16_t> bits;
  for (const double value : values) bits.push_back(from_double(DataType::bf16, value));
  return bits;
}

AttentionProblem tiny(std::int64_t seq_q, std::int64_t seq_kv) {
  AttentionProblem problem = make_problem(DataType::bf16, 1, 1, seq_q, 8);
  problem.seq_kv = seq_kv;
  problem.softmax_scale = 1;
  return problem;
}

std::int64_t offset(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t s) {
  return b * view.stride_batch + h * view.stride_head + s * view.stride_row;
}

}  // namespace

TEST_CASE("16-bit values convert as their formats say", "[nogpu]") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto x = static_cast<std::uint16_t>(bits);
    const double value = to_double(DataType::bf16, x), expected = bf16_value(x);
    if (std::isnan(expected)) {
      REQUIRE(std::isnan(value));
      REQUIRE(std::isnan(to_double(DataType::bf16, from_double(DataType::bf16, value))));
    } else {
      REQUIRE(value == expected);
      REQUIRE(from_double(DataType::bf16, value) == x);
    }
    const double half = to_double(DataType::fp16, x);
    if (!std::isnan(half)) REQUIRE(from_double(DataType::fp16, half) == x);
  }
  CHECK(to_double(DataType::fp16, 0x3c00) == 1.0);
  CHECK(to_double(DataType::fp16, 0xc000) == -2.0);
  CHECK(to_double(DataType::fp16, 0x7bff) == 65504.0);
  CHECK(to_double(DataType::fp16, 0x0001) == std::ldexp(1.0, -24));
  CHECK(to_double(DataType::fp16, 0x0400) == std::ldexp(1.0, -14));
  CHECK(to_double(DataType::fp16, 0x7c00) == kInfinity);
  CHECK(to_double(DataType::fp16, 0xfc00) == -kInfinity);
  CHECK(std::isnan(to_double(DataType::fp16, 0x7c01)));
}

TEST_CASE("rounding to 16 bits is to nearest, ties to even", "[nogpu]") {
  const auto half = [](double value) { return to_double(DataType::fp16, from_double(DataType::fp16, value)); };
  CHECK(half(1 + std::ldexp(1.0, -11)) == 1.0);                          // a tie, down to even
  CHECK(half(1 + 3 * std::ldexp(1.0, -11)) == 1 + std::ldexp(1.0, -9));  // a tie, up to even
  CHECK(half(1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40)) == 1 + std::ldexp(1.0, -10));
  CHECK(half(65519.99) == 65504.0);
  CHECK(half(65520.0) == kInfinity);
  CHECK(half(std::ldexp(1.0, -25)) == 0.0);
  CHECK(half(std::ldexp(1.5, -25)) == std::ldexp(1.0, -24));
  CHECK(half(2047.5 * std::ldexp(1.0, -25)) == std::ldexp(1.0, -14));  // carries out of the subnormals
  CHECK(from_double(DataType::bf16, -0.0) == 0x8000);
  // Between neighbours of bf16: the nearer one, at random places.
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const auto low = static_cast<std::uint16_t>(random() % 0x7f7f);
    const double a = bf16_value(low), b = bf16_value(static_cast<std::uint16_t>(low + 1));
    const double t = std::uniform_real_distribution<double>(0, 1)(random);
    const double x = a + t * (b - a);
    if (x - a == b - x) continue;
    REQUIRE(from_double(DataType::bf16, x) == (x - a < b - x ? low : low + 1));
  }
}

TEST_CASE("random values are normal, repeatable and pinned", "[nogpu]") {
  constexpr std::size_t kCount = 200000;
  const auto bits = random_normal(DataType::fp16, kCount, 42);
  CHECK(bits == random_normal(DataType::fp16, kCount, 42));
  CHECK(bits != random_normal(DataType::fp16, kCount, 43));
  const auto shorter = random_normal(DataType::fp16, 1000, 42);
  CHECK(std::equal(shorter.begin(), shorter.end(), bits.begin()));

  double sum = 0, squares = 0, fourth = 0;
  int below_minus_two = 0;
  for (const std::uint16_t x : bits) {
    const double value = to_double(DataType::fp16, x);
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
    below_minus_two += value < -2;
  }
  CHECK(sum / kCount == Approx(0).margin(0.01));
  CHECK(squares / kCount == Approx(1).margin(0.02));
  CHECK(fourth / kCount == Approx(3).margin(0.1));
  CHECK(below_minus_two / double(kCount) == Approx(0.02275).margin(0.0015));

  // The same on every machine: written down once.
  const auto pinned = random_normal(DataType::bf16, 6, 1);
  CHECK(pinned == std::vector<std::uint16_t>{0x3fda, 0x3f2c, 0x3f73, 0x3f65, 0xbf11, 0xbf4d});
}

TEST_CASE("tiny attention by hand", "[nogpu]") {
  SECTION("one key: its value, and its score as LSE") {
    const auto q = bf16_of({1, 2, 0, 0, 0, 0, 0, 0}), k = bf16_of({3, 0.5, 0, 0, 0, 0, 0, 0});
    const auto v = bf16_of({1, -2, 3, -4, 5, -6, 7, -8});
    const ReferenceForward r = reference_forward(tiny(1, 1), q, k, v);
    CHECK(r.o == std::vector<double>{1, -2, 3, -4, 5, -6, 7, -8});
    CHECK(r.weight == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(r.lse[0] == Approx(4));
  }
  SECTION("equal scores: the mean, and ln 2 more") {
    const auto q = bf16_of(std::vector<double>(8, 0.0)), k = bf16_of(std::vector<double>(16, 1.0));
    auto v = bf16_of({1, 1, 1, 1, 1, 1, 1, 1, -3, 3, 3, 3, 3, 3, 3, 3});
    const ReferenceForward r = reference_forward(tiny(1, 2), q, k, v);
    CHECK(r.o[0] == -1);
    CHECK(r.o[1] == 2);
    CHECK(r.weight[0] == 2);
    CHECK(r.lse[0] == Approx(std::log(2.0)));
  }
  SECTION("scores of 0 and ln 3: weights 1/4 and 3/4") {
    AttentionProblem problem = tiny(1, 2);
    problem.softmax_scale = static_cast<float>(std::log(3.0));
    const auto q = bf16_of({1, 0, 0, 0, 0, 0, 0, 0}), k = bf16_of({0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0});
    const auto v = bf16_of({4, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0});
    const ReferenceForward r = reference_forward(problem, q, k, v);
    CHECK(r.o[0] == Approx(7).epsilon(1e-6));
    CHECK(r.lse[0] == Approx(std::log(4.0)).epsilon(1e-6));
  }
}

TEST_CASE("a bound allows for a P that is subnormal in fp16", "[nogpu]") {
  // Scores of 0 and -20 ln 2: P of the second key is 2^-20, of which fp16 holds 4 bits and rounds by up to 2^-25.
  AttentionProblem problem = tiny(1, 2);
  problem.dtype = DataType::fp16;
  problem.softmax_scale = static_cast<float>(20 * std::log(2.0));
  std::vector<std::uint16_t> q(8), k(16), v(16);
  q[0] = 0x3c00;  // 1
  k[8] = 0xbc00;  // -1
  v[8] = 0x3c00;
  const ReferenceForward r = reference_forward(problem, q, k, v);
  CHECK(r.o[0] == Approx(0x1p-20).epsilon(1e-5));
  CHECK(r.weight[0] == Approx(0x1p-20 + 0x1p-14).epsilon(1e-5));
  const double bound = bounds_of(problem.dtype).of_element(r.o[0], r.weight[0]);
  CHECK(bound > 0x1p-25);
  CHECK(bound < 0x1p-22);
}

TEST_CASE("a row that attends to nothing gives 0 and -inf", "[nogpu]") {
  AttentionProblem problem = tiny(4, 2);
  problem.mask = MaskKind::causal;
  problem.mask_offset = -2;  // bottom right: rows 0 and 1 see nothing
  const auto q = bf16_of(std::vector<double>(32, 1.0)), k = bf16_of(std::vector<double>(16, 1.0)),
             v = bf16_of(std::vector<double>(16, 5.0));
  const ReferenceForward r = reference_forward(problem, q, k, v);
  for (int row = 0; row < 2; ++row) {
    CHECK(r.lse[row] == -kInfinity);
    for (int d = 0; d < 8; ++d) CHECK((r.o[row * 8 + d] == 0 && r.weight[row * 8 + d] == 0));
  }
  CHECK(r.lse[2] == Approx(8));
  CHECK(r.lse[3] == Approx(8 + std::log(2.0)));
  CHECK(r.o[3 * 8] == 5);
}

TEST_CASE("the oracle agrees with attention written down another way", "[nogpu]") {
  for (const Layout layout : {Layout::bshd, Layout::bhsd}) {
    for (const std::int64_t mask_offset : {-3, 0, 9}) {
      AttentionProblem problem = make_problem(DataType::fp16, 2, 6, 19, 24, MaskKind::causal);
      problem.heads_kv = 2;
      problem.seq_kv = 28;
      problem.mask_offset = mask_offset;
      problem.layout = layout;
      const auto q = random_normal(problem.dtype, 2 * 6 * 19 * 24, 1),
                 k = random_normal(problem.dtype, 2 * 2 * 28 * 24, 2),
                 v = random_normal(problem.dtype, 2 * 2 * 28 * 24, 3);
      const ReferenceForward r = reference_forward(problem, q, k, v);
      const TensorView qv = packed_view(problem, Operand::q), kv = packed_view(problem, Operand::k),
                       vv = packed_view(problem, Operand::v);
      for (int b = 0; b < 2; ++b) {
        for (int h = 0; h < 6; ++h) {
          for (int i = 0; i < 19; ++i) {
            long double sum = 0, largest = 0, o[24] = {}, weight[24] = {}, magnitude[24] = {};
            for (int j = 0; j < 28 && j <= i + mask_offset; ++j) {
              long double s = 0;
              for (int d = 0; d < 24; ++d) {
                s += static_cast<long double>(to_double(problem.dtype, q[offset(qv, b, h, i) + d])) *
                     to_double(problem.dtype, k[offset(kv, b, h / 3, j) + d]);
              }
              const long double p = std::exp(s * problem.softmax_scale);
              sum += p;
              largest = std::max(largest, p);
              for (int d = 0; d < 24; ++d) {
                const long double value = to_double(problem.dtype, v[offset(vv, b, h / 3, j) + d]);
                o[d] += p * value;
                weight[d] += p * std::abs(value);
                magnitude[d] += std::abs(value);
              }
            }
            const std::int64_t row = (b * 6 + h) * 19 + i;
            if (sum == 0) {
              REQUIRE(r.lse[row] == -kInfinity);
              continue;
            }
            REQUIRE(r.lse[row] == Approx(static_cast<double>(std::log(sum))).epsilon(1e-13).margin(1e-13));
            for (int d = 0; d < 24; ++d) {
              REQUIRE(r.o[row * 24 + d] == Approx(static_cast<double>(o[d] / sum)).epsilon(1e-12).margin(1e-13));
              const long double bounded = (weight[d] + 0x1p-14L * largest * magnitude[d]) / sum;
              REQUIRE(r.weight[row * 24 + d] == Approx(static_cast<double>(bounded)).epsilon(1e-12));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("huge scores neither overflow nor lose the largest", "[nogpu]") {
  AttentionProblem problem = tiny(1, 3);
  const auto q = bf16_of({100, 0, 0, 0, 0, 0, 0, 0});
  std::vector<double> keys(24), values(24);
  keys[0] = -100;
  keys[8] = 100;
  keys[16] = 99.5;
  for (int j = 0; j < 3; ++j) values[8 * j] = j + 1;
  const ReferenceForward r = reference_forward(problem, q, bf16_of(keys), bf16_of(values));
  CHECK(r.o[0] == Approx(2));
  CHECK(r.lse[0] == Approx(10000));
}

TEST_CASE("NaN in an input that counts is seen in the reference", "[nogpu]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto ones = bf16_of(std::vector<double>(8, 1.0));
  auto bad = ones;
  bad[0] = from_double(DataType::bf16, nan);
  CHECK(std::isnan(reference_forward(tiny(1, 1), ones, bad, ones).o[1]));
  CHECK(std::isnan(reference_forward(tiny(1, 1), ones, ones, bad).o[0]));
}

TEST_CASE("tensors of the wrong size are refused", "[nogpu]") {
  const std::vector<std::uint16_t> eight(8), seven(7);
  CHECK_THROWS_AS(reference_forward(tiny(1, 1), eight, seven, eight), Error);
}

TEST_CASE("comparison: the bounds of a correct forward", "[nogpu]") {
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 2, 16, 64);
  const std::size_t count = 2 * 16 * 64;
  const auto q = random_normal(problem.dtype, count, 1), k = random_normal(problem.dtype, count, 2),
             v = random_normal(problem.dtype, count, 3);
  const ReferenceForward reference = reference_forward(problem, q, k, v);

  // The reference itself, rounded and put into the problem's layout, is correct.
  const TensorView view = packed_view(problem, Operand::o);
  std::vector<std::uint16_t> o(count);
  std::vector<float> lse;
  for (int h = 0; h < 2; ++h) {
    for (int s = 0; s < 16; ++s) {
      for (int d = 0; d < 64; ++d)
        o[offset(view, 0, h, s) + d] = from_double(problem.dtype, reference.o[(h * 16 + s) * 64 + d]);
      lse.push_back(static_cast<float>(reference.lse[h * 16 + s]));
    }
  }
  const ForwardErrors good = compare_forward(problem, reference, o, lse);
  REQUIRE(good.outputs.size() == 2);
  CHECK(good.within());
  CHECK(good.outputs[0].relative > 0);
  CHECK(good.outputs[0].relative < 3e-3);
  CHECK(good.outputs[0].worst_ratio <= 0.5);
  CHECK(compare_forward(problem, reference, o, {}).outputs.size() == 1);

  const auto complaint = [&](std::size_t output) {
    const ForwardErrors errors = compare_forward(problem, reference, o, lse);
    CHECK_FALSE(errors.within());
    return errors.outputs[output].complaint;
  };
  const std::int64_t at = offset(view, 0, 1, 5) + 7;
  SECTION("one element off by more than its bound") {
    const std::int64_t index = (1 * 16 + 5) * 64 + 7;
    o[at] = from_double(problem.dtype, reference.o[index] + reference.weight[index] / 32);
    CHECK_THAT(complaint(0), ContainsSubstring("batch 0, head 1, row 5, column 7"));
  }
  SECTION("a NaN") {
    o[at] = 0x7fff;
    CHECK_THAT(complaint(0), ContainsSubstring("nan"));
  }
  SECTION("two heads swapped") {
    const std::int64_t other = offset(view, 0, 0, 5) + 7;
    std::swap(o[at], o[other]);
    complaint(0);
  }
  SECTION("an LSE off by 2e-5") {
    lse[21] += 2e-5f * 2;
    CHECK_THAT(complaint(1), ContainsSubstring("head 1, row 5"));
  }
  SECTION("an LSE of -inf") {
    lse[21] = -std::numeric_limits<float>::infinity();
    complaint(1);
  }
  SECTION("an LSE that is NaN") {
    lse[21] = std::numeric_limits<float>::quiet_NaN();
    complaint(1);
  }
}

TEST_CASE("comparison: many small errors break the bound of the norm", "[nogpu]") {
  const AttentionProblem problem = make_problem(DataType::fp16, 1, 1, 8, 64);
  ReferenceForward reference;
  reference.o.assign(8 * 64, 1.0);
  reference.weight.assign(8 * 64, 1.0);
  reference.lse.assign(8, 0.0);
  const std::vector<std::uint16_t> close(8 * 64,
                                         from_double(problem.dtype, 1 + 1.0 / 1024));  // within 3u of each element
  const ForwardErrors errors = compare_forward(problem, reference, close, {});
  CHECK(errors.outputs[0].worst_ratio <= 1);
  CHECK_FALSE(errors.within());
  CHECK_THAT(errors.outputs[0].complaint, ContainsSubstring("relative error"));
}

TEST_CASE("comparison: rows that attend to nothing must be 0 and -inf", "[nogpu]") {
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 1, 8);
  const ReferenceForward reference{std::vector<double>(8, 0.0), {-kInfinity}, std::vector<double>(8, 0.0)};
  std::vector<std::uint16_t> o(8, 0);
  std::vector<float> lse = {-std::numeric_limits<float>::infinity()};
  CHECK(compare_forward(problem, reference, o, lse).within());
  o[3] = from_double(problem.dtype, 1e-30);
  CHECK_FALSE(compare_forward(problem, reference, o, lse).within());
  o[3] = 0;
  lse[0] = -1e30f;
  CHECK_FALSE(compare_forward(problem, reference, o, lse).within());
}
