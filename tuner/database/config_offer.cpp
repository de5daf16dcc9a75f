#include "tuner/database/config_offer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "generator/generate.h"
#include "runtime/system/printable.h"

namespace attune {
namespace {

constexpr std::size_t kMostKernels = 64;

// Those of a shape on the device that is asked for, or on one of its family; none on any other.
std::optional<ShapeRows> rows_of(TuningDatabase::TunedShape shape, const DeviceSpec& asked) {
  ShapeRows rows;
  if (shape.device == asked.name && shape.sm_count == asked.sm_count) {
    rows.origin = shape.same_problem ? ConfigOrigin::exact : ConfigOrigin::nearest_shape;
  } else {
    DeviceSpec other = asked;
    if (shape.device != asked.name) {
      const std::optional<DeviceSpec> known = find_device_by_name(shape.device);
      if (!known || arch_name(*known) != arch_name(asked)) return std::nullopt;
      other = *known;
    }
    rows.origin = ConfigOrigin::nearest_device;
    rows.sm_difference = std::abs(shape.sm_count - asked.sm_count);
    rows.clock_difference = std::abs(other.clock_mhz - asked.clock_mhz);
  }
  rows.shape = std::move(shape);
  return rows;
}

// A neighbour's config as near to it as fits. Of the same problem only as it was measured.
std::optional<Adaptation> taken_from(const KernelConfig& config, bool same_problem, const PickQuestion& asked) {
  if (asked.is_passed_over(config)) return std::nullopt;
  if (same_problem) return asked.fits(config) ? std::optional(Adaptation{config, {}}) : std::nullopt;
  std::optional<Adaptation> near = adapted(asked.problem, config, asked.device);
  if (near && asked.is_passed_over(near->config)) return std::nullopt;
  return near;
}

}  // namespace

std::vector<ShapeRows> shape_rows_of(const TuningDatabase& database, int layer, std::string_view title,
                                     const AttentionProblem& problem, const DeviceSpec& device) {
  std::vector<ShapeRows> all;
  for (TuningDatabase::TunedShape& shape : database.near(problem, device.sm_count)) {
    std::optional<ShapeRows> rows = rows_of(std::move(shape), device);
    if (!rows) continue;
    rows->database = &database;
    rows->layer = layer;
    rows->title = title;
    all.push_back(std::move(*rows));
  }
  return all;
}

bool PickQuestion::is_passed_over(const KernelConfig& config) const {
  return std::find(passed_over_.begin(), passed_over_.end(), config) != passed_over_.end();
}

bool PickQuestion::fits(const KernelConfig& config) const { return infeasibility(problem, config, device).empty(); }

Staleness PickQuestion::staleness(const Measurement& row) const {
  const std::string kernel = canonical_text(row.problem) + " " + canonical_text(row.config);
  if (!kernels_.contains(kernel) && kernels_.size() >= kMostKernels) return Staleness::other_kernel;
  kernels_.insert(kernel);
  return build_.staleness(row, device);
}

// The cheap half first: most rows of another time are told by it.
bool PickQuestion::is_at_most(Staleness most, const Measurement& row) const {
  if (most == Staleness::other_kernel) return true;
  return build_.staleness_of_build(row) <= most && staleness(row) <= most;
}

std::vector<ConfigOffer> offers_of(const ShapeRows* begin, const ShapeRows* end, const PickQuestion& asked,
                                   bool estimates, Staleness most) {
  std::vector<std::optional<Measurement>> rows(static_cast<std::size_t>(end - begin));
  for (const ShapeRows* first = begin; first != end; ++first) {
    const TuningDatabase* const database = first->database;
    const auto is_its = [&](const ShapeRows& from) { return from.database == database; };
    if (std::any_of(begin, first, is_its)) continue;  // asked already: a database is asked once
    std::vector<TuningDatabase::TunedShape> shapes;
    for (const ShapeRows* from = first; from != end; ++from)
      if (is_its(*from)) shapes.push_back(from->shape);
    auto found = database->first_of(shapes, [&](const Measurement& row) {
      using RowUse = TuningDatabase::RowUse;
      if (row.status != MeasurementStatus::ok)
        return asked.is_at_most(most, row) ? RowUse::pass_over : RowUse::leave_out;
      if ((row.rigor == Rigor::estimate) != estimates || !taken_from(row.config, first->shape.same_problem, asked))
        return RowUse::pass_over;
      return asked.is_at_most(most, row) ? RowUse::take : RowUse::leave_out;
    });
    auto row = found.begin();
    for (const ShapeRows* from = first; from != end; ++from)
      if (is_its(*from)) rows[static_cast<std::size_t>(from - begin)] = std::move(*row++);
  }
  std::vector<ConfigOffer> offers;
  for (const ShapeRows* from = begin; from != end; ++from) {
    std::optional<Measurement>& row = rows[static_cast<std::size_t>(from - begin)];
    if (!row) continue;
    Adaptation taken = *taken_from(row->config, from->shape.same_problem, asked);
    offers.push_back({from, std::move(*row), taken.config, std::move(taken.changes)});
  }
  return offers;
}

std::string describe(const ConfigOffer& offer, const std::string& stale) {
  const ShapeRows& from = *offer.from;
  const bool other_device = from.origin == ConfigOrigin::nearest_device;
  std::string changes;
  for (const std::string& change : offer.changes) changes += ", " + change;
  return fmt::format(
      "{}{}{}{}, {}{}{}{}",
      other_device ? fmt::format("{} with {} SMs: ", printable_line(from.shape.device), from.shape.sm_count) : "",
      from.shape.problem, from.shape.same_problem ? "" : fmt::format(", at distance {:.2f}", from.shape.distance),
      offer.row.rigor == Rigor::estimate ? ", by the cost model" : fmt::format(", {:.1f} us", offer.row.median_us),
      from.title, changes, stale.empty() ? "" : "; stale: ", stale);
}

}  // namespace attune
