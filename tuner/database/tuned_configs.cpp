#include "tuner/database/tuned_configs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <utility>

#include "attune/log.h"
#include "generator/config/cost_estimate.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/database/config_offer.h"

namespace attune {
namespace {

// The logarithm by which the predicted time of a neighbour's config counts as longer, by near()'s distance; far away,
// and for the default config, it is kDoubt. What won within kNearby of the asked shape is likely to win here too;
// beyond that the model tells the candidates apart better than their distance does. Fitted by replay on 106 shapes that
// were searched on an H200 (docs/notebook/search.md); each may be halved or doubled for 0.3 % of speed.
constexpr double kDoubt = 0.2, kNearby = 1;
constexpr std::ptrdiff_t kMostShapes = 40;  // that are looked at; more only if these have nothing to offer
// A neighbour whose kernel is another one now is taken only where the best of the others is expected to take so many
// times as long.
constexpr double kStaleAdvantage = 1.1;

// What is taken, and why it is stale, if it is.
struct Found {
  ConfigChoice choice;
  std::string stale;
};

// What a row speaks for: the choice of its config with its origin, and whose time it is, if it has one.
ConfigChoice choice_of(const ConfigOffer& offer, const std::string& stale, const std::string& tune_command) {
  const ShapeRows& from = *offer.from;
  ConfigChoice choice{offer.config, from.origin, describe(offer, stale), tune_command};
  const bool other_device = from.origin == ConfigOrigin::nearest_device;
  choice.basis = offer.row.rigor == Rigor::estimate ? ConfigBasis::model
                 : other_device                     ? ConfigBasis::borrowed
                                                    : ConfigBasis::measured;
  if (choice.basis == ConfigBasis::borrowed)
    choice.lender = fmt::format("{} with {} SMs", from.shape.device, from.shape.sm_count);
  return choice;
}

// The first offer that is no staler than this.
std::optional<Found> same_problem(const ShapeRows* begin, const ShapeRows* end, const PickQuestion& asked,
                                  bool estimates, Staleness most) {
  const std::vector<ConfigOffer> offers = offers_of(begin, end, asked, estimates, most);
  if (offers.empty()) return std::nullopt;
  const std::string stale = asked.why_stale(offers[0].row);
  const bool measured_here = !estimates && begin->origin == ConfigOrigin::exact && stale.empty();
  return Found{choice_of(offers[0], stale, measured_here ? "" : tune_command(asked.problem)), stale};
}

// The first offer of the least stale rows.
std::optional<Found> same_problem(const ShapeRows* begin, const ShapeRows* end, const PickQuestion& asked,
                                  bool estimates) {
  for (const Staleness most : {Staleness::current, Staleness::other_build, Staleness::other_kernel}) {
    for (const ShapeRows *first = begin, *last = begin; first != end; first = last) {
      while (last != end && last->level() == first->level()) ++last;
      if (std::optional<Found> found = same_problem(first, last, asked, estimates, most)) return found;
    }
  }
  return std::nullopt;
}

// The first of offers by rising expected time, or the next one of the kernel that runs now, if it is nearly as fast.
struct Expected {
  const ConfigOffer* offer;
  double microseconds;
};
const ConfigOffer& preferred(const std::vector<Expected>& offers, const PickQuestion& asked) {
  for (const Expected& next : offers) {
    if (next.microseconds > kStaleAdvantage * offers.front().microseconds) break;
    if (asked.staleness(next.offer->row) != Staleness::other_kernel) return *next.offer;
  }
  return *offers.front().offer;
}

// The config that the cost model expects to be fastest, of what the nearest shapes offer and the default one, those
// from nearby more trusted. None if no shape offers anything.
std::optional<Found> from_neighbours(const ShapeRows* begin, const ShapeRows* end, const PickQuestion& asked,
                                     bool estimates) {
  std::vector<ConfigOffer> offers;
  // A farther row of the same config says something new only where the nearer ones are staler.
  const auto is_known = [&](const ConfigOffer& offer) {
    return std::any_of(offers.begin(), offers.end(), [&](const ConfigOffer& nearer) {
      if (!(nearer.config == offer.config)) return false;
      const Staleness of_nearer = asked.staleness(nearer.row);
      return of_nearer == Staleness::current || of_nearer <= asked.staleness(offer.row);
    });
  };
  for (const ShapeRows* next = begin; next != end && offers.empty();) {
    const ShapeRows* const from = std::exchange(next, next + std::min<std::ptrdiff_t>(end - next, kMostShapes));
    for (ConfigOffer& offer : offers_of(from, next, asked, estimates, Staleness::other_kernel)) {
      if (!is_known(offer)) offers.push_back(std::move(offer));
    }
  }
  if (offers.empty()) return std::nullopt;

  const auto expected = [&](const KernelConfig& config, double doubt) {
    return estimate_cost(asked.problem, config, asked.device).microseconds * std::exp(doubt);
  };
  std::vector<Expected> by_time;
  for (const ConfigOffer& offer : offers) {
    const double doubt = kDoubt * (1 - std::exp(-offer.from->shape.distance / kNearby));
    by_time.push_back({&offer, expected(offer.config, doubt)});
  }
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const Expected& a, const Expected& b) { return a.microseconds < b.microseconds; });
  const KernelConfig standard = default_config(asked.problem, asked.device);
  if (!asked.is_passed_over(standard) && expected(standard, kDoubt) < by_time.front().microseconds) {
    const std::string nearest = describe(offers.front(), asked.why_stale(offers.front().row));
    return Found{
        {standard, ConfigOrigin::default_config, "expected to be faster than what was tuned nearby: " + nearest,
         tune_command(asked.problem), ConfigBasis::model},
        ""};
  }
  const ConfigOffer& best = preferred(by_time, asked);
  const std::string stale = asked.why_stale(best.row);
  return Found{choice_of(best, stale, tune_command(asked.problem)), stale};
}

std::string title_of(const TuningDatabase& database, bool beside_others) {
  const std::string label = to_text(database.label());
  if (database.label().name == kPresetsName) return label;
  if (!label.empty()) return "system database " + label;
  return "system database" + (beside_others ? " " + database.path().string() : "");
}

std::vector<TunedConfigs::Layer> layers_of(const std::shared_ptr<TuningDatabase>& user, DatabaseLayers system) {
  std::vector<TunedConfigs::Layer> layers;
  if (user) layers.push_back({user, false, "user database"});
  const bool several = system.size() > 1;
  for (std::shared_ptr<TuningDatabase>& database : system) {
    std::string title = title_of(*database, several);
    layers.push_back({std::move(database), true, std::move(title)});
  }
  return layers;
}

}  // namespace

TunedConfigs::TunedConfigs(std::shared_ptr<TuningDatabase> user, DatabaseLayers system,
                           std::shared_ptr<const CurrentBuild> build)
    : user_(std::move(user)),
      layers_(layers_of(user_, std::move(system))),
      build_(std::move(build)),
      seen_generation_(generation()) {}

const CurrentBuild& TunedConfigs::build() const { return build_ ? *build_ : CurrentBuild::of_process(); }

std::shared_ptr<TunedConfigs> TunedConfigs::at_default_places() {
  const std::filesystem::path path = TuningDatabase::default_path();
  std::error_code error;
  std::shared_ptr<TuningDatabase> user;
  if (!path.empty() && std::filesystem::exists(path, error)) user = TuningDatabase::open_for_reading(path);
  auto made = std::make_shared<TunedConfigs>(std::move(user), open_system_databases());
  for (const Layer& layer : made->layers())
    for (const std::string& note : layer.database->notes()) log(LogLevel::warning, note);
  return made;
}

std::uint64_t TunedConfigs::generation() const {
  std::uint64_t stored = 0;
  for (const Layer& layer : layers_) stored += layer.database->generation();
  return stored;
}

std::optional<ConfigChoice> TunedConfigs::find(const AttentionProblem& asked, const DeviceSpec& device,
                                               const std::vector<KernelConfig>& passed_over) {
  const AttentionProblem problem = simplest_mask(asked);
  try {
    // Asked for only after a pick has failed, which is rare and slow already: not kept.
    if (!passed_over.empty()) return look_up(problem, device, passed_over).choice;
    const Question question{problem, device};
    using Known = std::optional<ConfigChoice>;
    const auto known = [&]() -> std::optional<Known> {
      const std::lock_guard lock(mutex_);
      if (const std::uint64_t now = generation(); now != seen_generation_) {
        answers_.clear();
        seen_generation_ = now;
      }
      const auto found = answers_.find(question);
      if (found == answers_.end()) return std::nullopt;
      return std::optional<Known>(std::in_place, found->second);
    };
    if (std::optional<Known> answer = known()) return *answer;
    const Answer answer = [&] {
      const ActivityMutex::Lock looking_up(looking_up_);
      if (std::optional<Known> first = known()) return Answer{*first, ""};  // another thread was first
      const std::uint64_t before = generation();
      Answer made = look_up(problem, device, {});
      const std::lock_guard lock(mutex_);
      // Rows that were stored meanwhile may not be in it: the next one looks again.
      if (before == generation() && before == seen_generation_) answers_.emplace(question, made.choice);
      return made;
    }();
    if (!answer.stale.empty() && logs(LogLevel::info)) {
      log(LogLevel::info, fmt::format("the config {} of \"{}\" on {} comes from a stale row: {}; {} measures it anew",
                                      canonical_text(answer.choice->config), canonical_text(problem), device.name,
                                      answer.stale, answer.choice->tune_command));
    }
    return answer.choice;
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

TunedConfigs::Answer TunedConfigs::look_up(const AttentionProblem& problem, const DeviceSpec& device,
                                           const std::vector<KernelConfig>& passed_over, Extent extent) const {
  std::vector<ShapeRows> rows;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    std::vector<ShapeRows> found =
        shape_rows_of(*layers_[i].database, static_cast<int>(i), layers_[i].title, problem, device);
    std::move(found.begin(), found.end(), std::back_inserter(rows));
  }
  if (rows.empty()) return {};
  std::stable_sort(rows.begin(), rows.end());  // near() has sorted what is equal here

  const PickQuestion asked(problem, device, passed_over, build());
  const ShapeRows* const all = rows.data();
  const ShapeRows* const end_of_exact =
      std::find_if(all, all + rows.size(), [](const ShapeRows& from) { return from.origin != ConfigOrigin::exact; });
  const ShapeRows* const none = extent == Extent::exact ? end_of_exact : all + rows.size();
  // The exact ones of all databases are asked together, for those of an earlier one may be stale.
  const auto same_step = [](const ShapeRows& a, const ShapeRows& b) {
    return a.level() == b.level() || (a.origin == ConfigOrigin::exact && b.origin == ConfigOrigin::exact);
  };
  for (const bool estimates : {false, true}) {
    for (const ShapeRows *begin = all, *end = all; begin != none; begin = end) {
      while (end != none && same_step(*end, *begin)) ++end;
      std::optional<Found> found = begin->shape.same_problem ? same_problem(begin, end, asked, estimates)
                                                             : from_neighbours(begin, end, asked, estimates);
      if (!found) continue;
      if (!estimates && begin >= end_of_exact && end_of_exact != all) {
        const auto estimate = look_up(problem, device, passed_over, Extent::exact).choice;
        if (estimate && !(estimate->config == found->choice.config))
          found->choice.detail += fmt::format(
              "; what the cost model ranked first for this very problem, {}, comes after all "
              "that was measured",
              canonical_text(estimate->config));
      }
      return {std::move(found->choice), std::move(found->stale)};
    }
  }
  return {};
}

std::optional<ConfigChoice> TunedConfigs::find_exact(const AttentionProblem& problem, const DeviceSpec& device) const {
  return look_up(simplest_mask(problem), device, {}, Extent::exact).choice;
}

}  // namespace attune
