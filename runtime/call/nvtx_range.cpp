#include "runtime/call/nvtx_range.h"

#include <cstdlib>
#include <string>

#include "attune/log.h"

#if ATTUNE_HAS_NVTX
#include <nvtx3/nvToolsExt.h>

#include <mutex>

#include "runtime/system/state_mutex.h"
#endif

namespace attune {

#if ATTUNE_HAS_NVTX
namespace {

constinit StateMutex making;
nvtxDomainHandle_t made = nullptr;

nvtxDomainHandle_t domain() {
  // A fork waits: NVTX loads the profiler's library meanwhile.
  const std::lock_guard lock(making);
  if (made == nullptr) made = nvtxDomainCreateA("attune");
  return made;
}

}  // namespace
#endif

bool NvtxRange::read_environment() {
  const char* const variable = std::getenv("ATTUNE_NVTX");
  const std::string_view named = variable != nullptr ? variable : "";
  if (named.empty() || named == "0") return false;
#if ATTUNE_HAS_NVTX
  return true;
#else
  log(LogLevel::warning,
      "ATTUNE_NVTX is set, but this build has no NVTX: its headers (nvtx3/nvToolsExt.h) were not found. Build with a "
      "CUDA toolkit, or run scripts/install-deps before");
  return false;
#endif
}

void NvtxRange::push([[maybe_unused]] std::string_view what, [[maybe_unused]] const AttentionProblem& problem,
                     [[maybe_unused]] const KernelConfig& config) {
#if ATTUNE_HAS_NVTX
  std::string name(what);
  if (!name.empty()) name += ' ';
  name.append(canonical_text(problem)).append(" | ").append(canonical_text(config));
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.c_str();
  nvtxDomainRangePushEx(domain(), &attributes);
#endif
}

void NvtxRange::pop() {
#if ATTUNE_HAS_NVTX
  nvtxDomainRangePop(domain());
#endif
}

}  // namespace attune
