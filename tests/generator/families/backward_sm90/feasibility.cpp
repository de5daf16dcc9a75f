#include <set>
#include <string>
#include <utility>
#include <vector>

#include "generator/config/config_space.h"
#include "generator/families/backward_sm90/cost.h"
#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/generator/reasons_of.h"

using namespace attune;
using attune::testing::reasons_of;

TEST_CASE("configs that no backward kernel of wgmma serves are refused with reasons", "[nogpu]") {
  const std::vector<std::pair<const char*, const char*>> refused = {
      {"sm90 q80 kv128 st2 dq=atomic", "q must be 64 or 128"},
      {"sm90 q64 kv96 st2 dq=atomic", "kv must be a multiple of 64 up to 192"},
      {"sm90 q64 kv256 st2 dq=atomic", "kv must be a multiple of 64 up to 192"},
      {"sm90 q64 kv128 st2", "family sm90 adds to dQ; take dq=atomic or dq=ordered"},
      {"sm90 q64 kv128 st1 overlap=within dq=atomic", "st1 overlap=within: a block's Q is read by dK"},
      {"sm90 q64 kv128 st2 overlap=across dq=atomic", "take overlap=within or overlap=queued"},
      {"sm90 q64 kv128 st2 pingpong dq=atomic", "pingpong"},
      {"sm90 q64 kv64 st2 ordered dq=atomic", "needs at least two softmax warpgroups"},
      {"sm90 q64 kv128 st2 order=tile-major dq=atomic", "take order=head-major or l2-sections"},
      {"sm90 q64 kv128 st2 l2parts1 dq=atomic", "l2parts1: only order=l2-sections has sections"},
      {"sm90 q64 kv128 st2 dq=atomic ticket2", "ticket2 dq=atomic: only adds in a fixed order take tickets"},
      {"sm90 q64 kv128 st2 query-parts2 dq=ordered ticket2", "ticket2 query-parts2: a part may begin or end between"},
      {"sm90 q64 kv128 st2 dq=atomic dost2", "dost2: as many as st2 says of Q already"},
      {"sm90 q64 kv128 st2 dq=atomic cluster2",
       "each CTA computes as many columns of dQ, and head dim 64 takes 1 products of 64"},
      {"sm90 q64 kv128 st2 dq=atomic dqcols128", "one product has all 64 columns with dqcols64 too"},
      {"sm90 q64 kv128 st2 dq=atomic dqreg72", "dqreg72: as many as without the word"},
      {"sm90 q64 kv64 st2 dq=atomic dqreg72", "has all that a thread can have"},
      {"sm90 q64 kv128 st2 overlap=queued dq=atomic split-dkdv", "split-dkdv overlap=queued"},
      {"sm90 q64 kv128 st2 ordered dq=atomic split-dkdv", "take no order"},
      {"sm90 q64 kv128 st2 dq=atomic early9",
       "early9: of q64 LSE and delta are 8 times 16 queries; take at most early8"},
      {"sm90 q64 kv64 st2 dq=atomic split-dkdv early5", "early5: of q64 delta is 4 times 16 queries"},
      {"sm90 q64 kv128 st2 dq=atomic dk-first", "dk-first: dK's product waits"},
      {"sm90 q64 kv64 st2 overlap=within dq=atomic split-dkdv dk-first", "dk-first: dK's product waits"},
      {"sm90 q64 kv128 st2 scheduler=static-persistent dq=ordered", "must have been started"},
      {"sm90 q64 kv128 st2 scheduler=dynamic-persistent dq=ordered", "scheduler=dynamic-persistent dq=ordered"},
      {"sm90 q64 kv128 st2 qst2 dq=atomic", "qst2: backward_sm90 has no such choice"},
      {"sm90 q128 kv128 st4 dq=atomic cta2", "shared memory"},
      {"sm90 q64 kv128 st2 dq=atomic kv-grad-per-query-head", "needs grouped heads"},
  };
  CHECK(reasons_of("backward sq100 d64", "sm90 q64 kv128 st2 dq=atomic") == "");
  for (const auto& [config, reason] : refused)
    CHECK_THAT(reasons_of("backward sq100 d64", config), ContainsSubstring(reason));
  CHECK_THAT(reasons_of("backward sq100 d64 deterministic", "sm90 q64 kv128 st2 dq=atomic"),
             ContainsSubstring("take dq=ordered"));
  for (const char* words : {"", " order=l2-sections", " order=l2-sections l2parts1 ticket4", " ticket3"})
    CHECK(reasons_of("backward sq100 d64 deterministic", std::string("sm90 q64 kv128 st2 dq=ordered") + words) == "");
  CHECK_THAT(reasons_of("backward sq100 d256", "sm90 q64 kv64 st2 dq=atomic"), ContainsSubstring("registers: dK, dV"));
  CHECK(reasons_of("backward sq100 d256", "sm90 q64 kv64 st2 dsst1 dq=atomic split-dkdv") == "");
  CHECK_THAT(reasons_of("backward sq100 d256", "sm90 q64 kv64 st4 dq=atomic split-dkdv"),
             ContainsSubstring("shared memory"));
  CHECK(reasons_of("backward sq100 d128", "sm90 q64 kv128 st2 cluster2 dq=atomic") == "");
  for (const char* scheduler : {"static-persistent", "dynamic-persistent"}) {
    const std::string config = std::string("sm90 q64 kv128 st2 dq=atomic scheduler=") + scheduler;
    CHECK(reasons_of("backward sq100 d128", config) == "");
    CHECK_THAT(reasons_of("backward sq100 d128", config + " cluster2"), ContainsSubstring("takes one pair of tiles"));
  }
  for (const char* words : {"dq=ordered", "dq=atomic kv-grad-per-query-head"})
    CHECK_THAT(reasons_of("backward hq2 hkv1 sq100 d128", std::string("sm90 q64 kv128 st2 cluster2 ") + words),
               ContainsSubstring("take no tickets and add to no sums of dK and dV"));
  CHECK_THAT(reasons_of("backward sq100 d64 align2", "sm90 q64 kv128 st2 dq=atomic"), ContainsSubstring("align2"));
  CHECK_THAT(reasons_of("backward sq100 d64", "sm90 q64 kv128 st2 dq=atomic", "a100"),
             ContainsSubstring("compute capability 8.0"));
}

TEST_CASE("the space of a deterministic problem has tickets of several blocks, and sections that let them pass",
          "[nogpu]") {
  const auto choices = [](const char* problem) {
    std::set<std::pair<int, int>> found;  // blocks of a ticket, parts of L2
    for (const Candidate& candidate : config_space(parse_problem(problem), find_device("h200"), SpaceExtent::whole)) {
      if (!candidate.feasible()) break;
      if (candidate.config.family == FamilyWord::sm90 && candidate.config.tile_order == TileOrder::l2_sections)
        found.emplace(candidate.config.ticket_blocks, candidate.config.l2_parts);
    }
    return found;
  };
  std::set<std::pair<int, int>> all;
  for (int blocks = 1; blocks <= 4; ++blocks) all.insert({{blocks, 1}, {blocks, 2}});
  CHECK(choices("backward b4 hq16 sq4096 d128 deterministic") == all);
  CHECK(choices("backward b16 hq8 sq1024 d256 causal") == std::set<std::pair<int, int>>{{1, 2}, {1, 4}});
  // Without adds in a fixed order nothing waits.
  CHECK(choices("backward b4 hq16 sq4096 d128 causal") == std::set<std::pair<int, int>>{{1, 2}});
}

TEST_CASE("tickets of several blocks cost less, unless too few heads alternate", "[nogpu]") {
  const auto microseconds = [](const std::string& words) {
    return backward_sm90_cost(parse_problem("backward b4 hq16 sq4096 d128 deterministic"),
                              parse_config("sm90 q64 kv128 st3 ordered overlap=within dq=ordered" + words),
                              find_device("h200"))
        .microseconds;
  };
  const std::string sections = " order=l2-sections l2parts1";
  CHECK(microseconds(sections + " ticket2") < microseconds(sections));
  CHECK(microseconds(sections + " ticket4") < microseconds(sections + " ticket2"));
  // A head's tiles begin one after the other.
  CHECK(microseconds(sections) < microseconds(""));
  CHECK(microseconds(" ticket4") > microseconds(" ticket2"));
}

TEST_CASE("what the softmax warpgroups cannot compute of dQ is refused with reasons", "[nogpu]") {
  const std::string fits = "sm90 q80 kv128 st2 overlap=within dq=atomic dq-by=softmax";
  for (const char* head_dim : {"d32", "d64", "d96", "d128"})
    CHECK(reasons_of(std::string("backward sq100 ") + head_dim, fits) == "");
  CHECK(reasons_of("backward sq100 d128", fits + " dq-adds=bulk") == "");
  const std::vector<std::pair<const char*, const char*>> refused = {
      {"sm90 q80 kv128 st2 overlap=within dq=ordered dq-by=softmax", "would wait for tickets"},
      {"sm90 q80 kv128 st2 dq=atomic dq-by=softmax", "take overlap=within or overlap=queued"},
      {"sm90 q80 kv128 st2 overlap=within dq=atomic dsst1 dq-by=softmax", "take dsst2 or more"},
      {"sm90 q80 kv64 st2 overlap=within dq=atomic dq-by=softmax", "1 softmax warpgroups must share 2 tiles of 64"},
      {"sm90 q144 kv128 st2 overlap=within dq=atomic dq-by=softmax", "at most 128 queries"},
      {"sm90 q96 kv128 st2 overlap=within dq=atomic dq-by=softmax", "registers: dK, dV, S"},
      {"sm90 q80 kv128 st2 overlap=queued dq=atomic dq-by=softmax", "registers: dK, dV, S"},
      {"sm90 q80 kv128 st4 overlap=within dq=atomic dq-by=softmax", "shared memory"},
      {"sm90 q64 kv128 st2 overlap=within dq=atomic dq-by=softmax split-dkdv", "dq-by=softmax split-dkdv"},
      {"sm90 q64 kv128 st2 overlap=within dq=atomic dq-by=softmax cluster2", "dq-by=softmax cluster"},
      {"sm90 q64 kv128 st2 overlap=within dq=atomic dq-by=softmax fused-convert", "dq-by=softmax fused-convert"},
      {"sm90 q64 kv128 st2 overlap=within dq=atomic dq-by=softmax polled-loads", "dq-by=softmax polled-loads"},
      {"sm90 q64 kv128 st2 overlap=within dq=atomic dq-by=softmax dqcols128", "dq-by=softmax dqcols"},
      {"sm90 q64 kv128 st2 overlap=within dq=atomic dqreg40 dq-by=softmax", "dq-by=softmax dqreg"},
      {"sm90 q64 kv128 st2 overlap=within dq=ordered dq-adds=bulk", "a ticket could be passed on only when"},
      {"sm90 q64 kv128 st2 overlap=within dq=atomic dq-adds=bulk fused-convert", "the warpgroup that converts"}};
  for (const auto& [config, reason] : refused)
    CHECK_THAT(reasons_of("backward sq100 d128", config), ContainsSubstring(reason));
  for (const char* head_dim : {"d16", "d72", "d120"})
    CHECK_THAT(reasons_of(std::string("backward sq100 ") + head_dim, fits),
               ContainsSubstring("multiple of 16 from 32"));
}

TEST_CASE("the configs that head dims take by default leave room for bulk adds, or say what does not fit", "[nogpu]") {
  const std::string bulk = " dq-adds=bulk", staged = "with the part of dQ that dq-adds=bulk keeps there";
  CHECK(reasons_of("backward sq4096 d64", "sm90 q128 kv128 st3 ordered overlap=within dq=atomic dsst1" + bulk) == "");
  CHECK(reasons_of("backward sq4096 d128", "sm90 q64 kv128 st3 ordered overlap=within dq=atomic" + bulk) == "");
  // At head dim 256 less is left than a fragment of each warp takes; P in the buffer of dS makes room.
  const std::string widest = "sm90 q64 kv64 st2 dq=atomic polled-loads split-dkdv";
  CHECK(reasons_of("backward sq4096 d256", widest) == "");
  CHECK_THAT(reasons_of("backward sq4096 d256", widest + bulk), ContainsSubstring(staged));
  CHECK(reasons_of("backward sq4096 d256", widest + " p-in-ds" + bulk) == "");
  CHECK_THAT(reasons_of("backward sq4096 d256", "sm90 q64 kv64 st3 dq=atomic polled-loads split-dkdv"),
             ContainsSubstring("shared memory") && !ContainsSubstring(staged));
}

TEST_CASE("bulk adds cost a pair of CTAs half of the shared memory that one CTA's take", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward b4 hq16 sq4096 d256");
  const auto shared_of_adds = [&](const std::string& config) {
    const auto shared = [&](const std::string& words) {
      return backward_sm90_cost(problem, parse_config(words), find_device("h200")).shared_microseconds;
    };
    return shared(config + " dq-adds=bulk") - shared(config);
  };
  const std::string one = "sm90 q64 kv64 st1 dsst1 dq=atomic split-dkdv", pair = one + " cluster2";
  CHECK(shared_of_adds(one) > 0);
  CHECK(shared_of_adds(pair) == Approx(shared_of_adds(one) / 2));
}

TEST_CASE("the space of a backward problem on Hopper has both families, and every choice of wgmma's", "[nogpu]") {
  for (const int head_dim : {16, 64, 72, 128, 256}) {
    AttentionProblem problem = make_problem(DataType::bf16, 4, 16, 4096, head_dim, MaskKind::causal);
    problem.pass = Pass::backward;
    std::set<int> block_q, block_kv, stages, do_stages, ds_stages, columns;
    std::set<Overlap> overlaps;
    std::set<WarpgroupOrder> warpgroups;
    std::set<DqAccumulation> dq;
    std::set<TileScheduler> schedulers;
    std::set<bool> split, dk_first;
    std::set<int> early;
    std::set<DqWarpgroups> dq_by;
    std::set<DqAdds> adds_of_own, adds_of_softmax;  // of dQ, by who computes it
    std::size_t wgmma = 0, mma_sync = 0;
    for (const Candidate& candidate : config_space(problem, find_device("h200"), SpaceExtent::whole)) {
      if (!candidate.feasible()) break;
      const KernelConfig& config = candidate.config;
      REQUIRE(candidate.cost.microseconds > 0);
      if (config.family == FamilyWord::sm80) {
        ++mma_sync;
        continue;
      }
      ++wgmma;
      block_q.insert(config.block_q);
      block_kv.insert(config.block_kv);
      stages.insert(config.stages);
      do_stages.insert(config.do_stages);
      ds_stages.insert(config.ds_stages);
      columns.insert(config.dq_columns);
      overlaps.insert(config.overlap);
      warpgroups.insert(config.warpgroup_order);
      dq.insert(config.dq);
      schedulers.insert(config.tile_scheduler);
      split.insert(config.split_dkdv);
      dk_first.insert(config.dk_first);
      early.insert(config.early_statistics);
      dq_by.insert(config.dq_by);
      (config.dq_by == DqWarpgroups::own ? adds_of_own : adds_of_softmax).insert(config.dq_adds);
    }
    INFO("d" << head_dim << ": " << wgmma << " and " << mma_sync);
    CHECK(wgmma >= 15);
    CHECK(wgmma < 3000);
    CHECK(mma_sync > 0);
    // Blocks of other sizes where the softmax warpgroups compute dQ.
    CHECK(block_q.size() == (head_dim > 128 ? 1 : head_dim == 64 ? 5 : head_dim == 128 ? 3 : 2));
    CHECK(dq_by.size() == (head_dim == 64 || head_dim == 128 ? 2 : 1));
    CHECK(adds_of_own.size() == 2);
    CHECK(adds_of_softmax.size() == (dq_by.size() == 2 ? 2 : 0));
    CHECK(block_kv.size() == (head_dim > 128 ? 1 : head_dim > 72 ? 2 : 3));
    CHECK(stages.size() >= 2);
    CHECK(do_stages.contains(0));
    CHECK(ds_stages.size() == 2);
    CHECK(columns.size() == (head_dim > 72 ? 2 : 1));
    CHECK(overlaps.size() == (head_dim > 128 ? 2 : 3));
    CHECK(warpgroups.size() == (head_dim > 128 ? 1 : 2));
    CHECK(dq == std::set<DqAccumulation>{DqAccumulation::atomic, DqAccumulation::ordered});
    CHECK(schedulers == std::set<TileScheduler>{TileScheduler::single, TileScheduler::static_persistent,
                                                TileScheduler::dynamic_persistent});
    CHECK(split.contains(head_dim > 128));
    CHECK(dk_first.contains(true) == split.contains(true));
    CHECK(early.contains(0));
    CHECK(early.size() >= 2);
  }
}
