#include "runtime/emulator/emulator_device.h"

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "generator/error.h"
#include "runtime/emulator/device_memory.h"
#include "runtime/emulator/grid_runner.h"
#include "runtime/emulator/host_compiler.h"
#include "runtime/emulator/kernel_services.h"
#include "runtime/emulator/loaded_object.h"
#include "runtime/emulator/tensor_map.h"

namespace attune {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxCluster = 8;                  // what every GPU with clusters takes
constexpr std::size_t kArgumentAlignment = 64;  // of tensor maps in arguments

class EmulatedKernel final : public CompiledKernel {
 public:
  using Entry = void (*)(const void*);

  // Opens the object; entry() is null, and why_not() says why, if it cannot be used.
  EmulatedKernel(std::shared_ptr<Device> device, const KernelLaunch& launch, const HostObject& object)
      : device_(std::move(device)),
        name_(launch.entry),
        threads_(launch.threads),
        cluster_(launch.cluster),
        argument_bytes_(launch.arguments.bytes),
        object_(object.bytes) {
    resources_.shared_bytes = launch.shared_bytes;
    resources_.log = object.log;
    resources_.compile_ms = object.compile_ms;
    resources_.from_cache = object.from_cache;
    why_not_ = object_.why_not();
    if (!why_not_.empty()) return;
    const auto bind = reinterpret_cast<bool (*)(const KernelServices*)>(object_.find("attune_emulator_bind"));
    entry_ = reinterpret_cast<Entry>(object_.find("attune_emulator_entry"));
    async_proxy_ = object_.find("attune_emulator_async_proxy") != nullptr;
    if (!bind || !entry_) {
      why_not_ = "it does not export attune_emulator_bind and attune_emulator_entry";
      entry_ = nullptr;
    } else if (!bind(&kernel_services())) {
      why_not_ = "its prelude is for another version of the emulator";
      entry_ = nullptr;
    }
  }

  const Device* device() const { return device_.get(); }
  const std::string& name() const { return name_; }
  int threads() const { return threads_; }
  int cluster() const { return cluster_; }
  bool async_proxy() const { return async_proxy_; }
  std::size_t argument_bytes() const { return argument_bytes_; }
  Entry entry() const { return entry_; }
  const std::string& why_not() const { return why_not_; }

 private:
  std::shared_ptr<Device> device_;
  std::string name_;
  int threads_;
  int cluster_;
  bool async_proxy_ = false;  // rendered with Hopper's instructions
  std::size_t argument_bytes_;
  LoadedObject object_;
  Entry entry_ = nullptr;
  std::string why_not_;
};

class EmulatorDevice final : public Device, public std::enable_shared_from_this<EmulatorDevice> {
 public:
  EmulatorDevice(const DeviceSpec& spec, const EmulatorOptions& options) : spec_(spec), options_(options) {}

  const DeviceSpec& spec() const override { return spec_; }
  KernelTarget target() const override { return KernelTarget::emulator; }
  std::string description() const override { return "emulator of " + spec_.key; }
  Toolchain toolchain() const override { return {host_compiler_version(), "emulator"}; }

  std::shared_ptr<const CompiledKernel> compile(const KernelLaunch& launch) override {
    if (launch.target != KernelTarget::emulator) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("kernel {} was rendered for CUDA; the emulator runs what is rendered for the emulator",
                              launch.entry));
    }
    if (launch.threads <= 0 || launch.threads > kMaxThreads || launch.threads % 32 != 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("kernel {} wants {} threads in a CTA; it must be a multiple of 32 up to {}", launch.entry,
                              launch.threads, kMaxThreads));
    }
    if (launch.cluster < 1 || launch.cluster > kMaxCluster) {
      throw Error(ErrorCode::invalid_argument, fmt::format("kernel {} wants clusters of {} CTAs; they have 1 to {}",
                                                           launch.entry, launch.cluster, kMaxCluster));
    }
    if (launch.shared_bytes > static_cast<std::size_t>(spec_.shared_bytes_per_block)) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("kernel {} wants {} bytes of shared memory; {} has {} for a CTA", launch.entry,
                              launch.shared_bytes, spec_.key, spec_.shared_bytes_per_block));
    }
    auto kernel = std::make_shared<EmulatedKernel>(shared_from_this(), launch, compile_for_host(launch.source));
    if (!kernel->entry()) {  // of another machine that shares the folder, with another C library
      kernel = std::make_shared<EmulatedKernel>(shared_from_this(), launch, compile_for_host(launch.source, true));
    }
    if (!kernel->entry()) {
      throw Error(ErrorCode::compile_failed, fmt::format("kernel {} compiled for the emulator but cannot be loaded: {}",
                                                         launch.entry, kernel->why_not()));
    }
    return kernel;
  }

  DevicePointer allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  void free(DevicePointer pointer) noexcept override { memory_.free(pointer); }
  std::size_t free_bytes() const override { return DeviceMemory::free_bytes(); }

  void copy_to_device(DevicePointer to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    memory_.check("a copy to the device", to, bytes);
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  }
  void copy_from_device(void* to, DevicePointer from, std::size_t bytes) override {
    if (bytes == 0) return;
    memory_.check("a copy from the device", from, bytes);
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  void fill(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream) override {
    if (bytes == 0) return;
    memory_.check("a fill", to, bytes);
    std::memset(reinterpret_cast<void*>(to), value, bytes);
  }

  void launch(const CompiledKernel& kernel, std::uint32_t grid_x, const void* arguments, std::size_t bytes,
              Stream) override {
    const auto* mine = dynamic_cast<const EmulatedKernel*>(&kernel);
    if (!mine || mine->device() != this) {
      throw Error(ErrorCode::invalid_argument, "a kernel can only be launched on the device that compiled it");
    }
    if (bytes != mine->argument_bytes()) {
      throw Error(ErrorCode::invalid_argument, fmt::format("kernel {} takes {} bytes of arguments; the launch has {}",
                                                           mine->name(), mine->argument_bytes(), bytes));
    }
    if (grid_x == 0)
      throw Error(ErrorCode::invalid_argument, fmt::format("kernel {} launched with an empty grid", mine->name()));
    if (grid_x % static_cast<std::uint32_t>(mine->cluster()) != 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("kernel {} has clusters of {} CTAs; a grid of {} does not fit", mine->name(),
                              mine->cluster(), grid_x));
    }
    const std::shared_ptr<const MemoryMap> map = memory_.map();
    std::vector<std::byte> aligned(bytes + kArgumentAlignment);
    void* place = aligned.data();
    std::size_t space = aligned.size();
    std::align(kArgumentAlignment, bytes, place, space);
    if (bytes) std::memcpy(place, arguments, bytes);
    const EmulatorTraffic traffic = run_grid({.entry = mine->entry(),
                                              .arguments = place,
                                              .kernel = mine->name(),
                                              .grid = grid_x,
                                              .threads = mine->threads(),
                                              .shared_bytes = mine->resources().shared_bytes,
                                              .cluster = mine->cluster(),
                                              .async_proxy = mine->async_proxy(),
                                              .options = options_},
                                             *map);
    read_bytes_ += traffic.read_bytes;
    written_bytes_ += traffic.written_bytes;
  }
  EmulatorTraffic traffic() const { return {read_bytes_, written_bytes_}; }

  void synchronize(Stream) override {
    const std::string complaint = memory_.take_complaint();
    if (!complaint.empty()) throw Error(ErrorCode::emulator, "emulator: " + complaint);
  }

  void encode_tensor_map(const TensorMapRequest& request, void* to) const override {
    if (!spec_.has_tma) return Device::encode_tensor_map(request, to);
    const EmulatedTensorMap map = encode_emulated_tensor_map(request);
    std::memcpy(to, &map, sizeof map);
  }

  bool can_time() const override { return false; }

 private:
  DeviceSpec spec_;
  EmulatorOptions options_;
  DeviceMemory memory_;
  std::atomic<std::uint64_t> read_bytes_{0}, written_bytes_{0};
};

}  // namespace

std::shared_ptr<Device> make_emulator_device(const DeviceSpec& spec, const EmulatorOptions& options) {
  return std::make_shared<EmulatorDevice>(spec, options);
}

EmulatorTraffic traffic_of(const Device& emulator) {
  const auto* device = dynamic_cast<const EmulatorDevice*>(&emulator);
  if (device == nullptr) throw Error(ErrorCode::internal, emulator.description() + " is no emulator");
  return device->traffic();
}

std::string to_string(const EmulatorOptions& options) {
  const char* async = options.async == AsyncMode::lazy ? "lazy" : "eager";
  if (options.schedule == ScheduleMode::round_robin) return fmt::format("async={} schedule=round_robin", async);
  return fmt::format("async={} schedule=random({})", async, options.seed);
}

}  // namespace attune
