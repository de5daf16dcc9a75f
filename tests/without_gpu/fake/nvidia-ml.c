// NVML of a GPU that knows no clock of applications for its memory.
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { kSuccess = 0, kNotSupported = 3, kClockSm = 1, kClockMemory = 2 };

EXPORT int nvmlInit_v2(void) { return kSuccess; }
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  // A handle is no address: the number of the bus, from 1.
  unsigned bus = 0;
  if (sscanf(bus_id, "0000:%x:", &bus) != 1) return kNotSupported;
  memset(device, 0, sizeof *device);
  *(unsigned*)device = bus + 1;
  return kSuccess;
}
EXPORT int nvmlDeviceGetClockInfo(void* device, int clock, unsigned* mhz) {
  (void)device;
  return *mhz = clock == kClockSm ? 1500 : 2600, kSuccess;
}
EXPORT int nvmlDeviceGetUUID(void* device, char* text, unsigned bytes) {
  unsigned number = 0;
  memcpy(&number, &device, sizeof number);
  return snprintf(text, bytes, "GPU-fake-%u", number), kSuccess;
}
EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  return snprintf(text, bytes, "580.159.04"), kSuccess;
}
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  (void)device;
  return *milliwatts = 650500, kSuccess;
}
EXPORT int nvmlDeviceGetApplicationsClock(void* device, int clock, unsigned* mhz) {
  (void)device;
  return clock == kClockSm ? (*mhz = 1755, kSuccess) : kNotSupported;
}
EXPORT int nvmlDeviceGetMaxClockInfo(void* device, int clock, unsigned* mhz) {
  (void)device;
  return *mhz = clock == kClockSm ? 1980 : 3201, kSuccess;
}
