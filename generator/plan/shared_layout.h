#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "generator/text/renderer.h"

namespace attune {

/// A buffer of a kernel's shared memory: elements in up to five dimensions.
struct SharedBuffer {
  const char* name = "";        ///< of the kernel's constant for its offset: "kQOffset"
  const char* label = "";       ///< in the picture at the kernel's head: "Q", "LSE and delta"
  std::array<int, 5> dims{};    ///< of elements, the last one contiguous; 0: no further dimension
  std::size_t element_bytes{};  ///< of a buffer without dimensions: its bytes
  const char* note = "";        ///< behind the dimensions: "   later O"
  std::size_t offset = 0;       ///< SharedLayout sets it

  std::size_t bytes() const;
  std::string picture() const;  ///< "K  [2][64][128]"
};

/// The shared memory of a kernel: its buffers one behind the other. The offsets that a kernel is compiled with, the
/// picture at its head and the bytes of its launch all come from here. A plain value without memory of its own, since a
/// search makes one for each config that it looks at.
class SharedLayout {
 public:
  static constexpr std::size_t kMost = 16;

  /// Lays a buffer behind the others, at a multiple of `alignment` bytes. At most kMost of them.
  void add(SharedBuffer buffer, std::size_t alignment = 1);
  /// Lets a name stand for the place of a buffer that is there already, and comes to lie there later.
  void add_alias(const char* name, const char* buffer);

  std::size_t bytes() const { return bytes_; }
  std::span<const SharedBuffer> buffers() const { return {buffers_.data(), count_}; }
  /// Throws Error(internal) if there is no such buffer.
  std::size_t offset(std::string_view name) const;

  /// Fills the lists `shared_offsets`, a constant for each buffer, and `shared_buffers`, the picture, whose last line
  /// is the end.
  void bind(TemplateBindings* bindings) const;

 private:
  std::array<SharedBuffer, kMost> buffers_{};
  std::size_t count_ = 0, bytes_ = 0;
};

}  // namespace attune
