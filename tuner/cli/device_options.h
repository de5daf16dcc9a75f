#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/device/device_spec.h"
#include "runtime/device.h"
#include "runtime/emulator/emulator_device.h"
#include "tuner/cli/command_line.h"

namespace attune::cli {

/// A device that was decided on, not opened yet.
struct ChosenDevice {
  std::string name;  ///< "cuda:0" or "emulator"
  int ordinal = -1;  ///< of the GPU; -1 for the emulator
  DeviceSpec spec;   ///< the GPU's, or the one that the emulator stands for
  std::string why;   ///< a sentence if the choice was not asked for; empty otherwise
  bool is_cuda() const { return ordinal >= 0; }
};

/// --device, --target and the emulator's options.
class DeviceOptions {
 public:
  /// For a verb that runs kernels.
  void add_to(CommandLine& verb);
  /// For a verb that only generates for a device, or looks one up.
  void add_target_to(CommandLine& verb);
  /// For a verb that can use several GPUs at once.
  void add_several_to(CommandLine& verb);

  /// Whether a device or a target was named.
  bool any_given() const { return !device_.empty() || !target_.empty(); }

  /// The device that was asked for; else the emulator of --target; else cuda:0 if there is a GPU, else the emulator of
  /// an H200. Throws Error(no_device) for a GPU that is not there, Error(invalid_argument) for flags that contradict
  /// each other.
  ChosenDevice choose() const;
  /// The same where --device may also name several GPUs, "cuda:0,2" or "all"; one element otherwise. Throws
  /// Error(invalid_argument) if they are not of one model.
  std::vector<ChosenDevice> choose_several() const;
  /// Opens the chosen device.
  std::shared_ptr<Device> open(const ChosenDevice& chosen) const;

 private:
  void add_to_group(CommandLine& verb, const std::string& device_help);
  ChosenDevice choose(const std::string& device) const;
  EmulatorOptions emulator_options() const;

  std::string device_, target_, async_, schedule_;
  std::optional<std::uint64_t> emulator_seed_;
};

}  // namespace attune::cli
