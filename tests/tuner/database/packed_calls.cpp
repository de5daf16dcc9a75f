// Calls that are served from a pack on a GPU, in a process that can find no NVRTC.
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "attune/attention.h"
#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/runtime/forward_case.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/packed_configs.h"

using namespace attune;
using attune::test::sibling_program;
using attune::test::TemporaryFolder;
using attune::testing::error_of;
using attune::testing::ForwardCase;
namespace fs = std::filesystem;

namespace packed_calls_test {
namespace {

constexpr const char* kName = "a pack serves forward and backward on a GPU without NVRTC";
constexpr const char* kForward = "forward bf16 b2 hq4 hkv2 sq333 d128 causal";
constexpr const char* kBackward = "backward bf16 b2 hq4 hkv2 sq333 d128 causal";
constexpr const char* kInChild = "ATTUNE_TEST_PACKED_CALLS";

int run(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// The gradients' tensors beside those of a forward case, poisoned.
struct BackwardCase {
  ForwardCase& forward;
  AttentionProblem problem = parse_problem(kBackward);
  std::vector<std::uint16_t> d_o;
  DeviceBuffer buffers[4];

  explicit BackwardCase(ForwardCase& of) : forward(of), d_o(random_normal(of.problem.dtype, of.q.size(), 4)) {
    const Operand operands[] = {Operand::d_o, Operand::d_q, Operand::d_k, Operand::d_v};
    for (int i = 0; i < 4; ++i) {
      const OperandShape shape = operand_shape(problem, operands[i]);
      buffers[i] = DeviceBuffer(forward.device,
                                2 * static_cast<std::size_t>(shape.batch * shape.heads * shape.rows * shape.columns));
      forward.device->fill(buffers[i].pointer(), 0xff, buffers[i].bytes());
      forward.tensors[operands[i]] =
          packed_view(problem, operands[i], reinterpret_cast<const void*>(buffers[i].pointer()));
    }
    forward.device->copy_to_device(buffers[0].pointer(), d_o.data(), 2 * d_o.size());
  }
  std::vector<std::uint16_t> read(int buffer) const {
    std::vector<std::uint16_t> values(buffers[buffer].bytes() / 2);
    forward.device->copy_from_device(values.data(), buffers[buffer].pointer(), buffers[buffer].bytes());
    return values;
  }
};

void serve_calls() {
  CHECK_THROWS_AS(nvrtc_identity(), Error);
  const auto device = open_cuda_device(0);
  ForwardCase data(device, parse_problem(kForward));  // the context is there, as it is in a program that has tensors
  BackwardCase gradients(data);
  const DeviceBuffer workspace(device, std::size_t{64} << 20);
  void* const place = reinterpret_cast<void*>(workspace.pointer());
  device->synchronize(nullptr);

  const auto begin = std::chrono::steady_clock::now();
  use_tuned_configs();
  attention_forward(data.problem, data.tensors, place, workspace.bytes(), nullptr);
  const double launched_ms = milliseconds_since(begin);
  device->synchronize(nullptr);
  const double ended_ms = milliseconds_since(begin);
  const auto second = std::chrono::steady_clock::now();
  attention_backward(gradients.problem, data.tensors, place, workspace.bytes(), nullptr);
  const double backward_ms = milliseconds_since(second);
  device->synchronize(nullptr);
  std::printf(
      "the first call from a pack: %.2f ms until it was launched, %.2f ms until it had run; the first backward "
      "call: %.2f ms until it was launched\n",
      launched_ms, ended_ms, backward_ms);
  CHECK(ended_ms <= 20);
  CHECK(backward_ms <= 20);

  CHECK(current_runtime().prepare(data.problem)->choice.origin == ConfigOrigin::packed);
  CHECK(current_runtime().prepare(gradients.problem)->choice.origin == ConfigOrigin::packed);
  const ForwardErrors errors = compare_forward(data.problem, reference_forward(data.problem, data.q, data.k, data.v),
                                               data.read_o(), data.read_lse());
  INFO(errors.outputs[0].complaint << errors.outputs[1].complaint);
  CHECK(errors.within());
  const ReferenceBackward reference =
      reference_backward(gradients.problem, {data.q, data.k, data.v, gradients.d_o, {}});
  const BackwardErrors backward_errors =
      compare_backward(gradients.problem, reference, gradients.read(1), gradients.read(2), gradients.read(3));
  INFO(backward_errors.outputs[0].complaint << backward_errors.outputs[1].complaint
                                            << backward_errors.outputs[2].complaint);
  CHECK(backward_errors.within());

  AttentionProblem other = data.problem;
  other.batch = 3;
  CHECK_THAT(error_of(ErrorCode::unsupported, [&] { current_runtime().prepare(other); }),
             ContainsSubstring(canonical_text(other)) && ContainsSubstring("ATTUNE_FROZEN"));
  const std::string digest = picks_digest(device->spec());
  CHECK(digest.size() == 32);
  CHECK(picks_digest(device->spec()) == digest);
}

}  // namespace

TEST_CASE("a pack serves forward and backward on a GPU without NVRTC", "[gpu]") {
  // NVRTC, once it is found, stays: so calls are served in a process of their own, which is this test again.
  if (std::getenv(kInChild) != nullptr) return serve_calls();
  const TemporaryFolder folder;
  std::ofstream(folder / "shapes.csv") << "problem\n" << kForward << "\n" << kBackward << "\n";
  const std::string pack = folder.file("model.attune");
  // As on a machine without a GPU, where this model is known by its name.
  const DeviceSpec& spec = open_cuda_device(0)->spec();
  const std::string device = find_device_by_name(spec.name) ? "--target " + spec.key : "--device cuda:0";
  REQUIRE(run(sibling_program("attune") + " pack " + device + " --shapes " + folder.file("shapes.csv") + " --output " +
              pack) == 0);
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const int status =
      run("ATTUNE_PACK=" + pack +
          " ATTUNE_FROZEN=1 ATTUNE_NVRTC=/nowhere/libnvrtc.so ATTUNE_CACHE_DIR=" + folder.file("unused") + " " +
          kInChild + "=1 " + self + " \"" + kName + "\" > " + folder.file("said") + " 2>&1");
  // But for its count of tests, of which this is the only one.
  std::ifstream said(folder / "said");
  for (std::string line; std::getline(said, line);)
    if (!line.starts_with("attune-tests: ")) std::printf("%s\n", line.c_str());
  CHECK(status == 0);
  CHECK_FALSE(fs::exists(folder / "unused"));
}

}  // namespace packed_calls_test
