// Searchers replayed on recorded times: a cost function of the fields stands for the recording.
#include "tuner/search/searcher.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

namespace searcher_test {
namespace {

struct Recording {
  AttentionProblem problem;
  std::vector<Candidate> space;
  KernelConfig default_choice;
};

Recording recording(const char* text) {
  const DeviceSpec& h200 = find_device("h200");
  Recording made{parse_problem(text), {}, {}};
  // The cost function below is one of the sm80 family's fields.
  for (Candidate& candidate : config_space(made.problem, h200)) {
    if (candidate.feasible() && candidate.config.family == FamilyWord::sm80) made.space.push_back(std::move(candidate));
  }
  DeviceSpec without_sm90 = h200;  // the family's default: that of a device with as much, and no configs of sm90
  without_sm90.compute_major = 10;
  made.default_choice = default_config(made.problem, without_sm90);
  return made;
}

// Times that the model knows only in part: bowls in the tile sizes with their bottom at a place that depends on the
// head dim, factors for the other fields, and a ripple of 1 % that stands for what no model knows. Some fail.
double recorded_time(const AttentionProblem& problem, const KernelConfig& c) {
  const double head = std::log2(problem.head_dim / 64.0);
  double time = 100;
  time *= 1 + 0.10 * std::pow(std::log2(c.block_kv / 96.0) + head, 2);
  time *= 1 + 0.12 * std::pow(std::log2(c.block_q / 128.0), 2);
  time *= 1 + 0.06 * std::pow(std::log2(c.warps / 8.0) + head / 2, 2);
  time *= c.stages == 2 ? 1 : c.stages == 3 ? 1.015 : 1.08;
  time *= c.q_in_registers ? 1 : 1.03;
  time *= c.rescale_threshold > 0 ? 0.97 : 1;
  time *= c.even_tiles ? 0.96 : 1;
  time *= 1 + 0.02 * static_cast<int>(c.tile_order);
  time *= 1 + 0.02 * (c.ctas_per_sm - 1);
  unsigned ripple = 7;
  for (const char letter : canonical_text(c)) ripple = ripple * 31 + static_cast<unsigned char>(letter);
  if (ripple % 29 == 0) return 0;
  return time * (1 + 0.01 * (ripple % 1000) / 1000);
}

struct Replay {
  int trials = 0;
  double best = 0;
  std::vector<std::size_t> order;
  std::string ended_by;
};

Replay replay(const Recording& of, const SearchLimits& limits) {
  Searcher searcher(of.space, {of.default_choice}, limits);
  Replay result;
  while (const auto index = searcher.next()) {
    const double time = recorded_time(of.problem, of.space[*index].config);
    searcher.tell(*index, time);
    ++result.trials;
    result.order.push_back(*index);
    if (time > 0 && (result.best == 0 || time < result.best)) result.best = time;
  }
  result.ended_by = searcher.ended_by();
  return result;
}

}  // namespace

TEST_CASE("a searcher finds nearly the best of a recording in few of its trials", "[nogpu]") {
  double log_regret = 0, worst = 1;
  int shapes = 0;
  for (const char* text :
       {"forward bf16 b4 hq16 sq4096 d64", "forward bf16 b4 hq16 sq4096 d64 causal", "forward bf16 b4 hq16 sq4096 d128",
        "forward fp16 b16 hq16 sq1000 d128 causal", "forward bf16 b32 hq8 sq512 d256"}) {
    INFO(text);
    const Recording of = recording(text);
    const Replay found = replay(of, {10, 40});
    double best = 0;
    for (const Candidate& candidate : of.space) {
      const double time = recorded_time(of.problem, candidate.config);
      if (time > 0 && (best == 0 || time < best)) best = time;
    }
    const double regret = found.best / best;
    INFO(found.trials << " of " << of.space.size() << " trials, regret " << regret);
    CHECK(found.ended_by == "patience");
    CHECK(found.trials * 10 <= static_cast<int>(of.space.size()));
    CHECK(regret <= 1.03);
    worst = std::max(worst, regret);
    log_regret += std::log(regret);
    ++shapes;
    // Two searches agree in every step.
    CHECK(replay(of, {10, 40}).order == found.order);
    // More patience goes on where less stopped.
    const Replay longer = replay(of, {10, 60});
    CHECK(longer.trials >= found.trials + 20);
    CHECK(std::equal(found.order.begin(), found.order.end(), longer.order.begin()));
  }
  INFO("worst " << worst);
  CHECK(std::exp(log_regret / shapes) <= 1.01);
}

TEST_CASE("a searcher without patience tries the whole space, each config once", "[nogpu]") {
  Recording of = recording("forward bf16 b1 hq8 sq1024 d64");
  of.space.resize(300);
  const Replay all = replay(of, {10, 0});
  CHECK(all.ended_by == "space exhausted");
  CHECK(all.trials == 300);
  CHECK(std::set<std::size_t>(all.order.begin(), all.order.end()).size() == 300);
}

TEST_CASE("the opening: seeds in their order, then different tiles and stages of the model's order", "[nogpu]") {
  const Recording of = recording("forward bf16 b1 hq8 sq1024 d64 causal");
  const std::vector<KernelConfig> seeds = {of.default_choice, of.space[40].config, parse_config("sm80 q16 kv8 w1 st1"),
                                           of.space[40].config, of.space[7].config};
  Searcher searcher(of.space, seeds, {10, 5});
  const auto upcoming = searcher.upcoming(13);
  REQUIRE(upcoming.size() == 13);
  CHECK(of.space[upcoming[0]].config == of.default_choice);
  CHECK(upcoming[1] == 40);
  CHECK(upcoming[2] == 7);
  std::vector<std::size_t> by_model;
  for (std::size_t i = 0; i < 10; ++i) {
    const std::size_t index = *searcher.next();
    CHECK(index == upcoming[i]);
    searcher.tell(index, 0);
    if (i > 2) by_model.push_back(index);
  }
  CHECK(std::is_sorted(by_model.begin(), by_model.end()));
  std::set<std::tuple<int, int, int, int>> tiles;
  for (const std::size_t index : by_model) {
    const KernelConfig& config = of.space[index].config;
    INFO(canonical_text(config));
    CHECK(tiles.insert({config.block_q, config.block_kv, config.warps, config.stages}).second);
  }
}

TEST_CASE("after the opening come moves from the fastest; an improvement renews the patience", "[nogpu]") {
  const Recording of = recording("forward bf16 b1 hq8 sq1024 d64");
  Searcher searcher(of.space, {of.default_choice}, {0, 3});
  const std::size_t first = *searcher.next();
  searcher.tell(first, 100);
  const std::size_t second = *searcher.next();
  CHECK(one_move_apart(of.space[first].config, of.space[second].config));
  searcher.tell(second, 99.9);  // faster, yet no improvement worth the name
  const std::size_t third = *searcher.next();
  CHECK(one_move_apart(of.space[second].config, of.space[third].config));
  searcher.tell(third, 50);
  for (int i = 0; i < 3; ++i) {
    const auto move = searcher.next();
    REQUIRE(move);
    CHECK(one_move_apart(of.space[third].config, of.space[*move].config));
    searcher.tell(*move, i == 0 ? 0 : 120);
  }
  CHECK_FALSE(searcher.next());
  CHECK(searcher.ended_by() == "patience");
}

TEST_CASE("one move", "[nogpu]") {
  const auto apart = [](const char* a, const char* b) { return one_move_apart(parse_config(a), parse_config(b)); };
  CHECK(apart("sm80 q128 kv64 w4 st2", "sm80 q128 kv80 w4 st2"));
  CHECK(apart("sm80 q128 kv64 w4 st2", "sm80 q64 kv64 w2 st2"));
  CHECK(apart("sm80 q128 kv64 w4 st2", "sm80 q128 kv64 w8 st2"));
  CHECK(apart("sm80 q128 kv64 w4 st2", "sm80 q128 kv64 w4 st2 rescale10"));
  CHECK(apart("sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w4 st2 dq=atomic"));
  CHECK(apart("sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w4 st2 kv-grad-per-query-head"));
  CHECK(apart("sm80 q64 kv64 w4 st2 query-warps2 dq=atomic", "sm80 q64 kv64 w4 st2 query-warps2 dq-first dq=atomic"));
  CHECK(apart("sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w8 st2 query-warps2"));
  CHECK(apart("sm80 q64 kv128 w8 st2", "sm80 q64 kv64 w8 st2 query-warps2"));
  CHECK(apart("sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w4 st2 query-warps2"));
  CHECK(apart("sm90 q192 kv64 st2", "sm90 q192 kv64 st2 qst2 scheduler=dynamic-persistent"));
  CHECK(
      apart("sm90 q192 kv64 st2 scheduler=static-persistent", "sm90 q192 kv64 st2 qst2 scheduler=dynamic-persistent"));
  CHECK(
      apart("sm90 q192 kv64 st2 order=head-major-reversed", "sm90 q192 kv64 st2 order=l2-sections-reversed l2parts4"));
  CHECK_FALSE(apart("sm90 q192 kv64 st2", "sm90 q192 kv64 st2 qst2 ordered scheduler=dynamic-persistent"));
  CHECK_FALSE(apart("sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w8 st2 query-warps2 dq=atomic"));
  CHECK_FALSE(apart("sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w4 st2 kv-grad-per-query-head dq=atomic"));
  CHECK_FALSE(apart("sm80 q64 kv64 w4 st2", "sm80 q64 kv128 w16 st2 query-warps2"));
  CHECK_FALSE(apart("sm80 q128 kv64 w4 st2", "sm80 q128 kv64 w4 st2"));
  CHECK_FALSE(apart("sm80 q128 kv64 w4 st2", "sm80 q64 kv80 w2 st2"));
  CHECK_FALSE(apart("sm80 q128 kv64 w4 st2", "sm80 q64 kv64 w8 st2"));
}

TEST_CASE("published tiles stand for their cheapest member", "[nogpu]") {
  const std::string pass = GENERATE("forward", "backward");
  for (const int head_dim : {16, 64, 72, 128, 256}) {
    INFO(pass << " d" << head_dim);
    const Recording of = recording((pass + " bf16 b1 hq8 sq1024 d" + std::to_string(head_dim)).c_str());
    const auto seeds = published_seeds(of.problem, of.space);
    REQUIRE_FALSE(seeds.empty());
    for (const KernelConfig& seed : seeds) {
      const auto same_tile = [&](const Candidate& c) {
        return c.config.block_q == seed.block_q && c.config.block_kv == seed.block_kv && c.config.warps == seed.warps;
      };
      CHECK(std::find_if(of.space.begin(), of.space.end(), same_tile)->config == seed);
    }
  }
  CHECK(published_seeds(parse_problem("forward bf16 b1 hq8 sq1024 d64"), {}).empty());
}

}  // namespace searcher_test
