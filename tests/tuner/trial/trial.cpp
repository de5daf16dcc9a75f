#include "tuner/trial/trial.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "generator/families/family_word.h"
#include "generator/families/kernel_family.h"
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/catch.h"

using namespace attune;

namespace {

double from_bits(DataType dtype, std::uint16_t bits) {
  if (dtype == DataType::bf16) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

std::uint16_t to_bf16(double value) {
  const auto narrow = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof(bits));
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// What a kernel was called with, by the layout of its own arguments.
struct Call {
  std::map<KernelArgument, std::int64_t> values;
  bool has(KernelArgument argument) const { return values.contains(argument); }
  std::int64_t operator[](KernelArgument argument) const { return values.at(argument); }
  std::uint16_t* elements(KernelArgument argument) const {
    return reinterpret_cast<std::uint16_t*>(values.at(argument));
  }
  float* lse() const { return reinterpret_cast<float*>(values.at(Pointer{Operand::lse})); }
};

Call call_of(const ArgumentLayout& layout, const void* arguments) {
  Call call;
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    const char* from = static_cast<const char*>(arguments) + layout.offsets[i];
    if (size_of(layout.fields[i]) == sizeof(std::int64_t)) {
      std::memcpy(&call.values[layout.fields[i]], from, sizeof(std::int64_t));
    } else {
      std::int32_t value;
      std::memcpy(&value, from, sizeof(value));
      call.values[layout.fields[i]] = value;
    }
  }
  return call;
}

// Attention in double precision on host memory, bf16 without a mask: what a correct kernel leaves.
void attend(const Call& c, double scale, int head_dim) {
  for (std::int64_t b = 0; b < c[Scalar::batch]; ++b) {
    for (std::int64_t h = 0; h < c[Scalar::heads_q]; ++h) {
      const std::int64_t hk = h / c[Scalar::group_size];
      for (std::int64_t i = 0; i < c[Scalar::seq_q]; ++i) {
        const auto* q = c.elements(Pointer{Operand::q}) + b * c[Stride{Operand::q, Dimension::batch}] +
                        h * c[Stride{Operand::q, Dimension::head}] + i * c[Stride{Operand::q, Dimension::row}];
        std::vector<double> p(static_cast<std::size_t>(c[Scalar::seq_kv]));
        double sum = 0;
        for (std::int64_t j = 0; j < c[Scalar::seq_kv]; ++j) {
          const auto* k = c.elements(Pointer{Operand::k}) + b * c[Stride{Operand::k, Dimension::batch}] +
                          hk * c[Stride{Operand::k, Dimension::head}] + j * c[Stride{Operand::k, Dimension::row}];
          double score = 0;
          for (int d = 0; d < head_dim; ++d) score += from_bits(DataType::bf16, q[d]) * from_bits(DataType::bf16, k[d]);
          sum += p[static_cast<std::size_t>(j)] = std::exp(scale * score);
        }
        auto* o = c.elements(Pointer{Operand::o}) + b * c[Stride{Operand::o, Dimension::batch}] +
                  h * c[Stride{Operand::o, Dimension::head}] + i * c[Stride{Operand::o, Dimension::row}];
        for (int d = 0; d < head_dim; ++d) {
          double value = 0;
          for (std::int64_t j = 0; j < c[Scalar::seq_kv]; ++j) {
            const auto* v = c.elements(Pointer{Operand::v}) + b * c[Stride{Operand::v, Dimension::batch}] +
                            hk * c[Stride{Operand::v, Dimension::head}] + j * c[Stride{Operand::v, Dimension::row}];
            value += p[static_cast<std::size_t>(j)] * from_bits(DataType::bf16, v[d]);
          }
          o[d] = to_bf16(value / sum);
        }
        c.lse()[(b * c[Scalar::heads_q] + h) * c[Scalar::seq_q] + i] = static_cast<float>(std::log(sum));
      }
    }
  }
}

class FakeKernel : public CompiledKernel {
 public:
  FakeKernel(KernelLaunch launch, KernelResources resources) : launch(std::move(launch)) {
    resources_ = std::move(resources);
  }
  KernelLaunch launch;
};

// Host memory and a kernel that is a C++ function, called as those of the sm80 family.
class FakeDevice : public Device {
 public:
  std::function<void(const Call&)> kernel;
  std::function<void()> on_compile = [] {};
  std::function<void()> on_synchronize = [] {};
  KernelResources resources;
  std::size_t available = std::size_t{8} << 30;
  DeviceSpec model = find_device("h200");

  const DeviceSpec& spec() const override { return model; }
  KernelTarget target() const override { return KernelTarget::cuda; }
  std::string description() const override { return "fake"; }
  Toolchain toolchain() const override { return {"no compiler", "no driver"}; }
  std::shared_ptr<const CompiledKernel> compile(const KernelLaunch& launch) override {
    on_compile();
    return std::make_shared<FakeKernel>(launch, resources);
  }
  DevicePointer allocate(std::size_t bytes) override {
    return reinterpret_cast<DevicePointer>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  }
  void free(DevicePointer pointer) noexcept override { std::free(reinterpret_cast<void*>(pointer)); }
  std::size_t free_bytes() const override { return available; }
  void copy_to_device(DevicePointer to, const void* from, std::size_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  }
  void copy_from_device(void* to, DevicePointer from, std::size_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  void fill(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream) override {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
  }
  void launch(const CompiledKernel& compiled, std::uint32_t, const void* arguments, std::size_t, Stream) override {
    const Call call = call_of(dynamic_cast<const FakeKernel&>(compiled).launch.arguments, arguments);
    kernel(call);
  }
  void synchronize(Stream) override { on_synchronize(); }
  bool can_time() const override { return false; }
};

const char* const kProblem = "forward bf16 b2 hq4 hkv2 sq33 skv70 d16";

struct Fixture {
  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  AttentionProblem problem = parse_problem(kProblem);
  KernelConfig config = parse_config("sm80 q64 kv64 w4 st2 rescale10");

  Measurement run(const std::function<void(const Call&)>& afterwards = {}, const TrialOptions& options = {}) {
    device->kernel = [this, afterwards](const Call& call) {
      attend(call, problem.softmax_scale, problem.head_dim);
      if (afterwards) afterwards(call);
    };
    return TrialBench(device, problem, 7).run(config, options);
  }
  std::size_t elements_of_o() const {
    return static_cast<std::size_t>(problem.batch * problem.heads_q * problem.seq_q * problem.head_dim);
  }
};

}  // namespace

TEST_CASE("a correct kernel is ok, with its resources and provenance, untimed where times mean nothing", "[nogpu]") {
  Fixture f;
  f.device->resources.registers = 77;
  f.device->resources.shared_bytes = 4242;
  f.device->resources.spill_bytes = find_family(Pass::forward, FamilyWord::sm80)->spill_allowance_bytes;
  const Measurement m = f.run();
  INFO(m.reason);
  REQUIRE(m.status == MeasurementStatus::ok);
  REQUIRE(m.error_o > 0);
  REQUIRE(m.error_o < 3e-3);
  REQUIRE(m.samples_us.empty());
  REQUIRE(m.rigor == Rigor::estimate);
  REQUIRE(m.registers == 77);
  REQUIRE(m.shared_bytes == 4242);
  REQUIRE(m.compiler == "no compiler");
  REQUIRE(m.device == "NVIDIA H200");
  REQUIRE(m.source_hash.size() == 16);
}

TEST_CASE("what a kernel does wrong is seen", "[nogpu]") {
  Fixture f;
  std::string expected;
  std::function<void(const Call&)> mistake;
  const std::size_t count = f.elements_of_o();
  SECTION("one wrong element") {
    mistake = [&](const Call& c) { c.elements(Pointer{Operand::o})[count - 1] = to_bf16(100); };
    expected = "o: ";
  }
  SECTION("one element that is not written") {
    mistake = [&](const Call& c) { c.elements(Pointer{Operand::o})[count / 2] = 0xffff; };
    expected = "o: ";
  }
  SECTION("one wrong logarithm") {
    mistake = [&](const Call& c) { c.lse()[3] += 0.01f; };
    expected = "lse: ";
  }
  SECTION("beyond o") {
    mistake = [&](const Call& c) { c.elements(Pointer{Operand::o})[count + 5] = 0; };
    expected = "beyond the last element of o";
  }
  SECTION("before o") {
    mistake = [&](const Call& c) { c.elements(Pointer{Operand::o})[-1] = 0; };
    expected = "before the first element of o";
  }
  SECTION("beyond lse") {
    mistake = [&](const Call& c) { c.lse()[f.problem.batch * f.problem.heads_q * f.problem.seq_q] = 0; };
    expected = "beyond the last element of lse";
  }
  SECTION("an input") {
    mistake = [&](const Call& c) { c.elements(Pointer{Operand::v})[17] ^= 1; };
    expected = "inputs";
  }
  const Measurement m = f.run(mistake);
  REQUIRE(m.status == MeasurementStatus::wrong_result);
  REQUIRE_THAT(m.reason, ContainsSubstring(expected));

  TrialOptions unchecked;
  unchecked.check = false;
  REQUIRE(f.run(mistake, unchecked).status == MeasurementStatus::ok);
}

TEST_CASE("a bench recovers from a kernel that changed its inputs", "[nogpu]") {
  Fixture f;
  bool spoil = true;
  f.device->kernel = [&](const Call& call) {
    attend(call, f.problem.softmax_scale, f.problem.head_dim);
    if (spoil) call.elements(Pointer{Operand::q})[0] ^= 0x4000;
  };
  TrialBench bench(f.device, f.problem, 7);
  REQUIRE(bench.run(f.config).status == MeasurementStatus::wrong_result);
  spoil = false;
  REQUIRE(bench.run(f.config).status == MeasurementStatus::ok);
}

TEST_CASE("the default is run whatever it spills, unless the caller says how much", "[nogpu]") {
  Fixture f;
  // Whose default is of the sm80 family, without heads of a group in one tile.
  f.device->model = find_device("a100");
  f.problem = parse_problem("forward bf16 b2 hq4 sq33 skv70 d16");
  f.config = default_config(f.problem, f.device->model);
  f.device->resources.spill_bytes = 5000;
  f.device->resources.advisories = {"wgmma is serialized"};
  const Measurement m = f.run();
  INFO(m.reason);
  REQUIRE(m.status == MeasurementStatus::ok);
  REQUIRE(m.spill_bytes == 5000);

  TrialOptions strict;
  strict.spill_allowance_bytes = 4999;
  REQUIRE(f.run({}, strict).status == MeasurementStatus::spilled);
}

TEST_CASE("expected failures are a status", "[nogpu]") {
  Fixture f;
  MeasurementStatus expected = MeasurementStatus::ok;
  std::string reason;
  SECTION("infeasible") {
    f.config.block_kv = 1 << 20;
    expected = MeasurementStatus::infeasible;
  }
  SECTION("compile_failed") {
    f.device->on_compile = [] { throw Error(ErrorCode::compile_failed, "line 3: no such name"); };
    expected = MeasurementStatus::compile_failed;
    reason = "line 3";
  }
  SECTION("spilled") {
    f.device->resources.spill_bytes = find_family(Pass::forward, FamilyWord::sm80)->spill_allowance_bytes + 1;
    expected = MeasurementStatus::spilled;
    reason = std::to_string(find_family(Pass::forward, FamilyWord::sm80)->spill_allowance_bytes + 1);
  }
  SECTION("serialized") {
    f.device->resources.advisories = {"wgmma is serialized"};
    expected = MeasurementStatus::serialized;
    reason = "wgmma is serialized";
  }
  SECTION("launch_failed") {
    bool first = true;
    f.device->on_synchronize = [&, first]() mutable {
      if (std::exchange(first, false))
        throw Error(ErrorCode::driver, "cuStreamSynchronize: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
    };
    expected = MeasurementStatus::launch_failed;
    reason = "LAUNCH_OUT_OF_RESOURCES";
  }
  SECTION("a rule of the emulator") {
    f.device->on_synchronize = [] { throw Error(ErrorCode::emulator, "deadlock: warp 3 waits"); };
    expected = MeasurementStatus::launch_failed;
    reason = "warp 3";
  }
  SECTION("out_of_memory") {
    f.device->available = 1000;
    expected = MeasurementStatus::out_of_memory;
    reason = "fake";
  }
  const Measurement m = f.run();
  REQUIRE(m.status == expected);
  REQUIRE_THAT(m.reason, ContainsSubstring(reason));
  REQUIRE_FALSE(m.reason.empty());
}

TEST_CASE("what is no property of the config is thrown", "[nogpu]") {
  Fixture f;
  SECTION("an error that sticks") {
    f.device->on_synchronize = [] { throw Error(ErrorCode::driver, "CUDA_ERROR_ILLEGAL_ADDRESS"); };
  }
  SECTION("no compiler") {
    f.device->on_compile = [] { throw Error(ErrorCode::nvrtc_unavailable, "no NVRTC"); };
  }
  REQUIRE_THROWS_AS(f.run(), Error);
}

TEST_CASE("an alignment of 2 is what the tensors have", "[nogpu]") {
  Fixture f;
  f.problem.alignment = 2;
  f.config = parse_config("sm80 q64 kv64 w4 st2");
  std::int64_t o_address = 0;
  const Measurement m = f.run([&](const Call& c) { o_address = c[Pointer{Operand::o}]; });
  INFO(m.reason);
  REQUIRE(m.status == MeasurementStatus::ok);
  REQUIRE(o_address % 16 == 2);
}

TEST_CASE("trial on the emulator", "[emulator]") {
  const auto device = make_emulator_device(find_device("h200"));
  const KernelConfig sm80 = parse_config("sm80 q64 kv64 w4 st2 rescale10");
  struct Case {
    const char* problem;
    std::optional<KernelConfig> config;  // otherwise the default
    FamilyWord family;
  };
  for (const Case& test : {Case{"forward bf16 b1 hq2 sq130 skv133 d64 causal", {}, FamilyWord::sm90},
                           Case{"forward bf16 b1 hq2 sq70 skv133 d64 causal", sm80, FamilyWord::sm80},
                           Case{"forward fp16 b2 hq2 hkv1 sq17 d40 align2", {}, FamilyWord::sm80},
                           Case{"backward bf16 b1 hq2 hkv1 sq70 skv133 d64 causal", {}, FamilyWord::sm90},
                           Case{"backward bf16 b1 hq2 hkv1 sq70 skv133 d40 align2", {}, FamilyWord::sm80},
                           Case{"backward fp16 b2 hq2 sq17 d40 align2 deterministic", {}, FamilyWord::sm80}}) {
    const AttentionProblem problem = parse_problem(test.problem);
    TrialBench bench(device, problem, 3);
    const Measurement m = bench.run(test.config.value_or(default_config(problem, device->spec())));
    INFO(test.problem << ", " << canonical_text(m.config) << ": " << m.reason);
    REQUIRE(m.config.family == test.family);
    REQUIRE(m.status == MeasurementStatus::ok);
    REQUIRE(m.error_o > 0);
    REQUIRE(m.samples_us.empty());
    const std::vector<OutputErrors> errors = bench.check(*bench.prepare(m.config));
    REQUIRE(errors.size() == (problem.pass == Pass::forward ? 2 : 3));
    for (const OutputErrors& output : errors) REQUIRE(output.within);
  }
}

namespace {

// The emulator with all that a bench does on a GPU, but for the timing. `afterwards` follows the launches of kernels
// that are no check, and those of backward's that leave a gradient.
class CheckingEmulator : public Device {
 public:
  std::function<void(const Call&)> afterwards;

  CheckingEmulator() {
    // An L2 that few copies of the inputs exceed.
    DeviceSpec spec = find_device("h200");
    spec.l2_bytes = 16 << 10;
    device_ = make_emulator_device(spec);
  }
  const DeviceSpec& spec() const override { return device_->spec(); }
  KernelTarget target() const override { return device_->target(); }
  std::string description() const override { return device_->description(); }
  Toolchain toolchain() const override { return device_->toolchain(); }
  std::shared_ptr<const CompiledKernel> compile(const KernelLaunch& launch) override {
    auto kernel = device_->compile(launch);
    launches_[kernel.get()] = launch;
    return kernel;
  }
  DevicePointer allocate(std::size_t bytes) override {
    const DevicePointer pointer = device_->allocate(bytes);
    buffers_[pointer] = bytes;
    return pointer;
  }
  void free(DevicePointer pointer) noexcept override {
    buffers_.erase(pointer);
    device_->free(pointer);
  }
  std::size_t free_bytes() const override { return capacity ? *capacity - allocated() : device_->free_bytes(); }
  void copy_to_device(DevicePointer to, const void* from, std::size_t bytes) override {
    device_->copy_to_device(to, from, bytes);
  }
  void copy_from_device(void* to, DevicePointer from, std::size_t bytes) override {
    copied_bytes += bytes;
    device_->copy_from_device(to, from, bytes);
  }
  void fill(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream stream) override {
    device_->fill(to, value, bytes, stream);
  }
  void launch(const CompiledKernel& kernel, std::uint32_t grid, const void* arguments, std::size_t bytes,
              Stream stream) override {
    device_->launch(kernel, grid, arguments, bytes, stream);
    const KernelLaunch& launch = launches_.at(&kernel);
    const auto has = [&](KernelArgument argument) {
      const std::vector<KernelArgument>& fields = launch.arguments.fields;
      return std::find(fields.begin(), fields.end(), argument) != fields.end();
    };
    if (afterwards && (has(Pointer{Operand::lse}) || has(Pointer{Operand::d_q}) || has(Pointer{Operand::d_k})))
      afterwards(call_of(launch.arguments, arguments));
  }
  void synchronize(Stream stream) override { device_->synchronize(stream); }
  void encode_tensor_map(const TensorMapRequest& request, void* to) const override {
    device_->encode_tensor_map(request, to);
  }
  bool can_time() const override { return true; }

  std::size_t allocated() const {
    return std::accumulate(buffers_.begin(), buffers_.end(), std::size_t{0},
                           [](std::size_t sum, const auto& buffer) { return sum + buffer.second; });
  }
  DevicePointer largest() const {
    return std::max_element(buffers_.begin(), buffers_.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  std::optional<std::size_t> capacity;        // of memory; otherwise what the emulator says
  std::atomic<std::size_t> copied_bytes = 0;  // to the host

 private:
  std::shared_ptr<Device> device_;
  std::map<const CompiledKernel*, KernelLaunch> launches_;
  std::map<DevicePointer, std::size_t> buffers_;
};

struct Mistake {
  const char* reason;  // "" if there is none
  std::function<void(const Call&)> make;
};

// What a trial on `problem` says of a kernel that makes each of them, alternately with one that makes none.
void make_mistakes(const AttentionProblem& problem, const std::vector<Mistake>& mistakes) {
  const auto device = std::make_shared<CheckingEmulator>();
  TrialBench bench(device, problem, 3);
  TrialOptions options;
  options.time = false;
  const KernelConfig config = parse_config("sm80 q64 kv64 w4 st1");
  for (const Mistake& mistake : mistakes) {
    device->afterwards = mistake.make;
    const Measurement m = bench.run(config, options);
    INFO(canonical_text(problem) << " expected: " << mistake.reason << ", is: " << m.reason);
    CHECK(m.status == MeasurementStatus::wrong_result);
    CHECK_THAT(m.reason, ContainsSubstring(mistake.reason));
    device->afterwards = {};
    const Measurement after = bench.run(config, options);
    INFO(after.reason);
    CHECK(after.status == MeasurementStatus::ok);
  }
}

}  // namespace

TEST_CASE("what a kernel does wrong is seen by checks on the device", "[emulator]") {
  for (const char* text : {"forward bf16 b2 hq4 hkv2 sq33 skv70 d16", "forward fp16 b1 hq2 sq33 skv70 d24 align2"}) {
    const AttentionProblem p = parse_problem(text);
    const std::int64_t o = p.batch * p.heads_q * p.seq_q * p.head_dim, k = p.batch * p.heads_kv * p.seq_kv * p.head_dim;
    make_mistakes(
        p, {{"o: ", [&](const Call& c) { c.elements(Pointer{Operand::o})[o - 1] = 0x5000; }},
            {"nan", [&](const Call& c) { c.elements(Pointer{Operand::o})[o / 2] = 0xffff; }},
            {"lse: ", [&](const Call& c) { c.lse()[3] += 0.01f; }},
            {"beyond the last element of o", [&](const Call& c) { c.elements(Pointer{Operand::o})[o + 2047] = 0; }},
            {"before the first element of o", [&](const Call& c) { c.elements(Pointer{Operand::o})[-1] = 0; }},
            {"beyond the last element of lse", [&](const Call& c) { c.lse()[p.batch * p.heads_q * p.seq_q] = 0; }},
            {"before the first element of lse", [&](const Call& c) { c.lse()[-1] = 0; }},
            {"inputs", [&](const Call& c) { c.elements(Pointer{Operand::q})[0] ^= 1; }},
            {"inputs", [&](const Call& c) { c.elements(Pointer{Operand::k})[k - 1] ^= 0x8000; }},
            {"inputs", [&](const Call& c) { c.elements(Pointer{Operand::v})[-1] = 0; }},
            {"inputs", [&](const Call& c) { c.elements(Pointer{Operand::v})[k + 127] = 0; }}});
  }
}

TEST_CASE("what a backward kernel does wrong is seen by checks on the device", "[emulator]") {
  for (const char* text :
       {"backward bf16 b2 hq4 hkv2 sq33 skv70 d16 causal", "backward fp16 b1 hq2 sq33 skv70 d24 align2"}) {
    const AttentionProblem p = parse_problem(text);
    const std::int64_t q = p.batch * p.heads_q * p.seq_q * p.head_dim, k = p.batch * p.heads_kv * p.seq_kv * p.head_dim;
    // After the kernel of a gradient: dQ's is the last.
    const auto after = [](KernelArgument gradient, KernelArgument argument, std::int64_t index, std::uint16_t value) {
      return [=](const Call& c) {
        if (c.has(gradient)) c.elements(argument)[index] = value;
      };
    };
    make_mistakes(p,
                  {{"dq: ", after(Pointer{Operand::d_q}, Pointer{Operand::d_q}, q - 1, 0x5000)},
                   {"dk: ", after(Pointer{Operand::d_k}, Pointer{Operand::d_k}, 0, 0x5000)},
                   {"dv: ", after(Pointer{Operand::d_k}, Pointer{Operand::d_v}, k / 2, 0x5000)},
                   {"nan", after(Pointer{Operand::d_k}, Pointer{Operand::d_k}, k - 1, 0xffff)},
                   {"beyond the last element of dq", after(Pointer{Operand::d_q}, Pointer{Operand::d_q}, q + 2047, 0)},
                   {"before the first element of dk", after(Pointer{Operand::d_k}, Pointer{Operand::d_k}, -1, 0)},
                   {"beyond the last element of dv", after(Pointer{Operand::d_k}, Pointer{Operand::d_v}, k, 0)},
                   {"inputs q, k, v, o, lse, do or dlse", after(Pointer{Operand::d_q}, Pointer{Operand::q}, 0, 0x1234)},
                   {"inputs", after(Pointer{Operand::d_q}, Pointer{Operand::d_o}, q - 1, 0x1234)}});
  }
}

TEST_CASE("a large backward problem is checked where it is", "[emulator][slow]") {
  const AttentionProblem problem = parse_problem("backward bf16 b1 hq12 sq256 d256 deterministic");
  REQUIRE(count_flops(problem) > kCpuOracleFlops);
  const auto device = std::make_shared<CheckingEmulator>();
  TrialBench bench(device, problem, 3);
  TrialOptions options;
  options.time = false;
  const KernelConfig config = default_config(problem, device->spec());
  const Measurement good = bench.run(config, options);
  INFO(good.reason);
  CHECK(good.status == MeasurementStatus::ok);
  CHECK(good.error_o > 0);
  CHECK(good.error_o < 4e-3);
  device->copied_bytes = 0;
  CHECK(bench.run(config, options).status == MeasurementStatus::ok);
  CHECK(device->copied_bytes < 12u * 256 * 256 * 2 / 10);
  device->afterwards = [](const Call& c) {
    if (c.has(Pointer{Operand::d_k})) c.elements(Pointer{Operand::d_k})[12 * 256 * 200 + 77] = 0x4100;
  };
  const Measurement wrong = bench.run(config, options);
  CHECK(wrong.status == MeasurementStatus::wrong_result);
  CHECK_THAT(wrong.reason, ContainsSubstring("dk: dk at batch 0, head 0, row 200, column 77 is 8,"));

  // The largest buffers are the reference's: a write to one is found, and does not harm the next trial.
  device->afterwards = [&](const Call& c) {
    if (c.has(Pointer{Operand::d_k})) *reinterpret_cast<std::uint16_t*>(device->largest() + 4000) ^= 1;
  };
  const Measurement wild = bench.run(config, options);
  CHECK(wild.status == MeasurementStatus::wrong_result);
  CHECK_THAT(wild.reason, ContainsSubstring("reference: the kernel wrote to memory"));
}

TEST_CASE("inputs made on the device are those of the host", "[emulator]") {
  const AttentionProblem problem = parse_problem("forward bf16 b1 hq2 hkv1 sq20 skv30 d16");
  const auto device = std::make_shared<CheckingEmulator>();
  TrialBench bench(device, problem, 5);
  TrialOptions options;
  options.time = false;
  std::map<KernelArgument, std::vector<std::uint16_t>> inputs;
  device->afterwards = [&](const Call& c) {
    for (const KernelArgument operand : {Pointer{Operand::q}, Pointer{Operand::k}}) {
      const std::int64_t count = operand == KernelArgument(Pointer{Operand::q}) ? 2 * 20 * 16 : 30 * 16;
      // Margins on both sides, then the next copy with its own.
      const std::uint16_t* tensor = c.elements(operand);
      inputs[operand].assign(tensor, tensor + count);
      for (std::int64_t i = 1; i <= 128; ++i) {
        CHECK(tensor[-i] == 0xffff);
        CHECK(tensor[count - 1 + i] == 0xffff);
      }
      const std::int64_t stride = (2 * 256 + 2 * count + 255) / 256 * 128;
      CHECK(std::equal(tensor, tensor + count, tensor + stride));
    }
  };
  const Measurement m = bench.run(parse_config("sm80 q64 kv64 w4 st1"), options);
  INFO(m.reason);
  CHECK(m.status == MeasurementStatus::ok);
  CHECK(inputs[Pointer{Operand::q}] == random_normal(DataType::bf16, 2 * 20 * 16, 15));
  CHECK(inputs[Pointer{Operand::k}] == random_normal(DataType::bf16, 30 * 16, 16));
}

TEST_CASE("a large problem is checked where it is", "[emulator][slow]") {
  const AttentionProblem problem = parse_problem("forward bf16 b1 hq31 sq256 d256");
  REQUIRE(count_flops(problem) > kCpuOracleFlops);
  const auto device = std::make_shared<CheckingEmulator>();
  TrialBench bench(device, problem, 3);
  TrialOptions options;
  options.time = false;
  const KernelConfig config = parse_config("sm80 q64 kv64 w4 st1");
  const Measurement good = bench.run(config, options);
  INFO(good.reason);
  CHECK(good.status == MeasurementStatus::ok);
  CHECK(good.error_o > 0);
  device->copied_bytes = 0;
  CHECK(bench.run(config, options).status == MeasurementStatus::ok);
  const std::size_t o_bytes = 31u * 256 * 256 * 2;
  CHECK(device->copied_bytes < o_bytes / 20);
  device->afterwards = [](const Call& c) { c.elements(Pointer{Operand::o})[31 * 256 * 200 + 77] = 0x4100; };
  const Measurement wrong = bench.run(config, options);
  CHECK(wrong.status == MeasurementStatus::wrong_result);
  CHECK_THAT(wrong.reason, ContainsSubstring("o: o at batch 0, head 0, row 200, column 77 is 8,"));

  // The largest buffers are the reference's: a write to one is found, and does not harm the next trial.
  device->afterwards = [&](const Call&) { *reinterpret_cast<std::uint16_t*>(device->largest() + 4000) ^= 1; };
  const Measurement wild = bench.run(config, options);
  CHECK(wild.status == MeasurementStatus::wrong_result);
  CHECK_THAT(wild.reason, ContainsSubstring("reference: the kernel wrote to memory"));
  device->afterwards = {};
  CHECK(bench.run(config, options).status == MeasurementStatus::ok);

  // Where it takes the room of a workspace, the reference goes to the host.
  constexpr std::size_t kReserve = 256u << 20;
  const std::size_t reference_bytes = 2 * 8 * (o_bytes / 2);
  device->capacity = device->allocated() + kReserve;
  const Measurement crowded = bench.run(
      parse_config(
          "sm90 q128 kv80 st2 order=tile-major-reversed rescale10 overlap=within scheduler=dynamic-persistent vst1"),
      options);
  INFO(crowded.reason);
  CHECK(crowded.status == MeasurementStatus::ok);
  CHECK(device->allocated() == *device->capacity - kReserve - reference_bytes);
  CHECK(bench.run(config, options).status == MeasurementStatus::ok);
}

TEST_CASE("trial on a GPU", "[gpu]") {
  const auto device = open_cuda_device(0);
  for (const char* text : {"forward bf16 b2 hq8 sq2048 d128 causal", "forward fp16 b1 hq1 sq100 d64",
                           "forward bf16 b4 hq16 sq4096 d64", "backward bf16 b2 hq8 sq2048 d128 causal",
                           "backward fp16 b1 hq1 sq100 d64", "backward bf16 b4 hq16 hkv4 sq4096 d64 deterministic"}) {
    const AttentionProblem problem = parse_problem(text);
    TrialBench bench(device, problem, 3);
    const Measurement m = bench.run(default_config(problem, device->spec()));
    INFO(text << ": " << to_string(m.status) << " " << m.reason);
    REQUIRE(m.status == MeasurementStatus::ok);
    REQUIRE(m.rigor == Rigor::measure);
    REQUIRE(m.samples_us.size() >= 5);
    REQUIRE(m.clocks_mhz.size() == m.samples_us.size());
    REQUIRE(m.p20_us <= m.median_us);
    REQUIRE(m.median_us <= m.p80_us);
    REQUIRE(m.p80_us < 1.5 * m.p20_us);
    // No GPU of today reaches a quarter of this, and a launch takes more than half a microsecond.
    REQUIRE(m.tflops() < 10000);
    REQUIRE(m.median_us > 0.5);
    REQUIRE(m.registers > 0);
  }
}

TEST_CASE("a config without a chance is timed at a glance", "[gpu]") {
  const auto device = open_cuda_device(0);
  for (const char* text : {"forward bf16 b1 hq1 sq100 d64", "forward bf16 b4 hq16 sq4096 d64"}) {
    const AttentionProblem problem = parse_problem(text);
    TrialBench bench(device, problem, 3);
    const KernelConfig config = default_config(problem, device->spec());
    const Measurement whole = bench.run(config);
    TrialOptions options;
    options.hopeless_us = whole.median_us / 2;
    const Measurement glance = bench.run(config, options);
    INFO(text << ": " << whole.median_us << " us, at a glance " << glance.median_us);
    REQUIRE(glance.status == MeasurementStatus::ok);
    REQUIRE(glance.samples_us.size() < 5);
    REQUIRE(glance.samples_us.size() < whole.samples_us.size());
    REQUIRE(glance.median_us > options.hopeless_us);
    options.hopeless_us = whole.median_us * 2;
    REQUIRE(bench.run(config, options).samples_us.size() >= 5);
  }
}

TEST_CASE("a short kernel takes as long in a batch as its work, not as its launch", "[gpu]") {
  const auto device = open_cuda_device(0);
  const AttentionProblem one = parse_problem("forward bf16 b1 hq1 sq64 d64"),
                         longer = parse_problem("forward bf16 b1 hq1 sq64 skv4096 d64");
  TrialOptions options;
  options.sample_seconds = 0.02;
  const KernelConfig config = default_config(one, device->spec());
  const Measurement a = TrialBench(device, one, 3).run(config, options),
                    b = TrialBench(device, longer, 3).run(config, options);
  INFO(a.reason << b.reason);
  REQUIRE(a.status == MeasurementStatus::ok);
  REQUIRE(b.status == MeasurementStatus::ok);
  REQUIRE(a.median_us < 10);
  REQUIRE(b.median_us > 2 * a.median_us);
}
