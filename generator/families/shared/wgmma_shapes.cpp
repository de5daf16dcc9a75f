#include "generator/families/shared/wgmma_shapes.h"

#include <fmt/format.h>

#include <algorithm>

#include "generator/error.h"

namespace attune {

std::vector<std::map<std::string, std::string>> wgmma_shapes(std::vector<int> ns, KernelTarget target) {
  constexpr int kFurtherOperands = 7, kOperandsOfLine = 16, kOutputsOfLine = 8;
  std::sort(ns.begin(), ns.end());
  ns.erase(std::unique(ns.begin(), ns.end()), ns.end());
  std::vector<std::map<std::string, std::string>> shapes;
  for (const int n : ns) {
    if (n < 8 || n > 256 || n % 8 != 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("wgmma has no shape m64n{}k16: N is a multiple of 8 from 8 to 256", n));
    }
    const int registers = n / 2;
    std::map<std::string, std::string> shape = {{"n", std::to_string(n)}, {"registers", std::to_string(registers)}};
    for (int i = 0; target == KernelTarget::cuda && i < registers; ++i) {
      // Operands stand in the literal of an instruction, which ends with each line.
      const bool begins = i > 0 && i % kOperandsOfLine == 0, outputs_begin = i > 0 && i % kOutputsOfLine == 0;
      shape["operands"] += fmt::format("{}%{}", i == 0 ? "" : begins ? ", \"\n\"" : ", ", i);
      const char* separator = i == 0 ? "" : outputs_begin ? ",\n" : ", ";
      shape["outputs"] += fmt::format("{}\"+f\"(d[{}])", separator, i);
      shape["first_outputs"] += fmt::format("{}\"=f\"(d[{}])", separator, i);
    }
    for (int i = 0; target == KernelTarget::cuda && i < kFurtherOperands; ++i)
      shape[fmt::format("operand{}", i)] = std::to_string(registers + i);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace attune
