// Backward kernels with tensors of pairs: biases and attention masks.
#include <string>
#include <vector>

#include "generator/families/family_word.h"
#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

const Configs kSm80 = {"sm80 q32 kv32 w2 st2", "sm80 q64 kv64 w4 st1 query-warps2 dq=atomic",
                       "sm80 q16 kv16 w1 st1 query-parts3 dq=atomic"};
const Configs kSm90 = {"sm90 q64 kv128 st2 ordered overlap=within dq=atomic early8",
                       "sm90 q64 kv64 st2 dq=ordered split-dkdv polled-loads dk-first",
                       "sm90 q80 kv128 st2 overlap=within dq-by=softmax dq=atomic",
                       "sm90 q64 kv128 st2 pst2 ordered overlap=within dq=atomic early8",
                       "sm90 q64 kv64 st2 pst2 dq=ordered split-dkdv",
                       "sm90 q128 kv64 st3 pst3 overlap=queued dq=atomic scheduler=dynamic-persistent polled-loads"};

void check_rows(Devices& devices, const Configs& configs) {
  int number = 0;
  for (const char* config : configs) {
    for (const char* lengths : {"sq7 skv70", "sq130 skv5", "sq197 skv256", "sq400 skv151"}) {
      for (const char* words :
           {" bias=bhqk bias-gradient", " causal bias=1hqk bias-fp32 bias-gradient softcap2",
            " attention-mask=b11k causal-top-left", " window=120,60 bias=11qk alibi softcap3",
            " attention-mask=bhqk bias=b11k bias-fp32 bias-gradient used sink", " bias=1h1k bias-gradient"}) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        BackwardCase test = backward_case("backward " + dtype + "b2 hq4 hkv2 " + lengths + " d32" + words, config);
        test.with_lse = number % 3 != 0;
        test.seed = static_cast<std::uint64_t>(number);
        test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
        check_case(devices, test);
      }
    }
  }
}

// Tiles of 128 queries and keys on Hopper, two by two of them in a cluster: what shares a tile of the bias, clusters of
// which some CTAs have no rows or no keys, and more steps than clusters, so that each takes several. Rows of a bias
// that start anywhere, and its gradient's; such rows copied for TMA. Where a bias repeats along nothing, also dS from
// the kernel of key tiles.
void check_bias_gradient_sm90(Devices& devices) {
  struct Row {
    const char *words, *config;
    Placement pair_placement = Placement::packed;
  };
  constexpr const char *kNarrow = "sm90 q64 kv128 st2 dq=atomic", *kWide = "sm90 q64 kv64 st2 split-dkdv dq=atomic",
                       *kOfPairs = "sm90 q80 kv128 st2 pst2 overlap=within dq-by=softmax dq=atomic";
  constexpr const char *kFused = "sm90 q64 kv128 st2 ordered overlap=within dq=atomic fused-dbias",
                       *kFusedOrdered = "sm90 q64 kv128 st2 pst2 overlap=queued dq=ordered fused-dbias",
                       *kFusedPersistent =
                           "sm90 q128 kv64 st3 pst3 overlap=within dq=atomic scheduler=static-persistent polled-loads "
                           "fused-dbias",
                       *kFusedWide = "sm90 q64 kv64 st2 split-dkdv dq=atomic polled-loads dqcols128 fused-dbias";
  constexpr const char *kCopied = "sm90 q64 kv128 st2 pst2 ordered overlap=within dq=atomic copied-pairs",
                       *kCopiedOrdered = "sm90 q64 kv64 st2 pst2 dq=ordered split-dkdv copied-pairs",
                       *kCopiedVisible = "sm90 q64 kv128 st2 pst2 overlap=queued dq=atomic copied-pairs visible-blocks";
  constexpr Row kGradients[] = {
      {"b2 hq4 hkv2 sq200 skv197 d64 bias=1hqk", kCopied},
      {"b2 hq2 sq140 skv577 d40 causal bias=bhqk attention-mask=b11k", kCopied, Placement::reversed},
      {"b1 hq2 sq200 skv197 d64 bias=bhqk",
       "sm90 q64 kv128 st2 pst2 overlap=within dq=atomic copied-pairs fused-dbias"},
      {"b2 hq2 sq100 skv147 d128 bias=b1qk bias-fp32 deterministic", kCopiedOrdered},
      {"b2 hq2 sq200 skv197 d64 bias=1hqk", kCopied, Placement::padded},
      {"b2 hq2 sq300 skv330 d64 bias=b11k attention-mask=b1qk", kCopiedVisible, Placement::reversed},
      {"b2 hq4 hkv2 sq200 skv264 d64 bias=bhqk", kFused},
      {"b2 hq2 sq200 skv197 d128 bias=bhqk alibi", kFused, Placement::padded},
      {"b1 hq2 sq130 skv72 d40 bias=1hqk attention-mask=111k sink", kFused, Placement::reversed},
      {"b3 hq1 sq1 skv300 d64 bias=b11k", kFused},
      {"b2 hq4 hkv2 sq300 skv136 d32 bias=bhqk deterministic", kFusedOrdered},
      {"b1 hq1 sq140 skv321 d16 bias=11qk attention-mask=11qk", kFusedOrdered, Placement::padded},
      {"b5 hq3 sq200 skv200 d64 bias=bhqk", kFusedPersistent},
      {"b2 hq2 sq130 skv200 d256 bias=bhqk", kFusedWide},
      {"b2 hq2 sq577 skv197 d64 bias=1hqk", kNarrow},
      {"b2 hq2 sq264 skv200 d64 bias=1hqk", kNarrow, Placement::padded},
      {"b2 hq2 sq264 skv197 d64 bias=1hqk bias-fp32", kOfPairs, Placement::reversed},
      {"b2 hq4 hkv2 sq300 skv260 d128 causal bias=b1qk", kOfPairs},
      {"b2 hq4 hkv1 sq400 skv140 d40 window=100,30 bias=11qk alibi", kNarrow, Placement::padded},
      {"b3 hq2 sq577 skv197 d40 bias=bh1k", kNarrow},
      {"b2 hq2 sq500 skv300 d128 causal-top-left bias=1h1k bias-fp32 attention-mask=b1qk softcap3", kWide,
       Placement::padded},
      {"b2 hq2 sq300 skv197 d64 bias=b11k attention-mask=bhqk", kOfPairs, Placement::reversed},
      {"b4 hq2 sq300 skv197 d64 used causal bias=1hqk attention-mask=b1qk", kNarrow},
      {"b3 hq2 sq400 skv300 d64 used bias=11qk sink", kNarrow, Placement::reversed},
      {"b4 hq2 sq300 skv197 d40 used bias=bh1k", kNarrow},
      {"b1 hq2 sq200 skv300 d192 bias=1hqk attention-mask=b11k", kWide},
      {"b1 hq2 sq150 skv140 d256 causal bias=bhqk bias-fp32 attention-mask=b1qk", kWide},
      {"b3 hq8 sq300 skv264 d16 causal bias=bhqk", kNarrow},
      {"b19 hq30 sq140 skv24 d8 causal-top-left bias=bhqk", kNarrow},
      {"b19 hq30 sq140 skv24 d8 bias=bh1k", kNarrow},
  };
  int number = 0;
  for (const Row& row : kGradients) {
    const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
    BackwardCase test = backward_case("backward " + dtype + row.words + " bias-gradient", row.config);
    test.pair_placement = row.pair_placement;
    test.with_lse = number % 3 == 0;
    test.seed = static_cast<std::uint64_t>(number);
    check_case(devices, test);
  }
}

}  // namespace

TEST_CASE("backward with tensors of pairs is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(5);
  check_rows(devices, kSm80);
}

TEST_CASE("sm90 backward with tensors of pairs is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  devices.draw = CaseDraw(5);
  check_rows(devices, kSm90);
}

TEST_CASE("the gradient of a bias on wgmma is right in all modes of the emulator", "[emulator]") {
  Devices devices = forward_emulators();
  check_bias_gradient_sm90(devices);
}

// Sums over batch entries, heads and queries have a fixed order, whatever runs first.
TEST_CASE("the gradient of a bias has the same bits each time, on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  std::vector<const char*> configs = {"sm80 q64 kv64 w4 st2"};
  if (devices.spec().compute_major == 9) configs.push_back("sm90 q64 kv128 st2 dq=ordered");
  for (const char* config : configs) {
    for (const char* bias : {"bhqk", "1hqk", "b11k", "111k"}) {
      BackwardCase test = backward_case(
          "backward bf16 b4 hq4 hkv2 sq500 skv700 d64 bias=" + std::string(bias) + " bias-gradient deterministic",
          config);
      if (test.config.family == FamilyWord::sm90) test.config.fused_dbias = std::string(bias) == "bhqk";
      const BackwardData data(test);
      const BackwardResult first = run_backward(*devices.runtimes[0], test, data);
      for (int i = 1; i < 200; ++i) REQUIRE(run_backward(*devices.runtimes[0], test, data).d_bias == first.d_bias);
    }
  }
}

TEST_CASE("backward with tensors of pairs is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_rows(devices, kSm80);
}

TEST_CASE("sm90 backward with tensors of pairs is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) return;
  check_rows(devices, kSm90);
}

TEST_CASE("the gradient of a bias on wgmma is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) return;
  check_bias_gradient_sm90(devices);
}

}  // namespace attune::tests
