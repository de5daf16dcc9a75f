#include "tuner/trial/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <streambuf>

#include "generator/error.h"
#include "generator/generate.h"
#include "runtime/cuda/cubin_cache.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"
#include "runtime/system/json_text.h"
#include "runtime/system/template_folder.h"
#include "tuner/database/measurement_json.h"
#include "tuner/trial/trial.h"
#include "tuner/trial/worker_supervisor.h"

namespace attune {
namespace {

using nlohmann::json;

// Writes to a file descriptor; what cannot be written ends the stream.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(int descriptor) : descriptor_(descriptor) {
    setp(bytes_.data(), bytes_.data() + bytes_.size());
  }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) {
      *pptr() = traits_type::to_char_type(c);
      pbump(1);
    }
    return traits_type::not_eof(c);
  }
  int sync() override {
    for (const char* from = pbase(); from < pptr();) {
      const ssize_t written = ::write(descriptor_, from, static_cast<std::size_t>(pptr() - from));
      if (written <= 0) return -1;
      from += written;
    }
    setp(bytes_.data(), bytes_.data() + bytes_.size());
    return 0;
  }

 private:
  int descriptor_;
  std::array<char, 1 << 16> bytes_;
};

// The default stream's errors that stick to the process show here again.
bool device_works(Device& device) {
  try {
    device.synchronize(nullptr);
    return true;
  } catch (const Error&) {
    return false;
  }
}

class Worker {
 public:
  // The answer to a request; `last` is set if the process should end after it.
  json answer(const json& request, bool& last) {
    const std::string op = request.at("op");
    device_name_ = request.at("device");
    spec_ = device_spec_from_json(request.at("spec"));
    if (op == "identify") return identify();
    if (op == "prepare") return prepare(request);
    problem_ = parse_problem(request.at("problem").get<std::string>());
    if (op == "race") return race(request, last);
    config_ = parse_config(request.at("config").get<std::string>());
    if (op == "compile") return compile();
    if (op == "trial") return trial(request, last);
    throw Error(ErrorCode::invalid_argument, fmt::format("a worker knows no request \"{}\"", op));
  }

 private:
  bool is_emulator() const { return device_name_ == "emulator"; }

  static std::uint64_t seed_of(const json& request) {
    return JsonView(request, "a request").at("seed").whole<std::uint64_t>();
  }

  const std::shared_ptr<Device>& device() {
    if (!device_ || opened_name_ != device_name_ || (is_emulator() && !(device_->spec() == spec_))) {
      bench_.reset();
      device_ = open_device(device_name_, spec_);
      opened_name_ = device_name_;
    }
    return device_;
  }

  TrialBench& bench(std::uint64_t seed) {
    const std::shared_ptr<Device>& on = device();
    if (!bench_ || !(bench_problem_ == problem_) || bench_seed_ != seed) {
      bench_.reset();
      bench_ = std::make_unique<TrialBench>(on, problem_, seed);
      bench_problem_ = problem_;
      bench_seed_ = seed;
    }
    return *bench_;
  }

  json identify() {
    const std::shared_ptr<Device>& on = device();
    const Toolchain toolchain = on->toolchain();
    json answer = {{"device_name", on->spec().name},
                   {"sm_count", on->spec().sm_count},
                   {"compiler", toolchain.compiler},
                   {"driver", toolchain.driver},
                   {"can_time", on->can_time()}};
    answer.update(node_gpu_to_json(on->node_gpu()));
    return answer;
  }

  json prepare(const json& request) {
    if (!device()->can_time()) return {{"prepared", false}};  // each trial there has a problem of its own
    problem_ = parse_problem(request.at("problem").get<std::string>());
    try {
      bench(seed_of(request)).make_reference();
    } catch (const Error& error) {
      // Too little memory is what the trials will say.
      if (status_of(error) != MeasurementStatus::out_of_memory) throw;
    }
    return {{"prepared", true}};
  }

  // Fills the cache on disk. For a GPU this needs no GPU: many processes do it at once.
  json compile() {
    bool from_cache = true, stored = true;
    try {
      const KernelTarget target = is_emulator() ? KernelTarget::emulator : KernelTarget::cuda;
      const KernelPlan plan = generate(problem_, config_, spec_, runtime_templates(), target);
      for (const KernelLaunch& launch : plan.launches) {
        const bool was_there = is_emulator() ? device()->compile(launch)->resources().from_cache
                                             : cubins_.get(launch).resources.from_cache;
        from_cache = from_cache && was_there;
        // A cache that takes nothing, as on a full disk, is no failure of a kernel.
        stored = stored && (was_there || is_emulator() || cubins_.holds(launch));
      }
    } catch (const Error& error) {
      const auto status = status_of(error);
      if (!status) throw;
      return {{"status", to_string(*status)}, {"reason", error.what()}};
    }
    return {
        {"status", to_string(MeasurementStatus::ok)}, {"reason", ""}, {"from_cache", from_cache}, {"stored", stored}};
  }

  json trial(const json& request, bool& last) {
    const TrialOptions options = trial_options_from_json(request.at("options"));
    try {
      return {{"measurement", measurement_to_json(bench(seed_of(request)).run(config_, options))}};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::driver) throw;
      last = !device_works(*device());
      return {{"failed", to_string(*status_of(error))}, {"reason", error.what()}};
    }
  }

  json race(const json& request, bool& last) {
    const RaceOptions options = race_options_from_json(request.at("options"));
    std::vector<KernelConfig> configs;
    for (const json& config : request.at("configs")) configs.push_back(parse_config(config.get<std::string>()));
    try {
      const RaceTimes times = bench(seed_of(request)).race(configs, options);
      if (!times.complaint.empty())
        return {{"failed", to_string(MeasurementStatus::launch_failed)}, {"reason", times.complaint}};
      json race = {{"samples_us", times.samples_us}, {"clocks_mhz", times.clocks_mhz}, {"protocol", times.protocol}};
      if (options.wide) race["wide_samples_us"] = times.wide_samples_us;
      return {{"race", std::move(race)}};
    } catch (const Error& error) {
      const auto status = status_of(error);
      if (!status) throw;
      last = !device_works(*device());
      return {{"failed", to_string(*status)}, {"reason", error.what()}};
    }
  }

  std::string device_name_, opened_name_;
  DeviceSpec spec_;
  AttentionProblem problem_, bench_problem_;
  KernelConfig config_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<TrialBench> bench_;
  std::uint64_t bench_seed_ = 0;
  CubinCache cubins_;
};

}  // namespace

std::shared_ptr<Device> open_device(const std::string& name, const DeviceSpec& spec) {
  if (name == "emulator") return make_emulator_device(spec);
  return open_cuda_device(cuda_ordinal(name));
}

int cuda_ordinal(const std::string& name) {
  if (name == "emulator" || name == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  int ordinal = -1;
  if (name.starts_with(kPrefix)) {
    const char *begin = name.data() + kPrefix.size(), *end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(begin, end, ordinal);
    if (error != std::errc() || rest != end) ordinal = -1;
  }
  if (ordinal < 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("\"{}\" is no device: it may be cuda:N (N = 0, 1, ...) or emulator", name));
  }
  return ordinal;
}

std::vector<std::string> device_names(const std::string& list) {
  const std::size_t colon = list.find(':');
  std::vector<std::string> names;
  if (list.find(',') == std::string::npos || colon == std::string::npos) {
    names.push_back(list);
  } else {
    const std::string family = list.substr(0, colon + 1);
    for (std::size_t begin = colon + 1; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      names.push_back(family + list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    cuda_ordinal(names[i]);  // throws
    if (std::count(names.begin(), names.end(), names[i]) > 1)
      throw Error(ErrorCode::invalid_argument, fmt::format("\"{}\" names {} twice", list, names[i]));
  }
  return names;
}

int run_worker(std::istream& requests, std::ostream& answers) {
  Worker worker;
  for (std::string line; std::getline(requests, line);) {
    json answer;
    bool last = false;
    try {
      answer = worker.answer(parse_json(line, "a request"), last);
    } catch (const Error& error) {
      answer = {{"error", error.what()}, {"code", static_cast<int>(error.code())}};
    } catch (const json::exception& error) {
      answer = {{"error", fmt::format("a request is no request: {}", error.what())},
                {"code", static_cast<int>(ErrorCode::invalid_argument)}};
    } catch (const std::bad_alloc&) {
      answer = {{"error", "the worker ran out of host memory"}, {"code", static_cast<int>(ErrorCode::internal)}};
    }
    if (last) answer["last"] = true;
    answers << json_line(answer) << std::endl;
    if (last) return 1;
  }
  return 0;
}

int worker_main() {
  return supervise([] {
    // Libraries and compilers may print: that must not look like an answer.
    const int channel = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (channel < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
      throw Error(ErrorCode::io, "a worker needs an open standard output to answer on");
    }
    DescriptorBuffer buffer(channel);
    std::ostream answers(&buffer);
    return run_worker(std::cin, answers);
  });
}

}  // namespace attune
