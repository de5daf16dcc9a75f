#include "tests/kernels/placed_pairs.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace attune::tests {

namespace {

// Where elements of a tensor of pairs lie in an image of it, in elements.
struct PairLayout {
  OperandShape shape;
  std::int64_t element_bytes = 0, origin = 0, all = 0;
  std::int64_t stride_batch = 0, stride_head = 0, stride_row = 0;

  PairLayout(const AttentionProblem& problem, Operand operand, Placement placement)
      : shape(operand_shape(problem, operand)), element_bytes(size_of(shape.element)) {
    const std::int64_t chunk = 16 / element_bytes, unit = placement == Placement::reversed ? 1 : chunk;
    const bool gaps = placement != Placement::packed;
    stride_row = gaps ? (shape.columns / unit + 2) * unit : shape.columns;
    stride_head = shape.rows * stride_row + (gaps ? unit : 0);
    stride_batch = shape.heads * stride_head + (gaps ? 3 * unit : 0);
    all = shape.batch * stride_batch + 2 * unit;
    origin = unit;
    if (placement != Placement::reversed) return;
    origin += (shape.rows - 1) * stride_row;
    stride_row = -stride_row;
  }
  // Calls of f with the byte of the image where a row begins, in the order in which rows lie in a packed tensor.
  template <class F>
  void for_each_row(F f) const {
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        for (std::int64_t i = 0; i < shape.rows; ++i)
          f(static_cast<std::size_t>((origin + b * stride_batch + h * stride_head + i * stride_row) * element_bytes));
      }
    }
  }
  std::size_t row_bytes() const { return static_cast<std::size_t>(shape.columns * element_bytes); }
  std::vector<std::byte> image() const {
    return std::vector<std::byte>(static_cast<std::size_t>(all * element_bytes), std::byte{0xff});
  }
  // Strides of dimensions of extent 1 say nothing.
  TensorView view(const DeviceBuffer& buffer) const {
    TensorView view;
    view.data = reinterpret_cast<const void*>(buffer.pointer() + static_cast<std::uint64_t>(origin * element_bytes));
    view.stride_row = shape.rows == 1 ? 12345 : stride_row;
    view.stride_head = shape.heads == 1 ? -777 : stride_head;
    view.stride_batch = shape.batch == 1 ? 1 : stride_batch;
    return view;
  }
};

}  // namespace

PlacedPairs::PlacedPairs(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                         const TermValues& terms, Placement placement) {
  if (placement == Placement::packed) return;
  for (const Operand operand : term_inputs_of(problem)) {
    if (!is_of_pairs(operand)) continue;
    const PairLayout layout(problem, operand, placement);
    std::vector<std::byte> image = layout.image();
    const std::byte* from = terms.bytes(operand).data();
    layout.for_each_row([&](std::size_t at) {
      std::memcpy(&image[at], from, layout.row_bytes());
      from += layout.row_bytes();
    });
    DeviceBuffer buffer(device, image.size());
    device->copy_to_device(buffer.pointer(), image.data(), image.size());
    const TensorView view = layout.view(buffer);
    placed_.push_back({operand, std::move(buffer), view});
  }
}

void PlacedPairs::add_to(Tensors* tensors) const {
  for (const Placed& each : placed_) (*tensors)[each.operand] = each.view;
}

PlacedBiasGradient::PlacedBiasGradient(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                                       Placement placement)
    : device_(device), problem_(problem), placement_(placement) {
  const std::vector<std::byte> image = PairLayout(problem, Operand::d_bias, placement).image();
  buffer_ = DeviceBuffer(device, image.size());
  device->copy_to_device(buffer_.pointer(), image.data(), image.size());
}

TensorView PlacedBiasGradient::view() const { return PairLayout(problem_, Operand::d_bias, placement_).view(buffer_); }

std::vector<std::byte> PlacedBiasGradient::read(std::string* complaint) const {
  const PairLayout layout(problem_, Operand::d_bias, placement_);
  std::vector<std::byte> image(buffer_.bytes()), packed;
  device_->copy_from_device(image.data(), buffer_.pointer(), image.size());
  layout.for_each_row([&](std::size_t at) {
    const auto row = image.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = row + static_cast<std::ptrdiff_t>(layout.row_bytes());
    packed.insert(packed.end(), row, end);
    std::fill(row, end, std::byte{0xff});
  });
  if (image != layout.image()) *complaint = "memory beside the gradient of the bias was overwritten";
  return packed;
}

}  // namespace attune::tests
