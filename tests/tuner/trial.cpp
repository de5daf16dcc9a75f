#include "tuner/trial.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

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
  std::int64_t operator[](KernelArgument argument) const { return values.at(argument); }
  std::uint16_t* elements(KernelArgument argument) const {
    return reinterpret_cast<std::uint16_t*>(values.at(argument));
  }
  float* lse() const { return reinterpret_cast<float*>(values.at(KernelArgument::lse)); }
};

// Attention in double precision on host memory, bf16 without a mask: what a correct kernel leaves.
void attend(const Call& c, double scale, int head_dim) {
  using A = KernelArgument;
  for (std::int64_t b = 0; b < c[A::batch]; ++b) {
    for (std::int64_t h = 0; h < c[A::heads_q]; ++h) {
      const std::int64_t hk = h / c[A::group_size];
      for (std::int64_t i = 0; i < c[A::seq_q]; ++i) {
        const auto* q = c.elements(A::q) + b * c[A::q_stride_batch] + h * c[A::q_stride_head] + i * c[A::q_stride_row];
        std::vector<double> p(static_cast<std::size_t>(c[A::seq_kv]));
        double sum = 0;
        for (std::int64_t j = 0; j < c[A::seq_kv]; ++j) {
          const auto* k =
              c.elements(A::k) + b * c[A::k_stride_batch] + hk * c[A::k_stride_head] + j * c[A::k_stride_row];
          double score = 0;
          for (int d = 0; d < head_dim; ++d) score += from_bits(DataType::bf16, q[d]) * from_bits(DataType::bf16, k[d]);
          sum += p[static_cast<std::size_t>(j)] = std::exp(scale * score);
        }
        auto* o = c.elements(A::o) + b * c[A::o_stride_batch] + h * c[A::o_stride_head] + i * c[A::o_stride_row];
        for (int d = 0; d < head_dim; ++d) {
          double value = 0;
          for (std::int64_t j = 0; j < c[A::seq_kv]; ++j) {
            const auto* v =
                c.elements(A::v) + b * c[A::v_stride_batch] + hk * c[A::v_stride_head] + j * c[A::v_stride_row];
            value += p[static_cast<std::size_t>(j)] * from_bits(DataType::bf16, v[d]);
          }
          o[d] = to_bf16(value / sum);
        }
        c.lse()[(b * c[A::heads_q] + h) * c[A::seq_q] + i] = static_cast<float>(std::log(sum));
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

  const DeviceSpec& spec() const override { return spec_; }
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
    const ArgumentLayout& layout = dynamic_cast<const FakeKernel&>(compiled).launch.arguments;
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
    kernel(call);
  }
  void synchronize(Stream) override { on_synchronize(); }
  bool can_time() const override { return false; }

 private:
  DeviceSpec spec_ = find_device("h200");
};

const char* const kProblem = "forward bf16 b2 hq4 hkv2 sq33 skv70 d16";

struct Fixture {
  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  AttentionProblem problem = parse_problem(kProblem);
  KernelConfig config = parse_config("sm80 q64 kv64 w4 st2 rescale8");

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
  f.device->resources.spill_bytes = default_spill_allowance(KernelFamily::sm80);
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
  REQUIRE(m.templates_hash.size() == 16);
}

TEST_CASE("what a kernel does wrong is seen", "[nogpu]") {
  Fixture f;
  std::string expected;
  std::function<void(const Call&)> mistake;
  const std::size_t count = f.elements_of_o();
  SECTION("one wrong element") {
    mistake = [&](const Call& c) { c.elements(KernelArgument::o)[count - 1] = to_bf16(100); };
    expected = "o: ";
  }
  SECTION("one element that is not written") {
    mistake = [&](const Call& c) { c.elements(KernelArgument::o)[count / 2] = 0xffff; };
    expected = "o: ";
  }
  SECTION("one wrong logarithm") {
    mistake = [&](const Call& c) { c.lse()[3] += 0.01f; };
    expected = "lse: ";
  }
  SECTION("beyond o") {
    mistake = [&](const Call& c) { c.elements(KernelArgument::o)[count + 5] = 0; };
    expected = "beyond the last element of o";
  }
  SECTION("before o") {
    mistake = [&](const Call& c) { c.elements(KernelArgument::o)[-1] = 0; };
    expected = "before the first element of o";
  }
  SECTION("beyond lse") {
    mistake = [&](const Call& c) { c.lse()[f.problem.batch * f.problem.heads_q * f.problem.seq_q] = 0; };
    expected = "beyond the last element of lse";
  }
  SECTION("an input") {
    mistake = [&](const Call& c) { c.elements(KernelArgument::v)[17] ^= 1; };
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
    if (spoil) call.elements(KernelArgument::q)[0] ^= 0x4000;
  };
  TrialBench bench(f.device, f.problem, 7);
  REQUIRE(bench.run(f.config).status == MeasurementStatus::wrong_result);
  spoil = false;
  REQUIRE(bench.run(f.config).status == MeasurementStatus::ok);
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
    f.device->resources.spill_bytes = default_spill_allowance(KernelFamily::sm80) + 1;
    expected = MeasurementStatus::spilled;
    reason = std::to_string(default_spill_allowance(KernelFamily::sm80) + 1);
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
  f.config = default_config(f.problem, f.device->spec());
  std::int64_t o_address = 0;
  const Measurement m = f.run([&](const Call& c) { o_address = c[KernelArgument::o]; });
  INFO(m.reason);
  REQUIRE(m.status == MeasurementStatus::ok);
  REQUIRE(o_address % 16 == 2);
}

TEST_CASE("trial on the emulator", "[emulator]") {
  const auto device = make_emulator_device(find_device("h200"));
  const KernelConfig sm80 = parse_config("sm80 q64 kv64 w4 st2 rescale8");
  struct Case {
    const char* problem;
    std::optional<KernelConfig> config;  // otherwise the default
    KernelFamily family;
  };
  for (const Case& test : {Case{"forward bf16 b1 hq2 sq70 skv133 d64 causal", {}, KernelFamily::sm90},
                           Case{"forward bf16 b1 hq2 sq70 skv133 d64 causal", sm80, KernelFamily::sm80},
                           Case{"forward fp16 b2 hq2 hkv1 sq17 d40 align2", {}, KernelFamily::sm80}}) {
    const AttentionProblem problem = parse_problem(test.problem);
    TrialBench bench(device, problem, 3);
    const Measurement m = bench.run(test.config.value_or(default_config(problem, device->spec())));
    INFO(test.problem << ", " << canonical_text(m.config) << ": " << m.reason);
    REQUIRE(m.config.family == test.family);
    REQUIRE(m.status == MeasurementStatus::ok);
    REQUIRE(m.error_o > 0);
    REQUIRE(m.samples_us.empty());
    REQUIRE(bench.check(*bench.prepare(m.config)).within());
  }
}

TEST_CASE("trial on a GPU", "[gpu]") {
  const auto device = open_cuda_device(0);
  for (const char* text :
       {"forward bf16 b2 hq8 sq2048 d128 causal", "forward fp16 b1 hq1 sq100 d64", "forward bf16 b4 hq16 sq4096 d64"}) {
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
