#pragma once

#include <string>
#include <string_view>

#include "runtime/device.h"

namespace attune {

/// Name under which a generated source is given to the compiler, and which its messages carry.
inline constexpr std::string_view kKernelFileName = "kernel.cu";

/// Registers, spills, stack and advisories of a compile log (ptxas with --verbose). Functions that were not inlined
/// count too: bytes add up, registers are the largest. An advisory is a line that tells of instructions that were
/// serialized or ignored.
void read_compile_log(const std::string& log, KernelResources& resources);

/// The log with "kernel.cu(12)" replaced by the template line that line 12 comes from:
/// "templates/kernels/forward_sm80.cu(7)".
std::string name_templates(const std::string& log, const std::vector<TemplateLine>& lines);

}  // namespace attune
