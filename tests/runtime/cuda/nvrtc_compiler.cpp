#include "runtime/cuda/nvrtc_compiler.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "generator/error.h"
#include "generator/generate.h"
#include "generator/oracle/oracle_kernels.h"
#include "runtime/cuda/nvrtc_library.h"
#include "tests/case_draw.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

using namespace attune;
using attune::testing::error_of;

namespace nvrtc_compiler_test {
namespace {

KernelLaunch launch_of(const std::string& source) {
  KernelLaunch launch;
  launch.source = source;
  launch.entry = "k";
  launch.arch = "sm_80";
  launch.threads = 32;
  launch.shared_bytes = 4096;
  int line = 0;
  for (std::size_t at = 0; at != std::string::npos; at = source.find('\n', at + 1))
    launch.lines.push_back({"tests/k", 100 + ++line});
  return launch;
}

}  // namespace

TEST_CASE("a missing NVRTC is an error that says what was tried and what to do", "[nogpu]") {
  const std::string text =
      error_of(ErrorCode::nvrtc_unavailable, [] { open_nvrtc({"/nonexistent/libnvrtc.so.13"}, 0); });
  CHECK_THAT(text, ContainsSubstring("/nonexistent/libnvrtc.so.13"));
  CHECK_THAT(text, ContainsSubstring("scripts/install-deps"));
  CHECK_THAT(text, ContainsSubstring("ATTUNE_NVRTC"));
}

TEST_CASE("a library that is no NVRTC is not taken for one", "[nogpu]") {
  CHECK_THAT(error_of(ErrorCode::nvrtc_unavailable, [] { open_nvrtc({"libm.so.6"}, 0); }),
             ContainsSubstring("functions are missing"));
}

TEST_CASE("ATTUNE_NVRTC names the only library that is tried", "[nogpu]") {
  attune::testing::ScopedVariable named("ATTUNE_NVRTC", "/somewhere/libnvrtc.so");
  CHECK(nvrtc_candidates() == std::vector<std::string>{"/somewhere/libnvrtc.so"});
  named.unset();
  CHECK(nvrtc_candidates().size() >= 2);
  // A program of a Python environment finds the wheel that PyTorch came with.
  const attune::testing::TemporaryFolder environment;
  const std::filesystem::path wheel = environment / "lib/python3.11/site-packages/nvidia/cu13/lib";
  std::filesystem::create_directories(wheel);
  std::filesystem::create_directories(environment / "bin");
  for (const std::filesystem::path& file : {wheel / "libnvrtc.so.13", environment / "bin/attune"})
    std::ofstream(file) << "";
  const auto holds = [&](const std::string& program) {
    const std::vector<std::string> paths = nvrtc_candidates((environment / program).string());
    return std::find(paths.begin(), paths.end(), std::filesystem::canonical(wheel / "libnvrtc.so.13").string()) !=
           paths.end();
  };
  CHECK(holds("bin/attune"));
  CHECK_FALSE(holds("bin/none"));
  CHECK_FALSE(holds("lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13"));
}

TEST_CASE("a toolkit's NVRTC is found in the folder of this kind of machine", "[nogpu]") {
#if defined(__aarch64__)
  const std::vector<std::string> targets = {"sbsa-linux", "aarch64-linux"}, others = {"x86_64-linux"};
#else
  const std::vector<std::string> targets = {"x86_64-linux"}, others = {"sbsa-linux", "aarch64-linux"};
#endif
  const attune::testing::TemporaryFolder toolkit;
  const attune::testing::ScopedVariable named("ATTUNE_NVRTC", ""), home("CUDA_HOME", toolkit.path().string());
  const auto holds = [&](const std::string& target) {
    const std::filesystem::path folder = toolkit / ("targets/" + target + "/lib");
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "libnvrtc.so.12") << "";
    const std::vector<std::string> paths = nvrtc_candidates("");
    return std::find(paths.begin(), paths.end(), (folder / "libnvrtc.so.12").string()) != paths.end();
  };
  for (const std::string& target : targets) CHECK(holds(target));
  for (const std::string& target : others) CHECK_FALSE(holds(target));
}

TEST_CASE("an NVRTC newer than the driver is refused, naming both versions", "[nvrtc]") {
  const NvrtcLibrary& library = nvrtc_library();
  const int older_driver = (library.major - 1) * 1000 + 40;
  const std::string text = error_of(ErrorCode::nvrtc_unavailable, [&] { open_nvrtc({library.path}, older_driver); });
  CHECK_THAT(text, ContainsSubstring("NVRTC " + library.version_text));
  CHECK_THAT(text, ContainsSubstring("supports CUDA " + std::to_string(library.major - 1) + ".4"));
  CHECK_THAT(text, ContainsSubstring("update the driver"));
  CHECK(open_nvrtc({library.path}, library.major * 1000).identity == library.identity);
}

TEST_CASE("the first NVRTC that the driver accepts is taken", "[nvrtc]") {
  const NvrtcLibrary& library = nvrtc_library();
  CHECK(open_nvrtc({"/nonexistent/libnvrtc.so", library.path}, library.major * 1000).path == library.path);
}

TEST_CASE("a compile gives a cubin and its resources, or PTX", "[nvrtc]") {
  const KernelLaunch launch = launch_of("extern \"C\" __global__ void k(float* p) { p[threadIdx.x] *= 2; }");
  const CompiledText cubin = compile_with_nvrtc(launch);
  CHECK(cubin.image.substr(1, 3) == "ELF");
  CHECK(cubin.resources.registers > 0);
  CHECK(cubin.resources.spill_bytes == 0);
  CHECK(cubin.resources.shared_bytes == 4096);
  CHECK(cubin.resources.compile_ms > 0);
  CHECK_FALSE(cubin.resources.from_cache);
  const CompiledText ptx = compile_with_nvrtc(launch, CompileOutput::ptx);
  CHECK_THAT(ptx.image, ContainsSubstring(".visible .entry k("));
  CHECK(ptx.image.find('\0') == std::string::npos);
}

TEST_CASE("a compile error names the template's file and line", "[nvrtc]") {
  const std::string text = error_of(ErrorCode::compile_failed, [] {
    compile_with_nvrtc(
        launch_of("extern \"C\" __global__ void k(float* p) {\n  p[0] = 1;\n  p[1] = undeclared_name;\n}\n"));
  });
  CHECK_THAT(text, ContainsSubstring("templates/tests/k.cu(103)"));
  CHECK_THAT(text, ContainsSubstring("undeclared_name"));
  CHECK(text.find("kernel.cu(") == std::string::npos);
}

TEST_CASE("an architecture that NVRTC does not know is a compile error", "[nvrtc]") {
  KernelLaunch launch = launch_of("extern \"C\" __global__ void k() {}");
  launch.arch = "sm_1";
  CHECK_THAT(error_of(ErrorCode::compile_failed, [&] { compile_with_nvrtc(launch); }), ContainsSubstring("sm_1"));
}

TEST_CASE("kernels for the emulator are not given to NVRTC", "[nogpu]") {
  KernelLaunch launch = launch_of("void k() {}");
  launch.target = KernelTarget::emulator;
  CHECK(error_of(ErrorCode::internal, [&] { compile_with_nvrtc(launch); }).find("emulator") != std::string::npos);
}

TEST_CASE("threads compile at the same time", "[nvrtc]") {
  std::vector<std::thread> threads;
  std::vector<std::string> images(4);
  for (std::size_t i = 0; i < images.size(); ++i) {
    threads.emplace_back([&images, i] {
      images[i] =
          compile_with_nvrtc(launch_of("extern \"C\" __global__ void k(int* p) { *p = " + std::to_string(i) + "; }"))
              .image;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < images.size(); ++i) {
    CHECK(images[i].size() > 100);
    CHECK((i == 0 || images[i] != images[0]));
  }
}

TEST_CASE("the reference kernel compiles for every dtype, mask and architecture", "[nvrtc]") {
  attune::tests::CaseDraw draw(4, 2);
  for (const char* target : {"sm_80", "h200"}) {
    for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
      for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
        for (const int head_dim : {8, 136, 256}) {
          if (!draw.takes_next()) continue;
          const AttentionProblem problem = make_problem(dtype, 1, 2, 33, head_dim, mask);
          const KernelPlan plan = generate_reference(problem, find_device(target));
          REQUIRE(plan.launches.size() == 1);
          CHECK(compile_with_nvrtc(plan.launches[0]).resources.registers > 0);
        }
      }
    }
  }
}

TEST_CASE("the gradients' reference kernels compile for every dtype, mask and architecture", "[nvrtc]") {
  attune::tests::CaseDraw draw(4, 2);
  for (const char* target : {"sm_80", "h200"}) {
    for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
      for (const int head_dim : {8, 64, 136, 256}) {
        if (!draw.takes_next()) continue;
        const MaskKind mask = dtype == DataType::fp16 ? MaskKind::none : MaskKind::causal;
        const AttentionProblem problem = make_problem(dtype, 1, 2, 33, head_dim, mask);
        for (const KernelLaunch& launch : generate_backward_reference(problem, find_device(target))) {
          const KernelResources resources = compile_with_nvrtc(launch).resources;
          INFO(launch.entry << " d" << head_dim << " for " << launch.arch);
          CHECK(resources.registers > 0);
          CHECK(resources.spill_bytes <= 16);
        }
      }
    }
  }
}

TEST_CASE("the kernels of checks compile for every dtype and architecture", "[nvrtc]") {
  const auto check = [](const KernelLaunch& launch) {
    INFO(launch.entry << " for " << launch.arch);
    const KernelResources resources = compile_with_nvrtc(launch).resources;
    CHECK(resources.registers > 0);
    CHECK(resources.spill_bytes == 0);
    CHECK(resources.stack_bytes == 0);
  };
  for (const char* target : {"sm_80", "h200"}) {
    const DeviceSpec& device = find_device(target);
    check(generate_checksum(device));
    for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
      check(generate_random_normal(dtype, device));
      for (const int head_dim : {8, 136, 256})
        check(generate_comparison(operand_shape(make_problem(dtype, 1, 2, 33, head_dim), Operand::o), device));
    }
  }
}

TEST_CASE("no operation of random numbers is contracted with another", "[nvrtc]") {
  for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
    const KernelLaunch launch = generate_random_normal(dtype, find_device("h200"));
    const std::string ptx = compile_with_nvrtc(launch, CompileOutput::ptx).image;
    CHECK_THAT(ptx, ContainsSubstring("mul.rn.f64") && ContainsSubstring("sqrt.rn.f64"));
    CHECK(ptx.find("fma") == std::string::npos);
  }
}

}  // namespace nvrtc_compiler_test
