#include "generator/config/config_space.h"

#include <algorithm>
#include <set>

#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("at least 100 feasible candidates for D = 64 and 128 on an A100 and an H200", "[nogpu]") {
  for (const char* device : {"a100", "h200"}) {
    for (const int head_dim : {64, 128}) {
      for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
        const AttentionProblem problem = make_problem(DataType::bf16, 4, 16, 4095, head_dim, mask);
        const std::vector<Candidate> space = config_space(problem, find_device(device));
        const auto feasible =
            std::count_if(space.begin(), space.end(), [](const Candidate& c) { return c.feasible(); });
        INFO(device << " " << canonical_text(problem));
        CHECK(feasible >= 100);
        CHECK(static_cast<std::size_t>(feasible) < space.size());
      }
    }
  }
}

TEST_CASE("the space is ordered, distinct and says why", "[nogpu]") {
  const AttentionProblem problem = make_problem(DataType::bf16, 2, 8, 1024, 128, MaskKind::causal);
  const DeviceSpec& device = find_device("a100");
  const std::vector<Candidate> space = config_space(problem, device);
  std::set<std::string> texts;
  for (std::size_t i = 0; i < space.size(); ++i) {
    const Candidate& candidate = space[i];
    const std::string text = canonical_text(candidate.config);
    REQUIRE(texts.insert(text).second);
    REQUIRE(candidate.reasons == infeasibility(problem, candidate.config, device));
    if (candidate.feasible()) REQUIRE(candidate.cost.microseconds > 0);
    if (i == 0) continue;
    const Candidate& before = space[i - 1];
    REQUIRE(before.feasible() >= candidate.feasible());
    if (candidate.feasible()) {
      REQUIRE(before.cost.microseconds <= candidate.cost.microseconds);
    } else if (!before.feasible()) {
      REQUIRE(canonical_text(before.config) < text);
    }
  }
  CHECK(space.front().feasible());
  CHECK_FALSE(space.back().feasible());
}

TEST_CASE("whole tiles are candidates only where every length of the dispatch class allows them", "[nogpu]") {
  const auto whole = [](std::int64_t seq_q, std::int64_t seq_kv) {
    AttentionProblem problem = make_problem(DataType::bf16, 1, 8, seq_q, 64);
    problem.seq_kv = seq_kv;
    std::vector<KernelConfig> configs;
    for (const Candidate& candidate : config_space(problem, find_device("a100"))) {
      if (candidate.config.even_tiles) configs.push_back(candidate.config);
    }
    return configs;
  };
  CHECK(whole(1000, 1024).empty());
  CHECK(whole(384, 384).empty());
  const std::vector<KernelConfig> configs = whole(1280, 1536);
  CHECK_FALSE(configs.empty());
  for (const KernelConfig& config : configs) REQUIRE((256 % config.block_q == 0 && 256 % config.block_kv == 0));
}

TEST_CASE("tile orders by mask", "[nogpu]") {
  const auto orders = [](MaskKind mask) {
    std::set<TileOrder> found;
    for (const Candidate& candidate :
         config_space(make_problem(DataType::bf16, 1, 8, 512, 64, mask), find_device("h200"))) {
      found.insert(candidate.config.tile_order);
    }
    return found;
  };
  CHECK(orders(MaskKind::causal).size() == 5);
  CHECK(orders(MaskKind::none) == std::set<TileOrder>{TileOrder::head_major, TileOrder::tile_major});
}

TEST_CASE("Hopper's space joins both families, others' has but one", "[nogpu]") {
  const auto families = [](const AttentionProblem& problem, const char* device, SpaceExtent extent) {
    std::set<FamilyWord> found;
    for (const Candidate& candidate : config_space(problem, find_device(device), extent)) {
      if (candidate.feasible()) found.insert(candidate.config.family);
    }
    return found;
  };
  AttentionProblem problem = make_problem(DataType::bf16, 1, 8, 512, 72, MaskKind::causal);
  for (const SpaceExtent extent : {SpaceExtent::whole, SpaceExtent::reduced}) {
    CHECK(families(problem, "h200", extent) == std::set<FamilyWord>{FamilyWord::sm80, FamilyWord::sm90});
    CHECK(families(problem, "a100", extent) == std::set<FamilyWord>{FamilyWord::sm80});
    CHECK(families(problem, "sm_100", extent) == std::set<FamilyWord>{FamilyWord::sm80});
  }
  problem.alignment = 2;
  CHECK(families(problem, "h200", SpaceExtent::whole) == std::set<FamilyWord>{FamilyWord::sm80});
}

TEST_CASE("where features of the sm90 family are tried", "[nogpu]") {
  struct Tried {
    bool exponentials = false, p_in_shared = false, ping_pong = false;
    bool operator==(const Tried&) const = default;
  };
  const auto tried = [](int head_dim) {
    Tried found;
    for (const Candidate& candidate :
         config_space(make_problem(DataType::bf16, 1, 8, 512, head_dim), find_device("h200"))) {
      if (!candidate.feasible()) continue;
      found.exponentials |= candidate.config.emulated_exponentials > 0;
      found.p_in_shared |= candidate.config.p_in_shared;
      found.ping_pong |= candidate.config.warpgroup_order == WarpgroupOrder::ping_pong;
    }
    return found;
  };
  CHECK(tried(32) == Tried{true, false, true});
  CHECK(tried(64) == Tried{true, true, true});
  CHECK(tried(128) == Tried{false, true, true});
  CHECK(tried(256) == Tried{false, false, true});
}

TEST_CASE("Hopper's clusters, stages of V, packed heads and smaller sections are tried where they can win", "[nogpu]") {
  struct Found {
    bool clusters = false, v_stages = false, packed = false, sections = false;
    bool operator==(const Found&) const = default;
  };
  const auto found = [](std::int64_t seq, std::int64_t heads_kv, int head_dim) {
    AttentionProblem problem = make_problem(DataType::bf16, 1, 8, seq, head_dim, MaskKind::causal);
    problem.heads_kv = heads_kv;
    Found found;
    for (const Candidate& candidate : config_space(problem, find_device("h200"))) {
      if (!candidate.feasible() || candidate.config.family != FamilyWord::sm90) continue;
      found.clusters |= candidate.config.cluster > 1;
      found.v_stages |= candidate.config.v_stages != 0;
      found.packed |= candidate.config.pack_gqa;
      found.sections |= candidate.config.l2_parts != 2;
    }
    return found;
  };
  CHECK(found(4096, 8, 16) == Found{false, false, false, false});
  CHECK(found(4096, 8, 192) == Found{true, true, false, true});
  CHECK(found(4096, 1, 192) == Found{true, true, false, false});
  CHECK(found(100, 8, 192) == Found{false, true, false, false});
  CHECK(found(100, 1, 16) == Found{false, false, true, false});
}

TEST_CASE("mma.sync packs the heads of a group where queries are few", "[nogpu]") {
  const auto packed = [](std::int64_t seq, std::int64_t heads_kv) {
    AttentionProblem problem = make_problem(DataType::bf16, 1, 8, seq, 64);
    problem.heads_kv = heads_kv;
    bool alone = false, with_parts = false;
    for (const Candidate& candidate : config_space(problem, find_device("a100"))) {
      if (!candidate.feasible() || !candidate.config.pack_gqa) continue;
      (candidate.config.key_parts == 1 ? alone : with_parts) = true;
    }
    return std::pair(alone, with_parts);
  };
  CHECK(packed(500, 2) == std::pair(true, true));
  CHECK(packed(500, 8) == std::pair(false, false));
  CHECK(packed(4096, 2) == std::pair(false, false));
}

TEST_CASE("every head dim has a space on every device", "[nogpu]") {
  for (const DeviceSpec& device : known_devices()) {
    for (const int head_dim : {8, 40, 72, 256}) {
      const std::vector<Candidate> space = config_space(make_problem(DataType::fp16, 1, 2, 100, head_dim), device);
      INFO(device.key << " d" << head_dim);
      REQUIRE(space.front().feasible());
    }
  }
}

TEST_CASE("an invalid problem has no space", "[nogpu]") {
  CHECK_THROWS(config_space(make_problem(DataType::fp16, 1, 2, 100, 12), find_device("a100")));
}

TEST_CASE("backward has a space of its own: every field varies, the reduced one can be searched whole", "[nogpu]") {
  const auto feasible = [](const AttentionProblem& problem, const char* device, SpaceExtent extent) {
    std::vector<KernelConfig> configs;
    for (const Candidate& candidate : config_space(problem, find_device(device), extent)) {
      if (!candidate.feasible()) break;
      REQUIRE(candidate.cost.microseconds > 0);
      configs.push_back(candidate.config);
    }
    return configs;
  };
  for (const char* device : {"a100", "h200"}) {
    for (const int head_dim : {16, 64, 72, 128, 256}) {
      AttentionProblem problem = make_problem(DataType::bf16, 4, 16, 4095, head_dim, MaskKind::causal);
      problem.pass = Pass::backward;
      const std::vector<KernelConfig> whole = feasible(problem, device, SpaceExtent::whole),
                                      reduced = feasible(problem, device, SpaceExtent::reduced);
      INFO(device << " d" << head_dim << ": " << whole.size() << " and " << reduced.size());
      CHECK(reduced.size() >= (head_dim > 128 ? 15 : 35));
      CHECK(reduced.size() <= 200);
      CHECK(whole.size() > reduced.size());
      std::set<int> block_q, block_kv, warps, stages, ctas, split;
      std::set<DqAccumulation> dq;
      std::set<TileOrder> orders;
      std::set<bool> dq_first;
      for (const KernelConfig& config : whole) {
        block_q.insert(config.block_q);
        block_kv.insert(config.block_kv);
        orders.insert(config.tile_order);
        warps.insert(config.warps);
        stages.insert(config.stages);
        ctas.insert(config.ctas_per_sm);
        split.insert(config.query_warps);
        dq.insert(config.dq);
        dq_first.insert(config.dq_first);
      }
      CHECK(dq_first.size() == 2);
      for (const std::set<int>& values : {block_q, block_kv, warps, stages, split}) CHECK(values.size() >= 2);
      CHECK((ctas.size() >= 2 || head_dim > 128));
      CHECK(dq.contains(DqAccumulation::separate_kernel));
      CHECK(dq.contains(DqAccumulation::atomic));
      CHECK(orders == std::set<TileOrder>{TileOrder::head_major, TileOrder::l2_sections});
      for (const KernelConfig& config : reduced) CHECK(std::find(whole.begin(), whole.end(), config) != whole.end());
      const KernelConfig standard = default_config(problem, find_device(device));
      CHECK(std::find(reduced.begin(), reduced.end(), standard) != reduced.end());
    }
  }
}

TEST_CASE("a backward problem's space has heads together and apart where they share keys", "[nogpu]") {
  for (const int head_dim : {16, 64, 128, 256}) {
    AttentionProblem problem = make_problem(DataType::bf16, 1, 8, 1000, head_dim, MaskKind::causal);
    problem.pass = Pass::backward;
    problem.heads_kv = 2;
    const auto count = [&](SpaceExtent extent, bool apart) {
      std::ptrdiff_t feasible = 0;
      for (const Candidate& candidate : config_space(problem, find_device("h200"), extent))
        feasible += candidate.feasible() && candidate.config.kv_grad_per_query_head == apart;
      return feasible;
    };
    CHECK(count(SpaceExtent::whole, true) > 0.75 * count(SpaceExtent::whole, false));  // pairs of CTAs: only together
    CHECK(count(SpaceExtent::reduced, true) >= 15);
    CHECK(count(SpaceExtent::reduced, true) + count(SpaceExtent::reduced, false) <= 300);
    const std::vector<Candidate> reduced = config_space(problem, find_device("h200"), SpaceExtent::reduced);
    const KernelConfig standard = default_config(problem, find_device("h200"));
    CHECK(std::any_of(reduced.begin(), reduced.end(),
                      [&](const Candidate& candidate) { return candidate.config == standard; }));
    problem.heads_kv = 8;
    CHECK(count(SpaceExtent::whole, true) == 0);
  }
}

TEST_CASE("a deterministic problem's space holds only what gives the same bits", "[nogpu]") {
  AttentionProblem problem = parse_problem("backward b4 hq16 sq4096 d64 causal deterministic");
  const std::vector<Candidate> space = config_space(problem, find_device("h200"));
  std::set<DqAccumulation> dq;
  for (const Candidate& candidate : space) {
    if (candidate.feasible()) dq.insert(candidate.config.dq);
  }
  CHECK(dq == std::set<DqAccumulation>{DqAccumulation::separate_kernel, DqAccumulation::ordered});
}

TEST_CASE("no config of backward's space needs more workspace than a problem is said to need", "[nogpu]") {
  for (const char* text : {"backward b2 hq6 hkv2 sq100 skv300 d64 causal", "backward hq2 sq1 d128",
                           "backward hq3 sq129 d40 deterministic"}) {
    const AttentionProblem problem = parse_problem(text);
    const DeviceSpec& device = find_device("h200");
    std::size_t most = 0;
    for (const Candidate& candidate : config_space(problem, device, SpaceExtent::reduced)) {
      if (!candidate.feasible()) break;
      most = std::max(most, generate(problem, candidate.config, device).workspace_bytes_of(problem));
    }
    INFO(text);
    CHECK(most > 0);
    CHECK(most <= most_workspace_bytes(problem, device));
  }
}
