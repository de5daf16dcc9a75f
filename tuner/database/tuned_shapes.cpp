#include "tuner/database/tuned_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

#include "generator/error.h"
#include "generator/problem/mask_geometry.h"
#include "generator/problem/problem_fields.h"
#include "tuner/database/database_rows.h"

namespace attune {
namespace {

using TunedShape = TuningDatabase::TunedShape;

struct Shape {
  std::int64_t batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, mask_offset;
  double attended_keys;  // of a query in the mean; of a mask that hides first keys, else 0
  friend bool operator==(const Shape&, const Shape&) = default;
};

// The weights and ranges of near(), in its order.
constexpr double kPerLengthFactor = 0.35, kShortest = 32, kLongest = 4096;
constexpr double kPerFactorOfAnyLength = 0.025;
constexpr double kPerWorkFactor = 1.5, kLeastWork = 0.1, kMostWork = 64, kQueriesOfTile = 128;
constexpr double kPerChunkOfHeadDim = 0.4, kElementsOfChunk = 8;
constexpr double kPerGroupFactor = 0.3;
constexpr double kOtherDtype = 0.2;

double log2_distance(double a, double b) { return std::abs(std::log2(a / b)); }
double log2_distance(double a, double b, double least, double most) {
  return log2_distance(std::clamp(a, least, most), std::clamp(b, least, most));
}

double distance(const Shape& a, const Shape& b, int sm_count) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const auto length = [&](std::int64_t mine, std::int64_t other) {
    return kPerLengthFactor * log2_distance(real(mine), real(other), kShortest, kLongest) +
           kPerFactorOfAnyLength * log2_distance(real(mine), real(other));
  };
  const auto tiles_per_sm = [&](const Shape& shape) {
    return real(shape.batch) * real(shape.heads_q) * real(shape.seq_q) / (kQueriesOfTile * sm_count);
  };
  return length(a.seq_q, b.seq_q) + length(a.seq_kv, b.seq_kv) +
         kPerWorkFactor * log2_distance(tiles_per_sm(a), tiles_per_sm(b), kLeastWork, kMostWork) +
         (a.attended_keys > 0 && b.attended_keys > 0
              ? kPerLengthFactor * log2_distance(a.attended_keys, b.attended_keys)
              : 0) +
         kPerChunkOfHeadDim * std::abs(real(a.head_dim - b.head_dim)) / kElementsOfChunk +
         kPerGroupFactor * log2_distance(real(a.heads_q) / real(a.heads_kv), real(b.heads_q) / real(b.heads_kv));
}

// Whether a stored text may have a simpler mask: causal that hides nothing, or a window, of which the columns do not
// say all.
constexpr const char* kMayBeSimpler = "(p.mask = 'window' OR (p.mask = 'causal' AND p.mask_offset >= p.seq_kv - 1))";

// The keys of a query, in the mean.
double attended_keys(const AttentionProblem& problem) {
  if (!hides_first_keys(problem.mask)) return 0;
  return static_cast<double>(count_attended_pairs(problem)) / static_cast<double>(problem.seq_q);
}

// Packed sequences as equal ones, by which they lie among problems that are not packed.
Shape shape_of(const AttentionProblem& problem) {
  const AttentionProblem equal = with_equal_lengths(problem);
  return {equal.batch,  equal.heads_q,  equal.heads_kv,    equal.seq_q,
          equal.seq_kv, equal.head_dim, equal.mask_offset, attended_keys(equal)};
}

}  // namespace

std::map<std::string, std::vector<std::int64_t>> other_spellings(sqlite::Connection& db) {
  std::map<std::string, std::vector<std::int64_t>> found;
  sqlite::Statement query(db, fmt::format("SELECT p.id, p.text FROM problem p WHERE {}", kMayBeSimpler));
  while (query.step()) {
    try {
      const std::string text = canonical_text(parse_problem(query.text(1)));
      if (text != query.text(1)) found[text].push_back(query.integer(0));
    } catch (const Error&) {
      // A row of a later version.
    }
  }
  return found;
}

// From the columns alone: parsing every text would cost more than the query. Of a mask that hides first keys they do
// not say all.
std::vector<TunedShape> tuned_shapes_near(sqlite::Connection& db, const AttentionProblem& problem, int sm_count) {
  sqlite::Statement query(
      db, fmt::format("SELECT p.text, d.name, d.sm_count, p.batch, p.heads_q, p.heads_kv, p.seq_q, p.seq_kv, "
                      "p.head_dim, p.mask_offset, p.dtype = ?, p.features, {} "
                      "FROM problem p JOIN device d "
                      "WHERE p.pass = ? AND (p.mask = ? OR {}) AND p.alignment = ? AND "
                      "EXISTS (SELECT 1 FROM measurement m WHERE m.problem_id = p.id AND m.device_id = d.id)",
                      kMayBeSimpler, kMayBeSimpler));
  query.bind(to_string(problem.dtype))
      .bind(to_string(problem.pass))
      .bind(to_string(problem.mask))
      .bind(problem.alignment);
  const Shape asked = shape_of(problem);
  const std::string asked_features = feature_words(problem), asked_text = canonical_text(problem);
  std::vector<TunedShape> found;
  while (query.step()) {
    Shape shape{query.integer(3), query.integer(4), query.integer(5), query.integer(6),
                query.integer(7), query.integer(8), query.integer(9), 0};
    bool same_mask = true;
    std::string text = query.text(0);
    if (query.integer(12) != 0) {
      try {
        const AttentionProblem stored = parse_problem(text);
        if (stored.mask != problem.mask) continue;
        shape.mask_offset = stored.mask_offset;
        shape.attended_keys = attended_keys(stored);
        same_mask = same_but_scale_and_layout(stored, problem) || !hides_first_keys(problem.mask);
        text = canonical_text(stored);
      } catch (const Error&) {
        continue;  // of a later version
      }
    }
    const bool same_dtype = query.integer(10) != 0;
    double apart_by_features = 0;
    const std::string features = query.text(11);
    try {
      if (features != asked_features) apart_by_features = feature_distance(problem, features);
      if (features.find("packed") != std::string::npos) {
        const AttentionProblem stored = parse_problem(text);
        if (stored.packed) shape = shape_of(stored);
      }
    } catch (const Error&) {
      continue;  // of a later version
    }
    const bool same_text = !problem.packed || text == asked_text;  // others are of the same shape, too
    const double apart = distance(shape, asked, sm_count) + (same_dtype ? 0 : kOtherDtype) + apart_by_features;
    if (!std::isfinite(apart)) continue;  // sizes that no problem has
    found.push_back({std::move(text), query.text(1), query.int32(2),
                     same_mask && same_dtype && apart_by_features == 0 && shape == asked && same_text, apart});
  }
  std::sort(found.begin(), found.end(), [&](const TunedShape& a, const TunedShape& b) {
    return std::tuple(!a.same_problem, a.distance, a.problem != asked_text, std::string_view(a.problem),
                      std::string_view(a.device),
                      a.sm_count) < std::tuple(!b.same_problem, b.distance, b.problem != asked_text,
                                               std::string_view(b.problem), std::string_view(b.device), b.sm_count);
  });
  // One that is stored in two spellings.
  found.erase(std::unique(found.begin(), found.end(),
                          [](const TunedShape& a, const TunedShape& b) {
                            return a.problem == b.problem && a.device == b.device && a.sm_count == b.sm_count;
                          }),
              found.end());
  return found;
}

bool same_but_scale_and_layout(AttentionProblem a, const AttentionProblem& b) {
  for (const ProblemField& field : problem_fields()) {
    const bool same_term = field.role == FieldRole::term && field.is_standard(a) == field.is_standard(b);
    if (field.role == FieldRole::argument || field.role == FieldRole::label || same_term) field.set(a, field.get(b));
  }
  return a == b;
}

}  // namespace attune
