#include "tests/tuner/trial/hostile_templates.h"

#include <fmt/format.h>

#include <fstream>
#include <stdexcept>

#include "generator/families/forward_sm80/plan.h"
#include "generator/text/template_set.h"
#include "tests/hostile/embedded.h"

namespace attune::test {
namespace {

const std::string kForward = "kernels/forward_sm80";

// The text with `from`, which it holds once, in another form.
std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos || text.find(from, at + 1) != std::string::npos) {
    throw std::runtime_error(kForward + " does not hold this once, which tests/hostile relies on: " + from);
  }
  return text.substr(0, at) + to + text.substr(at + from.size());
}

}  // namespace

std::string hostile_name(const AttentionProblem& problem, const KernelConfig& config) {
  const std::map<std::string, std::string> said = forward_sm80_bindings(problem, config).values;
  return fmt::format("{} d{} {} q{} kv{} w{} st{} cta{} {} {} {} {}", said.at("dtype"), said.at("head_dim_qk"),
                     said.at("mask"), said.at("block_q"), said.at("block_kv"), said.at("warps"), said.at("stages"),
                     said.at("ctas_per_sm"), said.at("query_operand"), said.at("tile_order"),
                     said.at("rescale_threshold"), said.at("even_tiles"));
}

std::map<std::string, std::string> hostile_templates(const BehaviourTable& table) {
  std::map<std::string, std::string> texts = TemplateSet::embedded().texts();
  for (std::size_t i = 0; i < kHostileTemplateCount; ++i) {
    texts[fmt::format("hostile/{}", kHostileTemplates[i].name)] = kHostileTemplates[i].text;
  }
  std::string& rows = texts["hostile/table"];
  for (const auto& [name, behaviour] : table) {
    rows += fmt::format("{{\"{}\", \"{}\"}},\n", name, behaviour);
  }

  std::string& forward = texts.at(kForward);
  forward = replaced(forward,
                     "extern \"C\" __global__ void __launch_bounds__(kThreads, kCtasPerSm) ${entry}(const "
                     "__grid_constant__ Arguments args) {",
                     "__device__ __forceinline__ void honest_forward(const Arguments& args) {");
  forward = replaced(forward, "//% include primitives/entry/${target}",
                     "//% include hostile/kernel\n//% include primitives/entry/${target}");
  return texts;
}

void write_hostile_templates(const std::filesystem::path& folder, const BehaviourTable& table) {
  for (const auto& [name, text] : hostile_templates(table)) {
    const std::filesystem::path path = folder / (name + ".cu");
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    if (!(file << text).flush()) throw std::runtime_error("cannot write " + path.string());
  }
}

}  // namespace attune::test
