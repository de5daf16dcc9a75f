#include "tuner/cli/device_options.h"

#include <fmt/core.h>

#include <charconv>
#include <vector>

#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "tuner/cli/validators.h"
#include "tuner/worker.h"

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
  add_to_group(verb, "cuda:N or emulator (default: cuda:0 if there is a GPU, else emulator)");
}

void DeviceOptions::add_several_to(CLI::App& verb) {
  add_to_group(
      verb,
      "cuda:N, several GPUs of one model as cuda:0,1,3 or all, or emulator (default: cuda:0 if there is a GPU, "
      "else emulator)");
}

void DeviceOptions::add_to_group(CLI::App& verb, const std::string& device_help) {
  const char* group = "Device";
  verb.add_option("--device", device_, device_help)->check(not_empty())->group(group);
  verb.add_option("--target", target_, "a GPU that is not here: h200, a100, rtx4090, sm_90a, ...; see `attune devices`")
      ->check(not_empty())
      ->group(group);
}

void DeviceOptions::add_to(CLI::App& verb) {
  add_target_to(verb);
  const char* group = "Device";
  verb.add_option("--async", async_,
                  "emulator: asynchronous copies land at issue (eager, default) or as late as allowed (lazy)")
      ->check(not_empty())
      ->group(group);
  verb.add_option("--schedule", schedule_, "emulator: order of warps and CTAs, round-robin (default) or random")
      ->check(not_empty())
      ->group(group);
  verb.add_option("--emulator-seed", emulator_seed_, "emulator: seed of the random schedule")
      ->transform(whole_number<std::uint64_t>())
      ->group(group);
}

ChosenDevice DeviceOptions::choose() const { return choose(device_); }

std::vector<ChosenDevice> DeviceOptions::choose_several() const {
  std::vector<std::string> names;
  if (device_ == "all" || device_ == "cuda:all") {
    std::string why;
    for (const CudaDeviceInfo& gpu : list_cuda_devices(&why)) names.push_back(fmt::format("cuda:{}", gpu.ordinal));
    if (names.empty()) {
      throw Error(ErrorCode::no_device, fmt::format("--device {} needs a GPU, and none can be used here: {}. --device "
                                                    "emulator runs without one",
                                                    device_, why));
    }
  } else if (device_.find(',') != std::string::npos) {
    names = device_names(device_);
  } else {
    return {choose()};
  }
  std::vector<ChosenDevice> chosen;
  for (const std::string& name : names) {
    chosen.push_back(choose(name));
    const DeviceSpec &first = chosen.front().spec, &spec = chosen.back().spec;
    if (spec.name != first.name || spec.sm_count != first.sm_count) {
      refuse(fmt::format("--device {}: {} is an {} with {} SMs, {} an {} with {}; choose GPUs of one model", device_,
                         chosen.front().name, first.name, first.sm_count, name, spec.name, spec.sm_count));
    }
  }
  return chosen;
}

ChosenDevice DeviceOptions::choose(const std::string& device) const {
  ChosenDevice chosen;
  const bool any_emulator_option = !async_.empty() || !schedule_.empty() || emulator_seed_.has_value();
  if (!device.empty() && device != "emulator") {
    const int ordinal = parse_ordinal(device);
    if (!target_.empty()) {
      refuse(fmt::format("--device {} runs on that GPU, so --target {} has no meaning: leave one of them out", device,
                         target_));
    }
    if (any_emulator_option)
      refuse(fmt::format("--async, --schedule and --emulator-seed belong to the emulator, not to {}", device));
    chosen.ordinal = ordinal;
    chosen.spec = find_gpu(ordinal).spec;
  } else if (device == "emulator" || !target_.empty() || any_emulator_option) {
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
