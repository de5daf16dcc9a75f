#include "generator/problem/sequence_lengths.h"

#include <algorithm>
#include <numeric>

#include "generator/error.h"
#include "generator/problem/mask_geometry.h"
#include "tests/catch.h"

using namespace attune;
using Lengths64 = std::vector<std::int64_t>;

namespace {

std::int64_t sum_of(const Lengths64& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

Lengths64 sorted(Lengths64 lengths) {
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

}  // namespace

TEST_CASE("lengths are read one by one and by their distribution", "[nogpu]") {
  CHECK(parse_lengths("77,0,130").lengths == Lengths64{77, 0, 130});
  CHECK(parse_lengths("5").lengths == Lengths64{5});
  CHECK(parse_lengths("77,0,130").distribution == LengthDistribution::log_uniform);
  const NamedLengths equal = parse_lengths("equal:3x0"), one_long = parse_lengths("one-long:4x2-90");
  CHECK(equal.lengths == Lengths64{0, 0, 0});
  CHECK(equal.distribution == LengthDistribution::equal);
  CHECK(sorted(one_long.lengths) == Lengths64{2, 2, 2, 90});
  CHECK(one_long.distribution == LengthDistribution::one_long);
  const NamedLengths even = parse_lengths("loguniform:64x128-8192");
  CHECK(even.distribution == LengthDistribution::log_uniform);
  CHECK(even.lengths.size() == 64);
  const Lengths64 in_order = sorted(even.lengths);
  CHECK(in_order != even.lengths);
  CHECK((in_order.front() == 132 && in_order.back() == 7930));
  CHECK(in_order[32] == 1058);  // beside the geometric mean, 1024

  for (const auto& [text, sentence] :
       {std::pair("", "'' is no number of rows"), std::pair("3,,4", "'' is no number of rows"),
        std::pair("3,-1", "'-1' is no number of rows from 0 to 2147483647"),
        std::pair("2147483647,1", "2147483648 rows together, more than 2147483647"),
        std::pair("uniform:3x4-5", "'uniform' is no distribution of lengths; write 77,0,130"),
        std::pair("equal:3x4-5", "equal lengths have one number of rows"),
        std::pair("equal:x4", "must name a number of sequences"), std::pair("equal:4", "behind an x, their rows"),
        std::pair("equal:9999999x1", "a number of sequences from 1 to 1048576"),
        std::pair("one-long:3x4", "'4' must name the shortest and the longest"),
        std::pair("loguniform:3x5-4", "the shortest must have a row, and the longest no fewer"),
        std::pair("loguniform:3x0-4", "the shortest must have a row"),
        std::pair("loguniform:3x4-5-6", "'5-6' is no number of rows")}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_lengths(text), ContainsSubstring(sentence));
  }
  for (const char* text : {"7", "7,x", "-3", "equal:3x4", "whole:3"}) CHECK(names_lengths(text));
  for (const char* text : {"", "used", "whole", "usde"}) CHECK_FALSE(names_lengths(text));
}

TEST_CASE("a distribution shares all rows out, however few there are", "[nogpu]") {
  for (const LengthDistribution distribution :
       {LengthDistribution::log_uniform, LengthDistribution::equal, LengthDistribution::one_long}) {
    for (const std::int64_t sequences : {1, 2, 7, 64, 1000}) {
      for (const std::int64_t rows : {1, 5, 1024, 123457}) {
        const Lengths64 lengths = distributed_lengths(distribution, rows, sequences);
        INFO(static_cast<int>(distribution) << " " << sequences << " " << rows);
        CHECK(lengths.size() == static_cast<std::size_t>(sequences));
        CHECK(sum_of(lengths) == rows);
        CHECK(*std::min_element(lengths.begin(), lengths.end()) >= 0);
        CHECK(lengths == distributed_lengths(distribution, rows, sequences));
      }
    }
  }
  CHECK(distributed_lengths(LengthDistribution::equal, 40, 4) == Lengths64{10, 10, 10, 10});
  CHECK(sorted(distributed_lengths(LengthDistribution::one_long, 60, 4)) == Lengths64{10, 10, 10, 30});
  // As bindings/python/comparison/sequence_lengths.py has them, too.
  CHECK(distributed_lengths(LengthDistribution::log_uniform, 512, 12) ==
        Lengths64{7, 13, 27, 54, 19, 108, 5, 152, 38, 3, 76, 10});
  const Lengths64 even = sorted(distributed_lengths(LengthDistribution::log_uniform, 64 * 1939, 64));
  CHECK((even.front() == 132 && even.back() > 7900));  // as loguniform:64x128-8192, whose mean that is
}

TEST_CASE("the pairs of packed sequences are counted by their distribution", "[nogpu]") {
  const auto pairs = [](const char* text) { return count_attended_pairs(parse_problem(text)); };
  CHECK(pairs("forward fp16 b4 hq1 sq4096 d64 packed lengths=equal") == 1024 * 1024);
  CHECK(pairs("forward fp16 b4 hq1 sq4096 d64 causal packed lengths=equal") == 1024 * 1025 / 2);
  CHECK(pairs("forward fp16 b1 hq1 sq4096 d64 packed") == 4096 * 4096);
  // Those for which a bias has elements.
  CHECK(pairs("forward fp16 b4 hq1 sq4096 d64 bias=1hqk packed lengths=equal max-sq100 max-skv2000") == 100 * 1024);
  // One of 2048 rows and three of a third of as many.
  const double one_long = (2048.0 * 2048 + 683.0 * 683 + 2 * 682.5 * 682.5) / 4;
  const auto counted = static_cast<double>(pairs("forward fp16 b4 hq1 sq4096 d64 packed lengths=one-long"));
  CHECK((counted > 0.999 * one_long && counted < 1.001 * one_long));
  // E[l^2] / E[l]^2 of a log-uniform distribution over a factor of 64 is 2.145.
  const auto even = static_cast<double>(pairs("forward fp16 b512 hq1 sq524288 d64 packed")) / (1024.0 * 1024.0);
  CHECK((even > 2.13 && even < 2.16));
}
