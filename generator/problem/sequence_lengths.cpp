#include "generator/problem/sequence_lengths.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "generator/error.h"
#include "generator/mix_bits.h"

namespace attune {
namespace {

constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostSequences = 1 << 20;  // of a name, whose lengths are all written down
constexpr double kLongestToShortest = 64;         // of a log-uniform distribution without bounds: those of 128 to 8192
constexpr double kShareOfLongOne = 0.5;           // of the rows of all

// Which of the sequences, by length, is the i-th: one order of all that there are, that favours nothing.
std::vector<std::size_t> order_of(std::size_t sequences) {
  std::vector<std::size_t> order(sequences);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [](std::uint64_t number) { return mix_bits((number + 1) * kGoldenRatio); };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return order;
}

// The middle of the i-th of n parts, of equal probability.
double quantile(std::size_t i, std::size_t n) { return (static_cast<double>(i) + 0.5) / static_cast<double>(n); }

// Shares of the rows in proportion to `weights`, rounded so that their sum is `rows`.
std::vector<std::int64_t> shared_out(const std::vector<double>& weights, std::int64_t rows) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> lengths;
  double sum = 0;
  std::int64_t begin = 0;
  for (const double weight : weights) {
    sum += weight;
    const auto end = std::clamp<std::int64_t>(std::llround(static_cast<double>(rows) * (sum / all)), begin, rows);
    lengths.push_back(end - begin);
    begin = end;
  }
  lengths.back() += rows - begin;
  return lengths;
}

[[noreturn]] void refuse_lengths(std::string_view text, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("'{}': {}; write {}", text, why, kLengthsForms));
}

// A whole number from 0 to `most` that is all of `digits`.
std::optional<std::int64_t> number_of(std::string_view digits, std::int64_t most) {
  std::int64_t number = 0;
  const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc() || stopped != digits.data() + digits.size() || number < 0 || number > most)
    return std::nullopt;
  return number;
}

std::int64_t rows_of(std::string_view text, std::string_view digits) {
  const auto rows = number_of(digits, kMostRows);
  if (!rows) refuse_lengths(text, fmt::format("'{}' is no number of rows from 0 to {}", digits, kMostRows));
  return *rows;
}

// The text in two at the first of a character, the second one nothing where there is none.
std::pair<std::string_view, std::optional<std::string_view>> split(std::string_view text, char at) {
  const std::size_t found = text.find(at);
  if (found == std::string_view::npos) return {text, std::nullopt};
  return {text.substr(0, found), text.substr(found + 1)};
}

NamedLengths distributed(std::string_view text, std::string_view word, std::string_view sizes) {
  NamedLengths named;
  const std::optional<LengthDistribution> distribution = length_distribution(word);
  if (!distribution) refuse_lengths(text, fmt::format("'{}' is no distribution of lengths", word));
  named.distribution = *distribution;
  const auto [digits, rows] = split(sizes, 'x');
  const auto count = number_of(digits, kMostSequences);
  if (!count || *count == 0 || !rows)
    refuse_lengths(text, fmt::format("'{}' must name a number of sequences from 1 to {} and, behind an x, their rows",
                                     sizes, kMostSequences));
  const auto sequences = static_cast<std::size_t>(*count);
  const auto [least, most] = split(*rows, '-');
  const std::int64_t shortest = rows_of(text, least);
  if (named.distribution == LengthDistribution::equal) {
    if (most) refuse_lengths(text, "equal lengths have one number of rows");
    named.lengths.assign(sequences, shortest);
    return named;
  }
  if (!most) refuse_lengths(text, fmt::format("'{}' must name the shortest and the longest", *rows));
  const std::int64_t longest = rows_of(text, *most);
  if (longest < shortest || shortest == 0)
    refuse_lengths(text, "the shortest must have a row, and the longest no fewer than it");
  const double ratio = static_cast<double>(longest) / static_cast<double>(shortest);
  for (const std::size_t i : order_of(sequences)) {
    const bool is_long = i == sequences - 1;
    named.lengths.push_back(
        named.distribution == LengthDistribution::one_long
            ? (is_long ? longest : shortest)
            : std::llround(static_cast<double>(shortest) * std::pow(ratio, quantile(i, sequences))));
  }
  return named;
}

}  // namespace

std::int64_t NamedLengths::rows() const { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }

std::vector<std::int64_t> distributed_lengths(LengthDistribution distribution, std::int64_t rows,
                                              std::int64_t sequences) {
  const auto count = static_cast<std::size_t>(sequences);
  std::vector<double> weights;
  for (const std::size_t i : order_of(count)) {
    const bool is_long = i == count - 1;
    switch (distribution) {
      case LengthDistribution::equal:
        weights.push_back(1);
        break;
      case LengthDistribution::log_uniform:
        weights.push_back(std::pow(kLongestToShortest, quantile(i, count)));
        break;
      case LengthDistribution::one_long:
        weights.push_back(is_long ? kShareOfLongOne
                                  : (1 - kShareOfLongOne) / static_cast<double>(std::max<std::size_t>(1, count - 1)));
        break;
    }
  }
  return shared_out(weights, rows);
}

bool names_lengths(std::string_view text) {
  return !text.empty() && (std::string_view("0123456789+-").find(text.front()) != std::string_view::npos ||
                           text.find_first_of(",:") != std::string_view::npos);
}

NamedLengths parse_lengths(std::string_view text) {
  const auto [word, sizes] = split(text, ':');
  NamedLengths named;
  if (sizes) {
    named = distributed(text, word, *sizes);
  } else {
    for (std::optional<std::string_view> rest = text; rest;) {
      const auto [digits, behind] = split(*rest, ',');
      named.lengths.push_back(rows_of(text, digits));
      rest = behind;
    }
  }
  if (named.rows() > kMostRows)
    refuse_lengths(text, fmt::format("{} rows together, more than {}", named.rows(), kMostRows));
  return named;
}

namespace {

// At least 1, as tensors have elements.
std::int64_t longest(const NamedLengths& named) {
  return std::max<std::int64_t>(1, *std::max_element(named.lengths.begin(), named.lengths.end()));
}

}  // namespace

std::optional<std::int64_t> NamedSequences::value_of(std::string_view key) const {
  if (key == "packed") return 1;
  if (key == "batch") return static_cast<std::int64_t>(queries.lengths.size());
  if (key == "seq_q") return queries.rows();
  if (key == "seq_kv") return keys.rows();
  if (key == "distribution") return static_cast<std::int64_t>(queries.distribution);
  if (with_pairs && key == "max_seq_q") return longest(queries);
  if (with_pairs && key == "max_seq_kv") return longest(keys);
  return std::nullopt;
}

}  // namespace attune
