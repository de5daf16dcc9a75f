#include "runtime/cuda/nvrtc_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "attune/log.h"
#include "generator/error.h"
#include "generator/lazy_value.h"
#include "runtime/cuda/cuda_driver.h"
#include "runtime/system/fork_gate.h"

namespace attune {
namespace {

constexpr const char* kHowToInstall =
    "install it with scripts/install-deps (or the CUDA toolkit, or pip install nvidia-cuda-nvrtc-cu12), or set "
    "ATTUNE_NVRTC to the "
    "path of libnvrtc.so";

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
bool open_library(const std::string& path, NvrtcLibrary& nvrtc, std::string& tried) {
  const ForkGate::Section section;  // a child cannot open a library where a thread was opening one at the fork
  // The loader would wait for who writes to a pipe.
  std::error_code unknown;
  const std::filesystem::file_status found = std::filesystem::status(path, unknown);
  const bool opens =
      path.find('/') == std::string::npos || !std::filesystem::exists(found) || std::filesystem::is_regular_file(found);
  void* library = opens ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  const auto refuse = [&](const std::string& why) {
    tried += "\n  " + path + ": " + why;
    if (library != nullptr) dlclose(library);
    return false;
  };
  if (!opens) return refuse("is no file");
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

// What CUDA and the distributions call this kind of machine. Of CUDA's two names for aarch64, sbsa is a server's.
#if defined(__aarch64__)
constexpr const char* kToolkitTargets[] = {"sbsa-linux", "aarch64-linux"};
constexpr const char* kLibraryFolder = "/usr/lib/aarch64-linux-gnu";
#else
constexpr const char* kToolkitTargets[] = {"x86_64-linux"};
constexpr const char* kLibraryFolder = "/usr/lib/x86_64-linux-gnu";
#endif

// lib64 is a link into one of the targets, which a toolkit that is not NVIDIA's own package may lack.
void add_toolkit_folders(const std::string& root, std::vector<std::string>& folders) {
  folders.push_back(root + "/lib64");
  for (const char* target : kToolkitTargets) folders.push_back(root + "/targets/" + target + "/lib");
}

// PREFIX/lib/python3.*/site-packages/nvidia/*/lib of a program PREFIX/bin/..., sorted: PyTorch comes with NVRTC there.
std::vector<std::string> folders_of_wheels(const std::string& program) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path = fs::canonical(program, error), prefix = path.parent_path().parent_path();
  if (error || path.parent_path().filename() != "bin") return {};
  std::vector<std::string> folders;
  const auto each = [](const fs::path& folder, const auto& work) {
    std::error_code unreadable;
    for (fs::directory_iterator entry(folder, unreadable), end; !unreadable && entry != end;
         entry.increment(unreadable))
      work(entry->path());
  };
  each(prefix / "lib", [&](const fs::path& python) {
    if (!python.filename().string().starts_with("python3.")) return;
    each(python / "site-packages" / "nvidia",
         [&](const fs::path& wheel) { folders.push_back((wheel / "lib").string()); });
  });
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace

std::vector<std::string> nvrtc_candidates(const std::string& program) {
  if (const char* given = std::getenv("ATTUNE_NVRTC"); given != nullptr && *given != 0) return {given};
  std::vector<std::string> folders;
  if (*ATTUNE_NVRTC_HINT != 0) folders.emplace_back(ATTUNE_NVRTC_HINT);  // where the build found one; may be empty
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(name); root != nullptr && *root != 0) add_toolkit_folders(root, folders);
  }
  for (const char* root : {"/usr/local/cuda", "/opt/cuda"}) add_toolkit_folders(root, folders);
  folders.emplace_back(kLibraryFolder);
  const std::vector<std::string> wheels = folders_of_wheels(program);
  folders.insert(folders.end(), wheels.begin(), wheels.end());
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

NvrtcLibrary open_nvrtc(const std::vector<std::string>& paths, int driver_version) {
  const int driver_major = driver_version / 1000;
  std::string tried, too_new;
  for (const std::string& path : paths) {
    NvrtcLibrary nvrtc;
    if (!open_library(path, nvrtc, tried)) continue;
    // Code of a newer major version than the driver's does not load; without a driver there is nothing to load it into.
    if (driver_major == 0 || nvrtc.major <= driver_major) {
      if (!too_new.empty()) {
        log(LogLevel::info, "NVRTC " + too_new + " is newer than the NVIDIA driver, which supports CUDA " +
                                cuda_version_text(driver_version) + ": NVRTC " + nvrtc.version_text + " (" +
                                nvrtc.path + ") compiles instead");
      }
      if (!tried.empty()) log(LogLevel::debug, "NVRTC is " + nvrtc.path + "; before it were tried:" + tried);
      return nvrtc;
    }
    if (too_new.empty()) too_new = nvrtc.version_text + " (" + nvrtc.path + ")";
  }
  if (!too_new.empty()) {
    throw Error(ErrorCode::nvrtc_unavailable,
                "NVRTC " + too_new + " is newer than the NVIDIA driver, which supports CUDA " +
                    cuda_version_text(driver_version) + ": update the driver, or install NVRTC " +
                    std::to_string(driver_major) + " (pip install nvidia-cuda-nvrtc-cu" + std::to_string(driver_major) +
                    ") and set ATTUNE_NVRTC to the path of its libnvrtc.so." + std::to_string(driver_major));
  }
  throw Error(ErrorCode::nvrtc_unavailable,
              std::string("NVRTC, the run-time compiler of CUDA, is missing: ") + kHowToInstall + "; tried:" + tried);
}

const NvrtcLibrary& nvrtc_library() {
  // A failure is not kept: the next call looks again, and its message is whole.
  static constinit LazyValue<const NvrtcLibrary> found;
  return found.get([] { return open_nvrtc(nvrtc_candidates(), cuda_driver_version()); });
}

}  // namespace attune
