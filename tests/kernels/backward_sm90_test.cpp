// Backward kernels of wgmma over problems and configs: a pairwise table, rows and keys that see nothing, tickets.
#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"
#include "runtime/oracle/reference_attention.h"
#include "tests/catch.h"
#include "tests/kernels/backward_case.h"
#include "tests/kernels/case_table.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/pairwise.h"

namespace attune::tests {
namespace {

constexpr std::int64_t kLengths[] = {1, 17, 65, 130, 200};
constexpr int kHeadDims[] = {8, 16, 32, 40, 64, 72, 96, 128, 160, 256};
constexpr std::int64_t kGroups[] = {1, 2, 3};
constexpr int kBlockQ[] = {64, 128, 80, 48, 112}, kBlockKv[] = {64, 128, 192};
constexpr Overlap kOverlaps[] = {Overlap::none, Overlap::within, Overlap::queued};
constexpr WarpgroupOrder kOrders[] = {WarpgroupOrder::free, WarpgroupOrder::ordered};
constexpr Placement kPlacements[] = {Placement::packed, Placement::padded};
constexpr int kQueryParts[] = {1, 2, 5};
constexpr int kEarlyStatistics[] = {0, 3, 8};  // of 64 queries: none, some, all
constexpr int kTicketBlocks[] = {1, 2, 3};     // of at most 200 queries
constexpr TileScheduler kSchedulers[] = {TileScheduler::single, TileScheduler::static_persistent,
                                         TileScheduler::dynamic_persistent};
enum Factor {
  kDtype,
  kHeadDim,
  kSeqQ,
  kSeqKv,
  kGroup,
  kHeadsKv,
  kBatch,
  kMask,
  kSoftcap,
  kAlibi,
  kBias,
  kAttentionMask,
  kBiasGradient,
  kSink,
  kDropout,
  kLengthsOf,
  kLayout,
  kPlacement,
  kLse,
  kBlockQFactor,
  kBlockKvFactor,
  kStages,
  kDoStages,
  kDsStages,
  kOverlap,
  kOrdered,
  kDq,
  kApart,
  kQueryPartsFactor,
  kTiles,
  kSplit,
  kColumns,
  kCluster,
  kFusedConvert,
  kScheduler,
  kPolledLoads,
  kPInDs,
  kDqBy,
  kDqAdds,
  kEarly,
  kDkFirst,
  kTicketBlocksFactor,
  kPairTiles,
  kVisibleBlocks,
  kFactors
};

BackwardCase case_of(const FactorChoice& row) {
  BackwardCase test;
  test.placement = kPlacements[row[kPlacement]];
  test.problem = problem_of({.fp16 = row[kDtype] == 1,
                             .batch = 1 + row[kBatch],
                             .heads_kv = 1 + row[kHeadsKv],
                             .group = kGroups[row[kGroup]],
                             .seq_q = kLengths[row[kSeqQ]],
                             .seq_kv = kLengths[row[kSeqKv]],
                             .head_dim = kHeadDims[row[kHeadDim]],
                             .mask = static_cast<MaskChoice>(row[kMask]),
                             .bhsd = row[kLayout] == 1,
                             .softcap = row[kSoftcap],
                             .dropout = row[kDropout],
                             .alibi = row[kAlibi] == 1,
                             .sink = row[kSink] == 1,
                             .bias = row[kBias],
                             .attention_mask = row[kAttentionMask],
                             .bias_gradient = row[kBiasGradient] == 1,
                             .lengths = static_cast<LengthChoice>(row[kLengthsOf]),
                             .placement = test.placement});
  test.problem.pass = Pass::backward;
  test.with_lse = row[kLse] == 1;
  KernelConfig& config = test.config;
  config = default_fields(FamilyWord::sm90);
  config.block_q = kBlockQ[row[kBlockQFactor]];
  config.block_kv = kBlockKv[row[kBlockKvFactor]];
  config.stages = 1 + row[kStages];
  config.do_stages = row[kDoStages] == 0 ? 0 : config.stages == 1 ? 2 : config.stages - 1;
  config.ds_stages = 1 + row[kDsStages];
  config.overlap = kOverlaps[row[kOverlap]];
  config.warpgroup_order = kOrders[row[kOrdered]];
  config.dq = row[kDq] == 1 ? DqAccumulation::ordered : DqAccumulation::atomic;
  config.kv_grad_per_query_head = row[kApart] == 1;
  config.query_parts = kQueryParts[row[kQueryPartsFactor]];
  if (row[kTiles] == 1) config.tile_order = TileOrder::l2_sections;
  config.split_dkdv = row[kSplit] == 1;
  config.dq_columns = 64 * (1 + row[kColumns]);
  config.cluster = 1 + row[kCluster];
  config.fused_convert = row[kFusedConvert] == 1;
  config.polled_loads = row[kPolledLoads] == 1;
  config.p_in_ds = row[kPInDs] == 1;
  if (row[kDqBy] == 1) config.dq_by = DqWarpgroups::softmax;
  if (row[kDqAdds] == 1) config.dq_adds = DqAdds::bulk;
  config.tile_scheduler = kSchedulers[row[kScheduler]];
  config.early_statistics = kEarlyStatistics[row[kEarly]] * config.block_q / (config.split_dkdv ? 128 : 64);
  config.dk_first = row[kDkFirst] == 1;
  config.ticket_blocks = kTicketBlocks[row[kTicketBlocksFactor]];
  if (row[kPairTiles] == 1) config.pair_stages = config.stages;
  config.visible_blocks = row[kVisibleBlocks] == 1;
  test.problem.deterministic = config.dq != DqAccumulation::atomic && row[kLse] == 1;
  return test;
}

void check_pairwise(Devices& devices, const TablePart& part) {
  devices.draw = CaseDraw();
  std::vector<int> sizes(kFactors, 2);
  sizes[kHeadDim] = std::size(kHeadDims);
  sizes[kSeqQ] = sizes[kSeqKv] = std::size(kLengths);
  sizes[kMask] = kMaskChoices;
  sizes[kSoftcap] = std::size(kSoftcaps);
  sizes[kDropout] = std::size(kDropouts);
  sizes[kBias] = std::size(kBiases);
  sizes[kAttentionMask] = std::size(kAttentionMasks);
  sizes[kLengthsOf] = kLengthChoices;
  sizes[kGroup] = std::size(kGroups);
  sizes[kBlockQFactor] = std::size(kBlockQ);
  sizes[kBlockKvFactor] = std::size(kBlockKv);
  sizes[kOverlap] = std::size(kOverlaps);
  sizes[kOrdered] = std::size(kOrders);
  sizes[kStages] = 3;
  sizes[kScheduler] = std::size(kSchedulers);
  sizes[kQueryPartsFactor] = std::size(kQueryParts);
  sizes[kEarly] = std::size(kEarlyStatistics);
  sizes[kTicketBlocksFactor] = std::size(kTicketBlocks);
  const auto allowed = [&](const FactorChoice& row) {
    const BackwardCase test = case_of(row);
    return is_served(test.problem) && infeasibility(test.problem, test.config, devices.spec()).empty();
  };
  const std::vector<FactorChoice> rows = pairwise(sizes, allowed, 1).rows;
  for (std::size_t row = part.begin(rows.size()); row < part.end(rows.size()); ++row) {
    BackwardCase test = case_of(rows[row]);
    test.seed = row + 1;
    check_case(devices, test);
  }
}

// Two CTAs that exchange dS, in problems where one of them has keys or queries that the other has not.
void check_pairs_of_ctas(Devices& devices) {
  constexpr std::pair<const char*, const char*> kPairs[] = {
      {"d128", "sm90 q64 kv128 st2 overlap=within cluster2 dq=atomic"},
      {"d256", "sm90 q64 kv64 st2 dost1 dsst1 overlap=within cluster2 dq=atomic fused-convert split-dkdv"},
      {"d256", "sm90 q64 kv64 st2 dsst1 cluster2 dq=atomic polled-loads split-dkdv p-in-ds"},
      {"d104", "sm90 q64 kv128 st2 ordered overlap=queued cluster2 dq=atomic"},
      {"d200", "sm90 q64 kv64 st1 cluster2 dq=atomic split-dkdv"},
      {"d112", "sm90 q128 kv64 st1 cluster2 dq=atomic"}};
  int i = 0;
  for (const char* lengths : {"sq70 skv17", "sq33 skv300", "sq150 skv90", "sq200 skv260"}) {
    for (const char* mask : {"", " causal", " causal@-100", " window=20,3", " window=open,5@-30"}) {
      const auto [head_dim, config] = kPairs[i++ % std::size(kPairs)];
      check_case(devices,
                 backward_case(std::string("backward bf16 b1 hq2 hkv1 ") + lengths + " " + head_dim + mask, config));
    }
  }
}

// dQ by the softmax warpgroups, of which each walks blocks that attend to none of its keys, for the others' sake.
void check_dq_by_softmax(Devices& devices) {
  constexpr std::pair<const char*, const char*> kConfigs[] = {
      {"bf16 d128", "sm90 q80 kv128 st2 ordered overlap=within"},
      {"fp16 d128", "sm90 q64 kv128 st2 overlap=queued scheduler=static-persistent"},
      {"bf16 d64", "sm90 q128 kv128 st3 dost2 ordered overlap=within"},
      {"fp16 d96", "sm90 q80 kv128 st2 ordered overlap=queued"},
      {"bf16 d112", "sm90 q48 kv128 st2 overlap=within dsst3"},
      {"fp16 d32", "sm90 q96 kv192 st2 ordered overlap=within kv-grad-per-query-head"},
      {"bf16 d48", "sm90 q112 kv64 st3 overlap=queued"}};
  int i = 0;
  for (const char* lengths : {"sq70 skv17", "sq33 skv300", "sq170 skv90", "sq200 skv260"}) {
    for (const char* mask : {"", " causal", " causal@-100", " window=20,3", " window=open,5@-30"}) {
      for (const char* adds : {"", " dq-adds=bulk"}) {
        const auto [kind, config] = kConfigs[i++ % std::size(kConfigs)];
        BackwardCase test = backward_case(fmt::format("backward {} b1 hq4 hkv2 {}{}", kind, lengths, mask),
                                          fmt::format("{} dq=atomic dq-by=softmax{}", config, adds));
        test.with_lse = i % 3 == 0;
        check_case(devices, test);
      }
    }
  }
}

// Adds by bulk reductions of the warpgroup that computes dQ alone: one product or several, of which the last may have
// fewer columns.
void check_bulk_adds(Devices& devices) {
  constexpr std::pair<const char*, const char*> kConfigs[] = {
      {"bf16 d128", "sm90 q64 kv128 st2 ordered overlap=within"},
      {"fp16 d64", "sm90 q128 kv128 st3 ordered overlap=queued scheduler=static-persistent"},
      {"bf16 d104", "sm90 q64 kv64 st2 overlap=within polled-loads"},
      {"fp16 d72", "sm90 q128 kv64 st2 overlap=within dsst1"},
      {"bf16 d160", "sm90 q64 kv64 st2 overlap=within dqcols128 split-dkdv"},
      {"bf16 d128", "sm90 q64 kv64 st2 overlap=within cluster2"},
      {"bf16 d256", "sm90 q64 kv64 st2 polled-loads split-dkdv p-in-ds"},
      {"fp16 d8", "sm90 q64 kv128 st1 cta2 kv-grad-per-query-head"}};
  int i = 0;
  for (const char* lengths : {"sq70 skv17", "sq33 skv300", "sq170 skv90", "sq200 skv260"}) {
    for (const char* mask : {"", " causal", " causal@-100", " window=20,3", " window=open,5@-30"}) {
      const auto [kind, config] = kConfigs[i++ % std::size(kConfigs)];
      BackwardCase test = backward_case(fmt::format("backward {} b1 hq4 hkv2 {}{}", kind, lengths, mask),
                                        fmt::format("{} dq=atomic dq-adds=bulk", config));
      test.with_lse = i % 3 == 0;
      check_case(devices, test);
    }
  }
}

// Words of configs that differ in who computes what, and in what they wait for; without the way to dQ.
constexpr const char* kConfigs[] = {"sm90 q64 kv128 st2 ordered overlap=within",
                                    "sm90 q128 kv64 st2 overlap=queued dsst1", "sm90 q64 kv192 st1 ordered dost2",
                                    "sm90 q64 kv64 st2 overlap=within split-dkdv",
                                    "sm90 q64 kv64 st1 dsst1 split-dkdv"};

void check_rows_that_see_nothing(Devices& devices) {
  int i = 0;
  for (const char* lengths : {"sq70 skv17", "sq33 skv200", "sq17 skv1", "sq150 skv90"}) {
    for (const char* offset : {"causal", "causal-top-left", "causal@-1", "causal@-1000", "causal@-2147480000",
                               "causal@2147480000", "window=20,0", "window=open,5@-30"}) {
      for (const char* dq : {" dq=atomic", " dq=ordered", " dq=ordered kv-grad-per-query-head"}) {
        BackwardCase test = backward_case(std::string("backward fp16 b1 hq2 hkv1 ") + lengths + " d40 " + offset,
                                          std::string(kConfigs[i++ % std::size(kConfigs)]) + dq);
        test.with_lse = test.config.dq != DqAccumulation::ordered;
        check_case(devices, test);
      }
    }
  }
}

// Keys whose scores would be 0 beside queries whose scores are far below that: exp(0 - LSE) overflows.
void check_keys_beyond_the_last(Devices& devices) {
  for (const char* config : kConfigs) {
    for (const char* dq : {" dq=atomic", " dq=ordered kv-grad-per-query-head"}) {
      BackwardCase test = backward_case("backward bf16 hq2 hkv1 sq40 skv33 d16", std::string(config) + dq);
      test.loudness = -40;
      check_case(devices, test);
    }
  }
}

// Tiles that wait for one another, far more than run at once.
void check_tickets(Devices& devices) {
  check_case(devices, backward_case("backward bf16 hq3 hkv1 sq130 skv1500 d8", "sm90 q64 kv64 st2 dq=ordered"));
  check_case(devices, backward_case("backward bf16 b2 hq2 sq600 skv900 d8 causal", "sm90 q64 kv64 st1 dq=ordered"));
  check_case(devices, backward_case("backward fp16 b2 hq8 hkv1 sq100 skv400 d16 deterministic",
                                    "sm90 q64 kv128 st2 overlap=within kv-grad-per-query-head dq=ordered"));
  // The last tile of many converts.
  for (const char* mask : {"", " causal", " window=100,0"}) {
    check_case(devices, backward_case(std::string("backward bf16 b2 hq4 hkv2 sq300 skv900 d24") + mask,
                                      "sm90 q64 kv64 st2 dq=atomic fused-convert"));
    check_case(devices, backward_case(std::string("backward fp16 b2 hq2 sq333 skv500 d72 deterministic") + mask,
                                      "sm90 q64 kv128 st2 overlap=within dq=ordered fused-convert"));
  }
}

// CTAs that take several tiles each, of which some have no queries; `batch`: sequences.
void check_persistent_ctas(Devices& devices, int batch) {
  constexpr std::pair<const char*, const char*> kCases[] = {
      {"hq2 sq200 skv450 d16 causal", "sm90 q64 kv64 st1 dq=atomic"},
      {"hq4 hkv2 sq130 skv600 d40 causal", "sm90 q64 kv128 st2 dsst1 overlap=queued dq=atomic"},
      {"hq4 hkv2 sq150 skv300 d64 window=60,0", "sm90 q128 kv64 st3 overlap=within dq=atomic fused-convert"},
      {"hq4 hkv1 sq70 skv500 d24", "sm90 q64 kv64 st2 cta2 dq=atomic kv-grad-per-query-head"},
      {"hq5 sq130 skv520 d16", "sm90 q64 kv128 st2 ordered overlap=queued dq=atomic"},
      {"hq3 sq90 skv260 d160 causal", "sm90 q64 kv64 st2 overlap=within split-dkdv dq=atomic"},
      {"hq3 sq150 skv300 d128 causal@-120", "sm90 q64 kv128 st3 ordered overlap=within dq=atomic"},
      {"hq2 sq130 skv300 d256 causal@-40", "sm90 q64 kv64 st2 polled-loads split-dkdv p-in-ds dq=atomic"},
      {"hq4 hkv2 sq200 skv400 d64 causal", "sm90 q128 kv128 st2 ordered overlap=within dq=atomic dq-by=softmax"},
      {"hq3 sq160 skv400 d64 window=20,20", "sm90 q64 kv128 st2 overlap=queued dq=atomic dq-by=softmax dq-adds=bulk"}};
  for (const auto& [problem, config] : kCases) {
    for (const char* scheduler : {"static", "dynamic"}) {
      check_case(devices, backward_case(fmt::format("backward bf16 b{} {}", batch, problem),
                                        fmt::format("{} scheduler={}-persistent", config, scheduler)));
    }
  }
}

TEST_CASE("sm90 backward is right in all modes of the emulator: pairwise over problems and configs", "[emulator]") {
  Devices devices = Devices::emulators();
  check_pairwise(devices, emulated_part(4));
}

TEST_CASE("sm90 backward is right in all modes of the emulator: rows that see nothing, keys beyond the last",
          "[emulator]") {
  Devices devices = Devices::emulators();
  check_rows_that_see_nothing(devices);
  check_keys_beyond_the_last(devices);
}

TEST_CASE("sm90 backward is right in all modes of the emulator: ordered tiles of keys, far more than run at once",
          "[emulator]") {
  Devices devices = Devices::emulators();
  check_tickets(devices);
  EmulatorOptions one_by_one;
  one_by_one.concurrent_ctas = 1;
  one_by_one.threads = 1;
  one_by_one.schedule = ScheduleMode::random;  // CTAs begin in another order than that of their numbers
  Devices single;
  single.runtimes.push_back(std::make_unique<AttentionRuntime>(make_emulator_device(find_device("h200"), one_by_one)));
  single.names.push_back("one CTA at a time");
  check_case(single, backward_case("backward bf16 b2 hq4 hkv1 sq90 skv450 d8 causal",
                                   "sm90 q64 kv64 st2 kv-grad-per-query-head dq=ordered"));
}

TEST_CASE("sm90 backward is right in all modes of the emulator: pairs of CTAs", "[emulator]") {
  Devices devices = Devices::emulators();
  check_pairs_of_ctas(devices);
}

TEST_CASE("sm90 backward is right in all modes of the emulator: dQ by the softmax warpgroups", "[emulator]") {
  DeviceSpec small = find_device("h200");
  small.sm_count = 2;  // so that persistent CTAs take several tiles
  Devices devices = Devices::emulators(small);
  check_dq_by_softmax(devices);
}

TEST_CASE("sm90 backward is right in all modes of the emulator: adds by bulk reductions", "[emulator]") {
  DeviceSpec small = find_device("h200");
  small.sm_count = 2;  // so that persistent CTAs take several tiles
  Devices devices = Devices::emulators(small);
  check_bulk_adds(devices);
}

TEST_CASE("sm90 backward is right in all modes of the emulator: persistent CTAs", "[emulator]") {
  DeviceSpec small = find_device("h200");
  small.sm_count = 4;
  Devices devices = Devices::emulators(small);
  check_persistent_ctas(devices, 1);
}

// In shares, as test cases can be run in several processes.
void check_share_on_gpu(std::size_t index) {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major == 9) check_pairwise(devices, {index, 6});
}
TEST_CASE("sm90 backward is right on the GPU: pairwise over problems and configs, 1 of 6", "[gpu]") {
  check_share_on_gpu(0);
}
TEST_CASE("sm90 backward is right on the GPU: pairwise over problems and configs, 2 of 6", "[gpu]") {
  check_share_on_gpu(1);
}
TEST_CASE("sm90 backward is right on the GPU: pairwise over problems and configs, 3 of 6", "[gpu]") {
  check_share_on_gpu(2);
}
TEST_CASE("sm90 backward is right on the GPU: pairwise over problems and configs, 4 of 6", "[gpu]") {
  check_share_on_gpu(3);
}
TEST_CASE("sm90 backward is right on the GPU: pairwise over problems and configs, 5 of 6", "[gpu]") {
  check_share_on_gpu(4);
}
TEST_CASE("sm90 backward is right on the GPU: pairwise over problems and configs, 6 of 6", "[gpu]") {
  check_share_on_gpu(5);
}

TEST_CASE("sm90 backward is right on the GPU: odd cases", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  check_rows_that_see_nothing(devices);
  check_keys_beyond_the_last(devices);
  check_tickets(devices);
  check_pairs_of_ctas(devices);
  check_dq_by_softmax(devices);
  check_bulk_adds(devices);
  check_persistent_ctas(devices, 40);
  for (const char* dq : {" dq=atomic", " dq=ordered", " kv-grad-per-query-head dq=ordered"}) {
    check_case(devices, backward_case("backward bf16 b2 hq6 hkv2 sq700 skv1000 d128 causal",
                                      std::string("sm90 q64 kv128 st3 overlap=within") + dq));
    check_case(devices, backward_case("backward fp16 b2 hq6 hkv2 sq700 skv1000 d64",
                                      std::string("sm90 q128 kv128 st2 ordered overlap=within") + dq));
    check_case(devices, backward_case("backward bf16 b2 hq6 hkv2 sq700 skv1000 d256 window=200,30",
                                      std::string("sm90 q64 kv64 st2 dost1 overlap=within split-dkdv dsst1") + dq));
  }
}

// The same bits at each of 200 launches, while another thread's kernels take SMs and shift who comes first.
TEST_CASE("deterministic sm90 backward gives the same bits 200 times beside other load on the GPU", "[gpu]") {
  constexpr int kRepetitions = 200;
  const Stream own_stream = reinterpret_cast<Stream>(2);  // CU_STREAM_PER_THREAD
  AttentionRuntime runtime(open_cuda_device(0));
  if (runtime.device()->spec().compute_major != 9) {
    WARN("skipped: " << runtime.device()->spec().name << " is no Hopper GPU");
    return;
  }
  const BackwardCase load = backward_case("backward bf16 b2 hq4 sq700 d64", "sm80 q64 kv64 w4 st2 dq=atomic");
  const BackwardData load_data(load);
  const std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) run_backward(runtime, load, load_data, own_stream);
  });
  for (const char* problem : {"backward bf16 b2 hq10 hkv5 sq900 d96 causal deterministic",
                              "backward fp16 b1 hq16 hkv2 sq700 skv1000 d64 deterministic"}) {
    for (const char* config :
         {"sm90 q64 kv128 st2 overlap=within dq=ordered", "sm90 q64 kv64 st2 kv-grad-per-query-head dq=ordered"}) {
      const BackwardCase test = backward_case(problem, config);
      INFO(to_string(test));
      const BackwardData data(test);
      const BackwardResult first = run_backward(runtime, test, data, own_stream);
      CHECK(first.complaint == "");
      for (const OutputErrors& output :
           compare_backward(test.problem, data.reference, first.d_q, first.d_k, first.d_v, first.d_sinks, first.d_bias)
               .outputs)
        CHECK(output.complaint == "");
      int different = 0;
      for (int i = 1; i < kRepetitions; ++i) different += !(first == run_backward(runtime, test, data, own_stream));
      CHECK(different == 0);
    }
  }
}

}  // namespace
}  // namespace attune::tests
