// Invariant problems: the bits of a row are those of the same row in any other batch, group of heads, chunk of the
// queries or length, by any config and under any name of its mask.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "generator/families/invariance.h"
#include "generator/generate.h"
#include "generator/plan/kernel_plan.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"
#include "runtime/oracle/reference_attention.h"
#include "runtime/system/template_folder.h"
#include "tests/catch.h"
#include "tests/kernels/data_kinds.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

using Bits = std::vector<std::uint16_t>;

bool rows_are_queries(Operand operand) {
  return operand == Operand::q || operand == Operand::o || operand == Operand::d_o || operand == Operand::d_q;
}

// Tensors of a problem without a mask, (B, S, H, D) packed, of which calls take parts.
struct Whole {
  AttentionProblem problem;
  std::vector<std::pair<Operand, Bits>> inputs;
  std::vector<float> lse;            // backward
  std::vector<float> sinks, slopes;  // of heads that have some

  explicit Whole(const std::string& text, DataKind data = {}) : problem(parse_problem(text)) {
    for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::o, Operand::d_o}) {
      const Access access = facts_of(operand).access(problem);
      if (access != Access::reads) continue;
      const std::vector<double> values = data_values(data, problem, operand, 7);
      const OperandShape shape = operand_shape(problem, operand);
      Bits bits(values.size());
      // Values are (B, H, S, D).
      std::size_t i = 0;
      for (std::int64_t b = 0; b < shape.batch; ++b)
        for (std::int64_t h = 0; h < shape.heads; ++h)
          for (std::int64_t s = 0; s < shape.rows; ++s)
            for (std::int64_t d = 0; d < shape.columns; ++d)
              bits[static_cast<std::size_t>(((b * shape.rows + s) * shape.heads + h) * shape.columns + d)] =
                  from_double(problem.dtype, values[i++]);
      inputs.emplace_back(operand, std::move(bits));
    }
    if (problem.sink) {
      const TermValues terms = make_terms(problem, 0, 7);
      const std::span<const float> of_heads = terms.of<float>(Operand::sinks);
      sinks.assign(of_heads.begin(), of_heads.end());
    }
    if (problem.alibi) {
      const TermValues terms = make_terms(problem, 0, {});
      const std::span<const float> of_heads = terms.of<float>(Operand::alibi_slopes);
      slopes.assign(of_heads.begin(), of_heads.end());
    }
    if (problem.pass == Pass::backward)
      lse.assign(static_cast<std::size_t>(problem.batch * problem.heads_q * problem.seq_q), 8.0f);
  }
};

// Which rows of a Whole a call takes: batch entries, heads (counted in key heads), queries, and its first keys.
struct Part {
  std::int64_t batch = 0, batches = 1, head = 0, heads = 1, query = 0, queries = 1, keys = 1;
};

struct Result {
  std::vector<std::pair<Operand, Bits>> outputs;  // (B, S, H, D) of the part
  std::vector<float> lse;
};

// The part's problem: a mask that hides the same pairs as `last <= key - query <= first` in the whole one.
AttentionProblem problem_of(const Whole& whole, const Part& part, std::int64_t first, std::int64_t last) {
  AttentionProblem problem = whole.problem;
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  problem.batch = part.batches;
  problem.heads_kv = part.heads;
  problem.heads_q = part.heads * group;
  problem.seq_q = part.queries;
  problem.seq_kv = part.keys;
  hide_outside(first == -kOpenDiagonal ? first : first + part.query, last == kOpenDiagonal ? last : last + part.query,
               &problem);
  return problem;
}

Result run(AttentionRuntime& runtime, const Whole& whole, const AttentionProblem& problem, const Part& part,
           const std::string& config) {
  const std::shared_ptr<Device>& device = runtime.device();
  Tensors tensors;
  std::vector<DeviceBuffer> buffers;
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  for (const auto& [operand, bits] : whole.inputs) {
    const OperandShape of_whole = operand_shape(whole.problem, operand);
    const bool queries = rows_are_queries(operand);
    buffers.emplace_back(device, 2 * bits.size());
    device->copy_to_device(buffers.back().pointer(), bits.data(), 2 * bits.size());
    TensorView view = {nullptr, of_whole.rows * of_whole.heads * of_whole.columns, of_whole.columns,
                       of_whole.heads * of_whole.columns};
    const std::int64_t offset = part.batch * view.stride_batch + part.head * (queries ? group : 1) * view.stride_head +
                                (queries ? part.query : 0) * view.stride_row;
    view.data = reinterpret_cast<const std::uint16_t*>(buffers.back().pointer()) + offset;
    tensors[operand] = view;
  }
  std::vector<std::pair<Operand, std::size_t>> outputs;  // and their buffers
  for (const Operand operand : {Operand::o, Operand::d_q, Operand::d_k, Operand::d_v}) {
    if (facts_of(operand).access(problem) != Access::writes) continue;
    const OperandShape shape = operand_shape(problem, operand);
    buffers.emplace_back(device, static_cast<std::size_t>(2 * shape.all_rows() * shape.columns));
    AttentionProblem packed = problem;
    packed.layout = Layout::bshd;
    tensors[operand] = packed_view(packed, operand, reinterpret_cast<const void*>(buffers.back().pointer()));
    outputs.emplace_back(operand, buffers.size() - 1);
  }
  if (problem.sink) {
    buffers.emplace_back(device, whole.sinks.size() * sizeof(float));
    device->copy_to_device(buffers.back().pointer(), whole.sinks.data(), buffers.back().bytes());
    tensors[Operand::sinks].data = reinterpret_cast<const float*>(buffers.back().pointer()) + part.head * group;
    buffers.emplace_back(device, whole.sinks.size() * sizeof(float));  // sums over the batch: not those of a part
    tensors[Operand::d_sinks].data = reinterpret_cast<const void*>(buffers.back().pointer());
  }
  if (problem.alibi) {
    buffers.emplace_back(device, whole.slopes.size() * sizeof(float));
    device->copy_to_device(buffers.back().pointer(), whole.slopes.data(), buffers.back().bytes());
    tensors[Operand::alibi_slopes] = {reinterpret_cast<const float*>(buffers.back().pointer()) +
                                          part.batch * whole.problem.heads_q + part.head * group,
                                      whole.problem.heads_q, 1};
  }
  Result result;
  const auto rows = static_cast<std::size_t>(problem.batch * problem.heads_q * problem.seq_q);
  const DeviceBuffer lse(device, rows * sizeof(float));
  if (problem.pass == Pass::backward) {
    const std::vector<float> some(rows, 8.0f);
    device->copy_to_device(lse.pointer(), some.data(), lse.bytes());
  }
  tensors[Operand::lse].data = reinterpret_cast<const void*>(lse.pointer());

  const KernelConfig chosen = config.empty() ? default_config(problem, device->spec()) : parse_config(config);
  INFO(canonical_text(problem) << ": " << canonical_text(chosen));
  const auto prepared =
      runtime.prepare(generate(problem, chosen, device->spec(), runtime_templates(), device->target()));
  const DeviceBuffer workspace(device, std::max<std::size_t>(256, prepared->plan.workspace_bytes_of(problem)));
  CHECK(prepared->plan.workspace_bytes_of(problem) <= most_workspace_bytes(problem, device->spec()));
  device->fill(workspace.pointer(), 0xff, workspace.bytes());  // NaN
  runtime.launch(*prepared, problem, tensors, reinterpret_cast<void*>(workspace.pointer()), workspace.bytes(), nullptr);
  device->synchronize(nullptr);
  for (const auto& [operand, buffer] : outputs) {
    Bits bits(buffers[buffer].bytes() / 2);
    device->copy_from_device(bits.data(), buffers[buffer].pointer(), buffers[buffer].bytes());
    result.outputs.emplace_back(operand, std::move(bits));
  }
  if (problem.pass == Pass::forward) {
    result.lse.resize(rows);
    device->copy_from_device(result.lse.data(), lse.pointer(), lse.bytes());
  }
  return result;
}

// How many elements of a part differ from the same ones of the whole; of a backward whose queries or keys are not all
// there, those of the gradients that do not depend on them.
std::int64_t differences(const Whole& whole, const Result& of_whole, const AttentionProblem& problem, const Part& part,
                         const Result& result) {
  std::int64_t different = 0;
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  const bool all_queries = part.queries == whole.problem.seq_q;
  for (std::size_t o = 0; o < result.outputs.size(); ++o) {
    const auto& [operand, bits] = result.outputs[o];
    const bool queries = rows_are_queries(operand);
    if (!queries && !all_queries) continue;
    const OperandShape shape = operand_shape(problem, operand), all = operand_shape(whole.problem, operand);
    std::size_t i = 0;
    for (std::int64_t b = 0; b < shape.batch; ++b)
      for (std::int64_t s = 0; s < shape.rows; ++s)
        for (std::int64_t h = 0; h < shape.heads; ++h)
          for (std::int64_t d = 0; d < shape.columns; ++d, ++i) {
            const std::int64_t row = (b + part.batch) * all.rows + s + (queries ? part.query : 0);
            const std::int64_t head = h + part.head * (queries ? group : 1);
            different +=
                bits[i] !=
                of_whole.outputs[o].second[static_cast<std::size_t>((row * all.heads + head) * all.columns + d)];
          }
  }
  std::size_t i = 0;
  for (std::int64_t b = 0; b < part.batches && !result.lse.empty(); ++b)
    for (std::int64_t h = 0; h < problem.heads_q; ++h)
      for (std::int64_t s = 0; s < part.queries; ++s, ++i) {
        const std::int64_t row =
            ((b + part.batch) * whole.problem.heads_q + h + part.head * group) * whole.problem.seq_q + s + part.query;
        different += std::bit_cast<std::uint32_t>(result.lse[i]) !=
                     std::bit_cast<std::uint32_t>(of_whole.lse[static_cast<std::size_t>(row)]);
      }
  return different;
}

struct Band {
  std::int64_t first, last;  // of key - query
};

// Each part by each config, against the whole by its default.
void check(AttentionRuntime& runtime, const Whole& whole, const std::vector<Band>& bands,
           const std::vector<Part>& parts, const std::vector<std::string>& configs) {
  const Part everything = {
      0, whole.problem.batch, 0, whole.problem.heads_kv, 0, whole.problem.seq_q, whole.problem.seq_kv};
  for (const auto& [first, last] : bands) {
    const AttentionProblem all = problem_of(whole, everything, first, last);
    const Result of_whole = run(runtime, whole, all, everything, "");
    std::vector<Part> some = parts;
    some.push_back(everything);
    for (const Part& part : some) {
      const AttentionProblem problem = problem_of(whole, part, first, last);
      bool any = false;
      for (const std::string& config : configs) {
        if (!config.empty() && !infeasibility(problem, parse_config(config), runtime.device()->spec()).empty())
          continue;
        INFO(canonical_text(all) << "; " << canonical_text(problem) << " from query " << part.query << ": "
                                 << (config.empty() ? "default" : config));
        CHECK(differences(whole, of_whole, problem, part, run(runtime, whole, problem, part, config)) == 0);
        any = true;
      }
      CHECK(any);
    }
  }
}

const std::vector<std::string> kSm90 = {"",
                                        "sm90 q64 kv128 st2 overlap=within scheduler=static-persistent",
                                        "sm90 q128 kv128 st2 ordered scheduler=dynamic-persistent qst2",
                                        "sm90 q128 kv128 st2 pingpong order=tile-major scheduler=static-persistent",
                                        "sm90 q64 kv128 st2 parts=fixed overlap=across scheduler=static-persistent",
                                        "sm90 q64 kv128 st2 parts=fixed pack-gqa",
                                        "sm90 q192 kv128 st1 qreg overlap=within scheduler=static-persistent pack-gqa"};
const std::vector<std::string> kSm80 = {"",
                                        "sm80 q64 kv64 w4 st2",
                                        "sm80 q128 kv64 w4 st1 qsmem",
                                        "sm80 q32 kv64 w1 st3 parts=fixed",
                                        "sm80 q16 kv64 w1 st2 parts=fixed pack-gqa",
                                        "sm80 q64 kv64 w2 st2 pack-gqa order=tile-major"};

constexpr std::int64_t kOpen = kOpenDiagonal;

// Keys of more than two parts, and a tail.
void check_forward(AttentionRuntime& runtime, const std::string& words, const std::vector<std::string>& configs) {
  const std::int64_t keys = 2 * kKeysOfPart + 76, queries = 70;
  const Whole whole("forward " + words + " invariant hq4 hkv2 b2 sq" + std::to_string(queries) + " skv" +
                    std::to_string(keys));
  // Bottom right, a window over the boundary of two parts, no mask.
  const std::vector<Band> bands = {{-kOpen, keys - queries}, {keys - queries - 2100, keys - queries}, {-kOpen, kOpen}};
  check(runtime, whole, bands,
        {{1, 1, 1, 1, 0, queries, keys}, {0, 1, 0, 1, 37, 19, keys}, {1, 1, 0, 2, queries - 1, 1, keys}}, configs);
  // A chunk of the queries that sees no more than the keys before its end.
  check(runtime, whole, {bands[0]}, {{0, 2, 0, 1, 5, 40, keys - 25}}, configs);
}

// Distances count from the last key: parts end where the whole does, or see no more than the keys before their end.
void check_alibi(AttentionRuntime& runtime, const std::string& words, const std::vector<std::string>& configs) {
  const std::int64_t keys = kKeysOfPart + 76, queries = 70;
  const Whole forward("forward " + words + " alibi invariant hq4 hkv2 b2 sq" + std::to_string(queries) + " skv" +
                      std::to_string(keys));
  const std::vector<Band> bands = {{-kOpen, keys - queries}, {-kOpen, kOpen}};
  check(runtime, forward, bands, {{1, 1, 1, 1, 0, queries, keys}, {1, 1, 0, 2, queries - 1, 1, keys}}, configs);
  check(runtime, forward, {bands[0]}, {{0, 2, 0, 1, 5, 40, keys - 25}, {1, 1, 0, 1, 37, 19, keys - 14}}, configs);
  const Whole backward("backward " + words + " alibi invariant hq4 hkv2 b2 sq150 skv200");
  check(runtime, backward, {{-kOpen, 50}, {-kOpen, kOpen}}, {{1, 1, 1, 1, 0, 150, 200}, {0, 1, 0, 2, 60, 90, 200}},
        {""});
}

void check_backward(AttentionRuntime& runtime, const std::string& words) {
  const Whole whole("backward " + words + " invariant hq4 hkv2 b2 sq150 skv200");
  check(runtime, whole, {{-kOpen, 50}, {-kOpen, kOpen}, {-40, 50}},
        {{1, 1, 0, 1, 0, 150, 200}, {0, 2, 1, 1, 33, 100, 200}}, {""});
}

// Right, and not the same alone: rows of one part and of three, by both ways to add parts, with scores far from 0.
void check_values(Devices& devices, const std::vector<std::string>& configs, const std::string& words) {
  for (const char* rows : {"hq4 hkv2 sq7 skv2101", "hq2 sq65 skv4200 causal", "hq2 sq33 skv300 window=100,20"}) {
    for (const std::string& config : configs) {
      if (config.empty()) continue;
      ForwardCase test = case_from("forward " + words + " invariant " + rows, config.c_str());
      if (!infeasibility(test.problem, test.config, devices.spec()).empty()) continue;
      check_case(devices, test);
      test.q_deviation = 300;
      check_case(devices, test);
    }
  }
}

AttentionRuntime emulator(const char* device) { return AttentionRuntime(make_emulator_device(find_device(device))); }

}  // namespace

TEST_CASE("bits of an invariant problem depend on no size: forward on the emulator", "[emulator]") {
  AttentionRuntime hopper = emulator("h200"), ampere = emulator("a100");
  check_forward(hopper, "bf16 d64 sink", kSm90);
  check_forward(ampere, "fp16 d32 sink", kSm80);
}

TEST_CASE("bits of an invariant problem depend on no size: ALiBi on the emulator", "[emulator]") {
  AttentionRuntime hopper = emulator("h200"), ampere = emulator("a100");
  check_alibi(hopper, "bf16 d64", kSm90);
  check_alibi(ampere, "fp16 d32", kSm80);
}

TEST_CASE("invariant problems are right in all modes of the emulator", "[emulator]") {
  Devices devices = Devices::emulators();
  devices.draw = CaseDraw(4);
  check_values(devices, kSm90, "fp16 d64");
  Devices ampere = Devices::emulators(find_device("a100"));
  ampere.draw = CaseDraw(4);
  check_values(ampere, kSm80, "bf16 d40");
}

TEST_CASE("bits of an invariant problem depend on no size: backward on the emulator", "[emulator]") {
  AttentionRuntime hopper = emulator("h200"), ampere = emulator("a100");
  check_backward(hopper, "bf16 d64 sink");
  check_backward(ampere, "fp16 d40");
}

// In shares, for most of the time goes into compiling.
void check_on_gpu(const std::vector<const char*>& kinds) {
  AttentionRuntime runtime(open_cuda_device(0));
  const std::vector<std::string>& configs = runtime.device()->spec().compute_major == 9 ? kSm90 : kSm80;
  Devices devices = Devices::gpu();
  for (const char* words : kinds) {
    INFO(words);
    check_values(devices, configs, words);
    check_forward(runtime, words, configs);
    check_backward(runtime, words);
    check_alibi(runtime, words, configs);
  }
}
TEST_CASE("bits of an invariant problem depend on no size on the GPU, 1 of 3", "[gpu]") {
  check_on_gpu({"bf16 d64", "bf16 d192"});
}
TEST_CASE("bits of an invariant problem depend on no size on the GPU, 2 of 3", "[gpu]") {
  check_on_gpu({"fp16 d128", "fp16 d40"});
}
TEST_CASE("bits of an invariant problem depend on no size on the GPU, 3 of 3", "[gpu]") {
  check_on_gpu({"bf16 d256", "bf16 d16", "bf16 d64 sink"});
}

}  // namespace attune::tests
