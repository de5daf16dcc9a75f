#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/plan/kernel_plan.h"
#include "runtime/device.h"

namespace attune::tests {

/// A kernel of a few lines around the primitives. Its body sees `args.in` and `args.out`, all primitives, and
///   in_u32(args, i), in_f32(args, i), in_f64(args, i)     the i-th 4 or 8 bytes of the input
///   out_u32(args, i, x), out_f32(args, i, x)              the i-th 4 bytes of the output
/// With `sm90`, also Hopper's primitives and the tensor maps `args.in_map` and `args.out_map`.
struct TestKernel {
  std::string body;
  int threads = 32;
  std::size_t shared_bytes = 0;
  std::uint32_t grid = 1;
  bool sm90 = false;
  int cluster = 1;
  std::string dtype = "bf16";                    // of wgmma
  std::vector<int> wgmma_ns = {8};               // the shapes that it uses
  std::optional<TensorMapRequest> in_map = {};   // address: from the beginning of the input
  std::optional<TensorMapRequest> out_map = {};  // and of the output
};

KernelLaunch launch_of(const TestKernel& kernel, KernelTarget target, const std::string& arch);

/// Compiles the kernel for the device and runs it on a copy of `input`; returns the output, poisoned with 0xff
/// beforehand.
std::vector<std::uint8_t> run_kernel(const std::shared_ptr<Device>& device, const TestKernel& kernel,
                                     const std::vector<std::uint8_t>& input, std::size_t output_bytes);

template <typename T>
std::vector<std::uint8_t> bytes_of(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

template <typename T>
std::vector<T> values_of(const std::vector<std::uint8_t>& bytes) {
  const auto* begin = reinterpret_cast<const T*>(bytes.data());
  return {begin, begin + bytes.size() / sizeof(T)};
}

}  // namespace attune::tests
