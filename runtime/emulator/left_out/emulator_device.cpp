// The emulator of a build that has none (ATTUNE_BUILD_EMULATOR=OFF), so that who asks for it hears why it does not
// come.
#include "runtime/emulator/emulator_device.h"

#include "generator/error.h"

namespace attune {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      ErrorCode::unsupported,
      "this build of Attune has no emulator: name a GPU (--device cuda:0), or build with ATTUNE_BUILD_EMULATOR=ON");
}

}  // namespace

std::shared_ptr<Device> make_emulator_device(const DeviceSpec&, const EmulatorOptions&) { refuse(); }

EmulatorTraffic traffic_of(const Device&) { refuse(); }

std::string to_string(const EmulatorOptions&) { return "no emulator"; }

}  // namespace attune
