#include "tests/kernels/pairwise.h"

#include <algorithm>
#include <numeric>

namespace attune::tests {
namespace {

constexpr int kCandidates = 12;  // allowed rows of which the best is taken

// Standard generators are the same everywhere, standard distributions are not.
class Random {
 public:
  explicit Random(std::uint32_t seed) : state_(seed * 2654435761u + 12345) {}
  int below(int n) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return static_cast<int>(state_ % static_cast<std::uint32_t>(n));
  }

 private:
  std::uint32_t state_;
};

class Pairs {
 public:
  explicit Pairs(const std::vector<int>& sizes) : first_(sizes.size()) {
    std::partial_sum(sizes.begin(), sizes.end() - 1, first_.begin() + 1);
    values_ = first_.back() + sizes.back();
    open_.assign(static_cast<std::size_t>(values_) * values_, 0);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      for (std::size_t j = i + 1; j < sizes.size(); ++j) {
        for (int a = 0; a < sizes[i]; ++a) {
          for (int b = 0; b < sizes[j]; ++b) at(i, a, j, b) = at(j, b, i, a) = 1;
        }
      }
    }
  }

  char& at(std::size_t i, int a, std::size_t j, int b) {
    return open_[static_cast<std::size_t>(first_[i] + a) * values_ + static_cast<std::size_t>(first_[j] + b)];
  }
  // Open pairs that value a of factor i makes with the factors already set (>= 0) in row.
  int gain(const FactorChoice& row, std::size_t i, int a) {
    int count = 0;
    for (std::size_t j = 0; j < row.size(); ++j) count += j != i && row[j] >= 0 && at(i, a, j, row[j]);
    return count;
  }
  int gain(const FactorChoice& row) {
    int count = 0;
    for (std::size_t i = 0; i < row.size(); ++i) count += gain(row, i, row[i]);
    return count / 2;
  }
  void close(std::size_t i, int a, std::size_t j, int b) { at(i, a, j, b) = at(j, b, i, a) = 0; }
  void close(const FactorChoice& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (std::size_t j = i + 1; j < row.size(); ++j) close(i, row[i], j, row[j]);
    }
  }

 private:
  std::vector<int> first_;
  int values_ = 0;
  std::vector<char> open_;
};

// Sets the factors of row that are below 0: in random order, each to the value that closes most pairs, or (greedy =
// false) at random. A factor of one value takes no part in the drawing: a table stays the same when one is added.
FactorChoice completed(FactorChoice row, const std::vector<int>& sizes, bool greedy, Pairs& pairs, Random& random) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (sizes[i] > 1)
      order.push_back(i);
    else
      row[i] = 0;
  }
  for (std::size_t i = order.size() - 1; i > 0; --i)
    std::swap(order[i], order[static_cast<std::size_t>(random.below(static_cast<int>(i) + 1))]);
  for (const std::size_t i : order) {
    if (row[i] >= 0) continue;
    const int start = random.below(sizes[i]);
    int best = start, best_gain = -1;
    for (int v = 0; v < sizes[i] && greedy; ++v) {
      const int value = (start + v) % sizes[i];
      const int gain = pairs.gain(row, i, value);
      if (gain > best_gain) {
        best = value;
        best_gain = gain;
      }
    }
    row[i] = best;
  }
  return row;
}

}  // namespace

PairwiseTable pairwise(const std::vector<int>& sizes, const std::function<bool(const FactorChoice&)>& allowed,
                       std::uint32_t seed, int tries) {
  Random random(seed);
  Pairs pairs(sizes);
  PairwiseTable table;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t j = i + 1; j < sizes.size(); ++j) {
      for (int a = 0; a < sizes[i]; ++a) {
        for (int b = 0; b < sizes[j]; ++b) {
          if (!pairs.at(i, a, j, b)) continue;
          FactorChoice partial(sizes.size(), -1), best;
          partial[i] = a;
          partial[j] = b;
          int best_gain = -1, found = 0;
          for (int attempt = 0; attempt < tries && found < kCandidates; ++attempt) {
            const FactorChoice row = completed(partial, sizes, attempt % 2 == 0 && attempt < tries / 2, pairs, random);
            if (!allowed(row)) continue;
            ++found;
            const int gain = pairs.gain(row);
            if (gain > best_gain) {
              best = row;
              best_gain = gain;
            }
          }
          if (best.empty()) {
            pairs.close(i, a, j, b);
            table.impossible.push_back(std::to_string(i) + "." + std::to_string(a) + " " + std::to_string(j) + "." +
                                       std::to_string(b));
            continue;
          }
          pairs.close(best);
          table.rows.push_back(best);
        }
      }
    }
  }
  return table;
}

}  // namespace attune::tests
