#pragma once

#include <cstdint>
#include <span>

namespace attune {

/// What templates/kernels/checksum.cu computes, and documents. Any change of the elements of one word of 64 bits shows;
/// changes of several cancel as rarely as random numbers would.
std::uint64_t checksum(std::span<const std::uint16_t> elements);

}  // namespace attune
