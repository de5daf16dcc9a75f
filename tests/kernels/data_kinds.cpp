#include "tests/kernels/data_kinds.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <sstream>

namespace attune::tests {
namespace {

// As large as Q's other elements, so that dK has elements of one size. 200 powers of two make an element of K of
// 2218 at most, which fits fp16.
constexpr double kOffsetQuery = 1;
constexpr std::int64_t kRarePeriod = 500;

constexpr const char* kNames[] = {"normal", "t3", "sink", "rare", "near", "leap", "equal", "dominant", "huge"};

bool has_same_keys(ScorePattern pattern) { return pattern == ScorePattern::equal || pattern == ScorePattern::dominant; }
}  // namespace

std::string to_string(const DataKind& kind) {
  std::ostringstream text;
  text << kNames[static_cast<int>(kind.pattern)];
  if (kind.pattern != ScorePattern::equal) text << ':' << kind.parameter;
  return text.str();
}

const std::vector<DataKind>& data_suite() {
  using enum ScorePattern;
  static const std::vector<DataKind> suite = {{normal, 1},  {normal, 4}, {normal, 8}, {normal, 16},  {normal, 30},
                                              {normal, 64}, {t3, 1},     {t3, 4},     {t3, 16},      {sink, 6},
                                              {sink, 12},   {sink, 20},  {rare, 8},   {near, 20},    {near, -20},
                                              {leap, 20},   {leap, 200}, {equal, 1},  {dominant, 20}};
  return suite;
}

bool has_offsets(const DataKind& kind) {
  return kind.pattern != ScorePattern::normal && kind.pattern != ScorePattern::t3 &&
         kind.pattern != ScorePattern::equal && kind.pattern != ScorePattern::huge;
}

double key_offset(const DataKind& kind, std::int64_t key, std::int64_t seq_kv) {
  const double ln2 = std::numbers::ln2;
  switch (kind.pattern) {
    case ScorePattern::normal:
    case ScorePattern::t3:
    case ScorePattern::equal:
    case ScorePattern::huge:
      return 0;
    case ScorePattern::sink:
      return key == 0 ? kind.parameter : 0;
    case ScorePattern::rare:  // another place in each 500 keys: 311 and 500 have no common divisor
      return key % kRarePeriod == (37 + 311 * (key / kRarePeriod)) % kRarePeriod ? kind.parameter : 0;
    case ScorePattern::near:
      return seq_kv > 1 ? kind.parameter * static_cast<double>(key) / static_cast<double>(seq_kv - 1) : 0;
    case ScorePattern::leap:
      return key == seq_kv / 8 ? kind.parameter * ln2 : 0;
    case ScorePattern::dominant:
      return key == seq_kv / 2 ? kind.parameter * ln2 : 0;
  }
  return 0;
}

// A row of Q or K whose products are `size` and some of its last bits.
void set_huge(double size, bool is_q, std::int64_t row, std::vector<double>* values) {
  const int power = std::ilogb(std::fabs(size)), power_of_q = power / 2;
  std::fill(values->begin(), values->end(), 0.0);
  if (is_q) {
    (*values)[0] = row % 5 == 4 ? 0 : std::ldexp(1, power_of_q);
    (*values)[1] = row % 2 == 0 ? 1 : -1;
  } else {
    (*values)[0] = std::copysign(std::ldexp(1, power - power_of_q), size);
    (*values)[1] = std::ldexp(static_cast<double>(row * 7 % 13), power - 23);
  }
}

std::vector<double> data_values(const DataKind& kind, const AttentionProblem& problem, Operand operand,
                                std::uint32_t seed) {
  const bool is_q = operand == Operand::q, is_k = operand == Operand::k;
  const bool of_keys = is_k || operand == Operand::v;
  const std::int64_t heads = problem.batch * (of_keys ? problem.heads_kv : problem.heads_q);
  const std::int64_t rows = of_keys ? problem.seq_kv : problem.seq_q;
  const auto dim = static_cast<std::size_t>(problem.head_dim);

  std::mt19937 random(seed * 16 + static_cast<std::uint32_t>(operand));
  std::normal_distribution<double> normal;
  std::student_t_distribution<double> student(3);
  const bool is_student = kind.pattern == ScorePattern::t3 && (is_q || is_k);
  const auto draw = [&] { return is_student ? student(random) / std::numbers::sqrt3 : normal(random); };

  // Element 0 is no part of the random scores of kinds that have offsets.
  const bool offset = has_offsets(kind);
  const bool has_spread = kind.pattern == ScorePattern::normal || kind.pattern == ScorePattern::t3;
  const double random_terms = problem.head_dim - (offset ? 1 : 0), scale = problem.softmax_scale;
  const double of_q = (has_spread ? kind.parameter : 1) / (scale * std::sqrt(random_terms));

  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(heads * rows) * dim);
  std::vector<double> row(dim);
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t s = 0; s < rows; ++s) {
      if (s == 0 || !is_k || !has_same_keys(kind.pattern)) {
        for (double& value : row) value = draw() * (is_q ? of_q : 1);
      }
      if (kind.pattern == ScorePattern::huge && (is_q || is_k)) set_huge(kind.parameter, is_q, s, &row);
      if (offset && is_q) row[0] = kOffsetQuery;
      if (offset && is_k) row[0] = key_offset(kind, s, rows) / (scale * kOffsetQuery);
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  return values;
}

}  // namespace attune::tests
