#pragma once

#include <string>
#include <vector>

#include "runtime/device.h"

namespace attune {

/// A cubin (or PTX) and what the compiler said.
struct CompiledText {
  std::string image;          ///< cubin bytes, or PTX text
  KernelResources resources;  ///< as far as the log tells
};

enum class CompileOutput { cubin, ptx };

/// Compiles with NVRTC (opened at run time: libnvrtc.so.13, then .12; ATTUNE_NVRTC names another). Needs no GPU.
/// Thread-safe. Throws Error(nvrtc_unavailable) that says how to install it, Error(compile_failed) with the log, whose
/// lines name templates.
CompiledText compile_with_nvrtc(const KernelLaunch& launch, CompileOutput output = CompileOutput::cubin);

/// The flags that decide what the compiler makes of a launch: part of the cubin cache's key. Approximations are spelled
/// by the templates, so no flag allows any.
std::vector<std::string> nvrtc_flags(const KernelLaunch& launch);

/// "NVRTC 13.0", with the build id of the library file that was opened: part of the cubin cache's key.
std::string nvrtc_identity();

/// NVRTC's CUDA major version, for the comparison with the driver's.
int nvrtc_major();

}  // namespace attune
