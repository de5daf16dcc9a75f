// What the emulator says when a kernel, or its caller, breaks a rule.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "generator/error.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/catch.h"
#include "tests/primitives/emulator_modes.h"
#include "tests/primitives/test_kernel.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

namespace attune::tests {
namespace {

namespace fs = std::filesystem;
using attune::testing::ScopedVariable;
using attune::testing::TemporaryFolder;

std::shared_ptr<Device> emulator(const EmulatorOptions& options = {}) {
  return make_emulator_device(find_device("a100"), options);
}

// The message of Error(emulator) that the kernel ends with; it reads 64 bytes of input and writes 64 bytes of output.
std::string message_of(const TestKernel& kernel, const EmulatorOptions& options = {},
                       ErrorCode code = ErrorCode::emulator) {
  try {
    run_kernel(emulator(options), kernel, std::vector<std::uint8_t>(64, 0), 64);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("accesses to global memory are checked", "[emulator]") {
  CHECK_THAT(message_of({"if (thread == 5) ld_global_b16(in_bytes(args, 64));\n", 32, 0, 3}),
             ContainsSubstring("kernel primitive_test, CTA ") &&
                 ContainsSubstring("thread 5 (warp 0, lane 5): ld_global_b16 reads 2 bytes") &&
                 ContainsSubstring("0 bytes past the end of the nearest allocation, 64 bytes at 0x"));
  CHECK_THAT(message_of({"st_global_f32(out_bytes(args, 0u - 4), 1.0f);\n"}),
             ContainsSubstring("st_global_f32 writes 4 bytes"));
  CHECK_THAT(message_of({"st_global_f32(const_cast<char*>(in_bytes(args, 0)) - 4, 1.0f);\n"}),
             ContainsSubstring("4 bytes before the nearest allocation"));
  CHECK_THAT(message_of({"st_global_v4_b32(out_bytes(args, 8), Vec4{});\n"}),
             ContainsSubstring("st_global_v4_b32 writes 16 bytes of global memory") &&
                 ContainsSubstring("not a multiple of 16"));
  CHECK_THAT(message_of({"ld_global_b16(in_bytes(args, 1));\n"}), ContainsSubstring("not a multiple of 2"));
  CHECK_THAT(message_of({"ld_global_b16(nullptr);\n"}), ContainsSubstring("global memory at 0x0:"));
  CHECK_THAT(message_of({"cp_async_cg_16(shared_base(), in_bytes(args, 8), 16);\n", 32, 64}),
             ContainsSubstring("cp_async_cg_16 reads global memory") && ContainsSubstring("not a multiple of 16"));
  CHECK_THAT(message_of({"cp_async_cg_16(shared_base(), in_bytes(args, 64), 16);\n", 32, 64}),
             ContainsSubstring("past the end"));
  // Where nothing is read, the address does not matter.
  CHECK(message_of({"cp_async_cg_16(shared_base(), in_bytes(args, 1 << 20), 0);\n", 32, 64}) == "no error");
}

TEST_CASE("freed memory is named as such", "[emulator]") {
  const auto device = emulator();
  const auto kernel = device->compile(launch_of({"ld_global_b16(args.in);\n"}, KernelTarget::emulator, "sm_80"));
  const DevicePointer in = device->allocate(64), out = device->allocate(64);
  device->free(in);
  const DevicePointer arguments[2] = {in, out};
  CHECK_THROWS_WITH(device->launch(*kernel, 1, arguments, sizeof arguments, nullptr),
                    ContainsSubstring("inside 64 bytes at 0x") && ContainsSubstring("that were freed"));
  device->free(out);
}

TEST_CASE("accesses to shared memory are checked", "[emulator]") {
  CHECK_THAT(message_of({"st_shared_b32(shared_base() + 4 * thread, 0);\n", 32, 124}),
             ContainsSubstring("lane 31): st_shared_b32 writes 4 bytes of shared memory") &&
                 ContainsSubstring("the CTA has 124 bytes at 0x400"));
  CHECK_THAT(message_of({"st_shared_b32(0, 0);\n", 32, 128}), ContainsSubstring("shared memory at 0x0"));
  CHECK_THAT(message_of({"ld_shared_f64(shared_base() + 4);\n", 32, 128}), ContainsSubstring("not a multiple of 8"));
  CHECK_THAT(message_of({"u32 r[4];\nldmatrix_x4(r, shared_base() + 8 * thread);\n", 32, 512}),
             ContainsSubstring(
                 "lane 1): ldmatrix_x4 reads 16 bytes of shared memory at 0x408, which is not a multiple of 16"));
  CHECK_THAT(message_of({"cp_async_cg_16(shared_base() + 512, args.in, 16);\n", 32, 512}),
             ContainsSubstring("cp_async_cg_16 writes 16 bytes of shared memory"));
  // ldmatrix.x2 takes the addresses of the first 16 lanes only.
  CHECK(message_of({"u32 r[2];\nldmatrix_x2(r, thread < 16 ? shared_base() : 1);\n", 32, 512}) == "no error");
}

TEST_CASE("shared memory begins as NaN", "[emulator]") {
  const auto words = values_of<std::uint32_t>(
      run_kernel(emulator(), {"st_global_v4_b32(args.out, ld_shared_v4_b32(shared_base()));\n", 32, 64}, {}, 16));
  CHECK(words == std::vector<std::uint32_t>(4, 0xffffffffu));
}

TEST_CASE("a collective wants all lanes at the same call", "[emulator]") {
  for (const EmulatorOptions& mode : emulator_modes()) {
    INFO(to_string(mode));
    CHECK_THAT(message_of({R"(
u32 r[4];
if (thread % 32 < 16) out_f32(args, 0, shfl_sync_bfly_f32<1>(1.0f));
else ldmatrix_x4(r, shared_base());
)",
                           64, 512},
                          mode),
               ContainsSubstring("divergence: it calls") && ContainsSubstring("shfl_sync_bfly_f32") &&
                   ContainsSubstring("ldmatrix_x4"));
    CHECK_THAT(
        message_of({"out_f32(args, 0, thread < 16 ? shfl_sync_bfly_f32<1>(1.0f) : shfl_sync_bfly_f32<2>(1.0f));\n"},
                   mode),
        ContainsSubstring("with another operand"));
  }
  CHECK_THAT(
      message_of({"if (thread >= 40) out_f32(args, 0, shfl_sync_bfly_f32<1>(1.0f));\nelse if (thread >= 32) "
                  "vote_sync_any(true);\n",
                  64}),
      ContainsSubstring(
          "thread 40 (warp 1, lane 8): divergence: it calls shfl_sync_bfly_f32 while lanes 0-7 of its warp wait in "
          "vote_sync_any"));
}

TEST_CASE("the index of a warp wants all of its lanes", "[emulator]") {
  for (const EmulatorOptions& mode : emulator_modes()) {
    INFO(to_string(mode));
    const std::string of_one_lane = "if (thread % 32 == 0) out_f32(args, 0, 1.0f + warp_index());\n";
    // Found at the next collective, and where the warp ends.
    for (const std::string& after :
         {"", "vote_sync_any(true);\n", "bar_sync();\nvote_sync_any(warp_index() == 0);\n"}) {
      CHECK_THAT(message_of({of_one_lane + after, 64}, mode),
                 ContainsSubstring("lane 0 of its warp called warp_index() where the other lanes did not"));
    }
    CHECK(message_of(
              {"const u32 warp = warp_index();\nif (warp == 1 && warp_index() == 1) out_f32(args, 0, 1.0f);\n", 64},
              mode) == "no error");
  }
}

TEST_CASE("a deadlock becomes a sentence", "[emulator]") {
  for (const EmulatorOptions& mode : emulator_modes()) {
    INFO(to_string(mode));
    CHECK_THAT(
        message_of(
            {"if (thread / 32 != 2 || thread % 32 < 16) out_f32(args, 0, shfl_sync_bfly_f32<1>(1.0f));\n", 96, 0, 1},
            mode),
        ContainsSubstring("deadlock in CTA 0: ") &&
            ContainsSubstring(
                "warps 0-1: lanes 0-31 have exited; warp 2: lanes 0-15 wait in shfl_sync_bfly_f32, lanes 16-31 have "
                "exited"));
    CHECK_THAT(message_of({"if (block_index() == 5 && warp_index() == 1) return;\nbar_sync();\n", 96, 0, 9}, mode),
               ContainsSubstring("deadlock in CTA 5: warp 0: lanes 0-31 wait in bar_sync; warp 1: lanes 0-31 have "
                                 "exited; warp 2: lanes 0-31 wait "
                                 "in bar_sync"));
    CHECK_THAT(message_of({"if (thread == 3) bar_sync();\nelse bar_warp_sync();\n"}, mode),
               ContainsSubstring("warp 0: lanes 0-2, 4-31 wait in bar_warp_sync, lane 3 waits in bar_sync"));
  }
}

TEST_CASE("a value in memory that nobody writes is not waited for without end", "[emulator]") {
  for (EmulatorOptions mode : emulator_modes()) {
    mode.patience = std::chrono::milliseconds(20);
    INFO(to_string(mode));
    CHECK_THAT(message_of({"if (block_index() == 2 && thread == 3) wait_acquire_gpu_global_u32(static_cast<const "
                           "u32*>(args.in), 7);\nbar_sync();\n",
                           64, 0, 5},
                          mode),
               ContainsSubstring("CTA 2, thread 3") &&
                   ContainsSubstring("deadlock: wait_acquire_gpu_global_u32 waits for 7 at ") &&
                   ContainsSubstring(", which stays 0"));
  }
}

TEST_CASE("a value in memory is waited for as long as somebody may yet write it", "[emulator]") {
  // The writer takes longer than the patience, on the same host thread as who waits or on another one.
  const TestKernel kernel{
      "u32* flag = static_cast<u32*>(args.out);\n"
      "if (block_index() == 0) {\n"
      "  for (u32 i = 0; i < 200000; ++i) bar_warp_sync();\n"
      "  if (thread == 0) st_release_gpu_global_u32(flag, 7);\n"
      "} else if (thread == 0) {\n"
      "  wait_acquire_gpu_global_u32(flag, 7);\n"
      "  out_u32(args, 1, 1);\n"
      "}\n",
      32, 0, 2};
  for (const int threads : {1, 2}) {
    EmulatorOptions options;
    options.threads = threads;
    options.patience = std::chrono::milliseconds(100);
    INFO(threads << " host threads");
    const auto out = values_of<std::uint32_t>(run_kernel(emulator(options), kernel, {}, 8));
    CHECK(out == std::vector<std::uint32_t>{7, 1});
  }
}

// One thread fills a chunk of shared memory asynchronously and reads it without, or after, the right wait.
namespace {
std::uint32_t first_word_after_copy(const std::string& wait, AsyncMode async) {
  EmulatorOptions options;
  options.async = async;
  const TestKernel kernel{"if (thread == 0) {\n  cp_async_cg_16(shared_base(), args.in, 16);\n  " + wait +
                              "\n  out_u32(args, 0, ld_shared_v4_b32(shared_base()).x);\n}\n",
                          32, 64};
  return values_of<std::uint32_t>(run_kernel(emulator(options), kernel, std::vector<std::uint8_t>(64, 0x11), 4))
      .front();
}
}  // namespace

TEST_CASE("data that an asynchronous copy has not been waited for is NaN in lazy mode", "[emulator]") {
  constexpr std::uint32_t kData = 0x11111111u, kNaN = 0xffffffffu;
  for (const char* wrong : {"", "cp_async_commit_group();", "cp_async_wait_group<0>();",
                            "cp_async_commit_group();\n  cp_async_wait_group<1>();"}) {
    INFO("wait: " << wrong);
    CHECK(first_word_after_copy(wrong, AsyncMode::lazy) == kNaN);
    CHECK(first_word_after_copy(wrong, AsyncMode::eager) == kData);
  }
  for (const char* right : {"cp_async_commit_group();\n  cp_async_wait_group<0>();",
                            "cp_async_commit_group();\n  cp_async_commit_group();\n  cp_async_wait_group<1>();"}) {
    INFO("wait: " << right);
    CHECK(first_word_after_copy(right, AsyncMode::lazy) == kData);
    CHECK(first_word_after_copy(right, AsyncMode::eager) == kData);
  }
}

TEST_CASE("a barrier that is missing after a wait shows in lazy mode", "[emulator]") {
  // Each thread waits for its own copy and reads another warp's.
  const std::string kernel = R"(
cp_async_cg_16(shared_base() + 16 * thread, args.in, 16);
cp_async_commit_group();
cp_async_wait_group<0>();
)";
  const std::string read = "out_u32(args, thread, ld_shared_v4_b32(shared_base() + 16 * ((thread + 32) % 64)).x);\n";
  bool seen = false;
  for (const EmulatorOptions& mode : emulator_modes()) {
    const auto run = [&](const std::string& body) {
      return values_of<std::uint32_t>(
          run_kernel(emulator(mode), {body, 64, 1024}, std::vector<std::uint8_t>(64, 0x11), 256));
    };
    const std::vector<std::uint32_t> right(64, 0x11111111u);
    CHECK(run(kernel + "bar_sync();\n" + read) == right);
    seen |= run(kernel + read) != right;
  }
  CHECK(seen);
}

TEST_CASE("results of a race depend on the seed, those of a sound kernel do not", "[emulator]") {
  const auto last_writer = [](const EmulatorOptions& options) {
    return values_of<std::uint32_t>(run_kernel(emulator(options),
                                               {"st_shared_b32(shared_base(), thread);\nbar_sync();\nout_u32(args, 0, "
                                                "ld_shared_v4_b32(shared_base()).x);\n",
                                                128, 16},
                                               {}, 4))
        .front();
  };
  std::vector<std::uint32_t> writers;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const EmulatorOptions options{AsyncMode::eager, ScheduleMode::random, seed};
    writers.push_back(last_writer(options));
    CHECK(last_writer(options) == writers.back());  // a seed reproduces its order
  }
  CHECK(std::adjacent_find(writers.begin(), writers.end(), std::not_equal_to<>()) != writers.end());
}

TEST_CASE("every CTA of a grid runs once, whatever the number of host threads", "[emulator]") {
  for (const EmulatorOptions& mode : emulator_modes()) {
    for (const int threads : {1, 3, 64}) {
      for (const std::uint32_t grid : {1u, 2u, 7u, 64u, 1000u}) {
        EmulatorOptions options = mode;
        options.threads = threads;
        const TestKernel kernel{"if (thread == 0) out_u32(args, block_index(), 7 * block_index());\n", 64, 0, grid};
        const auto written = values_of<std::uint32_t>(run_kernel(emulator(options), kernel, {}, 4 * grid));
        std::size_t right = 0;
        for (std::uint32_t i = 0; i < grid; ++i) right += written[i] == 7 * i;
        CHECK(right == grid);
      }
    }
  }
}

TEST_CASE("several threads may compile, launch and allocate at once", "[emulator]") {
  const auto device = emulator();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const TestKernel kernel{
            "out_u32(args, 64 * block_index() + thread, " + std::to_string(t % 2) + " + thread);\nbar_sync();\n", 64, 0,
            20};
        right += values_of<std::uint32_t>(run_kernel(device, kernel, {}, 64 * 20 * 4)).back() == t % 2 + 63;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 40);
}

TEST_CASE("a device goes on after a kernel has failed", "[emulator]") {
  const auto device = emulator();
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(
        run_kernel(device, {"if (block_index() == 17) ld_global_b16(nullptr);\nbar_sync();\n", 128, 0, 100}, {}, 64),
        Error);
    CHECK(values_of<std::uint32_t>(run_kernel(device, {"out_u32(args, thread, thread);\n"}, {}, 128))[31] == 31);
  }
}

TEST_CASE("copies and fills outside an allocation are refused", "[emulator]") {
  const auto device = emulator();
  const DeviceBuffer buffer(device, 100);
  std::vector<std::uint8_t> host(200);
  CHECK_THROWS_WITH(device->copy_to_device(buffer.pointer() + 50, host.data(), 60),
                    ContainsSubstring("a copy to the device of 60 bytes") &&
                        ContainsSubstring("10 bytes past the end of the 100 bytes"));
  CHECK_THROWS_WITH(device->copy_from_device(host.data(), buffer.pointer(), 101),
                    ContainsSubstring("a copy from the device"));
  CHECK_THROWS_WITH(device->fill(buffer.pointer() - 1, 0, 1), ContainsSubstring("a fill at 0x"));
  device->copy_from_device(host.data(), buffer.pointer(), 100);
  CHECK(host[0] == 0xff);  // memory begins as NaN
  CHECK(buffer.pointer() % 256 == 0);
}

TEST_CASE("an overwritten guard band is reported when the memory is freed", "[emulator]") {
  const auto device = emulator();
  const DevicePointer pointer = device->allocate(100);
  reinterpret_cast<std::uint8_t*>(pointer)[100] ^= 1;
  device->free(pointer);
  CHECK_THROWS_WITH(device->synchronize(nullptr), ContainsSubstring("the memory after the 100 bytes at 0x"));
  CHECK_NOTHROW(device->synchronize(nullptr));
  device->free(pointer);
  CHECK_THROWS_WITH(device->synchronize(nullptr), ContainsSubstring("not allocated"));
}

TEST_CASE("launches that cannot be are refused", "[emulator]") {
  const auto device = emulator();
  const TestKernel good{"out_u32(args, thread, 1);\n"};
  KernelLaunch launch = launch_of(good, KernelTarget::emulator, "sm_80");
  const auto kernel = device->compile(launch);
  const DevicePointer arguments[2] = {};
  CHECK_THROWS_WITH(device->launch(*kernel, 1, arguments, 8, nullptr),
                    ContainsSubstring("takes 16 bytes of arguments; the launch has 8"));
  CHECK_THROWS_WITH(device->launch(*kernel, 0, arguments, 16, nullptr), ContainsSubstring("empty grid"));
  CHECK_THROWS_WITH(emulator()->launch(*kernel, 1, arguments, 16, nullptr),
                    ContainsSubstring("device that compiled it"));
  launch.threads = 48;
  CHECK_THROWS_WITH(device->compile(launch), ContainsSubstring("multiple of 32"));
  launch.threads = 32;
  launch.shared_bytes = 1 << 20;
  CHECK_THROWS_WITH(device->compile(launch), ContainsSubstring("a100 has 166912 for a CTA"));
  CHECK_THROWS_WITH(device->compile(launch_of(good, KernelTarget::cuda, "sm_80")),
                    ContainsSubstring("rendered for CUDA"));
  CHECK_FALSE(device->can_time());
}

TEST_CASE("the host compiler's complaint and its absence are told", "[emulator]") {
  CHECK_THAT(message_of({"this is not C++;\n"}, {}, ErrorCode::compile_failed),
             ContainsSubstring("refused a kernel") && ContainsSubstring("error:"));
  const ScopedVariable compiler("ATTUNE_HOST_COMPILER", "/nonexistent/c++");
  CHECK_THAT(message_of({"out_u32(args, thread, 1);\n"}, {}, ErrorCode::unsupported),
             ContainsSubstring("'/nonexistent/c++' cannot be run") && ContainsSubstring("apt install g++"));
}

TEST_CASE("compiled kernels are kept on disk, and damaged ones are compiled again", "[emulator]") {
  const TemporaryFolder folder;
  const ScopedVariable cache("ATTUNE_CACHE_DIR", folder.path().string());
  const KernelLaunch launch = launch_of({"out_u32(args, thread, 4711);\n"}, KernelTarget::emulator, "sm_80");
  CHECK_FALSE(emulator()->compile(launch)->resources().from_cache);
  CHECK(emulator()->compile(launch)->resources().from_cache);

  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder.path() / "emulator")) files.push_back(entry.path());
  REQUIRE(files.size() == 1);  // no temporary file stays
  CHECK(files.front().extension() == ".so");
  std::ofstream(files.front(), std::ios::trunc) << "not an object";
  CHECK_FALSE(emulator()->compile(launch)->resources().from_cache);
  CHECK(emulator()->compile(launch)->resources().from_cache);
}

TEST_CASE("a cache folder that cannot be written is passed over", "[emulator]") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "in the way";
  const ScopedVariable cache("ATTUNE_CACHE_DIR", (folder.path() / "file").string());
  const ScopedVariable xdg("XDG_CACHE_HOME", (folder.path() / "xdg").string());
  CHECK_NOTHROW(emulator()->compile(launch_of({"out_u32(args, thread, 4712);\n"}, KernelTarget::emulator, "sm_80")));
  CHECK(fs::exists(folder.path() / "xdg" / "attune" / "emulator"));
}

}  // namespace attune::tests
