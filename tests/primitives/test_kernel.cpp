#include "tests/primitives/test_kernel.h"

#include <cstring>

#include "generator/families/shared/wgmma_shapes.h"
#include "generator/text/renderer.h"
#include "generator/text/template_set.h"

namespace attune::tests {
namespace {

constexpr const char* kFrame = R"(//% include tests/primitives

struct Arguments {
  const void* in;
  void* out;
  //% if sm90
  TensorMap in_map;
  TensorMap out_map;
  //% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

union Single {
  u32 bits;
  float number;
};
union Double {
  u64 bits;
  double number;
};
__device__ __forceinline__ const char* in_bytes(const Arguments& args, u32 at) { return static_cast<const char*>(args.in) + at; }
__device__ __forceinline__ char* out_bytes(const Arguments& args, u32 at) { return static_cast<char*>(args.out) + at; }
__device__ __forceinline__ u32 in_u32(const Arguments& args, u32 i) {
  return ld_global_b16(in_bytes(args, 4 * i)) | static_cast<u32>(ld_global_b16(in_bytes(args, 4 * i + 2))) << 16;
}
__device__ __forceinline__ float in_f32(const Arguments& args, u32 i) {
  Single x;
  x.bits = in_u32(args, i);
  return x.number;
}
__device__ __forceinline__ double in_f64(const Arguments& args, u32 i) {
  Double x;
  x.bits = in_u32(args, 2 * i) | static_cast<u64>(in_u32(args, 2 * i + 1)) << 32;
  return x.number;
}
__device__ __forceinline__ void out_f32(const Arguments& args, u32 i, float x) { st_global_f32(out_bytes(args, 4 * i), x); }
__device__ __forceinline__ void out_u32(const Arguments& args, u32 i, u32 bits) {
  Single x;
  x.bits = bits;
  out_f32(args, i, x.number);
}

extern "C" __global__ void __launch_bounds__(${threads}) ${entry}(const __grid_constant__ Arguments args) {
  const u32 thread = thread_index();
  //% include tests/body
}
//% include primitives/entry/${target}
)";

}  // namespace

KernelLaunch launch_of(const TestKernel& kernel, KernelTarget target, const std::string& arch) {
  std::map<std::string, std::string> texts = TemplateSet::embedded().texts();
  texts["tests/frame"] = kFrame;
  texts["tests/body"] = kernel.body;
  texts["tests/primitives"] = kernel.sm90 ? "//% include primitives/wgmma\n" : "//% include primitives/mma_sync\n";

  KernelLaunch launch;
  std::vector<KernelArgument> fields = {Pointer{Operand::q}, Pointer{Operand::o}};  // two pointers
  if (kernel.sm90) fields.insert(fields.end(), {TensorMap{Operand::q}, TensorMap{Operand::o}});
  launch.arguments = ArgumentLayout::of(fields);
  launch.entry = "primitive_test";
  launch.arch = arch;
  launch.target = target;
  launch.threads = kernel.threads;
  launch.shared_bytes = kernel.shared_bytes;
  launch.rows_per_tile = 1;
  launch.cluster = kernel.cluster;
  TemplateBindings bindings;
  bindings.set("target", target == KernelTarget::cuda ? "cuda" : "emulator");
  bindings.set("argument_bytes", static_cast<std::int64_t>(launch.arguments.bytes));
  bindings.set("threads", kernel.threads);
  bindings.set("entry", launch.entry);
  bindings.conditions["sm90"] = kernel.sm90;
  if (kernel.sm90) {
    bindings.set("dtype", kernel.dtype);
    bindings.lists["wgmma_shapes"] = wgmma_shapes(kernel.wgmma_ns, target);
  }
  RenderedText rendered = render(TemplateSet(std::move(texts)), "tests/frame", bindings);
  launch.source = std::move(rendered.text);
  launch.lines = std::move(rendered.lines);
  return launch;
}

std::vector<std::uint8_t> run_kernel(const std::shared_ptr<Device>& device, const TestKernel& kernel,
                                     const std::vector<std::uint8_t>& input, std::size_t output_bytes) {
  const KernelLaunch launch = launch_of(kernel, device->target(), arch_name(device->spec()));
  const auto compiled = device->compile(launch);
  const DeviceBuffer in(device, input.size());
  const DeviceBuffer out(device, output_bytes);
  if (!input.empty()) device->copy_to_device(in.pointer(), input.data(), input.size());
  device->fill(out.pointer(), 0xff, output_bytes);
  std::vector<std::uint8_t> arguments(launch.arguments.bytes);
  const auto put_map = [&](std::optional<TensorMapRequest> map, DevicePointer base, std::size_t field) {
    if (!map) return;
    map->address += base;
    device->encode_tensor_map(*map, arguments.data() + launch.arguments.offsets[field]);
  };
  const DevicePointer pointers[2] = {in.pointer(), out.pointer()};
  std::memcpy(arguments.data(), pointers, sizeof pointers);
  put_map(kernel.in_map, in.pointer(), 2);
  put_map(kernel.out_map, out.pointer(), 3);
  device->launch(*compiled, kernel.grid, arguments.data(), arguments.size(), nullptr);
  device->synchronize(nullptr);
  std::vector<std::uint8_t> output(output_bytes);
  device->copy_from_device(output.data(), out.pointer(), output_bytes);
  return output;
}

}  // namespace attune::tests
