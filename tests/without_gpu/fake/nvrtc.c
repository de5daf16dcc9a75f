/* A libnvrtc.so that makes a "cubin" of any source in a moment: a few words and the source's hash. A source that holds
 * "does not compile" does not. */
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct _nvrtcProgram {
  char cubin[64];
  int refused;
};

static const char* const kLog = "ptxas info    : Used 32 registers\n";
static const char* const kRefusal = "kernel.cu(1): error: fake\n";

EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, NVRTC_SUCCESS; }
EXPORT const char* nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_SUCCESS ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION";
}
EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name, int headers,
                                      const char* const* texts, const char* const* names) {
  unsigned long long hash = 14695981039346656037u;
  (void)name, (void)headers, (void)texts, (void)names;
  *program = calloc(1, sizeof(**program));
  if (*program == NULL) return NVRTC_ERROR_OUT_OF_MEMORY;
  (*program)->refused = strstr(source, "does not compile") != NULL;
  for (; *source != 0; ++source) hash = (hash ^ (unsigned char)*source) * 1099511628211u;
  snprintf((*program)->cubin, sizeof((*program)->cubin), "fake cubin %016llx", hash);
  return NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) { return free(*program), *program = NULL, NVRTC_SUCCESS; }
EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  (void)count, (void)options;
  return program->refused ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}
static const char* log_of(nvrtcProgram program) { return program->refused ? kRefusal : kLog; }
EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* bytes) {
  return *bytes = strlen(log_of(program)) + 1, NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  return strcpy(log, log_of(program)), NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* bytes) {
  (void)program;
  return *bytes = sizeof(program->cubin), NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  return memcpy(cubin, program->cubin, sizeof(program->cubin)), NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* bytes) { return nvrtcGetCUBINSize(program, bytes); }
EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) { return nvrtcGetCUBIN(program, ptx); }
