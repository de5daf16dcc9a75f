#include "tuner/cli/device_options.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "tuner/cli/suggestion.h"
#include "tuner/trial/worker.h"

namespace attune::cli {
namespace {

constexpr const char* kDefaultTarget = "h200";

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

// GPUs that people ask for and that are older than what is generated.
const std::vector<std::string> kTooOld = {"v100",    "titanv",    "t4",       "p100",      "p40",     "p4",
                                          "k80",     "m60",       "gtx1080",  "gtx1080ti", "rtx2060", "rtx2070",
                                          "rtx2080", "rtx2080ti", "titanrtx", "rtx6000",   "rtx8000", "xavier"};

std::vector<std::string> target_keys() {
  std::vector<std::string> keys;
  for (const DeviceSpec& device : known_devices()) keys.push_back(device.key);
  return keys;
}

// find_device(), with what was probably meant, or why there is none of that name.
const DeviceSpec& find_target(const std::string& name) {
  try {
    return find_device(name);
  } catch (const Error& error) {
    std::string key;
    for (const char letter : name) {
      if (std::isalnum(static_cast<unsigned char>(letter)) != 0)
        key += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
    if (key.starts_with("nvidia")) key = key.substr(6);
    if (key.starts_with("tesla")) key = key.substr(5);
    int capability = 0;
    const bool sm =
        key.starts_with("sm") && std::from_chars(key.data() + 2, key.data() + key.size(), capability).ec == std::errc{};
    if ((sm && capability < 80) || std::find(kTooOld.begin(), kTooOld.end(), key) != kTooOld.end()) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("--target {}: needs compute capability 8.0, and this GPU is older; known targets: {}",
                              name, fmt::join(target_keys(), ", ")));
    }
    throw Error(error.code(), fmt::format("--target {}: {}{}", name, error.what(), did_you_mean(name, target_keys())));
  }
}

}  // namespace

void DeviceOptions::add_target_to(CommandLine& verb) {
  add_to_group(verb, "cuda:N or emulator (default: cuda:0 if there is a GPU, else emulator)");
}

void DeviceOptions::add_several_to(CommandLine& verb) {
  add_to_group(
      verb,
      "cuda:N, several GPUs of one model as cuda:0,1,3 or all, or emulator (default: cuda:0 if there is a GPU, "
      "else emulator)");
}

void DeviceOptions::add_to_group(CommandLine& verb, const std::string& device_help) {
  const char* group = "Device";
  verb.add_option("--device", device_, device_help).group(group);
  verb.add_option("--target", target_, "a GPU that is not here: h200, a100, rtx4090, sm_90a, ...; see `attune devices`")
      .group(group)
      .suggest(target_keys());
}

void DeviceOptions::add_to(CommandLine& verb) {
  add_target_to(verb);
  const char* group = "Device";
  verb.add_option("--async", async_,
                  "emulator: asynchronous copies land at issue (eager, default) or as late as allowed (lazy)")
      .group(group)
      .suggest({"eager", "lazy"});
  verb.add_option("--schedule", schedule_, "emulator: order of warps and CTAs, round-robin (default) or random")
      .group(group)
      .suggest({"round-robin", "random"});
  verb.add_option("--emulator-seed", emulator_seed_, "emulator: seed of the random schedule").group(group);
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
    chosen.spec = find_target(target_.empty() ? kDefaultTarget : target_);
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
    refuse(fmt::format("--async {}: expected eager or lazy{}", async_, did_you_mean(async_, {"eager", "lazy"})));
  }
  if (schedule_ == "random") {
    options.schedule = ScheduleMode::random;
  } else if (!schedule_.empty() && schedule_ != "round-robin") {
    refuse(fmt::format("--schedule {}: expected round-robin or random{}", schedule_,
                       did_you_mean(schedule_, {"round-robin", "random"})));
  }
  if (emulator_seed_) {
    if (options.schedule != ScheduleMode::random)
      refuse("--emulator-seed seeds the random schedule: add --schedule random");
    options.seed = *emulator_seed_;
  }
  return options;
}

}  // namespace attune::cli
