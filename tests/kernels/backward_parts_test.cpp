// Backward kernels that split the queries which a tile of keys walks through.
#include <iterator>
#include <memory>
#include <string>

#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/compiled_resources.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// A workspace begins as NaN in all of these: what a part does not add to may not reach dK or dV.
const Configs kParts = {"sm80 q64 kv32 w2 st2 query-parts2 dq=atomic", "sm80 q16 kv16 w1 st1 query-parts3",
                        "sm80 q32 kv64 w4 st2 query-warps2 query-parts7 dq-first dq=ordered",
                        "sm80 q16 kv48 w1 st3 order=l2-sections query-parts3 dq=atomic"};
const Configs kPartsSm90 = {"sm90 q64 kv64 st2 overlap=within query-parts2 dq=atomic",
                            "sm90 q64 kv128 st2 ordered overlap=queued query-parts3 dq=ordered",
                            "sm90 q128 kv64 st1 dsst1 query-parts7 dq=ordered fused-convert",
                            "sm90 q64 kv192 st1 ordered dost2 order=l2-sections query-parts3 dq=atomic",
                            ("sm90 q64 kv64 st2 overlap=within scheduler=static-persistent query-parts3 dq=atomic "
                             "polled-loads fused-convert")};

// Walks that parts divide evenly and unevenly, and of fewer blocks than parts. Heads that share keys or do not, and a
// gradient of LSE, by turns.
void check_lengths(Devices& devices, const Configs& configs) {
  constexpr const char* kLengths[] = {"sq7 skv70", "sq300 skv5", "sq300 skv260"};
  constexpr const char* kMasks[] = {"", " causal", " causal@-100", " window=120,20"};
  int number = 0;
  for (const char* config : configs) {
    for (const char* lengths : kLengths) {
      for (const char* mask : kMasks) {
        const std::string dtype = ++number % 2 == 0 ? "bf16 " : "fp16 ";
        const std::string heads = number % 3 == 0 ? "b2 hq2 " : "b1 hq4 hkv2 ";
        BackwardCase test = backward_case("backward " + dtype + heads + lengths + " d16" + mask, config);
        test.with_lse = number % 4 == 0;
        test.problem.deterministic = test.config.dq != DqAccumulation::atomic;
        check_case(devices, test);
      }
    }
  }
}

void check_head_dims(Devices& devices, const std::string& config, const std::string& config_of_wide) {
  for (const int head_dim : {8, 64, 128, 256}) {
    for (const char* dq : {" dq=atomic", " dq=ordered"}) {
      const std::string words = (head_dim > 128 ? config_of_wide : config) + " query-parts3" + dq;
      BackwardCase test =
          backward_case("backward bf16 hq2 hkv1 sq270 skv100 d" + std::to_string(head_dim) + " causal bhsd", words);
      test.placement = Placement::padded;
      check_case(devices, test);
    }
  }
}

void check_sm80(Devices& devices) {
  check_lengths(devices, kParts);
  check_head_dims(devices, "sm80 q32 kv32 w2 st2", "sm80 q64 kv64 w8 st1 query-warps4");
}

void check_sm90(Devices& devices) {
  check_lengths(devices, kPartsSm90);
  check_head_dims(devices, "sm90 q64 kv64 st2 overlap=within", "sm90 q64 kv64 st2 dost1 overlap=within split-dkdv");
}

// One CTA at a time, which begin in another order than that of their numbers: none may wait for one that cannot run.
void check_one_by_one(const Configs& configs) {
  EmulatorOptions options;
  options.concurrent_ctas = 1;
  options.threads = 1;
  options.schedule = ScheduleMode::random;
  Devices single;
  single.runtimes.push_back(std::make_unique<AttentionRuntime>(make_emulator_device(find_device("h200"), options)));
  single.names.push_back("one CTA at a time");
  for (const char* config : configs) {
    for (const char* mask : {"", " causal", " window=150,60"}) {
      check_case(single, backward_case(std::string("backward bf16 b2 hq4 hkv1 sq330 skv330 d8") + mask, config));
    }
  }
}

bool is_right(AttentionRuntime& runtime, const BackwardCase& test, const BackwardData& data) {
  INFO(to_string(test));
  const BackwardResult result = run_backward(runtime, test, data);
  CHECK(result.complaint == "");
  return compare_backward(test.problem, data.reference, result.d_q, result.d_k, result.d_v, result.d_sinks,
                          result.d_bias)
      .within();
}

// Keys that a million queries see: right with parts, and wrong without, so that they are known to be what does it.
void check_million_queries(Devices& devices, const Configs& plain, const char* parts) {
  const std::string problem = "backward fp16 b1 hq1 sq1048576 skv8 d64";
  BackwardCase test = backward_case(problem, plain[0]);
  const BackwardData data(test);
  for (const char* config : plain) {
    test.config = parse_config(std::string(config) + parts);
    CHECK(is_right(*devices.runtimes[0], test, data));
    test.config = parse_config(config);
    CHECK_FALSE(is_right(*devices.runtimes[0], test, data));
  }
}

}  // namespace

TEST_CASE("backward with parts of the queries is right in all modes of the emulator", "[emulator]") {
  Devices devices = Devices::emulators();
  devices.draw = CaseDraw(9);
  check_sm80(devices);
}

TEST_CASE("sm90 backward with parts of the queries is right in all modes of the emulator", "[emulator]") {
  DeviceSpec small = find_device("h200");  // so that persistent CTAs take several tiles
  small.sm_count = 4;
  Devices devices = Devices::emulators(small);
  devices.draw = CaseDraw(9);
  check_sm90(devices);
}

TEST_CASE("backward with parts of the queries waits for no tile that cannot run", "[emulator]") {
  check_one_by_one({"sm80 q16 kv16 w1 st2 query-parts3 dq=ordered", "sm80 q16 kv16 w1 st2 query-parts3",
                    "sm80 q16 kv16 w1 st1 order=l2-sections query-parts3"});
}

TEST_CASE("sm90 backward with parts of the queries waits for no tile that cannot run", "[emulator]") {
  check_one_by_one({"sm90 q64 kv64 st2 query-parts3 dq=ordered"});
}

TEST_CASE("backward with parts of the queries is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  check_sm80(devices);
  for (const char* dq : {" dq=atomic", " dq=ordered", ""}) {
    check_case(devices, backward_case("backward bf16 b2 hq6 hkv2 sq3000 skv300 d128 causal",
                                      std::string("sm80 q64 kv128 w8 st2 query-warps2 query-parts5") + dq));
  }
  check_million_queries(devices, {"sm80 q64 kv64 w4 st2 query-warps2", "sm80 q64 kv64 w4 st2 dq=atomic"},
                        " query-parts16");
}

TEST_CASE("sm90 backward with parts of the queries is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  check_sm90(devices);
  for (const char* dq : {" dq=atomic", " dq=ordered"}) {
    check_case(devices, backward_case("backward bf16 b2 hq6 hkv2 sq3000 skv300 d128 causal",
                                      std::string("sm90 q64 kv128 st3 overlap=within query-parts5") + dq));
  }
  check_million_queries(devices,
                        {"sm90 q128 kv128 st2 ordered overlap=within dq=atomic", "sm90 q64 kv64 st2 dq=ordered"},
                        " query-parts16");
}

// Parts cost a few registers at a tile's beginning and end, none in the loop over blocks.
void check_spills() {
  struct Case {
    int head_dim;
    const char* config;
    int more_spilled = 16;
  };
  constexpr Case kCases[] = {{64, "sm90 q128 kv128 st3 ordered overlap=within dsst1 dq=atomic"},
                             {64, "sm90 q128 kv128 st3 ordered overlap=within dq=atomic early9", 20},
                             {128, "sm90 q64 kv128 st3 ordered overlap=within dq=atomic early8"},
                             {128, "sm90 q64 kv128 st3 ordered overlap=within dq=atomic"},
                             {128, "sm90 q64 kv128 st3 ordered overlap=within dq=ordered"},
                             {256, "sm90 q64 kv64 st2 dsst1 split-dkdv dq=atomic"}};
  CaseDraw draw = compiled_draw();
  for (const auto& [head_dim, config, more_spilled] : kCases) {
    for (const char* mask : {"", " causal"}) {
      if (!draw.takes_next()) continue;
      const AttentionProblem problem = parse_problem("backward sq1000 d" + std::to_string(head_dim) + mask);
      INFO(canonical_text(problem) << " | " << config);
      KernelConfig parts = parse_config(config);
      const auto resources = [&] {
        return compiled_resources(generate(problem, parts, find_device("h200")).launches[1]);
      };
      const KernelResources without = resources();
      parts.query_parts = 3;
      const KernelResources with = resources();
      CHECK(with.spill_bytes <= without.spill_bytes + more_spilled);
      CHECK(with.advisories.empty());
    }
  }
}

TEST_CASE("NVRTC compiles sm90 backward kernels with parts of the queries: hardly more spills than without",
          "[nvrtc]") {
  check_spills();
}

}  // namespace attune::tests
