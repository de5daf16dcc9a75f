#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "generator/config/config_space.h"
#include "generator/error.h"
#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/emulator/emulator_device.h"
#include "runtime/oracle/parallel_for.h"
#include "tests/catch.h"
#include "tests/kernels/case_table.h"
#include "tests/kernels/forward_case.h"
#include "tests/primitives/number_formats.h"

namespace attune::tests {
namespace {

// Work of one case: about 0.3 s on one core of the emulator.
constexpr double kEmulatorWork = 6e7;

// The devices that must agree bit for bit: the emulator in all modes, or the same GPU twice.
struct Devices {
  std::vector<std::unique_ptr<AttentionRuntime>> runtimes;
  std::vector<std::string> names;

  static Devices emulators() {
    Devices devices;
    DeviceSpec spec = find_device("h200");
    spec.l2_bytes = 64 << 10;  // holds K and V of a few heads: a section
    for (const AsyncMode async : {AsyncMode::eager, AsyncMode::lazy}) {
      for (const ScheduleMode schedule : {ScheduleMode::round_robin, ScheduleMode::random}) {
        const EmulatorOptions options{async, schedule, 40 + devices.names.size()};
        devices.runtimes.push_back(std::make_unique<AttentionRuntime>(make_emulator_device(spec, options)));
        devices.names.push_back(to_string(options));
      }
    }
    return devices;
  }
  static Devices gpu() {
    Devices devices;
    for (const char* name : {"first run", "second run"}) {
      devices.runtimes.push_back(std::make_unique<AttentionRuntime>(open_cuda_device(0)));
      devices.names.push_back(name);
    }
    return devices;
  }
  const DeviceSpec& spec() const { return runtimes.front()->device()->spec(); }
};

// Right on the first device, and the same bits on the others.
void check_case(Devices& devices, const ForwardCase& test) {
  INFO(to_string(test));
  const ForwardData data = make_data(test);
  const Expected expected = expected_forward(test, data);
  ForwardResult first;
  for (std::size_t i = 0; i < devices.runtimes.size(); ++i) {
    INFO(devices.names[i]);
    ForwardResult result;
    try {
      result = run_forward(*devices.runtimes[i], test, data);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
      return;
    }
    if (i == 0) {
      CHECK(complaint(test, data, expected, result) == "");
      first = std::move(result);
    } else {
      CHECK(same_bits(first, result));
    }
  }
}

ForwardCase case_from(const std::string& problem, const std::string& config) {
  ForwardCase test;
  test.problem = parse_problem(problem);
  test.config = parse_config(config);
  return test;
}

void check_pairwise(Devices& devices, FamilyWord family, double max_work) {
  const CaseTable table = pairwise_cases(devices.spec(), family, max_work, 1);
  // On all cores, into the cubin cache. What fails here is reported below.
  if (devices.runtimes.front()->device()->target() == KernelTarget::cuda) {
    const std::shared_ptr<Device> device = devices.runtimes.front()->device();
    parallel_for(table.cases.size(), [&](std::size_t i) {
      const ForwardCase& test = table.cases[i];
      try {
        device->compile(generate(test.problem, test.config, device->spec()).launches.front());
      } catch (const Error&) {
      }
    });
  }
  for (const ForwardCase& test : table.cases) check_case(devices, test);
}

using Configs = std::vector<const char*>;

// Whether a config is for bf16 alone.
bool is_for_bf16(const char* config) { return parse_config(config).lazy_max; }

// Lengths that are multiples of the tiles, and configs that rely on it.
const Configs kEvenTiles = {"sm80 q64 kv64 w4 st2 even-tiles", "sm80 q64 kv32 w4 st1 even-tiles qsmem",
                            "sm80 q128 kv64 w4 st3 rescale8 even-tiles"};
const Configs kWholeTilesSm90 = {
    "sm90 q64 kv64 st2 even-tiles",
    "sm90 q128 kv32 st1 even-tiles ordered overlap=within",
    "sm90 q128 kv64 st2 even-tiles lazy-max qst2 overlap=across scheduler=dynamic-persistent",
    "sm90 q64 kv32 st1 even-tiles overlap=within vst3 cluster2",
    "sm90 q128 kv32 st2 even-tiles pingpong",
    "sm90 q128 kv64 st1 even-tiles rescale8 overlap=within psmem"};
void check_even_tiles(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const char* mask : {"", " causal", " causal-top-left", " causal@-70"}) {
      check_case(devices, case_from(std::string("forward bf16 b1 hq2 hkv1 sq128 skv256 d40") + mask, config));
      if (is_for_bf16(config)) continue;
      check_case(devices, case_from(std::string("forward fp16 b2 hq1 sq256 skv64 d64") + mask, config));
    }
  }
}

// One compiled kernel for all lengths: batch, heads, lengths and strides are arguments.
const Configs kManyLengths = {"sm80 q64 kv48 w4 st2", "sm80 q64 kv64 w4 st1 qsmem rescale8"};
const Configs kManyLengthsSm90 = {
    "sm90 q128 kv48 st2 qst2 lazy-max ordered overlap=across scheduler=dynamic-persistent",
    "sm90 q64 kv48 st2 overlap=across scheduler=dynamic-persistent vst1 cluster2"};
void check_one_kernel_for_many_lengths(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const std::int64_t seq_q : {1, 3, 17, 127, 129}) {
      for (const std::int64_t seq_kv : {1, 3, 17, 127, 129}) {
        ForwardCase test = case_from("forward bf16 b1 hq1 sq1 d16 causal", config);
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

// Scores to +-1e4: exponentials of differences of large numbers.
const Configs kLargeMagnitudes = {"sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w4 st2 rescale8"};
const Configs kLargeMagnitudesSm90 = {"sm90 q64 kv64 st2",
                                      "sm90 q128 kv64 st2 rescale8 overlap=within",
                                      "sm90 q128 kv64 st2 lazy-max overlap=within",
                                      "sm90 q64 kv32 st2 lazy-max",
                                      "sm90 q64 kv64 st2 exp4",
                                      "sm90 q64 kv32 st2 lazy-max exp8"};
void check_large_magnitudes(Devices& devices, const Configs& configs) {
  for (const char* dtype : {"bf16", "fp16"}) {
    for (const char* config : configs) {
      if (dtype == std::string("fp16") && is_for_bf16(config)) continue;
      for (const char* mask : {"", " causal"}) {
        ForwardCase test = case_from(std::string("forward ") + dtype + " b1 hq2 sq129 skv200 d64" + mask, config);
        test.q_deviation = 2500;  // scale * q k has this deviation: the largest of 26000 scores lie near +-1e4
        check_case(devices, test);
        test.q_deviation = 30;
        check_case(devices, test);
      }
    }
  }
}

// Rows that attend to nothing, at each end of what a tile can hold of them.
const Configs kRowsThatSeeNothing = {"sm80 q64 kv64 w4 st1", "sm80 q64 kv64 w4 st3 rescale8",
                                     "sm80 q128 kv32 w4 st2 qsmem order=head-major-reversed"};
const Configs kRowsThatSeeNothingSm90 = {
    "sm90 q64 kv64 st1",
    "sm90 q192 kv48 st3 rescale8 qst2 ordered overlap=across scheduler=dynamic-persistent",
    "sm90 q128 kv32 st2 order=head-major-reversed lazy-max overlap=within scheduler=static-persistent",
    "sm90 q128 kv16 st2 lazy-max ordered overlap=across scheduler=dynamic-persistent cluster2",
    "sm90 q64 kv48 st1 order=head-major-reversed rescale8 vst2 cluster2",
    "sm90 q64 kv32 st2 exp8",
    "sm90 q192 kv48 st2 pingpong",
    "sm90 q192 kv144 st1 overlap=within psmem"};
void check_rows_that_see_nothing(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const char* lengths : {"sq300 skv17", "sq129 skv64", "sq65 skv1"}) {
      for (const char* offset : {"causal", "causal@-1", "causal@-64", "causal@-1000", "causal@-2147480000"}) {
        const std::string dtype = is_for_bf16(config) ? "bf16" : "fp16";
        check_case(devices, case_from("forward " + dtype + " b1 hq2 " + lengths + " d40 " + offset, config));
      }
    }
  }
}

// CTAs that stay for several tiles, of which each warpgroup attends to another part: how far one may run ahead of
// another.
const Configs kSeveralTilesSm90 = {
    "sm90 q192 kv80 st1 order=tile-major-reversed lazy-max ordered overlap=across scheduler=dynamic-persistent",
    "sm90 q192 kv32 st1 order=l2-sections-reversed qst2 lazy-max overlap=across scheduler=dynamic-persistent",
    "sm90 q192 kv32 st2 order=head-major-reversed lazy-max ordered overlap=across scheduler=dynamic-persistent",
    "sm90 q192 kv48 st3 qreg order=tile-major-reversed rescale8 qst2 ordered overlap=across "
    "scheduler=static-persistent",
    "sm90 q128 kv32 st4 order=tile-major-reversed qst2 lazy-max ordered overlap=within scheduler=dynamic-persistent",
    "sm90 q192 kv32 st3 order=tile-major-reversed lazy-max ordered overlap=across scheduler=dynamic-persistent vst1 "
    "preg24",
    "sm90 q192 kv48 st1 order=tile-major-reversed qst2 lazy-max overlap=across scheduler=dynamic-persistent vst4",
    "sm90 q128 kv48 st2 order=tile-major-reversed qst2 lazy-max ordered overlap=across scheduler=dynamic-persistent "
    "cluster2",
    "sm90 q64 kv16 st1 order=head-major-reversed lazy-max overlap=across scheduler=dynamic-persistent vst2 cluster2",
    "sm90 q128 kv80 st1 order=l2-sections-reversed rescale8 overlap=within scheduler=static-persistent cluster2",
    "sm90 q192 kv32 st4 order=tile-major-reversed lazy-max ordered overlap=across scheduler=static-persistent vst2 "
    "cluster2",
    "sm90 q192 kv32 st1 order=tile-major-reversed qst2 lazy-max pingpong scheduler=dynamic-persistent",
    "sm90 q192 kv48 st3 order=tile-major-reversed rescale8 pingpong scheduler=static-persistent",
    "sm90 q192 kv80 st1 order=tile-major-reversed lazy-max ordered overlap=across scheduler=dynamic-persistent psmem",
    "sm90 q128 kv48 st2 order=tile-major-reversed qst2 pingpong scheduler=dynamic-persistent psmem",
};
void check_several_tiles(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const char* problem :
         {"forward bf16 b1 hq48 sq500 d16 causal", "forward bf16 b1 hq67 sq200 skv350 d8 causal@0"})
      check_case(devices, case_from(problem, config));
  }
}

// Query heads that share K and V in one tile: few or many of them, positions that begin and end within a warp, tiles of
// several CTAs, a key that leaps (whose scores are computed anew).
const Configs kPackedSm90 = {
    "sm90 q64 kv64 st1 qreg order=tile-major-reversed rescale8 overlap=within pack-gqa",
    "sm90 q128 kv48 st2 order=tile-major lazy-max overlap=within scheduler=static-persistent pack-gqa",
    "sm90 q192 kv32 st2 order=l2-sections-reversed qst2 lazy-max ordered overlap=across scheduler=dynamic-persistent "
    "pack-gqa",
    "sm90 q128 kv32 st2 order=head-major-reversed lazy-max overlap=across scheduler=dynamic-persistent vst1 cluster2 "
    "pack-gqa",
};
void check_pack_gqa(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const int group : {2, 3, 8, 64}) {
      if (parse_config(config).block_q % group != 0) continue;
      for (const char* lengths : {"sq1 skv70", "sq67 skv129", "sq130 skv40"}) {
        for (const char* mask : {"", " causal", " causal@-60"}) {
          const std::string heads = "b2 hq" + std::to_string(2 * group) + " hkv2 ";
          check_case(devices, case_from("forward bf16 " + heads + lengths + " d16" + mask, config));
        }
      }
    }
    check_case(devices, case_from("forward bf16 b1 hq96 hkv48 sq300 d8 causal", config));
    ForwardCase leap = case_from("forward bf16 b1 hq4 hkv2 sq70 skv150 d64 causal", config);
    leap.loud_key = 3;
    leap.loudness = 200;
    check_case(devices, leap);
  }
  for (const char* mask : {"", " causal"})
    check_case(devices, case_from(std::string("forward fp16 b1 hq4 hkv2 sq96 skv128 d40") + mask,
                                  "sm90 q64 kv64 st2 even-tiles overlap=within pack-gqa"));
}

// One key whose scores leap far beyond the others', met early or late in the walk; and rows whose scores are all equal.
// Each is right for every reference, and only a leap that unmasked blocks cannot bear is computed anew.
struct Leap {
  std::int64_t key;
  double loudness;
  bool recomputes;  // without a maximum
};
const Configs kLeapsSm90 = {"sm90 q64 kv32 st2 rescale8",
                            "sm90 q64 kv32 st2 lazy-max",
                            "sm90 q128 kv32 st2 lazy-max ordered overlap=within scheduler=dynamic-persistent",
                            "sm90 q64 kv32 st2 rescale8 exp8",
                            "sm90 q64 kv32 st2 lazy-max exp4",
                            "sm90 q128 kv32 st2 lazy-max overlap=within psmem"};
void check_leaps(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const char* mask : {"", " causal"}) {
      // 150 keys: the walk begins with key 149. A loudness of 14 leaps by some 2^20 to 2^60, of 200 beyond 2^200.
      for (const Leap& leap :
           {Leap{3, 14, false}, {3, 200, true}, {70, 200, true}, {149, 200, false}, {149, 14, false}}) {
        ForwardCase test = case_from(std::string("forward bf16 b1 hq1 sq150 d64") + mask, config);
        test.loud_key = leap.key;
        test.loudness = leap.loudness;
        check_case(devices, test);
        if (!is_for_bf16(config)) continue;
        INFO(to_string(test));
        const std::uint32_t recomputed = run_forward(*devices.runtimes[0], test, make_data(test)).counters.at(0);
        CHECK((recomputed > 0) == leap.recomputes);
      }
      ForwardCase equal = case_from(std::string("forward bf16 b1 hq1 sq150 d64") + mask, config);
      equal.q_deviation = 0;
      check_case(devices, equal);
    }
  }
}

// Scores that are all below zero, or all above: row maxima that are negative, and that grow by much between blocks.
const Configs kShiftedScores = {"sm80 q64 kv32 w4 st2", "sm80 q64 kv32 w4 st2 rescale8"};
const Configs kShiftedScoresSm90 = {"sm90 q64 kv32 st2",
                                    "sm90 q128 kv32 st2 rescale8 overlap=within",
                                    "sm90 q64 kv48 st2 rescale4 exp4",
                                    "sm90 q128 kv32 st2 rescale8 qst2 overlap=across scheduler=dynamic-persistent",
                                    "sm90 q128 kv32 st2 rescale8 pingpong",
                                    "sm90 q64 kv32 st2 lazy-max"};
void check_shifted_scores(Devices& devices, const Configs& configs) {
  for (const char* dtype : {"bf16", "fp16"}) {
    for (const char* config : configs) {
      if (dtype == std::string("fp16") && is_for_bf16(config)) continue;
      for (const char* mask : {"", " causal", " window=70,0"}) {
        for (const double shift : {-1000.0, -60.0, 300.0}) {
          for (const double deviation : {1.0, 8.0}) {
            ForwardCase test = case_from(std::string("forward ") + dtype + " b1 hq1 sq129 skv200 d64" + mask, config);
            test.shift = shift;
            test.q_deviation = deviation;
            check_case(devices, test);
          }
        }
      }
    }
  }
}

// V near the largest of bf16: products with V overflow only where the sum of V itself does, although row_max follows
// the scores with a delay.
const Configs kLargeValuesSm90 = {"sm90 q64 kv32 st2 rescale8", "sm90 q128 kv32 st2 rescale8 overlap=within exp4",
                                  "sm90 q64 kv32 st2 rescale32"};
void check_large_values(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const char* mask : {"", " causal"}) {
      // The walk begins with the last key. The loud one's scores exceed those by up to 2^30.
      for (const double loudness : {1.0, 3.0, 8.0}) {
        ForwardCase test = case_from(std::string("forward bf16 b1 hq1 sq150 d64") + mask, config);
        test.loud_key = 3;
        test.loudness = loudness;
        test.v_exponent = 118;
        check_case(devices, test);
      }
    }
  }
}

// A NaN in K makes O and LSE of the rows that attend to its key NaN, and of no other.
const Configs kNanSm90 = {"sm90 q64 kv32 st2",
                          "sm90 q64 kv32 st2 exp4",
                          "sm90 q128 kv32 st2 rescale8 overlap=within exp8",
                          "sm90 q64 kv32 st2 lazy-max",
                          "sm90 q64 kv32 st2 lazy-max exp8",
                          "sm90 q128 kv32 st2 lazy-max overlap=across scheduler=dynamic-persistent exp4"};
const Configs kNan = {"sm80 q64 kv32 w4 st2", "sm80 q64 kv64 w4 st2 rescale8"};
void check_nan(Devices& devices, const Configs& configs) {
  for (const char* config : configs) {
    for (const std::int64_t key : {3, 70, 149}) {
      ForwardCase test = case_from("forward bf16 b1 hq1 sq150 d64 causal", config);
      test.q_deviation = 8;  // row maxima grow after the NaN, too
      INFO(to_string(test) << ", NaN in key " << key);
      ForwardData data = make_data(test);
      const Expected expected = expected_forward(test, data);
      data.k.memory[static_cast<std::size_t>(data.k.index(0, 0, key)) + 5] = 0x7fc0;
      const ForwardResult result = run_forward(*devices.runtimes.front(), test, data);
      for (std::int64_t row = 0; row < 150; ++row) {
        INFO("row " << row);
        const auto at = static_cast<std::size_t>(data.o.index(0, 0, row));
        int nans = 0;
        for (std::size_t d = 0; d < 64; ++d) nans += std::isnan(decode_bf16(result.o[at + d]));
        const float lse = result.lse[kLseGuard + static_cast<std::size_t>(row)];
        CHECK(nans == (row < key ? 0 : 64));
        CHECK(std::isnan(lse) == (row >= key));
        if (row < key) CHECK(std::fabs(lse - expected.lse[static_cast<std::size_t>(row)]) < 1e-3);
      }
    }
  }
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

// Rows more than 2^31 elements apart: every offset must be computed in 64 bits. Only a few rows of the memory are
// touched.
void check_far_rows(const std::shared_ptr<Device>& device, bool far_rows) {
  const std::int64_t far = (std::int64_t{1} << 31) + 4096;
  ForwardCase test = case_from("forward bf16 b2 hq2 hkv1 sq70 skv70 d64 causal", "sm80 q64 kv64 w4 st2");
  if (far_rows) test = case_from("forward bf16 b1 hq1 sq2 skv2 d64", "sm80 q64 kv64 w4 st2");
  INFO(to_string(test) << (far_rows ? ", rows" : ", batch entries") << " 2^31 elements apart");
  const ForwardData data = make_data(test);
  const Expected expected = expected_forward(test, data);
  const std::size_t bytes = 2 * static_cast<std::size_t>(far) + (1 << 20);

  AttentionRuntime runtime(device);
  // One tensor at a time lies far apart: a GPU need not hold four such tensors.
  for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::o}) {
    INFO("tensor " << to_string(operand));
    const TensorImage* images[] = {&data.q, &data.k, &data.v, &data.o};
    TensorView views[4];
    std::vector<DeviceBuffer> buffers;
    for (int i = 0; i < 4; ++i) {
      const TensorImage& image = *images[i];
      views[i] = image.strides;
      if (static_cast<int>(operand) != i) {
        buffers.emplace_back(device, 2 * image.memory.size());
        device->copy_to_device(buffers[i].pointer(), image.memory.data(), buffers[i].bytes());
        views[i].data =
            reinterpret_cast<const void*>(buffers[i].pointer() + 2 * static_cast<std::uint64_t>(image.origin));
        continue;
      }
      buffers.emplace_back(device, bytes);
      (far_rows ? views[i].stride_row : views[i].stride_batch) = far;
      views[i].data = reinterpret_cast<const void*>(buffers[i].pointer());
      const std::int64_t heads = i == 0 || i == 3 ? test.problem.heads_q : test.problem.heads_kv;
      for (std::int64_t b = 0; b < test.problem.batch; ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t s = 0; s < test.problem.seq_q; ++s) {
            const std::int64_t to = b * views[i].stride_batch + h * views[i].stride_head + s * views[i].stride_row;
            device->copy_to_device(buffers[i].pointer() + 2 * static_cast<std::uint64_t>(to),
                                   &image.memory[static_cast<std::size_t>(image.index(b, h, s))],
                                   2 * static_cast<std::size_t>(test.problem.head_dim));
          }
        }
      }
    }
    Tensors tensors;
    tensors[Operand::q] = views[0];
    tensors[Operand::k] = views[1];
    tensors[Operand::v] = views[2];
    tensors[Operand::o] = views[3];
    const auto prepared = runtime.prepare(test.problem, test.config);
    runtime.launch(*prepared, test.problem, tensors, nullptr, 0, nullptr);
    device->synchronize(nullptr);

    // O is brought back into its small image, and judged there.
    ForwardResult result{data.q.memory, data.k.memory, data.v.memory, data.o.memory, {}, {}};
    for (std::int64_t b = 0; b < test.problem.batch; ++b) {
      for (std::int64_t h = 0; h < test.problem.heads_q; ++h) {
        for (std::int64_t s = 0; s < test.problem.seq_q; ++s) {
          const char* from = static_cast<const char*>(views[3].data) +
                             2 * (b * views[3].stride_batch + h * views[3].stride_head + s * views[3].stride_row);
          device->copy_from_device(&result.o[static_cast<std::size_t>(data.o.index(b, h, s))],
                                   reinterpret_cast<DevicePointer>(from),
                                   2 * static_cast<std::size_t>(test.problem.head_dim));
        }
      }
    }
    CHECK(complaint(test, data, expected, result) == "");
  }
}

}  // namespace

TEST_CASE("the pairwise table holds every pair of problem factors", "[nogpu]") {
  const CaseTable table = pairwise_cases(find_device("h200"), FamilyWord::sm80, kEmulatorWork, 1);
  INFO(table.cases.size() << " cases");
  CHECK(table.cases.size() < 150);
  // Shared memory and registers rule out large tiles with large head dims, or with many stages, and nothing else.
  CHECK(table.impossible.size() < 60);
  std::set<std::string> pairs;
  for (const ForwardCase& test : table.cases) {
    pairs.insert(std::to_string(test.problem.seq_q) + " " + std::to_string(test.problem.seq_kv));
    pairs.insert("d" + std::to_string(test.problem.head_dim) + " q" + std::to_string(test.problem.seq_q));
    pairs.insert("d" + std::to_string(test.problem.head_dim) + " k" + std::to_string(test.problem.seq_kv));
    pairs.insert("g" + std::to_string(test.problem.heads_q / test.problem.heads_kv) + " d" +
                 std::to_string(test.problem.head_dim));
  }
  for (const std::string& pair : pairs) UNSCOPED_INFO(pair);
  CHECK(pairs.size() == 36 + 42 + 42 + 21);
}

TEST_CASE("forward is right in all modes of the emulator: pairwise over problems and configs", "[emulator]") {
  Devices devices = Devices::emulators();
  check_pairwise(devices, FamilyWord::sm80, kEmulatorWork);
}

TEST_CASE("forward is right in all modes of the emulator: whole tiles", "[emulator]") {
  Devices devices = Devices::emulators();
  check_even_tiles(devices, kEvenTiles);
}

TEST_CASE("forward is right in all modes of the emulator: one kernel for many lengths and offsets", "[emulator]") {
  Devices devices = Devices::emulators();
  check_one_kernel_for_many_lengths(devices, kManyLengths);
}

TEST_CASE("forward is right in all modes of the emulator: large magnitudes", "[emulator]") {
  Devices devices = Devices::emulators();
  check_large_magnitudes(devices, kLargeMagnitudes);
}

TEST_CASE("forward is right in all modes of the emulator: rows that see nothing", "[emulator]") {
  Devices devices = Devices::emulators();
  check_rows_that_see_nothing(devices, kRowsThatSeeNothing);
}

TEST_CASE("forward is right in all modes of the emulator: default configs", "[emulator]") {
  Devices devices = Devices::emulators();
  check_defaults(devices, 200, 1);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: pairwise over problems and configs", "[emulator]") {
  Devices devices = Devices::emulators();
  check_pairwise(devices, FamilyWord::sm90, kEmulatorWork);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: whole tiles, many lengths", "[emulator]") {
  Devices devices = Devices::emulators();
  check_even_tiles(devices, kWholeTilesSm90);
  check_one_kernel_for_many_lengths(devices, kManyLengthsSm90);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: several tiles of a CTA", "[emulator]") {
  Devices devices = Devices::emulators();
  check_several_tiles(devices, kSeveralTilesSm90);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: packed heads", "[emulator]") {
  Devices devices = Devices::emulators();
  check_pack_gqa(devices, kPackedSm90);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: large magnitudes, leaps, rows that see nothing",
          "[emulator]") {
  Devices devices = Devices::emulators();
  check_large_magnitudes(devices, kLargeMagnitudesSm90);
  check_leaps(devices, kLeapsSm90);
  check_rows_that_see_nothing(devices, kRowsThatSeeNothingSm90);
}

TEST_CASE("forward is right in all modes of the emulator: shifted scores, NaN", "[emulator]") {
  Devices devices = Devices::emulators();
  check_shifted_scores(devices, kShiftedScores);
  check_nan(devices, kNan);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: shifted scores, large values, NaN", "[emulator]") {
  Devices devices = Devices::emulators();
  check_shifted_scores(devices, kShiftedScoresSm90);
  check_large_values(devices, kLargeValuesSm90);
  check_nan(devices, kNanSm90);
}

TEST_CASE("forward is right on the emulator at length 1000 and head dim 256", "[emulator]") {
  Devices devices = Devices::emulators();
  devices.runtimes.resize(1);
  check_case(devices, case_from("forward bf16 b1 hq1 sq1000 d256 causal", "sm80 q64 kv64 w4 st2 qsmem"));
}

TEST_CASE("forward reaches rows beyond 2^31 elements on the emulator", "[emulator]") {
  const auto device = make_emulator_device(find_device("h200"));
  check_far_rows(device, false);
  check_far_rows(device, true);
}

TEST_CASE("forward is right on the GPU: pairwise over problems and configs", "[gpu]") {
  Devices devices = Devices::gpu();
  check_pairwise(devices, FamilyWord::sm80, kEmulatorWork);
}

TEST_CASE("forward is right on the GPU: whole tiles", "[gpu]") {
  Devices devices = Devices::gpu();
  check_even_tiles(devices, kEvenTiles);
}

TEST_CASE("forward is right on the GPU: one kernel for many lengths and offsets", "[gpu]") {
  Devices devices = Devices::gpu();
  check_one_kernel_for_many_lengths(devices, kManyLengths);
}

TEST_CASE("forward is right on the GPU: large magnitudes", "[gpu]") {
  Devices devices = Devices::gpu();
  check_large_magnitudes(devices, kLargeMagnitudes);
}

TEST_CASE("forward is right on the GPU: shifted scores, NaN", "[gpu]") {
  Devices devices = Devices::gpu();
  check_shifted_scores(devices, kShiftedScores);
  check_nan(devices, kNan);
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
  check_pairwise(devices, FamilyWord::sm90, kEmulatorWork);
  check_even_tiles(devices, kWholeTilesSm90);
  check_one_kernel_for_many_lengths(devices, kManyLengthsSm90);
  check_large_magnitudes(devices, kLargeMagnitudesSm90);
  check_leaps(devices, kLeapsSm90);
  check_shifted_scores(devices, kShiftedScoresSm90);
  check_large_values(devices, kLargeValuesSm90);
  check_nan(devices, kNanSm90);
  check_rows_that_see_nothing(devices, kRowsThatSeeNothingSm90);
  check_several_tiles(devices, kSeveralTilesSm90);
  check_pack_gqa(devices, kPackedSm90);
  check_case(devices,
             case_from("forward bf16 b1 hq8 hkv2 sq5000 skv3007 d128 causal",
                       "sm90 q192 kv80 st3 qst2 lazy-max ordered overlap=within scheduler=dynamic-persistent"));
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
  std::vector<const char*> configs = {"sm80 q128 kv64 w4 st2 qsmem order=tile-major-reversed rescale8"};
  if (runtime.device()->spec().compute_major == 9) {
    configs.push_back(
        "sm90 q192 kv64 st3 order=head-major-reversed qst2 lazy-max ordered overlap=within "
        "scheduler=dynamic-persistent");
    configs.push_back(
        "sm90 q128 kv80 st2 order=tile-major-reversed rescale8 qst2 ordered overlap=across "
        "scheduler=dynamic-persistent");
    configs.push_back("sm90 q64 kv64 st2 rescale8 cta2 overlap=within");
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

TEST_CASE("NVRTC compiles default configs of all head dims with hardly a spill", "[nvrtc]") {
  for (const char* device : {"a100", "h200"}) {
    for (const int head_dim : {8, 16, 40, 64, 72, 112, 128, 240, 256}) {
      for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
        AttentionProblem problem =
            make_problem(mask == MaskKind::none ? DataType::fp16 : DataType::bf16, 1, 1, 1000, head_dim, mask);
        problem.alignment = head_dim == 72 ? 2 : 16;
        const KernelConfig config = default_config(problem, find_device(device));
        const KernelPlan plan = generate(problem, config, find_device(device));
        INFO(device << ": " << canonical_text(problem) << " | " << canonical_text(config));
        const KernelResources resources = compile_with_nvrtc(plan.launches.front()).resources;
        // A few registers around the loop cost nothing. Rows of 14 or 30 chunks keep more addresses alive; even so a
        // trial must run them.
        const bool many_addresses = head_dim == 112 || head_dim == 240;
        // Nothing at all beside wgmma, whose accumulators a spill would make wait.
        const bool sm90 = config.family == FamilyWord::sm90;
        CHECK(resources.spill_bytes <= (sm90 ? 0 : many_addresses ? 512 : 64));
        CHECK(resources.advisories.empty());
        CHECK(resources.registers > 0);
      }
    }
  }
}

TEST_CASE("NVRTC compiles sm90 kernels of all head dims: no wgmma serialized, no spill", "[nvrtc]") {
  for (const int head_dim : {8, 16, 40, 64, 72, 96, 128, 160, 192, 256}) {
    for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
      AttentionProblem problem = make_problem(DataType::bf16, 1, 8, 1000, head_dim, mask);
      problem.heads_kv = 1;
      // The most and the least that a kernel of this tile holds, and the other walks.
      Configs configs = mask == MaskKind::causal
                            ? Configs{"sm90 q128 kv64 st2 lazy-max ordered overlap=across scheduler=dynamic-persistent",
                                      "sm90 q128 kv64 st1 lazy-max overlap=within psmem exp2"}
                            : Configs{"sm90 q128 kv64 st2", "sm90 q128 kv64 st1 rescale8 pingpong exp4"};
      if (head_dim >= 128) {
        configs.push_back(mask == MaskKind::causal
                              ? "sm90 q128 kv64 st2 lazy-max overlap=within scheduler=dynamic-persistent cluster2"
                              : "sm90 q128 kv64 st2 rescale8 overlap=within cluster2");
      }
      if (mask == MaskKind::causal) configs.push_back("sm90 q128 kv64 st2 rescale8 overlap=within pack-gqa");
      for (const char* config : configs) {
        const KernelPlan plan = generate(problem, parse_config(config), find_device("h200"));
        INFO(canonical_text(problem) << " | " << config);
        const KernelResources resources = compile_with_nvrtc(plan.launches.front()).resources;
        CHECK(resources.spill_bytes == 0);
        CHECK(resources.advisories.empty());
      }
    }
  }
}

TEST_CASE("forward reaches rows beyond 2^31 elements on the GPU", "[gpu]") {
  check_far_rows(open_cuda_device(0), false);
  check_far_rows(open_cuda_device(0), true);
}

}  // namespace attune::tests
