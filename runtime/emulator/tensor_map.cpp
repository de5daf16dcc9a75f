#include "runtime/emulator/tensor_map.h"

#include <fmt/format.h>

#include "generator/error.h"

namespace attune {
namespace {

constexpr std::uint64_t kMaxDim = std::uint64_t{1} << 32;
constexpr std::uint64_t kStrideLimit = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxBox = 256;
constexpr std::uint32_t kTensorAlignment = 16;

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::invalid_argument, "tensor map: " + what);
}

}  // namespace

EmulatedTensorMap encode_emulated_tensor_map(const TensorMapRequest& request) {
  require(request.address % kTensorAlignment == 0,
          fmt::format("the address {:#x} is not a multiple of {}", request.address, kTensorAlignment));
  require(request.rank == 4 || request.rank == 5, fmt::format("{} dimensions; kernels have 4 or 5", request.rank));
  const auto rank = static_cast<std::size_t>(request.rank);
  for (std::size_t i = 0; i < rank; ++i) {
    require(request.dims[i] >= 1 && request.dims[i] <= kMaxDim,
            fmt::format("dim {} is {}; it must be 1 to 2^32", i, request.dims[i]));
    require(request.box[i] >= 1 && request.box[i] <= kMaxBox,
            fmt::format("the box is {} along dim {}; it must be 1 to {}", request.box[i], i, kMaxBox));
  }
  for (std::size_t i = 0; i + 1 < rank; ++i) {
    const std::uint64_t stride = request.strides_bytes[i];
    require(stride % kTensorAlignment == 0,
            fmt::format("the stride of dim {} is {} bytes, which is not a multiple of {}", i + 1, stride,
                        kTensorAlignment));
    require(stride < kStrideLimit,
            fmt::format("the stride of dim {} is {} bytes; it must be below 2^40", i + 1, stride));
  }
  const int swizzle = request.swizzle_bytes;
  require(swizzle == 0 || swizzle == 32 || swizzle == 64 || swizzle == 128,
          fmt::format("a swizzle of {} bytes; there are those of 0, 32, 64 and 128", swizzle));
  const auto element_bytes = static_cast<std::uint32_t>(size_of(request.element));
  const std::uint32_t row_bytes = request.box[0] * element_bytes;
  require(row_bytes % kTensorAlignment == 0,
          fmt::format("a row of the box has {} bytes, which is not a multiple of {}", row_bytes, kTensorAlignment));
  require(swizzle == 0 || row_bytes <= static_cast<std::uint32_t>(swizzle),
          fmt::format("a row of the box has {} bytes; a swizzle of {} takes no more than that", row_bytes, swizzle));

  EmulatedTensorMap map;
  map.magic = EmulatedTensorMap::kMagic;
  map.address = request.address;
  map.rank = static_cast<std::uint32_t>(rank);
  for (std::size_t i = 0; i < map.dims.size(); ++i) {
    if (i >= rank) continue;
    map.dims[i] = request.dims[i];
    map.box[i] = request.box[i];
    if (i > 0) map.strides_bytes[i - 1] = request.strides_bytes[i - 1];
  }
  map.element_bytes = element_bytes;
  map.swizzle_bytes = static_cast<std::uint32_t>(swizzle);
  return map;
}

}  // namespace attune
