#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

namespace {
AttentionProblem problem_of(int head_dim) { return make_problem(DataType::bf16, 1, 8, 1024, head_dim); }

// All reasons, one per line.
std::string reasons(const std::string& config, int head_dim = 64, const char* device = "a100") {
  std::string text;
  for (const std::string& reason : infeasibility(problem_of(head_dim), parse_config(config), find_device(device))) {
    text += reason + "\n";
  }
  return text;
}
}  // namespace

TEST_CASE("usual configs are feasible", "[nogpu]") {
  CHECK(reasons("sm80 q128 kv64 w4 st2").empty());
  CHECK(reasons("sm80 q64 kv128 w4 st2", 128).empty());
  CHECK(reasons("sm80 q128 kv32 w8 st1 qsmem", 256, "rtx4090").empty());
  CHECK(reasons("sm80 q48 kv48 w1 st1").empty());
  CHECK(reasons("sm80 q128 kv64 w4 st2 even-tiles").empty());
}

TEST_CASE("each reason names its numbers", "[nogpu]") {
  CHECK_THAT(reasons("sm80 q128 kv64 w0 st2"), ContainsSubstring("w0: must be 1 to 16"));
  CHECK_THAT(reasons("sm80 q272 kv64 w17 st2"), ContainsSubstring("w17"));
  CHECK_THAT(reasons("sm80 q112 kv64 w4 st2"),
             ContainsSubstring("q112 w4: each warp owns 16, 32, 48 or 64 queries, so q must be 64, 128, 192 or 256"));
  CHECK_THAT(reasons("sm80 q80 kv64 w1 st2"), ContainsSubstring("q80 w1"));
  CHECK_THAT(reasons("sm80 q100 kv64 w4 st2"), ContainsSubstring("q100: must be a multiple of 16 from 16 to 1024"));
  CHECK_THAT(reasons("sm80 kv0"), ContainsSubstring("kv0: must be a multiple of 16 from 16 to 384"));
  CHECK_THAT(reasons("sm80 kv40"), ContainsSubstring("kv40"));
  CHECK_THAT(reasons("sm80 kv272"), ContainsSubstring("kv272"));
  CHECK_THAT(reasons("sm80 st0"), ContainsSubstring("st0: must be 1 to 4"));
  CHECK_THAT(reasons("sm80 st5"), ContainsSubstring("st5"));
  CHECK_THAT(reasons("sm80 rescale11"), ContainsSubstring("rescale11: must be 0 to 10"));
  CHECK_THAT(reasons("sm80 cta0"), ContainsSubstring("cta0"));
  CHECK_THAT(reasons("sm80 dq=atomic"), ContainsSubstring("dq=atomic: forward_sm80 has no such choice"));
  CHECK_THAT(reasons("sm80 order=l2-sections"), ContainsSubstring("take order=l2-sections-reversed"));
  CHECK_THAT(reasons("sm80 kv-grad-per-query-head"),
             ContainsSubstring("kv-grad-per-query-head: forward_sm80 has no such choice"));
  CHECK_THAT(reasons("sm80 dq-first"), ContainsSubstring("dq-first: forward_sm80 has no such choice"));
  CHECK_THAT(reasons("sm80 query-warps2"), ContainsSubstring("query-warps2: forward_sm80 has no such choice"));
  // Several at once.
  CHECK_THAT(reasons("sm80 q100 kv40 st9"),
             ContainsSubstring("q100") && ContainsSubstring("kv40") && ContainsSubstring("st9"));
}

TEST_CASE("shared memory", "[nogpu]") {
  // Q 128 x 128 x 2 = 32768, K and V 2 x 2 x 128 x 256 = 131072.
  CHECK_THAT(reasons("sm80 q128 kv128 w8 st2 qsmem", 128, "rtx4090"),
             ContainsSubstring("Q takes 32768 bytes and 2 stages of K and V take 131072, together 163840; a CTA of "
                               "NVIDIA GeForce RTX 4090 may have 101376"));
  CHECK(reasons("sm80 q128 kv128 w8 st2 qsmem", 128, "a100").empty());
  // Two CTAs of 98304 + 1024 bytes: an A100's SM has 167936, an H200's 233472.
  CHECK_THAT(reasons("sm80 q128 kv64 w4 st2 qsmem cta2", 128),
             ContainsSubstring("2 CTAs of 98304 bytes and 1024 reserved are 198656") && ContainsSubstring("167936"));
  CHECK(reasons("sm80 q128 kv64 w4 st2 qsmem cta2", 128, "h200").empty());
}

TEST_CASE("registers and threads", "[nogpu]") {
  // 64 rows of O at D = 128 are 256 registers already.
  CHECK_THAT(reasons("sm80 q256 kv64 w4 st1", 128),
             ContainsSubstring("registers: 64 rows of O (head dim 128), of S (kv64) and of Q take 512"));
  CHECK_THAT(reasons("sm80 q128 kv64 w4 st2", 128), ContainsSubstring("take 256 registers"));
  CHECK(reasons("sm80 q128 kv64 w4 st2 qsmem", 128).empty());
  // Two CTAs of 256 threads leave 128 registers a thread.
  CHECK_THAT(reasons("sm80 q256 kv64 w8 st1 cta2"), ContainsSubstring("it may have 128 with 2 CTAs of 256 threads"));
  CHECK_THAT(
      reasons("sm80 q256 kv16 w16 st1 cta4", 64, "rtx4090"),
      ContainsSubstring(
          "4 CTAs of 512 threads do not fit an SM of NVIDIA GeForce RTX 4090, which takes 24 CTAs and 1536 threads"));
  CHECK_THAT(reasons("sm80 q16 kv16 w1 st1 cta33"), ContainsSubstring("cta33"));
}

TEST_CASE("whole tiles need lengths that are multiples of them", "[nogpu]") {
  AttentionProblem problem = problem_of(64);
  const KernelConfig config = parse_config("sm80 q128 kv64 w4 st2 even-tiles");
  problem.seq_q = 1000;
  problem.seq_kv = 1030;
  const std::vector<std::string> found = infeasibility(problem, config, find_device("a100"));
  REQUIRE(found.size() == 2);
  CHECK(found[0] == "even-tiles: the query length 1000 is not a multiple of q128");
  CHECK(found[1] == "even-tiles: the key length 1030 is not a multiple of kv64");
  problem.seq_q = 128;
  problem.seq_kv = 192;
  CHECK(infeasibility(problem, config, find_device("a100")).empty());
  problem.alignment = 2;
  CHECK(infeasibility(problem, config, find_device("a100")).empty());
}

TEST_CASE("what an sm90 config may be", "[nogpu]") {
  const auto hopper = [](const std::string& config, int head_dim = 64) { return reasons(config, head_dim, "h200"); };
  CHECK(hopper("sm90 q128 kv128 st2 overlap=within", 128).empty());
  CHECK(hopper("sm90 q192 kv80 st3 rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent", 128).empty());
  CHECK(hopper("sm90 q128 kv80 st2 overlap=within", 256).empty());
  CHECK_THAT(reasons("sm90 q128 kv64 st2"), ContainsSubstring("compute capability 8.0; family sm90 needs 9.0"));
  CHECK_THAT(reasons("sm90 q128 kv64 st2", 64, "sm_100"), ContainsSubstring("family sm90 needs 9.0"));
  CHECK_THAT(hopper("sm90 q96"), ContainsSubstring("q96: each consumer warpgroup owns 64 queries"));
  CHECK_THAT(hopper("sm90 q256"), ContainsSubstring("multiple of 64 up to 192"));
  CHECK_THAT(hopper("sm90 q128 kv40"), ContainsSubstring("kv40"));
  CHECK_THAT(hopper("sm90 q128 st5"), ContainsSubstring("st5"));
  CHECK_THAT(hopper("sm90 q128 qst3 scheduler=static-persistent"), ContainsSubstring("qst3: must be 1 to 2"));
  CHECK_THAT(hopper("sm90 q128 qst2"), ContainsSubstring("qst2: a CTA of a single tile"));
  CHECK_THAT(hopper("sm90 q128 overlap=across"), ContainsSubstring("overlap=across: a CTA of a single tile"));
  CHECK_THAT(hopper("sm90 q128 vst5"), ContainsSubstring("vst5: must be 1 to 4"));
  CHECK_THAT(hopper("sm90 q128 st3 vst3"),
             ContainsSubstring("vst3: as many as st3 says of K already; leave the word out"));
  CHECK(hopper("sm90 q128 st3 vst2").empty());
  CHECK_THAT(hopper("sm90 q128 cluster3"), ContainsSubstring("cluster3: must be 1 to 2"));
  CHECK_THAT(hopper("sm90 q128 cluster0"), ContainsSubstring("cluster0: must be 1 to 2"));
  CHECK_THAT(hopper("sm90 q128 qst2 overlap=across scheduler=dynamic-persistent ascending-keys"),
             ContainsSubstring("ascending-keys overlap=across: a tile's first block is joined"));
  CHECK(hopper("sm90 q128 qst2 overlap=within scheduler=dynamic-persistent ascending-keys").empty());
  CHECK(hopper("sm90 q128 rescale10 cluster2 qst2 ordered overlap=across scheduler=dynamic-persistent", 128).empty());
  CHECK(hopper("sm90 q128 cluster2 scheduler=dynamic-persistent preg24", 128).empty());
  CHECK_THAT(hopper("sm90 q128 cluster2 scheduler=dynamic-persistent preg32"),
             ContainsSubstring("preg32: as many as without"));
  CHECK_THAT(hopper("sm90 q128 preg20"), ContainsSubstring("preg20: must be a multiple of 8 from 24 to 56"));
  CHECK_THAT(hopper("sm90 q128 preg64"), ContainsSubstring("preg64: must be a multiple of 8"));
  CHECK_THAT(hopper("sm90 q192 preg32"), ContainsSubstring("preg32: as many as without the word; leave it out"));
  CHECK_THAT(hopper("sm90 q64 preg40"),
             ContainsSubstring("preg40: the one consumer of q64 has all that a thread can have; leave the word out"));
  CHECK(hopper("sm90 q64 cta2 preg40").empty());
  CHECK_THAT(hopper("sm90 q64 ordered"), ContainsSubstring("ordered: needs at least two consumer warpgroups"));
  CHECK(hopper("sm90 q128 pingpong").empty());
  CHECK_THAT(hopper("sm90 q64 pingpong"), ContainsSubstring("pingpong: needs at least two consumer warpgroups"));
  CHECK_THAT(hopper("sm90 q128 pingpong overlap=within"), ContainsSubstring("take 'ordered', or no overlap"));
  CHECK_THAT(hopper("sm90 q192 kv192 st2"), ContainsSubstring("64 rows of O, S and P (kv192) take 176 registers"));
  CHECK(hopper("sm90 q192 kv192 st2 psmem").empty());
  CHECK(hopper("sm90 q192 kv144 st1 psmem", 96).empty());
  CHECK_THAT(hopper("sm90 q192 kv256 st2 psmem"), ContainsSubstring("64 rows of O and S (kv256) take 160 registers"));
  // 3 x 64 rows of three panels of 64 columns, the last one a quarter full.
  CHECK_THAT(hopper("sm90 q192 kv144 st2 psmem", 128),
             ContainsSubstring("Q takes 49152 bytes, P 73728 and 2 stages of K and V take 147456"));
  CHECK(hopper("sm90 q128 exp4").empty());
  CHECK_THAT(hopper("sm90 q128 exp12"), ContainsSubstring("exp12: must be 0 to 8"));
  CHECK(hopper("sm90 q128 order=l2-sections-reversed l2parts4").empty());
  CHECK_THAT(hopper("sm90 q128 order=head-major l2parts4"),
             ContainsSubstring("only order=l2-sections-reversed has sections"));
  CHECK_THAT(hopper("sm90 q128 order=l2-sections-reversed l2parts0"), ContainsSubstring("l2parts0: must be 1 to 16"));
  CHECK_THAT(hopper("sm90 q192 kv64 st2", 256),
             ContainsSubstring("a consumer may have 160 with 1 CTAs of 512 threads"));
  // Q 65536, K and V 3 x 2 x 81920.
  CHECK_THAT(hopper("sm90 q128 kv160 st3", 256),
             ContainsSubstring("Q takes 65536 bytes and 3 stages of K and V take 491520"));
  CHECK_THAT(hopper("sm90 q128 kv80 st2 vst3", 256),
             ContainsSubstring("Q takes 65536 bytes and 2 stages of K and 3 of V take 204800"));
  // Clusters of two CTAs with 64-row tiles end at multiples of 128 rows.
  CHECK(reasons("sm90 q64 cluster2 even-tiles", 64, "h200").empty());
  CHECK_THAT(hopper("sm90 q128 pack-gqa"), ContainsSubstring("pack-gqa: needs grouped heads"));
  AttentionProblem problem = problem_of(64);
  problem.heads_q = 24;
  CHECK(infeasibility(problem, parse_config("sm90 q128 pack-gqa"), find_device("h200")) ==
        std::vector<std::string>{"pack-gqa: 3 query heads share K and V, and q128 is not a multiple of that"});
  CHECK(infeasibility(problem, parse_config("sm90 q192 pack-gqa even-tiles"), find_device("h200")).empty());
  CHECK(infeasibility(problem, parse_config("sm80 q16 kv32 w1 pack-gqa"), find_device("a100")) ==
        std::vector<std::string>{"pack-gqa: 3 query heads share K and V, and q16 is not a multiple of that"});
  CHECK(infeasibility(problem, parse_config("sm80 q48 kv32 w1 pack-gqa"), find_device("a100")).empty());
  problem.seq_q = 160;
  CHECK(infeasibility(problem, parse_config("sm90 q192 pack-gqa even-tiles"), find_device("h200")) ==
        std::vector<std::string>{
            "even-tiles: the query length 160, 480 rows with the packed heads, is not a multiple of q192"});
  problem.heads_q = 8;
  problem.seq_q = 192;
  CHECK(infeasibility(problem, parse_config("sm90 q64 even-tiles cluster2"), find_device("h200")) ==
        std::vector<std::string>{"even-tiles: the query length 192 is not a multiple of 2 times q64"});
  problem.alignment = 2;
  const std::vector<std::string> found = infeasibility(problem, parse_config("sm90"), find_device("h200"));
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0], ContainsSubstring("align2: TMA copies rows that start at multiples of 16 bytes"));
}

TEST_CASE("a GPU older than Ampere", "[nogpu]") {
  DeviceSpec turing = find_device("sm_80");
  turing.name = "NVIDIA T4";
  turing.compute_major = 7;
  turing.compute_minor = 5;
  const std::vector<std::string> found = infeasibility(problem_of(64), KernelConfig(), turing);
  REQUIRE(found.size() == 1);
  CHECK(found[0] == "NVIDIA T4 has compute capability 7.5; family sm80 needs 8.0 or newer");
}
