#pragma once

#include <nvrtc.h>

#include <string>
#include <vector>

namespace attune {

/// NVRTC as it was found at run time: its functions, without their prefix, and what it is.
struct NvrtcLibrary {
  decltype(&::nvrtcVersion) version = nullptr;
  decltype(&::nvrtcGetErrorString) get_error_string = nullptr;
  decltype(&::nvrtcCreateProgram) create_program = nullptr;
  decltype(&::nvrtcDestroyProgram) destroy_program = nullptr;
  decltype(&::nvrtcCompileProgram) compile_program = nullptr;
  decltype(&::nvrtcGetProgramLogSize) get_program_log_size = nullptr;
  decltype(&::nvrtcGetProgramLog) get_program_log = nullptr;
  decltype(&::nvrtcGetCUBINSize) get_cubin_size = nullptr;
  decltype(&::nvrtcGetCUBIN) get_cubin = nullptr;
  decltype(&::nvrtcGetPTXSize) get_ptx_size = nullptr;
  decltype(&::nvrtcGetPTX) get_ptx = nullptr;

  int major = 0;
  std::string version_text;  ///< "13.0"
  std::string path;
  std::string identity;  ///< "NVRTC 13.0 (build id ...)"
};

/// Where an NVRTC may be: $ATTUNE_NVRTC alone, else the loader's own search, the usual folders, and the wheels of the
/// Python environment whose bin/ `program` is in, newest version first. By default this process's program.
std::vector<std::string> nvrtc_candidates(const std::string& program = "/proc/self/exe");

/// Opens the first usable one of `paths` whose major version is not newer than the driver's (version 1000 * major + 10
/// * minor; any, if that is 0): the driver does not load what a newer one compiled. Throws Error(nvrtc_unavailable):
/// missing, and what was tried, or newer than the driver, naming both versions; either says what to do.
NvrtcLibrary open_nvrtc(const std::vector<std::string>& paths, int driver_version);

/// The one that this process uses, opened at the first call. Thread-safe.
const NvrtcLibrary& nvrtc_library();

}  // namespace attune
