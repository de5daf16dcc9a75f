#include "runtime/cuda/nvrtc_compiler.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <nvrtc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "generator/error.h"
#include "runtime/cuda/compile_log.h"
#include "runtime/cuda/cuda_driver.h"

namespace attune {
namespace {

constexpr const char* kHowToInstall =
    "install it with scripts/install-deps (or the CUDA toolkit, or pip install nvidia-cuda-nvrtc-cu12), or set "
    "ATTUNE_NVRTC to the "
    "path of libnvrtc.so";

struct Nvrtc {
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
  std::string version_text;  // "13.0"
  std::string path;
  std::string identity;
};

template <typename Function>
bool resolve(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

struct BuildIdSearch {
  ElfW(Addr) base;
  std::string id;
};

// The GNU build id note of the library that is loaded at search->base.
int find_build_id(dl_phdr_info* info, std::size_t, void* data) {
  auto* search = static_cast<BuildIdSearch*>(data);
  if (info->dlpi_addr != search->base) return 0;
  const auto align4 = [](std::size_t n) { return (n + 3) & ~std::size_t{3}; };
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* note = reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr);
    const auto* end = note + segment.p_memsz;
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) header;
      std::memcpy(&header, note, sizeof(header));
      const unsigned char* name = note + sizeof(header);
      const unsigned char* content = name + align4(header.n_namesz);
      if (content + header.n_descsz > end) break;
      if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        search->id = hexadecimal(content, header.n_descsz);
        return 1;
      }
      note = content + align4(header.n_descsz);
    }
  }
  return 1;
}

// What tells one build of a library from another: its build id, or its size where it has none.
std::string build_identity(void* library, const std::string& path) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) {
    BuildIdSearch search{map->l_addr, {}};
    dl_iterate_phdr(find_build_id, &search);
    if (!search.id.empty()) return "build id " + search.id;
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return "of " + std::to_string(error ? 0 : bytes) + " bytes";
}

std::string loaded_path(void* library, const std::string& asked) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr && *map->l_name != 0) {
    return map->l_name;
  }
  return asked;
}

// Opens one library; returns false, and says why in `tried`, if it is not a usable NVRTC.
bool open_nvrtc(const std::string& path, Nvrtc& nvrtc, std::string& tried) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto refuse = [&](const std::string& why) {
    tried += "\n  " + path + ": " + why;
    if (library != nullptr) dlclose(library);
    return false;
  };
  if (library == nullptr) {
    const char* why = dlerror();
    return refuse(why != nullptr ? why : "cannot be opened");
  }
  int major = 0, minor = 0;
  const bool complete = resolve(library, "nvrtcVersion", nvrtc.version) &&
                        resolve(library, "nvrtcGetErrorString", nvrtc.get_error_string) &&
                        resolve(library, "nvrtcCreateProgram", nvrtc.create_program) &&
                        resolve(library, "nvrtcDestroyProgram", nvrtc.destroy_program) &&
                        resolve(library, "nvrtcCompileProgram", nvrtc.compile_program) &&
                        resolve(library, "nvrtcGetProgramLogSize", nvrtc.get_program_log_size) &&
                        resolve(library, "nvrtcGetProgramLog", nvrtc.get_program_log) &&
                        resolve(library, "nvrtcGetCUBINSize", nvrtc.get_cubin_size) &&
                        resolve(library, "nvrtcGetCUBIN", nvrtc.get_cubin) &&
                        resolve(library, "nvrtcGetPTXSize", nvrtc.get_ptx_size) &&
                        resolve(library, "nvrtcGetPTX", nvrtc.get_ptx);
  if (!complete) return refuse("not an NVRTC of CUDA 12 or newer: functions are missing");
  if (nvrtc.version(&major, &minor) != NVRTC_SUCCESS) return refuse("does not tell its version");
  if (major < 12) return refuse("NVRTC " + std::to_string(major) + " is too old, 12 is needed");
  nvrtc.major = major;
  nvrtc.version_text = std::to_string(major) + "." + std::to_string(minor);
  nvrtc.path = loaded_path(library, path);
  nvrtc.identity = "NVRTC " + nvrtc.version_text + " (" + build_identity(library, nvrtc.path) + ")";
  return true;
}

// Where an NVRTC may be, in the order in which they are taken: the loader's own search first, then usual folders,
// newest first.
std::vector<std::string> candidate_paths() {
  if (const char* given = std::getenv("ATTUNE_NVRTC"); given != nullptr && *given != 0) return {given};
  std::vector<std::string> folders;
  if (*ATTUNE_NVRTC_HINT != 0) folders.emplace_back(ATTUNE_NVRTC_HINT);  // where the build found one; may be empty
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(name); root != nullptr && *root != 0)
      folders.push_back(std::string(root) + "/lib64");
  }
  folders.insert(folders.end(), {"/usr/local/cuda/lib64", "/opt/cuda/lib64", "/usr/lib/x86_64-linux-gnu"});
  std::vector<std::string> paths;
  for (const char* file : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    paths.emplace_back(file);
    for (const std::string& folder : folders) {
      std::error_code error;
      const std::string path = folder + "/" + file;
      if (std::filesystem::exists(path, error)) paths.push_back(path);
    }
  }
  return paths;
}

Nvrtc find_nvrtc() {
  const int driver_major = cuda_driver_major();
  std::string tried, too_new;
  for (const std::string& path : candidate_paths()) {
    Nvrtc nvrtc;
    if (!open_nvrtc(path, nvrtc, tried)) continue;
    // Code of a newer major version than the driver's does not load; without a driver there is nothing to load it into.
    if (driver_major == 0 || nvrtc.major <= driver_major) return nvrtc;
    if (too_new.empty()) too_new = nvrtc.version_text + " (" + nvrtc.path + ")";
  }
  if (!too_new.empty()) {
    const CudaDriver* driver = CudaDriver::find();
    const std::string supported = driver != nullptr ? cuda_version_text(driver->version) : std::to_string(driver_major);
    throw Error(ErrorCode::nvrtc_unavailable,
                "NVRTC " + too_new + " is newer than the NVIDIA driver, which supports CUDA " + supported +
                    ": update the driver, or install NVRTC " + std::to_string(driver_major) +
                    " (pip install nvidia-cuda-nvrtc-cu" + std::to_string(driver_major) +
                    ") and set ATTUNE_NVRTC to the path of its libnvrtc.so." + std::to_string(driver_major));
  }
  throw Error(ErrorCode::nvrtc_unavailable,
              std::string("NVRTC, the run-time compiler of CUDA, is missing: ") + kHowToInstall + "; tried:" + tried);
}

// Found once; a failure is found again at each call, so that its text is always whole.
const Nvrtc& nvrtc() {
  static const Nvrtc found = find_nvrtc();
  return found;
}

class Program {
 public:
  Program(const Nvrtc& nvrtc, const KernelLaunch& launch) : nvrtc_(nvrtc) {
    check(nvrtc_.create_program(&program_, launch.source.c_str(), std::string(kKernelFileName).c_str(), 0, nullptr,
                                nullptr),
          "nvrtcCreateProgram");
  }
  ~Program() { nvrtc_.destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<std::string>& flags) {
    std::vector<const char*> texts;
    for (const std::string& flag : flags) texts.push_back(flag.c_str());
    return nvrtc_.compile_program(program_, static_cast<int>(texts.size()), texts.data());
  }
  std::string log() const {
    std::string text = read(nvrtc_.get_program_log_size, nvrtc_.get_program_log, "nvrtcGetProgramLog");
    while (!text.empty() && (text.back() == 0 || text.back() == '\n')) text.pop_back();
    return text;
  }
  std::string cubin() const { return read(nvrtc_.get_cubin_size, nvrtc_.get_cubin, "nvrtcGetCUBIN"); }
  std::string ptx() const {
    std::string text = read(nvrtc_.get_ptx_size, nvrtc_.get_ptx, "nvrtcGetPTX");
    while (!text.empty() && text.back() == 0) text.pop_back();
    return text;
  }
  std::string text_of(nvrtcResult result) const { return nvrtc_.get_error_string(result); }

 private:
  void check(nvrtcResult result, const char* call) const {
    if (result != NVRTC_SUCCESS)
      throw Error(ErrorCode::compile_failed, std::string(call) + " failed: " + text_of(result));
  }
  template <typename GetSize, typename Get>
  std::string read(GetSize get_size, Get get, const char* call) const {
    std::size_t bytes = 0;
    check(get_size(program_, &bytes), call);
    std::string text(bytes, 0);
    if (bytes != 0) check(get(program_, text.data()), call);
    return text;
  }

  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
};

}  // namespace

std::vector<std::string> nvrtc_flags(const KernelLaunch& launch) {
  return {"--gpu-architecture=" + launch.arch, "--std=c++17", "--ptxas-options=--verbose"};
}

CompiledText compile_with_nvrtc(const KernelLaunch& launch, CompileOutput output) {
  if (launch.target != KernelTarget::cuda) {
    throw Error(ErrorCode::internal, "a kernel rendered for the emulator was given to NVRTC: " + launch.entry);
  }
  const Nvrtc& library = nvrtc();
  std::vector<std::string> flags = nvrtc_flags(launch);
  if (output == CompileOutput::ptx)
    flags[0] = "--gpu-architecture=compute_" + launch.arch.substr(launch.arch.find('_') + 1);
  // They change nothing of the output: the stack limit belongs to the whole process, and Attune keeps a cache of its
  // own.
  std::vector<std::string> all_flags = flags;
  all_flags.insert(all_flags.end(), {"--modify-stack-limit=false", "--no-cache"});

  const auto begin = std::chrono::steady_clock::now();
  std::optional<Program> program(std::in_place, library, launch);
  nvrtcResult result = program->compile(all_flags);
  if (result == NVRTC_ERROR_INVALID_OPTION) {
    program.emplace(library, launch);
    result = program->compile(flags);
  }
  const auto end = std::chrono::steady_clock::now();

  const std::string log = name_templates(program->log(), launch.lines);
  if (result == NVRTC_ERROR_INVALID_OPTION) {
    throw Error(ErrorCode::compile_failed, "NVRTC " + library.version_text + " (" + library.path +
                                               ") does not know a flag, probably " + "the architecture " + launch.arch +
                                               "; a newer NVRTC is needed:\n" + log);
  }
  if (result != NVRTC_SUCCESS) {
    throw Error(ErrorCode::compile_failed, "NVRTC " + library.version_text + " refused kernel " + launch.entry +
                                               " for " + launch.arch + " (" + program->text_of(result) + "):\n" + log);
  }
  CompiledText compiled;
  compiled.image = output == CompileOutput::cubin ? program->cubin() : program->ptx();
  read_compile_log(log, compiled.resources);
  compiled.resources.shared_bytes = launch.shared_bytes;
  compiled.resources.compile_ms = std::chrono::duration<double, std::milli>(end - begin).count();
  return compiled;
}

std::string nvrtc_identity() { return nvrtc().identity; }

int nvrtc_major() { return nvrtc().major; }

}  // namespace attune
