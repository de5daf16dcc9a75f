// What a thread does while another one captures a stream into a CUDA graph. The fake driver ends the capture at any
// call, but those of a launch, of a thread that has not said that it knows. CTest runs these cases in a process of
// their own, too, in which they open the devices.
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "attune/attention.h"
#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/tuner/database/kernel_packs.h"
#include "tests/without_gpu/fake/cuda.h"
#include "tests/without_gpu/fake_toolchain.h"
#include "tuner/database/packed_configs.h"

using namespace attune;
using attune::testing::error_of;
using attune::testing::TemporaryFolder;

namespace {

const attune::testing::FakeToolchain toolchain;

// Whether a capture outlasts what a thread without a context does meanwhile; its own mode must be as it was.
bool outlasts(const std::function<void()>& body) {
  fake_cuda_begin_capture();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::string failure;
  std::thread([&] {
    try {
      body();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    mode = fake_cuda_thread_mode();
  }).join();
  INFO(failure);
  CHECK(failure.empty());
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  return fake_cuda_end_capture() != 0;
}

void call_forward(AttentionRuntime& runtime, const AttentionProblem& problem) {
  alignas(16) static unsigned char bytes[64 * 64 * 2];
  Tensors tensors;
  for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::o})
    tensors[operand] = packed_view(problem, operand, bytes);
  runtime.forward(problem, tensors, nullptr, 0, nullptr);
}

}  // namespace

TEST_CASE("captures: the fake driver ends one at a call that says nothing", "[nogpu]") {
  CUdeviceptr pointer = 0;
  CHECK_FALSE(outlasts([&] { cuMemAlloc(&pointer, 16); }));
  CHECK(outlasts([] {}));
}

TEST_CASE("captures: devices are found and opened beside one", "[nogpu]") {
  CHECK(outlasts([] { CHECK(list_cuda_devices().size() == 2); }));
  CHECK(outlasts([] { open_cuda_device(1); }));
  CHECK(outlasts([] {
    fake_cuda_set_current(fake_cuda_primary(1));
    CHECK(current_cuda_ordinal() == 1);
  }));
  CHECK(outlasts([] {
    fake_cuda_set_current(fake_cuda_own(1));
    error_of(ErrorCode::invalid_argument, [] { current_cuda_ordinal(); });
  }));
  CHECK(outlasts([] { error_of(ErrorCode::no_device, [] { open_cuda_device(2); }); }));
}

TEST_CASE("captures: a first call compiles, loads and launches beside one", "[nogpu]") {
  CHECK(outlasts([] {
    AttentionRuntime runtime(open_cuda_device(0));
    call_forward(runtime, make_problem(DataType::bf16, 1, 1, 64, 64));
    // More shared memory than a kernel has without asking; and its module goes with the runtime.
    runtime.prepare(make_problem(DataType::bf16, 1, 1, 64, 256));
    AttentionProblem backward = make_problem(DataType::bf16, 1, 1, 64, 64);
    backward.pass = Pass::backward;
    runtime.prepare(backward);
  }));
  CHECK(outlasts([] { call_forward(current_runtime(), make_problem(DataType::bf16, 1, 1, 64, 64)); }));
}

TEST_CASE("captures: kernels of a pack are loaded beside one, and refused", "[nogpu]") {
  const TemporaryFolder folder;
  const char* const problem = "forward bf16 b1 hq1 sq64 d64";
  PackContents contents = attune::test::example_pack({{problem, "sm80 q64 kv64 w4 st2"}});
  for (PackKernel& kernel : contents.kernels) kernel.image = "fake cubin " + kernel.image;
  write_kernel_pack(folder.path() / "good.attune", contents);
  for (PackKernel& kernel : contents.kernels) kernel.image = "damaged";
  write_kernel_pack(folder.path() / "bad.attune", contents);
  const auto prepare_from = [&](const char* name) {
    const auto packs = std::make_shared<LoadedPacks>();
    packs->load(folder.path() / name);
    set_kernel_source(packs);
    AttentionRuntime runtime(open_cuda_device(0));
    runtime.prepare(parse_problem(problem), parse_config("sm80 q64 kv64 w4 st2"));
  };
  CHECK(outlasts([&] { prepare_from("good.attune"); }));
  CHECK(outlasts([&] { error_of(ErrorCode::driver, [&] { prepare_from("bad.attune"); }); }));
  set_kernel_source(nullptr);
}

TEST_CASE("captures: memory and timers beside one", "[nogpu]") {
  CHECK(outlasts([] {
    const auto device = open_cuda_device(0);
    const DeviceBuffer buffer(device, 16);
    std::vector<unsigned char> bytes(16);
    device->copy_to_device(buffer.pointer(), bytes.data(), bytes.size());
    device->fill(buffer.pointer(), 1, bytes.size());
    device->synchronize(nullptr);
    device->copy_from_device(bytes.data(), buffer.pointer(), bytes.size());
    CHECK(bytes[0] == 1);
    CHECK(device->free_bytes() > 0);
    CudaTimer timer(device, nullptr);
    timer.start();
    timer.stop();
    CHECK(timer.microseconds() == 0);
  }));
}
