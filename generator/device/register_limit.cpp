#include "generator/device/register_limit.h"

#include <algorithm>

namespace attune {

int register_limit(int threads, int ctas, const DeviceSpec& device) {
  constexpr int kStep = 8, kMost = 255;
  return std::min(kMost, device.registers_per_sm / (threads * ctas) / kStep * kStep);
}

}  // namespace attune
