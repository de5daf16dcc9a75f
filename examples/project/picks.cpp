// What the C++ interface picks for a problem on an H200, which need not be here: a config of the shipped presets, and
// its kernel's first line.
#include <cstdio>
#include <string>

#include "attune/attention.h"
#include "generator/device/device_spec.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/database/tuned_configs.h"

int main() try {
  const attune::AttentionProblem problem =
      attune::make_problem(attune::DataType::bf16, /*batch=*/4, /*heads=*/16, /*seq=*/4096,
                           /*head_dim=*/128, attune::MaskKind::causal);
  const attune::DeviceSpec h200 = attune::find_device("h200");
  const auto choice = attune::TunedConfigs::at_default_places()->find(problem, h200);
  if (!choice) {
    std::puts("nothing is picked: the presets are missing");
    return 1;
  }
  const std::string source = attune::generate(problem, choice->config, h200).launches.front().source;
  std::printf("%s\n%s\n", choice->detail.c_str(), source.substr(0, source.find('\n')).c_str());
  return choice->origin == attune::ConfigOrigin::exact ? 0 : 1;
} catch (const attune::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
