#include "tests/kernels/placed_pairs.h"

#include <cstring>
#include <utility>

namespace attune::tests {

PlacedPairs::PlacedPairs(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                         const TermValues& terms, Placement placement) {
  if (placement == Placement::packed) return;
  for (const Operand operand : term_inputs_of(problem)) {
    if (!is_of_pairs(operand)) continue;
    const OperandShape shape = operand_shape(problem, operand);
    const std::int64_t bytes = size_of(shape.element), unit = placement == Placement::padded ? 16 / bytes : 1;
    TensorView view;
    view.stride_row = (shape.columns / unit + 2) * unit;
    view.stride_head = shape.rows * view.stride_row + unit;
    view.stride_batch = shape.heads * view.stride_head + 3 * unit;
    const std::int64_t all = shape.batch * view.stride_batch + 2 * unit;
    std::int64_t origin = unit;
    if (placement == Placement::reversed) {
      origin += (shape.rows - 1) * view.stride_row;
      view.stride_row = -view.stride_row;
    }
    std::vector<std::byte> image(static_cast<std::size_t>(all * bytes), std::byte{0xff});
    const std::byte* from = terms.bytes(operand).data();
    const auto row_bytes = static_cast<std::size_t>(shape.columns * bytes);
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        for (std::int64_t i = 0; i < shape.rows; ++i, from += row_bytes) {
          const std::int64_t at = origin + b * view.stride_batch + h * view.stride_head + i * view.stride_row;
          std::memcpy(&image[static_cast<std::size_t>(at * bytes)], from, row_bytes);
        }
      }
    }
    // Strides of dimensions of extent 1 say nothing.
    if (shape.rows == 1) view.stride_row = 12345;
    if (shape.heads == 1) view.stride_head = -777;
    if (shape.batch == 1) view.stride_batch = 1;
    DeviceBuffer buffer(device, image.size());
    device->copy_to_device(buffer.pointer(), image.data(), image.size());
    view.data = reinterpret_cast<const void*>(buffer.pointer() + static_cast<std::uint64_t>(origin * bytes));
    placed_.push_back({operand, std::move(buffer), view});
  }
}

void PlacedPairs::add_to(Tensors* tensors) const {
  for (const Placed& each : placed_) (*tensors)[each.operand] = each.view;
}

}  // namespace attune::tests
