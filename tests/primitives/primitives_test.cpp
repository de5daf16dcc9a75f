#include <map>
#include <regex>
#include <set>

#include "generator/families/shared/wgmma_shapes.h"
#include "generator/text/template_set.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/case_draw.h"
#include "tests/catch.h"
#include "tests/primitives/emulator_modes.h"
#include "tests/primitives/primitive_cases.h"
#include "tests/primitives/sm90_cases.h"

namespace attune::tests {
namespace {

void check_on(const std::shared_ptr<Device>& device, const PrimitiveCase& test) {
  CHECK(test.complaint(run_kernel(device, test.kernel, test.input, test.output_bytes)) == "");
}

// Functions that a text of primitives/ defines, those of the CUDA version: it has no helpers.
std::set<std::string> primitives_of(const std::string& text) {
  const std::regex definition("__device__ __forceinline__ \\w+ (\\w+)\\(");
  std::set<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), definition), end; match != end; ++match)
    names.insert((*match)[1]);
  return names;
}

}  // namespace

TEST_CASE("each primitive does on the emulator what its manual says", "[emulator]") {
  for (const EmulatorOptions& mode : emulator_modes()) {
    const auto device = make_emulator_device(find_device("a100"), mode);
    for (const PrimitiveCase& test : primitive_cases()) {
      INFO(test.name << " with " << to_string(mode));
      check_on(device, test);
    }
  }
}

TEST_CASE("each primitive of Hopper does on the emulator what its manual says", "[emulator]") {
  for (const EmulatorOptions& mode : emulator_modes()) {
    const auto device = make_emulator_device(find_device("h200"), mode);
    for (const PrimitiveCase& test : sm90_cases()) {
      INFO(test.name << " with " << to_string(mode));
      check_on(device, test);
    }
  }
}

TEST_CASE("each primitive does on the GPU what its manual says", "[gpu]") {
  const auto device = open_cuda_device(0);
  for (const PrimitiveCase& test : primitive_cases()) {
    INFO(test.name);
    check_on(device, test);
  }
}

TEST_CASE("each primitive of Hopper does on the GPU what its manual says", "[gpu]") {
  const auto device = open_cuda_device(0);
  if (device->spec().compute_major != 9) {
    WARN("skipped: the GPU is " << device->spec().name << "; these primitives are those of compute capability 9.0");
    return;
  }
  for (const PrimitiveCase& test : sm90_cases()) {
    INFO(test.name);
    check_on(device, test);
  }
}

TEST_CASE("NVRTC takes each primitive of Hopper", "[nvrtc]") {
  CaseDraw draw(3);
  for (const PrimitiveCase& test : sm90_cases()) {
    if (!draw.takes_next()) continue;
    INFO(test.name);
    CHECK_NOTHROW(compile_with_nvrtc(launch_of(test.kernel, KernelTarget::cuda, "sm_90a")));
  }
}

TEST_CASE("NVRTC takes each primitive for compute capability 8.0 and 9.0", "[nvrtc]") {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    for (const PrimitiveCase& test : primitive_cases()) {
      INFO(test.name << " for " << arch);
      CHECK_NOTHROW(compile_with_nvrtc(launch_of(test.kernel, KernelTarget::cuda, arch)));
    }
  }
}

TEST_CASE("every primitive is in both targets and in a test", "[nogpu]") {
  std::string bodies;
  for (const auto* cases : {&primitive_cases(), &sm90_cases()}) {
    for (const PrimitiveCase& test : *cases) bodies += test.kernel.body;
  }
  std::size_t found = 0;
  for (const auto& [name, text] : TemplateSet::embedded().texts()) {
    if (!name.starts_with("primitives/") || !name.ends_with("/cuda")) continue;
    const std::string* emulated = TemplateSet::embedded().find(name.substr(0, name.size() - 4) + "emulator");
    REQUIRE(emulated != nullptr);
    for (const std::string& primitive : primitives_of(text)) {
      INFO(primitive << " of " << name);
      CHECK(emulated->find(" " + primitive + "(") != std::string::npos);
      CHECK(bodies.find(primitive) != std::string::npos);
      ++found;
    }
  }
  CHECK(found > 30);
}

TEST_CASE("items of wgmma_shapes are each N once, ascending", "[nogpu]") {
  const auto shapes = wgmma_shapes({64, 8, 64});
  REQUIRE(shapes.size() == 2);
  CHECK(shapes[0].at("n") == "8");
  CHECK(shapes[0].at("registers") == "4");
  CHECK(shapes[0].at("operands") == "%0, %1, %2, %3");
  CHECK(shapes[0].at("outputs") == "\"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])");
  CHECK(shapes[0].at("operand0") == "4");
  CHECK(shapes[0].at("operand6") == "10");
  CHECK(shapes[1].at("n") == "64");
  CHECK(shapes[1].at("operand0") == "32");
  CHECK(wgmma_shapes({80}, KernelTarget::emulator).front() ==
        std::map<std::string, std::string>{{"n", "80"}, {"registers", "40"}});
  for (const int n : {0, 12, 264, -8}) {
    CHECK_THROWS_WITH(wgmma_shapes({8, n}), ContainsSubstring("wgmma has no shape m64n" + std::to_string(n) + "k16"));
  }
}

}  // namespace attune::tests
