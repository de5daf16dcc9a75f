// Tiles of tensors of pairs: how they lie, where configs have them, and what kernels without them are not touched by.
#include "generator/families/shared/pair_tiles.h"

#include <string>
#include <utility>

#include "generator/config/config_space.h"
#include "generator/error.h"
#include "generator/export/exported_plan.h"
#include "generator/generate.h"
#include "generator/plan/tensor_strides.h"
#include "tests/catch.h"
#include "tests/generator/reasons_of.h"

using namespace attune;
using attune::testing::reasons_of;

namespace {

const DeviceSpec kDevice = find_device("h200");

// The adapted config, and the last change that was made.
std::pair<KernelConfig, std::string> adapted_to(const char* problem, const char* config) {
  const auto near = adapted(parse_problem(problem), parse_config(config), kDevice);
  REQUIRE(near);
  return {near->config, near->changes.empty() ? "" : near->changes.back()};
}

}  // namespace

TEST_CASE("tiles of pairs have panels as wide as wastes little", "[nogpu]") {
  struct Case {
    const char* problem;
    int block_kv, columns, panels;
  };
  for (const auto& [problem, block_kv, columns, panels] : {Case{"bias=1hqk", 128, 64, 2},
                                                           {"bias=1hqk", 80, 32, 3},
                                                           {"bias=1hqk", 48, 16, 3},
                                                           {"bias=1hqk", 112, 64, 2},
                                                           {"bias=1hqk bias-fp32", 80, 32, 3},
                                                           {"attention-mask=b11k", 128, 128, 1},
                                                           {"attention-mask=b11k", 80, 32, 3},
                                                           {"attention-mask=b11k", 32, 32, 1}}) {
    INFO(problem << " kv" << block_kv);
    const PairTiles tiles(parse_problem(std::string("forward bf16 hq2 sq512 d64 ") + problem), block_kv);
    REQUIRE(tiles.end() - tiles.begin() == 1);
    CHECK(tiles.begin()->panel_columns == columns);
    CHECK(tiles.begin()->panels == panels);
  }
  CHECK_FALSE(PairTiles(parse_problem("forward bf16 hq2 sq512 d64 alibi"), 128).any());
}

TEST_CASE("stages of pairs are refused where they mean nothing", "[nogpu]") {
  CHECK(reasons_of("forward bf16 hq8 sq4096 d128 bias=1hqk", "sm90 q128 kv128 st2 pst1 overlap=within").empty());
  CHECK_THAT(reasons_of("forward bf16 hq8 sq4096 d128", "sm90 q128 kv128 st2 pst1 overlap=within"),
             ContainsSubstring("pst1: the problem has neither a bias nor an attention mask; leave the word out"));
  CHECK_THAT(
      reasons_of("forward bf16 hq8 sq4096 d128 bias=1hqk", "sm90 q128 kv128 st2 pst2 qst2 scheduler=static-persistent"),
      ContainsSubstring("shared memory"));
  CHECK_THROWS_WITH(parse_config("sm80 q64 kv64 w4 st2 pst1"), ContainsSubstring("does not understand 'pst1'"));
  CHECK(reasons_of("backward bf16 hq8 sq4096 d128 bias=1hqk", "sm90 q64 kv128 st2 pst2 dq=atomic").empty());
  CHECK_THAT(reasons_of("backward bf16 hq8 sq4096 d128 bias=1hqk", "sm90 q64 kv128 st2 pst1 dq=atomic"),
             ContainsSubstring("pst1 st2: tiles of tensors of pairs come with those of Q; take pst2"));
}

TEST_CASE("configs of problems without tensors of pairs get tiles, and the other way about", "[nogpu]") {
  const auto [forward, forward_change] =
      adapted_to("forward bf16 hq8 sq4096 d128 bias=1hqk", "sm90 q128 kv128 st2 rescale10 overlap=within");
  CHECK(forward.pair_stages > 0);
  CHECK_THAT(forward_change, ContainsSubstring("for tiles of tensors of pairs"));
  // Shared memory holds a stage of dS less beside them, or of Q and dO.
  const auto [backward, backward_change] =
      adapted_to("backward bf16 hq8 sq4096 d128 bias=1hqk", "sm90 q64 kv128 st3 ordered overlap=within dq=atomic");
  CHECK(backward.pair_stages == 3);
  CHECK(backward_change == "with st3 pst3 dsst1, for tiles of tensors of pairs");
  CHECK(adapted_to("backward fp16 hq8 sq4096 d128 bias=1hqk bias-fp32",
                   "sm90 q64 kv128 st3 ordered overlap=within dq=atomic dsst1")
            .second == "with st2 pst2, for tiles of tensors of pairs");
  const auto [plain, plain_change] =
      adapted_to("forward bf16 hq8 sq4096 d128", "sm90 q128 kv128 st2 rescale10 overlap=within pst1");
  CHECK(plain.pair_stages == 0);
  CHECK(plain_change == "without pst, which only a bias or an attention mask has");
  // Rows that start anywhere would come into tiles by the loads that they are spared: they are copied before.
  const auto [ragged, ragged_change] =
      adapted_to("forward bf16 b8 hq8 sq577 d128 bias=1hqk", "sm90 q128 kv128 st2 rescale10 overlap=within");
  CHECK(ragged.copied_pairs);
  CHECK_THAT(ragged_change, ContainsSubstring("copied-pairs, for tiles of tensors of pairs"));
  const std::string tiled = "sm90 q128 kv128 st2 rescale10 overlap=within pst1";
  CHECK(adapted_to("forward bf16 b8 hq8 sq577 d128 bias=1hqk", tiled.c_str()).second ==
        "with copied-pairs, for rows of pairs that 16 bytes do not divide");
  CHECK(adapted_to("forward bf16 b8 hq8 sq576 d128 bias=1hqk", (tiled + " copied-pairs").c_str()).second ==
        "without copied-pairs, for rows of pairs that need none");
}

TEST_CASE("tensors of pairs are copied where their rows need it, by the first launches", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward bf16 b2 hq4 sq100 skv577 d64 bias=1hqk attention-mask=b11k");
  const KernelPlan plan =
      generate(problem, parse_config("sm90 q64 kv128 st2 pst2 overlap=within dq=atomic copied-pairs"), kDevice);
  REQUIRE(plan.copies.size() == 2);
  CHECK(plan.copies[0].operand == Operand::bias);
  CHECK(plan.launches[0].entry == "attune_copy_bias");
  CHECK(plan.copies[1].operand == Operand::attention_mask);
  CHECK(plan.launches[1].entry == "attune_copy_attention_mask");
  // Rows of 584 elements of two bytes, and of 592 of one; nothing of them is zeroed.
  const std::size_t bias = plan.buffer_offset(plan.copies[0].buffer, problem),
                    mask = plan.buffer_offset(plan.copies[1].buffer, problem);
  CHECK(bias >= plan.zeroed_bytes_of(problem));
  CHECK(mask - bias >= 4 * 100 * 584 * 2);
  CHECK(plan.workspace_bytes_of(problem) == mask + 2 * 592);
  CHECK(plan.workspace_bytes_of(problem) <= most_workspace_bytes(problem, kDevice));
  CHECK_THROWS_AS(export_plan(plan, kDevice, {"name", "1", ""}), Error);
  CHECK_THAT(reasons_of("forward bf16 hq8 sq576 d64 bias=1hqk", "sm90 q128 kv64 st2 pst1 copied-pairs"),
             ContainsSubstring("no tensor of pairs whose rows are no multiples of 16 bytes"));
  CHECK_THAT(reasons_of("forward bf16 hq8 sq577 d64 bias=1hqk", "sm90 q128 kv64 st2 copied-pairs"),
             ContainsSubstring("only tiles are copied by TMA"));
}

TEST_CASE("defaults and spaces have tiles of pairs where these are", "[nogpu]") {
  for (const char* pass : {"forward", "backward"}) {
    for (const char* words : {"", " bias=1hqk", " attention-mask=b1qk"}) {
      const AttentionProblem problem = parse_problem(std::string(pass) + " bf16 b4 hq16 sq4096 d128" + words);
      INFO(canonical_text(problem));
      CHECK((default_config(problem, kDevice).pair_stages > 0) == problem.has_pair_tensors());
      bool with = false, without = false;
      for (const Candidate& candidate : config_space(problem, kDevice)) {
        if (!candidate.feasible()) continue;
        (candidate.config.pair_stages > 0 ? with : without) = true;
      }
      CHECK(with == problem.has_pair_tensors());
      CHECK(without);
    }
  }
}

TEST_CASE("a tensor map describes rows at multiples of 16 bytes that do not repeat", "[nogpu]") {
  const OperandShape shape =
      operand_shape(parse_problem("forward bf16 b2 hq4 sq100 skv577 d64 bias=bhqk"), Operand::bias);
  const TensorStrides padded{4 * 100 * 584, 100 * 584, 584};
  CHECK(fits_tensor_map(0x1000, shape, padded));
  CHECK_FALSE(fits_tensor_map(0x1002, shape, padded));
  // Stores end at multiples of 16 bytes.
  CHECK_FALSE(fits_stored_tensor_map(0x1000, shape, padded));
  OperandShape whole = shape;
  whole.columns = 584;
  CHECK(fits_stored_tensor_map(0x1000, whole, padded));
  CHECK_FALSE(fits_tensor_map(0x1000, shape, {4 * 100 * 577, 100 * 577, 577}));
  CHECK_FALSE(fits_tensor_map(0x1000, shape, {padded.batch, padded.head, -584}));
  CHECK_FALSE(fits_tensor_map(0x1000, shape, {padded.batch, 0, 584}));
  OperandShape one_head = shape;
  one_head.heads = 1;
  CHECK(fits_tensor_map(0x1000, one_head, {padded.batch, 0, 584}));
}
