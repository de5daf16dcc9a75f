#pragma once

#include <string>
#include <vector>

#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/text/template_set.h"

namespace attune {

/// A text file of an export.
struct ExportedFile {
  std::string name;  ///< "launch.h"
  std::string text;
};

struct ExportOptions {
  std::string name;      ///< of the C function, and what all other names begin with
  std::string version;   ///< of Attune, for the files' first lines
  std::string compiler;  ///< that made kernel.cubin; empty: there is none
};

/// "attune_backward_bf16_d64_causal_deterministic": from what a plan's kernels are compiled for.
std::string default_export_name(const KernelPlan& plan);

/// What a kernel of the plan is named in an export of that name: "my_name_backward_delta".
std::string exported_entry(const KernelLaunch& launch, const std::string& name);

/// What nvcc is told of the architecture: "-arch=sm_80". For an architecture's own variant, which has no PTX that
/// others run: "-gencode arch=compute_90a,code=sm_90a".
std::string nvcc_architecture_flags(const KernelPlan& plan);

/// The kernels of a plan with a function that launches them on any problem of the plan's kernel class, a test, a CMake
/// project and a page that explains them: all that nvcc needs, and nothing of Attune. The launcher holds the very text
/// of the rules by which the plan computes its grids and its workspace. Pure: the same values give the same bytes.
/// Throws Error(invalid_argument) for a name that is no identifier of C, Error(unsupported) for a plan whose kernels
/// take what no caller has, such as those of the oracle, or that is the emulator's.
std::vector<ExportedFile> export_plan(const KernelPlan& plan, const DeviceSpec& device, const ExportOptions& options,
                                      const TemplateSet& templates = TemplateSet::embedded());

}  // namespace attune
