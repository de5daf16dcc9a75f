#include "tuner/cli/device_options.h"

#include <fmt/core.h>

#include <charconv>
#include <vector>

#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "tuner/cli/validators.h"

namespace attune::cli {
namespace {

constexpr const char* kDefaultTarget = "h200";

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

int parse_ordinal(const std::string& device) {
  if (device == "cuda") return 0;
  if (device.starts_with("cuda:")) {
    int ordinal = -1;
    const char* end = device.data() + device.size();
    const auto [stop, error] = std::from_chars(device.data() + 5, end, ordinal);
    if (error == std::errc{} && stop == end && ordinal >= 0) return ordinal;
  }
  refuse(fmt::format("--device {}: expected cuda:N or emulator", device));
}

CudaDeviceInfo find_gpu(int ordinal) {
  std::string why;
  const std::vector<CudaDeviceInfo> gpus = list_cuda_devices(&why);
  if (gpus.empty()) {
    throw Error(ErrorCode::no_device,
                fmt::format("--device cuda:{} needs a GPU, and none can be used here: {}. "
                            "--device emulator runs without one, --target KEY generates without one",
                            ordinal, why));
  }
  for (const CudaDeviceInfo& gpu : gpus) {
    if (gpu.ordinal == ordinal) return gpu;
  }
  throw Error(ErrorCode::no_device,
              fmt::format("there is no cuda:{}: {} GPU(s) are visible, from cuda:0; see `attune devices`", ordinal,
                          gpus.size()));
}

}  // namespace

void DeviceOptions::add_target_to(CLI::App& verb) {
  const char* group = "Device";
  verb.add_option("--device", device_, "cuda:N or emulator (default: cuda:0 if there is a GPU, else emulator)")
      ->check(not_empty())
      ->check(not_empty())
      ->group(group);
  verb.add_option("--target", target_, "a GPU that is not here: h200, a100, rtx4090, sm_90a, ...; see `attune devices`")
      ->check(not_empty())
      ->check(not_empty())
      ->group(group);
}

void DeviceOptions::add_to(CLI::App& verb) {
  add_target_to(verb);
  const char* group = "Device";
  verb.add_option("--async", async_,
                  "emulator: asynchronous copies land at issue (eager, default) or as late as allowed (lazy)")
      ->check(not_empty())
      ->check(not_empty())
      ->group(group);
  verb.add_option("--schedule", schedule_, "emulator: order of warps and CTAs, round-robin (default) or random")
      ->check(not_empty())
      ->check(not_empty())
      ->group(group);
  verb.add_option("--emulator-seed", emulator_seed_, "emulator: seed of the random schedule")
      ->transform(whole_number<std::uint64_t>())
      ->group(group);
}

ChosenDevice DeviceOptions::choose() const {
  ChosenDevice chosen;
  const bool any_emulator_option = !async_.empty() || !schedule_.empty() || emulator_seed_.has_value();
  if (!device_.empty() && device_ != "emulator") {
    const int ordinal = parse_ordinal(device_);
    if (!target_.empty()) {
      refuse(fmt::format("--device {} runs on that GPU, so --target {} has no meaning: leave one of them out", device_,
                         target_));
    }
    if (any_emulator_option)
      refuse(fmt::format("--async, --schedule and --emulator-seed belong to the emulator, not to {}", device_));
    chosen.ordinal = ordinal;
    chosen.spec = find_gpu(ordinal).spec;
  } else if (device_ == "emulator" || !target_.empty() || any_emulator_option) {
    chosen.spec = find_device(target_.empty() ? kDefaultTarget : target_);
    if (target_.empty()) chosen.why = fmt::format("no --target given: the emulator stands for an {}", kDefaultTarget);
  } else {
    std::string why;
    const std::vector<CudaDeviceInfo> gpus = list_cuda_devices(&why);
    if (gpus.empty()) {
      chosen.spec = find_device(kDefaultTarget);
      // The reason without the advice that follows it: the advice has just been taken.
      chosen.why =
          fmt::format("no GPU here ({}): using the emulator of an {}", why.substr(0, why.find(';')), kDefaultTarget);
    } else {
      chosen.ordinal = gpus.front().ordinal;
      chosen.spec = gpus.front().spec;
      chosen.why = fmt::format("no --device given: using cuda:{}, {}", chosen.ordinal, chosen.spec.name);
    }
  }
  chosen.name = chosen.is_cuda() ? fmt::format("cuda:{}", chosen.ordinal) : "emulator";
  emulator_options();
  return chosen;
}

std::shared_ptr<Device> DeviceOptions::open(const ChosenDevice& chosen) const {
  return chosen.is_cuda() ? open_cuda_device(chosen.ordinal) : make_emulator_device(chosen.spec, emulator_options());
}

EmulatorOptions DeviceOptions::emulator_options() const {
  EmulatorOptions options;
  if (async_ == "lazy") {
    options.async = AsyncMode::lazy;
  } else if (!async_.empty() && async_ != "eager") {
    refuse(fmt::format("--async {}: expected eager or lazy", async_));
  }
  if (schedule_ == "random") {
    options.schedule = ScheduleMode::random;
  } else if (!schedule_.empty() && schedule_ != "round-robin") {
    refuse(fmt::format("--schedule {}: expected round-robin or random", schedule_));
  }
  if (emulator_seed_) {
    if (options.schedule != ScheduleMode::random)
      refuse("--emulator-seed seeds the random schedule: add --schedule random");
    options.seed = *emulator_seed_;
  }
  return options;
}

}  // namespace attune::cli
