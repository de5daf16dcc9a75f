// A profiler, as NVTX loads it by NVTX_INJECTION64_PATH: it writes down the ranges of domains.
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

static char recorded[1 << 16];
static size_t length;

static void note(const char* what, const char* message) {
  const int written = snprintf(recorded + length, sizeof recorded - length, "%s%s\n", what, message);
  if (written > 0 && length + (size_t)written < sizeof recorded) length += (size_t)written;
}

static nvtxDomainHandle_t domain_create(const char* name) {
  note("domain ", name);
  return (nvtxDomainHandle_t)recorded;  // any address that is not null
}
static int range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  note(domain == (nvtxDomainHandle_t)recorded ? "push " : "push elsewhere ", attributes->message.ascii);
  return 0;
}
static int range_pop(nvtxDomainHandle_t domain) {
  note(domain == (nvtxDomainHandle_t)recorded ? "pop" : "pop elsewhere", "");
  return 0;
}

/// What was recorded since the last question, a line for each event.
__attribute__((visibility("default"))) const char* fake_nvtx_recorded(void) {
  static char taken[sizeof recorded];
  memcpy(taken, recorded, length);
  taken[length] = 0;
  length = 0;
  return taken;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const NvtxExportTableCallbacks* const callbacks = (const NvtxExportTableCallbacks*)export_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned entries = 0;
  if (callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &entries)) return 0;
  if (entries <= NVTX_CBID_CORE2_DomainCreateA) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)range_push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)range_pop;
  return 1;
}
