#include "tuner/cli/suggestion.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>

namespace attune::cli {
namespace {

// Letters to insert, remove, replace or exchange with their neighbour: Damerau's and Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> distance(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) distance[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) distance[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      distance[i][j] = std::min(
          {distance[i - 1][j] + 1, distance[i][j - 1] + 1, distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& words) {
  // Dashes say what kind of word it is, not which one.
  const auto letters = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('-'), text.size()));
  };
  const std::string_view wanted = letters(word);
  constexpr std::size_t kLongest = 40;  // what is longer is no slip of the keyboard
  if (wanted.empty() || wanted.size() > kLongest) return "";
  const std::string* best = nullptr;
  std::size_t least = wanted.size() / 4 + 2;
  for (const std::string& candidate : words) {
    const std::string_view known = letters(candidate);
    std::size_t distance = edit_distance(wanted, known);
    // Who begins a word means it, and who says more than a flag of some letters may mean that.
    if (wanted.size() > 1 && known.starts_with(wanted)) distance = 0;
    if (known.size() > 2 && wanted.starts_with(known)) distance = std::min<std::size_t>(distance, 2);
    if (distance >= least || distance >= known.size()) continue;
    best = &candidate;
    least = distance;
  }
  return best == nullptr ? "" : fmt::format("; did you mean {}?", *best);
}

}  // namespace attune::cli
