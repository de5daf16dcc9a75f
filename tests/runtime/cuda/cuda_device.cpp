#include "runtime/cuda/cuda_device.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "generator/error.h"
#include "runtime/call/argument_packer.h"
#include "runtime/cuda/cubin_cache.h"
#include "runtime/cuda/cuda_driver.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/runtime/forward_case.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

using namespace attune;
using attune::testing::error_of;
using attune::testing::ForwardCase;
namespace fs = std::filesystem;

namespace {

constexpr int kCallsOfBatch = 200;

KernelLaunch counting_launch(int number, const std::string& arch) {
  KernelLaunch launch;
  launch.source = "struct Arguments { int* p; };\nextern \"C\" __global__ void k(Arguments a) { a.p[blockIdx.x] = " +
                  std::to_string(number) + " + blockIdx.x; }\n";
  launch.lines = {{"tests/k", 1}, {"tests/k", 2}};
  launch.entry = "k";
  launch.arch = arch;
  launch.threads = 1;
  launch.arguments = ArgumentLayout::of({Pointer{Operand::q}});
  return launch;
}

std::vector<int> run_counting(const std::shared_ptr<Device>& device, const CompiledKernel& kernel) {
  const DeviceBuffer buffer(device, 3 * sizeof(int));
  const DevicePointer pointer = buffer.pointer();
  device->launch(kernel, 3, &pointer, sizeof(pointer), nullptr);
  device->synchronize(nullptr);
  std::vector<int> values(3);
  device->copy_from_device(values.data(), pointer, buffer.bytes());
  return values;
}

// Host microseconds of one call of each kind: medians over batches, taken in turn, that stay far below the depth of the
// launch queue.
std::vector<double> host_microseconds(const std::shared_ptr<Device>& device,
                                      const std::vector<std::function<void(int)>>& batches_of) {
  constexpr int kBatches = 101;
  std::vector<std::vector<double>> samples(batches_of.size());
  for (int batch = 0; batch < kBatches; ++batch) {
    for (std::size_t kind = 0; kind < batches_of.size(); ++kind) {
      const auto begin = std::chrono::steady_clock::now();
      batches_of[kind](kCallsOfBatch);
      const auto end = std::chrono::steady_clock::now();
      device->synchronize(nullptr);
      samples[kind].push_back(std::chrono::duration<double, std::micro>(end - begin).count() / kCallsOfBatch);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& of_kind : samples) {
    std::nth_element(of_kind.begin(), of_kind.begin() + kBatches / 2, of_kind.end());
    medians.push_back(of_kind[kBatches / 2]);
  }
  return medians;
}

// A function of the driver that Attune itself does not call.
template <typename Function>
Function* driver_function(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(library != nullptr);
  void* const found = ::dlsym(library, name);
  REQUIRE(found != nullptr);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

TEST_CASE("without a GPU the reason is said, and nothing is thrown", "[nogpu]") {
  std::string why;
  const auto devices = list_cuda_devices(&why);
  CHECK(devices.empty() == !why.empty());
  if (devices.empty()) {
    CHECK(error_of(ErrorCode::no_device, [] { open_cuda_device(0); }) == why);
    CHECK(error_of(ErrorCode::no_device, [] { current_runtime(); }) == why);
    CHECK(sample_clock(0).sm_mhz == 0);
  } else {
    CHECK_THAT(error_of(ErrorCode::no_device, [] { open_cuda_device(1000); }), ContainsSubstring("cuda:1000"));
  }
}

TEST_CASE("a GPU tells its facts", "[gpu]") {
  const auto devices = list_cuda_devices();
  REQUIRE_FALSE(devices.empty());
  const DeviceSpec& spec = open_cuda_device(0)->spec();
  CHECK(spec == devices[0].spec);
  CHECK_FALSE(spec.name.empty());
  CHECK(spec.sm_count > 0);
  CHECK(spec.shared_bytes_per_block >= 48 * 1024);
  CHECK(spec.registers_per_sm == 65536);
  CHECK(devices[0].memory_bytes > std::size_t{1} << 30);
  CHECK(open_cuda_device(0) == open_cuda_device(0));
  CHECK(sample_clock(0).sm_mhz > 0);
  const NodeGpu node = open_cuda_device(0)->node_gpu();
  CHECK_FALSE(node.host.empty());
  CHECK(node.gpu_uuid.substr(0, 4) == "GPU-");
  CHECK_FALSE(node.driver_build.empty());
  CHECK(node.power_limit_w > 0);
  CHECK(node.sm_clock_limit_mhz > 0);
  CHECK(node.memory_clock_mhz > 0);
  std::printf("%s, %d SMs, compute %d.%d, %s, %s\n", spec.name.c_str(), spec.sm_count, spec.compute_major,
              spec.compute_minor, open_cuda_device(0)->toolchain().compiler.c_str(),
              open_cuda_device(0)->toolchain().driver.c_str());
}

TEST_CASE("a current context that is not the primary one is refused, with what to do", "[gpu]") {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(library != nullptr);
  const auto create =
      reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(::dlsym(library, "cuCtxCreate_v2"));
  const auto destroy = reinterpret_cast<CUresult (*)(CUcontext)>(::dlsym(library, "cuCtxDestroy_v2"));
  REQUIRE(create != nullptr);
  REQUIRE(destroy != nullptr);
  std::thread([&] {
    CHECK(current_cuda_ordinal() == 0);
    CUcontext own = nullptr;
    REQUIRE(create(&own, 0, 0) == CUDA_SUCCESS);  // and current
    const std::string text = error_of(ErrorCode::invalid_argument, [] { current_runtime(); });
    CHECK_THAT(text, ContainsSubstring("not the primary context of cuda:0") && ContainsSubstring("cuCtxSetCurrent"));
    CHECK(run_counting(open_cuda_device(0),
                       *open_cuda_device(0)->compile(counting_launch(12, arch_name(open_cuda_device(0)->spec())))) ==
          std::vector<int>{12, 13, 14});  // a device that is named is used by its primary context
    REQUIRE(destroy(own) == CUDA_SUCCESS);
    CHECK(current_cuda_ordinal() == 0);
  }).join();
}

TEST_CASE("memory is allocated, filled, copied, and runs out with a message", "[gpu]") {
  const auto device = open_cuda_device(0);
  const DeviceBuffer buffer(device, 1000);
  CHECK(buffer.pointer() % 256 == 0);
  device->fill(buffer.pointer(), 0x5a, 1000);
  device->synchronize(nullptr);
  std::vector<std::uint8_t> values(1000);
  device->copy_from_device(values.data(), buffer.pointer(), 1000);
  CHECK(std::count(values.begin(), values.end(), 0x5a) == 1000);
  values[999] = 7;
  device->copy_to_device(buffer.pointer(), values.data(), 1000);
  std::uint8_t last = 0;
  device->copy_from_device(&last, buffer.pointer() + 999, 1);
  CHECK(last == 7);

  const std::string text = error_of(ErrorCode::driver, [&] { device->allocate(std::size_t{1} << 50); });
  CHECK_THAT(text, ContainsSubstring("out of memory"));
  CHECK_THAT(text, ContainsSubstring(std::to_string(std::size_t{1} << 50)));
  CHECK_THAT(text, ContainsSubstring("CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_CASE("a kernel runs, also from a thread that never saw CUDA", "[gpu]") {
  const auto device = open_cuda_device(0);
  const auto kernel = device->compile(counting_launch(10, arch_name(device->spec())));
  CHECK(run_counting(device, *kernel) == std::vector<int>{10, 11, 12});
  std::vector<int> from_thread;
  std::thread([&] { from_thread = run_counting(device, *kernel); }).join();
  CHECK(from_thread == std::vector<int>{10, 11, 12});
  CHECK(error_of(ErrorCode::internal, [&] { device->launch(*kernel, 1, nullptr, 3, nullptr); }).find("3 bytes") !=
        std::string::npos);
}

TEST_CASE("driver faults carry call, code, file and line", "[gpu]") {
  const auto device = open_cuda_device(0);
  KernelLaunch launch = counting_launch(11, arch_name(device->spec()));
  launch.threads = 4096;
  const auto kernel = device->compile(launch);
  const DevicePointer none = 0;
  const std::string text =
      error_of(ErrorCode::driver, [&] { device->launch(*kernel, 1, &none, sizeof(none), nullptr); });
  CHECK_THAT(text, ContainsSubstring("cuLaunchKernel"));
  CHECK_THAT(text, ContainsSubstring("CUDA_ERROR_"));
  CHECK_THAT(text, ContainsSubstring("runtime/cuda/cuda_device.cpp:"));
}

TEST_CASE("a cubin that does not load is rebuilt", "[gpu]") {
  // A cache of its own: other programs add entries to the user's.
  const attune::testing::TemporaryFolder own_cache;
  const attune::testing::ScopedVariable cache_variable("ATTUNE_CACHE_DIR", own_cache.path().string());
  const auto device = open_cuda_device(0);
  const std::string arch = arch_name(device->spec());
  const KernelLaunch launch =
      counting_launch(static_cast<int>(std::chrono::steady_clock::now().time_since_epoch().count() & 0xffffff), arch);
  KernelLaunch foreign = launch;
  foreign.arch = device->spec().compute_major == 8 ? "sm_90" : "sm_80";

  // The cubin of the other architecture in the entry of this one: whole and consistent, but for another GPU.
  CubinCache cache;
  const auto folders = [&] {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(cache.folder())) found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  };
  const auto added_by = [&](const KernelLaunch& what) {
    fs::create_directories(cache.folder() / ".incoming");
    const auto before = folders();
    REQUIRE_FALSE(cache.get(what).resources.from_cache);
    for (const fs::path& path : folders()) {
      if (!std::binary_search(before.begin(), before.end(), path)) return path;
    }
    FAIL("no entry was added");
    return fs::path();
  };
  const fs::path foreign_entry = added_by(foreign), entry = added_by(launch);
  std::ifstream resources(foreign_entry / "resources.txt");
  std::string described((std::istreambuf_iterator<char>(resources)), std::istreambuf_iterator<char>());
  const std::string foreign_key = foreign_entry.filename().string();
  REQUIRE(described.find("key " + foreign_key) != std::string::npos);
  described.replace(described.find(foreign_key), foreign_key.size(), entry.filename().string());
  for (const char* file : {"kernel.cubin", "log.txt"})
    fs::copy_file(foreign_entry / file, entry / file, fs::copy_options::overwrite_existing);
  std::ofstream(entry / "resources.txt") << described;
  REQUIRE(cache.get(launch).resources.from_cache);

  const auto kernel = device->compile(launch);
  CHECK_FALSE(kernel->resources().from_cache);
  CHECK(run_counting(device, *kernel).size() == 3);
  CHECK(device->compile(launch)->resources().from_cache);
}

TEST_CASE("events time kernels", "[gpu]") {
  const auto device = open_cuda_device(0);
  const DeviceBuffer buffer(device, std::size_t{1} << 30);
  CudaTimer timer(device, nullptr);
  device->fill(buffer.pointer(), 1, buffer.bytes());
  timer.start();
  device->fill(buffer.pointer(), 2, buffer.bytes());
  timer.stop();
  const double microseconds = timer.microseconds();
  CHECK(microseconds > 50);      // 20 TB/s
  CHECK(microseconds < 100000);  // 10 GB/s
}

TEST_CASE("forward on the GPU agrees with the oracle, aligned or not", "[gpu]") {
  const auto device = open_cuda_device(0);
  AttentionRuntime runtime(device);
  for (const int head_dim : {64, 72, 128}) {
    for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
      for (const std::int64_t shift : {0, 1, 8}) {
        AttentionProblem problem = make_problem(DataType::bf16, 2, 4, 333, head_dim, mask);
        problem.heads_kv = 2;
        problem.layout = shift == 1 ? Layout::bhsd : Layout::bshd;
        const ForwardCase data(device, problem, shift);
        const DeviceBuffer workspace(device, runtime.workspace_bytes(problem));
        runtime.forward(problem, data.tensors, reinterpret_cast<void*>(workspace.pointer()), workspace.bytes(),
                        nullptr);
        device->synchronize(nullptr);
        const ForwardErrors errors = compare_forward(problem, reference_forward(problem, data.q, data.k, data.v),
                                                     data.read_o(), data.read_lse());
        INFO(canonical_text(problem) << ", shifted by " << shift << ": " << errors.outputs[0].complaint
                                     << errors.outputs[1].complaint);
        CHECK(errors.within());
      }
    }
  }
}

TEST_CASE("a repeated call costs at most 1.5 us above the bare launch", "[gpu]") {
  const auto device = open_cuda_device(0);
  AttentionRuntime runtime(device);
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 100, 64, MaskKind::causal);
  const ForwardCase data(device, problem);
  const auto prepared = runtime.prepare(problem);
  REQUIRE(prepared->plan.launches.size() == 1);
  const KernelLaunch& launch = prepared->plan.launches[0];
  PackedArguments arguments;
  pack_arguments(launch, problem, data.tensors, workspace_values(prepared->plan, problem, 0), *device, arguments);
  const std::uint32_t grid = launch.grid_x(problem);

  const auto bare = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      device->launch(*prepared->kernels[0], grid, arguments.data.data(), arguments.bytes, nullptr);
    }
  };
  const auto same = [&](int calls) {
    for (int i = 0; i < calls; ++i) runtime.forward(problem, data.tensors, nullptr, 0, nullptr);
  };
  // As in decoding: another length at each call, within one class.
  const auto growing = [&](int calls) {
    AttentionProblem shorter = problem;
    for (int i = 0; i < calls; ++i) {
      shorter.seq_kv = 97 + i % 4;
      shorter.mask_offset = shorter.seq_kv - shorter.seq_q;
      runtime.forward(shorter, data.tensors, nullptr, 0, nullptr);
    }
  };
  growing(kCallsOfBatch);
  device->synchronize(nullptr);
  const std::vector<double> medians = host_microseconds(device, {bare, same, growing});
  const double bare_us = medians[0], same_us = medians[1], growing_us = medians[2];
  std::printf(
      "host time of a call: bare launch %.2f us, the same problem %.2f us (+%.2f), a growing one %.2f us (+%.2f)\n",
      bare_us, same_us, same_us - bare_us, growing_us, growing_us - bare_us);
  CHECK(same_us - bare_us <= 1.5);
  CHECK(growing_us - bare_us <= 1.5);
}

TEST_CASE("a thread compiles, loads and allocates while another captures a graph", "[gpu]") {
  const auto device = open_cuda_device(0);
  const CudaDriver& driver = CudaDriver::get();
  const std::string arch = arch_name(device->spec());
  const auto captured = device->compile(counting_launch(1, arch));
  const DeviceBuffer buffer(device, 3 * sizeof(int));

  CUcontext context = nullptr;
  driver.check(driver.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  driver.check(driver.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  CUstream stream = nullptr;
  driver.check(driver_function<decltype(cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING),
               "cuStreamCreate");
  const auto begin =
      driver_function<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");  // a macro in cuda.h
  driver.check(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  const DevicePointer pointer = buffer.pointer();
  device->launch(*captured, 3, &pointer, sizeof(pointer), stream);

  std::vector<int> values;
  std::string failure;
  std::thread([&] {
    try {
      const int number = static_cast<int>(std::chrono::steady_clock::now().time_since_epoch().count() & 0xfffff);
      values = run_counting(device, *device->compile(counting_launch(number, arch)));  // never compiled before
      for (int& value : values) value -= number;
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }).join();
  CHECK(failure.empty());
  CHECK(values == std::vector<int>{0, 1, 2});

  CUgraph graph = nullptr;
  const CUresult ended = driver_function<decltype(cuStreamEndCapture)>("cuStreamEndCapture")(stream, &graph);
  INFO(failure << driver.describe(ended, "cuStreamEndCapture"));
  CHECK(ended == CUDA_SUCCESS);
  CHECK(graph != nullptr);
  if (graph != nullptr) driver_function<decltype(cuGraphDestroy)>("cuGraphDestroy")(graph);
  driver_function<CUresult(CUstream)>("cuStreamDestroy_v2")(stream);
  driver.cuCtxPopCurrent(&context);
  driver.cuDevicePrimaryCtxRelease(0);
}
