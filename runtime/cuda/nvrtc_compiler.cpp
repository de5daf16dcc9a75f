#include "runtime/cuda/nvrtc_compiler.h"

#include <chrono>
#include <optional>

#include "generator/error.h"
#include "runtime/cuda/compile_log.h"
#include "runtime/cuda/nvrtc_library.h"

namespace attune {
namespace {

class Program {
 public:
  Program(const NvrtcLibrary& nvrtc, const KernelLaunch& launch) : nvrtc_(nvrtc) {
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

  const NvrtcLibrary& nvrtc_;
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
  const NvrtcLibrary& library = nvrtc_library();
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

std::string nvrtc_identity() { return nvrtc_library().identity; }

int nvrtc_major() { return nvrtc_library().major; }

}  // namespace attune
