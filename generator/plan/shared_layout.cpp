#include "generator/plan/shared_layout.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "generator/error.h"
#include "generator/rounding.h"

namespace attune {

std::size_t SharedBuffer::bytes() const {
  std::size_t bytes = element_bytes;
  for (const int dim : dims) {
    if (dim > 0) bytes *= static_cast<std::size_t>(dim);
  }
  return bytes;
}

std::string SharedBuffer::picture() const {
  std::string text = label;
  if (dims.front() > 0) text += "  ";
  for (const int dim : dims) {
    if (dim > 0) text += fmt::format("[{}]", dim);
  }
  return text + note;
}

void SharedLayout::add(SharedBuffer buffer, std::size_t alignment) {
  if (count_ == kMost) throw Error(ErrorCode::internal, "a shared layout has too many buffers");
  buffer.offset = round_up(bytes_, alignment);
  bytes_ = buffer.offset + buffer.bytes();
  buffers_.at(count_++) = buffer;
}

void SharedLayout::add_alias(const char* name, const char* buffer) {
  if (count_ == kMost) throw Error(ErrorCode::internal, "a shared layout has too many buffers");
  buffers_.at(count_) = {.name = name, .offset = offset(buffer)};
  ++count_;
}

std::size_t SharedLayout::offset(std::string_view name) const {
  for (const SharedBuffer& buffer : buffers()) {
    if (buffer.name == name) return buffer.offset;
  }
  throw Error(ErrorCode::internal, fmt::format("shared memory has no buffer {}", name));
}

void SharedLayout::bind(TemplateBindings* bindings) const {
  constexpr std::size_t kDigits = 6;
  auto& shown = bindings->lists["shared_buffers"];
  auto& offsets = bindings->lists["shared_offsets"];
  const auto show = [&](std::size_t offset, std::string picture) {
    shown.push_back({{"offset", fmt::format("{:>{}}", offset, kDigits)}, {"picture", std::move(picture)}});
  };
  for (const SharedBuffer& buffer : buffers()) {
    offsets.push_back({{"name", buffer.name}, {"offset", std::to_string(buffer.offset)}});
    if (*buffer.label != 0) show(buffer.offset, buffer.picture());
  }
  show(bytes_, "end");
}

}  // namespace attune
