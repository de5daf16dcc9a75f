// Forward kernels over problems and configs: a pairwise table, lengths, masks, schedules, grouped heads.
#include <set>
#include <string>
#include <thread>

#include "generator/config/config_space.h"
#include "generator/error.h"
#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "runtime/oracle/parallel_for.h"
#include "tests/catch.h"
#include "tests/kernels/case_table.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Work of one case: about 0.15 s on one core of the emulator. With this seed the tables have little work in all, and
// all pairs that are possible.
constexpr double kEmulatorWork = 3e7;
constexpr std::uint32_t kSeed = 4;

void check_pairwise(Devices& devices, FamilyWord family, double max_work, const TablePart& part) {
  devices.draw = CaseDraw();
  const CaseTable table = pairwise_cases(devices.spec(), family, max_work, kSeed);
  const std::vector<ForwardCase> cases(
      table.cases.begin() + static_cast<std::ptrdiff_t>(part.begin(table.cases.size())),
      table.cases.begin() + static_cast<std::ptrdiff_t>(part.end(table.cases.size())));
  // On all cores, into the cubin cache. What fails here is reported below.
  if (devices.runtimes.front()->device()->target() == KernelTarget::cuda) {
    const std::shared_ptr<Device> device = devices.runtimes.front()->device();
    parallel_for(cases.size(), [&](std::size_t i) {
      const ForwardCase& test = cases[i];
      try {
        for (const KernelLaunch& launch : generate(test.problem, test.config, device->spec()).launches)
          device->compile(launch);
      } catch (const Error&) {
      }
    });
  }
  for (const ForwardCase& test : cases) check_case(devices, test);
}

// Lengths that are multiples of the tiles, and configs that rely on it.
const Configs kEvenTiles = {"sm80 q64 kv64 w4 st2 even-tiles", "sm80 q64 kv32 w4 st1 even-tiles qsmem",
                            "sm80 q128 kv64 w4 st3 rescale10 even-tiles"};
const Configs kWholeTilesSm90 = {
    "sm90 q64 kv64 st2 even-tiles",
    "sm90 q128 kv32 st1 even-tiles ordered overlap=within",
    "sm90 q128 kv64 st2 rescale10 even-tiles qst2 overlap=across scheduler=dynamic-persistent",
    "sm90 q64 kv32 st1 even-tiles overlap=within vst3 cluster2",
    "sm90 q128 kv32 st2 even-tiles pingpong",
    "sm90 q128 kv32 st2 rescale10 even-tiles qst2 ordered overlap=within scheduler=static-persistent ascending-keys",
    "sm90 q128 kv64 st1 rescale10 even-tiles overlap=within psmem"};
void check_even_tiles(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const char* mask : {"", " causal", " causal-top-left", " causal@-70"}) {
      check_case(devices, case_from(std::string("forward bf16 b1 hq2 hkv1 sq128 skv256 d40") + mask, config));
      check_case(devices, case_from(std::string("forward fp16 b2 hq1 sq256 skv64 d64") + mask, config));
    }
  }
}

// One compiled kernel for all lengths: batch, heads, lengths and strides are arguments.
const Configs kManyLengths = {"sm80 q64 kv48 w4 st2", "sm80 q64 kv64 w4 st1 qsmem rescale10"};
const Configs kManyLengthsSm90 = {
    "sm90 q128 kv48 st2 rescale10 qst2 ordered overlap=across scheduler=dynamic-persistent",
    "sm90 q64 kv48 st2 overlap=across scheduler=dynamic-persistent vst1 cluster2"};
void check_one_kernel_for_many_lengths(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const std::int64_t seq_q : {1, 3, 17, 127, 129}) {
      for (const std::int64_t seq_kv : {1, 3, 17, 127, 129}) {
        ForwardCase test = case_from("forward bf16 b1 hq1 sq1 d16", config);
        test.problem.mask = MaskKind::causal;
        test.problem.seq_q = seq_q;
        test.problem.seq_kv = seq_kv;
        for (const std::int64_t offset :
             {seq_kv - seq_q, std::int64_t{0}, seq_kv - seq_q - 40, -seq_q, std::int64_t{2147480000}}) {
          test.problem.mask_offset = offset;
          check_case(devices, test);
        }
      }
    }
  }
}

// Rows that attend to nothing, at each end of what a tile can hold of them.
const Configs kRowsThatSeeNothing = {"sm80 q64 kv64 w4 st1", "sm80 q64 kv64 w4 st3 rescale10",
                                     "sm80 q128 kv32 w4 st2 qsmem order=head-major-reversed"};
const Configs kRowsThatSeeNothingSm90 = {
    "sm90 q64 kv64 st1",
    "sm90 q192 kv48 st3 rescale10 qst2 ordered overlap=across scheduler=dynamic-persistent",
    "sm90 q128 kv32 st2 order=head-major-reversed rescale10 overlap=within scheduler=static-persistent",
    "sm90 q128 kv16 st2 rescale10 ordered overlap=across scheduler=dynamic-persistent cluster2",
    "sm90 q64 kv48 st1 order=head-major-reversed rescale10 vst2 cluster2",
    "sm90 q64 kv32 st2 exp8",
    "sm90 q192 kv48 st2 pingpong",
    "sm90 q192 kv32 st2 order=head-major-reversed rescale10 ordered overlap=within ascending-keys",
    "sm90 q192 kv144 st1 overlap=within psmem"};
void check_rows_that_see_nothing(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const char* lengths : {"sq300 skv17", "sq129 skv64", "sq65 skv1"}) {
      for (const char* offset : {"causal", "causal@-1", "causal@-64", "causal@-1000", "causal@-2147480000"}) {
        const std::string dtype = parse_config(config).rescale_threshold > 0 ? "bf16" : "fp16";
        check_case(devices, case_from("forward " + dtype + " b1 hq2 " + lengths + " d40 " + offset, config));
      }
    }
  }
}

// CTAs that stay for several tiles, of which each warpgroup attends to another part: how far one may run ahead of
// another.
const Configs kSeveralTilesSm90 = {
    "sm90 q192 kv80 st1 order=tile-major-reversed rescale10 ordered overlap=across scheduler=dynamic-persistent",
    "sm90 q192 kv32 st1 order=l2-sections-reversed rescale10 qst2 overlap=across scheduler=dynamic-persistent",
    "sm90 q192 kv32 st2 order=head-major-reversed rescale10 ordered overlap=across scheduler=dynamic-persistent",
    "sm90 q192 kv48 st3 qreg order=tile-major-reversed rescale10 qst2 ordered overlap=across "
    "scheduler=static-persistent",
    "sm90 q128 kv32 st4 order=tile-major-reversed rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent",
    "sm90 q192 kv32 st2 order=l2-sections-reversed rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent "
    "ascending-keys",
    "sm90 q192 kv32 st3 order=tile-major-reversed rescale10 ordered overlap=across scheduler=dynamic-persistent vst1 "
    "preg24",
    "sm90 q192 kv48 st1 order=tile-major-reversed rescale10 qst2 overlap=across scheduler=dynamic-persistent vst4",
    "sm90 q128 kv48 st2 order=tile-major-reversed rescale10 qst2 ordered overlap=across scheduler=dynamic-persistent "
    "cluster2",
    "sm90 q64 kv16 st1 order=head-major-reversed rescale10 overlap=across scheduler=dynamic-persistent vst2 cluster2",
    "sm90 q128 kv80 st1 order=l2-sections-reversed rescale10 overlap=within scheduler=static-persistent cluster2",
    "sm90 q192 kv32 st4 order=tile-major-reversed rescale10 ordered overlap=across scheduler=static-persistent vst2 "
    "cluster2",
    "sm90 q192 kv32 st1 order=tile-major-reversed rescale10 qst2 pingpong scheduler=dynamic-persistent",
    "sm90 q192 kv48 st3 order=tile-major-reversed rescale10 pingpong scheduler=static-persistent",
    "sm90 q192 kv80 st1 order=tile-major-reversed rescale10 ordered overlap=across scheduler=dynamic-persistent psmem",
    "sm90 q128 kv48 st2 order=tile-major-reversed qst2 pingpong scheduler=dynamic-persistent psmem",
};
void check_several_tiles(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    check_case(devices,
               case_from("forward bf16 b1 hq" + std::to_string(heads_for(devices, 48)) + " sq500 d16 causal", config));
    check_case(
        devices,
        case_from("forward bf16 b1 hq" + std::to_string(heads_for(devices, 67)) + " sq200 skv350 d8 causal@0", config));
  }
}

// CTAs that stay, whose warpgroups have queries in a tile and no keys: the next tile's Q comes into the buffer of one
// that nobody made use of.
const Configs kUnusedQueriesSm90 = {
    "sm90 q64 kv32 st1 qreg scheduler=static-persistent", "sm90 q128 kv48 st2 qreg scheduler=dynamic-persistent",
    "sm90 q192 kv32 st2 qreg rescale10 ordered overlap=within scheduler=dynamic-persistent ascending-keys",
    "sm90 q128 kv32 st1 qreg rescale10 ordered overlap=across scheduler=static-persistent"};
void check_unused_queries(Devices& devices, const Configs& configs) {
  for (const char* config : configs)
    check_case(devices,
               case_from("forward bf16 b1 hq" + std::to_string(heads_for(devices, 140)) + " sq130 skv20 d8 causal@-70",
                         config));
}

// The default config of each head dim and mask on a length that a person would use.
void check_defaults(Devices& devices, std::int64_t seq, std::int64_t heads) {
  for (const int head_dim : {8, 16, 40, 64, 72, 128, 256}) {
    for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
      ForwardCase test;
      test.problem = make_problem(head_dim % 16 ? DataType::fp16 : DataType::bf16, 1, heads, seq, head_dim, mask);
      test.config = default_config(test.problem, devices.spec());
      check_case(devices, test);
    }
  }
}

}  // namespace

TEST_CASE("the pairwise table holds every pair of problem factors", "[nogpu]") {
  const CaseTable table = pairwise_cases(find_device("h200"), FamilyWord::sm80, kEmulatorWork, kSeed);
  INFO(table.cases.size() << " cases");
  CHECK(table.cases.size() < 150);
  // Shared memory and registers rule out large tiles with large head dims, or with many stages, and nothing else.
  CHECK(table.impossible.size() < 60);
  std::set<std::string> pairs;
  std::size_t of_first_third = 0;
  for (std::size_t i = 0; i < table.cases.size(); ++i) {
    const AttentionProblem& problem = table.cases[i].problem;
    if (i == table.cases.size() / 3) of_first_third = pairs.size();
    pairs.insert(std::to_string(problem.seq_q) + " " + std::to_string(problem.seq_kv));
    pairs.insert("d" + std::to_string(problem.head_dim) + " q" + std::to_string(problem.seq_q));
    pairs.insert("d" + std::to_string(problem.head_dim) + " k" + std::to_string(problem.seq_kv));
    pairs.insert("g" + std::to_string(problem.heads_q / problem.heads_kv) + " d" + std::to_string(problem.head_dim));
  }
  for (const std::string& pair : pairs) UNSCOPED_INFO(pair);
  CHECK(pairs.size() == 36 + 42 + 42 + 21);
  CHECK(of_first_third > pairs.size() * 3 / 4);
}

TEST_CASE("forward is right in all modes of the emulator: pairwise over problems and configs", "[emulator]") {
  Devices devices = forward_emulators();
  check_pairwise(devices, FamilyWord::sm80, kEmulatorWork, emulated_part());
}

TEST_CASE("forward is right in all modes of the emulator: whole tiles", "[emulator]") {
  Devices devices = forward_emulators();
  check_even_tiles(devices, kEvenTiles);
}

TEST_CASE("forward is right in all modes of the emulator: one kernel for many lengths and offsets", "[emulator]") {
  Devices devices = forward_emulators();
  check_one_kernel_for_many_lengths(devices, kManyLengths);
}

TEST_CASE("forward is right in all modes of the emulator: rows that see nothing", "[emulator]") {
  Devices devices = forward_emulators();
  check_rows_that_see_nothing(devices, kRowsThatSeeNothing);
}

TEST_CASE("forward is right in all modes of the emulator: default configs", "[emulator]") {
  Devices devices = forward_emulators();
  check_defaults(devices, 200, 1);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: pairwise over problems and configs", "[emulator]") {
  Devices devices = forward_emulators();
  check_pairwise(devices, FamilyWord::sm90, kEmulatorWork, emulated_part());
}

TEST_CASE("sm90 forward is right in all modes of the emulator: whole tiles, many lengths", "[emulator]") {
  Devices devices = forward_emulators();
  check_even_tiles(devices, kWholeTilesSm90);
  check_one_kernel_for_many_lengths(devices, kManyLengthsSm90);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: several tiles of a CTA", "[emulator]") {
  Devices devices = forward_emulators(kFewSms);
  check_several_tiles(devices, kSeveralTilesSm90);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: rows that see nothing", "[emulator]") {
  Devices devices = forward_emulators(kFewSms);
  check_rows_that_see_nothing(devices, kRowsThatSeeNothingSm90);
  check_unused_queries(devices, kUnusedQueriesSm90);
}

TEST_CASE("forward is right on the emulator at length 1000 and head dim 256", "[emulator]") {
  Devices devices = forward_emulators();
  devices.runtimes.resize(1);
  check_case(devices, case_from("forward bf16 b1 hq1 sq1000 d256 causal", "sm80 q64 kv64 w4 st2 qsmem"));
}

TEST_CASE("forward is right on the GPU: pairwise over problems and configs", "[gpu]") {
  Devices devices = Devices::gpu();
  check_pairwise(devices, FamilyWord::sm80, kEmulatorWork, {});
}

TEST_CASE("forward is right on the GPU: whole tiles", "[gpu]") {
  Devices devices = Devices::gpu();
  check_even_tiles(devices, kEvenTiles);
}

TEST_CASE("forward is right on the GPU: one kernel for many lengths and offsets", "[gpu]") {
  Devices devices = Devices::gpu();
  check_one_kernel_for_many_lengths(devices, kManyLengths);
}

TEST_CASE("forward is right on the GPU: rows that see nothing", "[gpu]") {
  Devices devices = Devices::gpu();
  check_rows_that_see_nothing(devices, kRowsThatSeeNothing);
}

TEST_CASE("forward is right on the GPU: default configs", "[gpu]") {
  Devices devices = Devices::gpu();
  check_defaults(devices, 1000, 2);
}

TEST_CASE("sm90 forward is right on the GPU", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  check_pairwise(devices, FamilyWord::sm90, kEmulatorWork, {});
  check_even_tiles(devices, kWholeTilesSm90);
  check_one_kernel_for_many_lengths(devices, kManyLengthsSm90);
  check_rows_that_see_nothing(devices, kRowsThatSeeNothingSm90);
  check_unused_queries(devices, kUnusedQueriesSm90);
  check_several_tiles(devices, kSeveralTilesSm90);
  check_case(devices,
             case_from("forward bf16 b1 hq8 hkv2 sq5000 skv3007 d128 causal",
                       "sm90 q192 kv80 st3 rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent"));
}

// The same bits at each of 200 launches, while another thread's kernels take SMs and shift who comes first.
TEST_CASE("forward gives the same bits 200 times beside other load on the GPU", "[gpu]") {
  constexpr int kRepetitions = 200;
  const Stream own_stream = reinterpret_cast<Stream>(2);  // CU_STREAM_PER_THREAD
  AttentionRuntime runtime(open_cuda_device(0));
  ForwardCase load = case_from("forward bf16 b4 hq8 sq1500 d64", "sm80 q64 kv64 w4 st2");
  const ForwardData load_data = make_data(load);
  const std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) run_forward(runtime, load, load_data, own_stream);
  });
  std::vector<const char*> configs = {"sm80 q128 kv64 w4 st2 qsmem order=tile-major-reversed rescale10"};
  if (runtime.device()->spec().compute_major == 9) {
    configs.push_back(
        "sm90 q192 kv64 st3 order=head-major-reversed rescale10 qst2 ordered overlap=within "
        "scheduler=dynamic-persistent");
    configs.push_back(
        "sm90 q128 kv80 st2 order=tile-major-reversed rescale10 qst2 ordered overlap=across "
        "scheduler=dynamic-persistent");
    configs.push_back("sm90 q64 kv64 st2 rescale10 cta2 overlap=within");
  }
  for (const char* config : configs) {
    const ForwardCase test = case_from("forward bf16 b2 hq10 sq1900 d96 causal", config);
    INFO(to_string(test));
    const ForwardData data = make_data(test);
    const ForwardResult first = run_forward(runtime, test, data, own_stream);
    CHECK(complaint(test, data, expected_forward(test, data), first) == "");
    int different = 0;
    for (int i = 1; i < kRepetitions; ++i) different += !same_bits(first, run_forward(runtime, test, data, own_stream));
    CHECK(different == 0);
  }
}

TEST_CASE("forward is right on the GPU: long sequences, and more CTAs than 65535", "[gpu]") {
  Devices devices = Devices::gpu();
  for (const char* problem :
       {"forward bf16 b1 hq1 sq4096 d128 causal", "forward fp16 b1 hq1 sq5001 skv3007 d64",
        "forward bf16 b1 hq1 sq1 skv20000 d128", "forward fp16 b4099 hq17 hkv1 sq2 skv5 d8 causal"}) {
    ForwardCase test;
    test.problem = parse_problem(problem);
    test.config = default_config(test.problem, devices.spec());
    check_case(devices, test);
  }
}

}  // namespace attune::tests
