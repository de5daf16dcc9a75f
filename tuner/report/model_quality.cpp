#include "tuner/report/model_quality.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

namespace attune {
namespace {

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) result[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return result;
}

}  // namespace

std::vector<const Measurement*> standing_rows(const std::vector<Measurement>& rows) {
  std::vector<const Measurement*> standing;
  std::map<std::string, std::size_t> places;
  for (const Measurement& row : rows) {
    const auto [found, added] = places.emplace(canonical_text(row.config), standing.size());
    if (added) {
      standing.push_back(&row);
    } else if (row.rigor >= standing[found->second]->rigor) {
      standing[found->second] = &row;
    }
  }
  return standing;
}

std::optional<double> rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() < 3) return std::nullopt;
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = static_cast<double>(a.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

ModelQuality model_quality(const std::vector<Measurement>& rows, double best_us) {
  std::vector<Measurement> in_order = rows;
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const Measurement& a, const Measurement& b) { return a.created_at < b.created_at; });
  std::vector<const Measurement*> standing;
  for (const Measurement* row : standing_rows(in_order)) {
    if (row->rigor > Rigor::estimate && row->predicted_us > 0) standing.push_back(row);
  }
  std::sort(standing.begin(), standing.end(), [](const Measurement* a, const Measurement* b) {
    return a->predicted_us != b->predicted_us ? a->predicted_us < b->predicted_us
                                              : canonical_text(a->config) < canonical_text(b->config);
  });
  const auto timed = [](const Measurement& row) { return row.status == MeasurementStatus::ok && row.median_us > 0; };

  ModelQuality quality;
  std::vector<double> predicted, measured;
  double fastest_of_first = 0;
  for (const Measurement* row : standing) {
    const bool first = quality.first < kModelFirst;
    if (first) ++quality.first;
    if (!timed(*row)) continue;
    predicted.push_back(row->predicted_us);
    measured.push_back(row->median_us);
    if (!first) continue;
    if (row->median_us <= kNearBest * best_us) ++quality.first_near_best;
    if (fastest_of_first == 0 || row->median_us < fastest_of_first) fastest_of_first = row->median_us;
  }
  quality.compared = static_cast<int>(measured.size());
  quality.rank_correlation = rank_correlation(predicted, measured);
  if (best_us > 0) quality.first_over_best = fastest_of_first / best_us;
  return quality;
}

}  // namespace attune
