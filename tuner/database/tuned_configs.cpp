#include "tuner/database/tuned_configs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <tuple>
#include <utility>

#include "attune/log.h"
#include "generator/config/cost_estimate.h"
#include "generator/error.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/long_rows.h"
#include "generator/families/shared/forward_rules.h"
#include "generator/generate.h"
#include "tuner/database/system_database.h"

namespace attune {
namespace {

using TunedShape = TuningDatabase::TunedShape;

// The logarithm by which the predicted time of a neighbour's config counts as longer, by near()'s distance; far away,
// and for the default config, it is kDoubt. What won within kNearby of the asked shape is likely to win here too;
// beyond that the model tells the candidates apart better than their distance does. Fitted by replay on 106 shapes that
// were searched on an H200 (docs/notebook/search.md); each may be halved or doubled for 0.3 % of speed.
constexpr double kDoubt = 0.2, kNearby = 1;
constexpr std::ptrdiff_t kMostShapes = 40;  // that are looked at; more only if these have nothing to offer

// Where rows may be found.
struct Place {
  const TuningDatabase* database = nullptr;
  const char* whose = "";
  int layer = 0;  // 0 is looked at first
  TunedShape shape;
  ConfigOrigin origin = ConfigOrigin::exact;
  int sm_difference = 0, clock_difference = 0;  // of another device

  // Places of one level answer together; the least level is looked at first.
  using Level = std::tuple<ConfigOrigin, int, int, int, std::string_view, int, bool>;
  Level level() const {
    const bool both_databases = origin == ConfigOrigin::nearest_shape;
    return {origin,         both_databases ? 0 : layer, sm_difference, clock_difference, shape.device,
            shape.sm_count, !shape.same_problem};
  }
  bool operator<(const Place& other) const {
    return std::tuple(level(), shape.distance, layer) < std::tuple(other.level(), other.shape.distance, other.layer);
  }
};

static_assert(ConfigOrigin::exact < ConfigOrigin::nearest_shape &&
                  ConfigOrigin::nearest_shape < ConfigOrigin::nearest_device,
              "places are sorted by it");

// The place of a shape on the device that is asked for, or on one of its family; none on any other.
std::optional<Place> place_of(TunedShape shape, const DeviceSpec& asked) {
  Place place;
  if (shape.device == asked.name && shape.sm_count == asked.sm_count) {
    place.origin = shape.same_problem ? ConfigOrigin::exact : ConfigOrigin::nearest_shape;
  } else {
    DeviceSpec other = asked;
    if (shape.device != asked.name) {
      const std::optional<DeviceSpec> known = find_device_by_name(shape.device);
      if (!known || arch_name(*known) != arch_name(asked)) return std::nullopt;
      other = *known;
    }
    place.origin = ConfigOrigin::nearest_device;
    place.sm_difference = std::abs(shape.sm_count - asked.sm_count);
    place.clock_difference = std::abs(other.clock_mhz - asked.clock_mhz);
  }
  place.shape = std::move(shape);
  return place;
}

struct Asked {
  const AttentionProblem& problem;
  const DeviceSpec& device;
  const std::vector<KernelConfig>& passed_over;

  bool is_passed_over(const KernelConfig& config) const {
    return std::find(passed_over.begin(), passed_over.end(), config) != passed_over.end();
  }
  bool fits(const KernelConfig& config) const { return infeasibility(problem, config, device).empty(); }
};

// What a place has to offer: its best row whose config can be taken.
struct Offer {
  const Place* place = nullptr;
  Measurement row;
  KernelConfig config;  // the row's, or what of it fits
};

// The config as exact as these rows and their dtype want it: sums leave the tensor cores' accumulators as often, and O
// is rescaled as early, and no earlier than that.
KernelConfig as_exact_as(const Asked& asked, const KernelConfig& config) {
  const AttentionProblem& problem = asked.problem;
  if (problem.pass == Pass::backward) return with_exact_sums(problem, config, asked.device);
  return promoted_for(problem, with_threshold_for(problem.dtype, config));
}

// A neighbour's config as near to it as fits: it is as exact as these rows want it, lengths that are no multiples
// of the tiles take checks of bounds, and heads that share no keys are not apart. Of the same problem only as it was
// measured.
std::optional<KernelConfig> taken_from(const KernelConfig& config, bool same_problem, const Asked& asked) {
  if (asked.is_passed_over(config)) return std::nullopt;
  if (same_problem) return asked.fits(config) ? std::optional(config) : std::nullopt;
  const KernelConfig as_exact = as_exact_as(asked, config);
  if (asked.fits(as_exact) && !asked.is_passed_over(as_exact)) return as_exact;
  KernelConfig same_bounds = as_exact;
  if (asked.problem.heads_q == asked.problem.heads_kv) same_bounds.kv_grad_per_query_head = false;
  KernelConfig with_bounds = same_bounds;
  with_bounds.even_tiles = false;
  for (const KernelConfig& changed : {same_bounds, with_bounds}) {
    if (asked.fits(changed) && !asked.is_passed_over(changed)) return changed;
  }
  return std::nullopt;
}

// What each place has to offer, in their order; a place without an offer is left out.
std::vector<Offer> offers_of(const Place* begin, const Place* end, const Asked& asked, bool estimates) {
  std::vector<std::optional<Measurement>> rows(static_cast<std::size_t>(end - begin));
  for (const Place* first = begin; first != end; ++first) {
    const TuningDatabase* const database = first->database;
    const auto is_its = [&](const Place& place) { return place.database == database; };
    if (std::any_of(begin, first, is_its)) continue;  // asked already: a database is asked once
    std::vector<TunedShape> shapes;
    for (const Place* place = first; place != end; ++place)
      if (is_its(*place)) shapes.push_back(place->shape);
    auto found = database->first_of(shapes, [&](const Measurement& row) {
      return (row.rigor == Rigor::estimate) == estimates &&
             taken_from(row.config, first->shape.same_problem, asked).has_value();
    });
    auto row = found.begin();
    for (const Place* place = first; place != end; ++place)
      if (is_its(*place)) rows[static_cast<std::size_t>(place - begin)] = std::move(*row++);
  }
  std::vector<Offer> offers;
  for (const Place* place = begin; place != end; ++place) {
    std::optional<Measurement>& row = rows[static_cast<std::size_t>(place - begin)];
    if (!row) continue;
    const KernelConfig config = *taken_from(row->config, place->shape.same_problem, asked);
    offers.push_back({place, std::move(*row), config});
  }
  return offers;
}

// What of the row's config does not fit here.
std::string changes_of(const Offer& offer) {
  std::string changes;
  if (offer.config.promotion_blocks != offer.row.config.promotion_blocks)
    changes += offer.config.promotion_blocks == 0 ? ", without promote, which only long rows need"
                                                  : ", with promote, which long rows need";
  if (offer.config.rescale_threshold != offer.row.config.rescale_threshold)
    changes += fmt::format(", with rescale{}, as this dtype wants it", offer.config.rescale_threshold);
  if (offer.config.query_parts != offer.row.config.query_parts)
    changes += fmt::format(", with {} in place of {} parts of the queries", offer.config.query_parts,
                           offer.row.config.query_parts);
  if (offer.config.dq != offer.row.config.dq) changes += ", with dQ added by tiles of keys, which long rows need";
  if (offer.config.even_tiles != offer.row.config.even_tiles) changes += ", without even-tiles, which do not fit";
  if (offer.config.kv_grad_per_query_head && !offer.row.config.kv_grad_per_query_head)
    changes += ", with kv-grad-per-query-head, which long rows need";
  if (!offer.config.kv_grad_per_query_head && offer.row.config.kv_grad_per_query_head && offer.config.query_parts == 1)
    changes += ", without kv-grad-per-query-head, which needs grouped heads";
  return changes;
}

std::string describe(const Offer& offer) {
  const Place& place = *offer.place;
  const bool other_device = place.origin == ConfigOrigin::nearest_device;
  return fmt::format(
      "{}{}{}{}, {} database{}",
      other_device ? fmt::format("{} with {} SMs: ", place.shape.device, place.shape.sm_count) : "",
      place.shape.problem, place.shape.same_problem ? "" : fmt::format(", at distance {:.2f}", place.shape.distance),
      offer.row.rigor == Rigor::estimate ? ", by the cost model" : fmt::format(", {:.1f} us", offer.row.median_us),
      place.whose, changes_of(offer));
}

// The first offer.
std::optional<ConfigChoice> same_problem(const Place* begin, const Place* end, const Asked& asked, bool estimates) {
  const std::vector<Offer> offers = offers_of(begin, end, asked, estimates);
  if (offers.empty()) return std::nullopt;
  const bool measured_here = !estimates && begin->origin == ConfigOrigin::exact;
  return ConfigChoice{offers[0].config, begin->origin, describe(offers[0]),
                      measured_here ? "" : tune_command(asked.problem)};
}

// Of what the nearest shapes offer and the default config, the one that the cost model expects to be fastest, those
// from nearby more trusted. None if no shape offers anything.
std::optional<ConfigChoice> from_neighbours(const Place* begin, const Place* end, const Asked& asked, bool estimates) {
  std::vector<Offer> offers;
  for (const Place* next = begin; next != end && offers.empty();) {
    const Place* const from = std::exchange(next, next + std::min<std::ptrdiff_t>(end - next, kMostShapes));
    for (Offer& offer : offers_of(from, next, asked, estimates)) {
      const bool known =
          std::any_of(offers.begin(), offers.end(), [&](const Offer& nearer) { return nearer.config == offer.config; });
      if (!known) offers.push_back(std::move(offer));
    }
  }
  if (offers.empty()) return std::nullopt;

  const auto expected = [&](const KernelConfig& config, double doubt) {
    return estimate_cost(asked.problem, config, asked.device).microseconds * std::exp(doubt);
  };
  const Offer* best = nullptr;
  double least = 0;
  for (const Offer& offer : offers) {
    const double time = expected(offer.config, kDoubt * (1 - std::exp(-offer.place->shape.distance / kNearby)));
    if (best != nullptr && time >= least) continue;
    best = &offer;
    least = time;
  }
  const KernelConfig standard = default_config(asked.problem, asked.device);
  if (!asked.is_passed_over(standard) && expected(standard, kDoubt) < least) {
    return ConfigChoice{standard, ConfigOrigin::default_config,
                        "expected to be faster than what was tuned nearby: " + describe(offers.front()),
                        tune_command(asked.problem)};
  }
  return ConfigChoice{best->config, best->place->origin, describe(*best), tune_command(asked.problem)};
}

}  // namespace

TunedConfigs::TunedConfigs(std::shared_ptr<TuningDatabase> user, std::shared_ptr<TuningDatabase> system)
    : user_(std::move(user)), system_(std::move(system)), seen_generation_(generation()) {}

std::shared_ptr<TunedConfigs> TunedConfigs::at_default_places() {
  const std::filesystem::path path = TuningDatabase::default_path();
  std::error_code error;
  std::shared_ptr<TuningDatabase> user;
  if (!path.empty() && std::filesystem::exists(path, error)) user = TuningDatabase::open_for_reading(path);
  std::shared_ptr<TuningDatabase> system = open_system_database();
  for (const TuningDatabase* database : {user.get(), system.get()}) {
    if (database == nullptr) continue;
    for (const std::string& note : database->notes()) log(LogLevel::warning, note);
  }
  return std::make_shared<TunedConfigs>(std::move(user), std::move(system));
}

std::uint64_t TunedConfigs::generation() const {
  return (user_ ? user_->generation() : 0) + (system_ ? system_->generation() : 0);
}

std::optional<ConfigChoice> TunedConfigs::find(const AttentionProblem& problem, const DeviceSpec& device,
                                               const std::vector<KernelConfig>& passed_over) {
  try {
    // Asked for only after a pick has failed, which is rare and slow already: not kept.
    if (!passed_over.empty()) return look_up(problem, device, passed_over);
    const Question question{problem, device};
    using Answer = std::optional<ConfigChoice>;
    const auto known = [&]() -> std::optional<Answer> {
      const std::lock_guard lock(mutex_);
      if (const std::uint64_t now = generation(); now != seen_generation_) {
        answers_.clear();
        seen_generation_ = now;
      }
      const auto found = answers_.find(question);
      if (found == answers_.end()) return std::nullopt;
      return std::optional<Answer>(std::in_place, found->second);
    };
    if (std::optional<Answer> answer = known()) return *answer;
    const ActivityMutex::Lock looking_up(looking_up_);
    if (std::optional<Answer> answer = known()) return *answer;  // another thread was first
    const std::uint64_t before = generation();
    Answer answer = look_up(problem, device, {});
    const std::lock_guard lock(mutex_);
    // Rows that were stored meanwhile may not be in it: the next one looks again.
    if (before == generation() && before == seen_generation_) answers_.emplace(question, answer);
    return answer;
  } catch (const Error& error) {
    // Locked, or damaged meanwhile: the next call asks again. Told outside the lock: a sink may wait for what a caller
    // holds.
    bool told = false;
    {
      const std::lock_guard lock(mutex_);
      told = !told_.insert(error.what()).second;
    }
    if (!told) log(LogLevel::warning, error.what());
    return std::nullopt;
  }
}

std::optional<ConfigChoice> TunedConfigs::look_up(const AttentionProblem& problem, const DeviceSpec& device,
                                                  const std::vector<KernelConfig>& passed_over, Extent extent) const {
  std::vector<Place> places;
  const auto look_at = [&](const TuningDatabase* database, int layer, const char* whose) {
    if (database == nullptr) return;
    for (TunedShape& shape : database->near(problem, device.sm_count)) {
      std::optional<Place> place = place_of(std::move(shape), device);
      if (!place) continue;
      place->database = database;
      place->layer = layer;
      place->whose = whose;
      places.push_back(std::move(*place));
    }
  };
  look_at(user_.get(), 0, "user");
  look_at(system_.get(), 1, "system");
  std::stable_sort(places.begin(), places.end());  // near() has sorted what is equal here

  const Asked asked{problem, device, passed_over};
  const Place* const all = places.data();
  const Place* const end_of_exact =
      std::find_if(all, all + places.size(), [](const Place& place) { return place.origin != ConfigOrigin::exact; });
  const Place* const none = extent == Extent::exact ? end_of_exact : all + places.size();
  for (const bool estimates : {false, true}) {
    for (const Place *begin = all, *end = all; begin != none; begin = end) {
      while (end != none && end->level() == begin->level()) ++end;
      std::optional<ConfigChoice> choice = begin->shape.same_problem ? same_problem(begin, end, asked, estimates)
                                                                     : from_neighbours(begin, end, asked, estimates);
      if (!choice) continue;
      if (!estimates && begin >= end_of_exact && end_of_exact != all) {
        const auto estimate = look_up(problem, device, passed_over, Extent::exact);
        if (estimate && !(estimate->config == choice->config))
          choice->detail += fmt::format(
              "; what the cost model ranked first for this very problem, {}, comes after all "
              "that was measured",
              canonical_text(estimate->config));
      }
      return choice;
    }
  }
  return std::nullopt;
}

std::optional<ConfigChoice> TunedConfigs::find_exact(const AttentionProblem& problem, const DeviceSpec& device) const {
  return look_up(problem, device, {}, Extent::exact);
}

}  // namespace attune
