#include "runtime/call/argument_packer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <variant>

#include "generator/error.h"
#include "generator/plan/tensor_strides.h"

namespace attune {
namespace {

TensorStrides strides_of(const TensorView& view) { return {view.stride_batch, view.stride_head, view.stride_row}; }

class Packer {
 public:
  Packer(const KernelLaunch& launch, const AttentionProblem& problem, const Tensors& tensors,
         const ArgumentValues& values, const Device& device, std::byte* data)
      : launch_(launch), problem_(problem), tensors_(tensors), values_(values), device_(device), data_(data) {}

  void pack() {
    const ArgumentLayout& layout = launch_.arguments;
    for (std::size_t i = 0; i < layout.fields.size(); ++i) {
      std::byte* to = data_ + layout.offsets[i];
      std::visit([&](const auto& field) { pack_field(field, to); }, layout.fields[i]);
    }
  }

 private:
  template <typename Value>
  static void put(std::byte* to, Value value) {
    std::memcpy(to, &value, sizeof(value));
  }

  void pack_field(const Pointer& pointer, std::byte* to) const { put(to, tensors_[pointer.operand].data); }

  void pack_field(const Stride& stride, std::byte* to) const {
    put(to, stride_argument(problem_, stride, strides_of(tensors_[stride.operand])));
  }

  void pack_field(const Workspace& workspace, std::byte* to) const { put(to, values_.bits(workspace.buffer.name)); }
  void pack_field(const Given& given, std::byte* to) const { put(to, values_.bits(given.name)); }

  void pack_field(CallValue value, std::byte* to) const {
    put(to, value == CallValue::dropout_seed ? tensors_.dropout.seed : tensors_.dropout.offset);
  }

  void pack_field(Scalar scalar, std::byte* to) const {
    std::visit([&](auto value) { put(to, value); }, value_of(scalar, problem_, launch_));
  }

  bool has_map(Operand operand) const { return has_tensor_map(problem_, operand, tensors_[operand]); }
  void pack_field(const ByTensorMap& map, std::byte* to) const { put<std::int32_t>(to, has_map(map.operand)); }

  void pack_field(const TensorMap& map, std::byte* to) const {
    if (!has_map(map.operand)) {
      std::memset(to, 0, kTensorMapArgumentBytes);
      return;
    }
    const auto spec = std::find_if(launch_.tensor_maps.begin(), launch_.tensor_maps.end(),
                                   [&](const TensorMapSpec& each) { return each.operand == map.operand; });
    if (spec == launch_.tensor_maps.end())
      throw Error(ErrorCode::internal, "no tensor map of " + std::string(to_string(map.operand)) + " is described");
    const TensorView& view = tensors_[map.operand];
    const OperandShape shape = operand_shape(problem_, map.operand);
    const TensorMapExtents extents = tensor_map_extents(*spec, shape, strides_of(view));
    TensorMapRequest request;
    request.address = reinterpret_cast<DevicePointer>(view.data) - extents.bytes_before;
    request.element = shape.element;
    request.rank = extents.rank;
    request.dims = extents.dims;
    request.strides_bytes = extents.strides_bytes;
    request.box = extents.box;
    request.swizzle_bytes = spec->swizzle_bytes;
    device_.encode_tensor_map(request, to);
  }

  const KernelLaunch& launch_;
  const AttentionProblem& problem_;
  const Tensors& tensors_;
  const ArgumentValues& values_;
  const Device& device_;
  std::byte* data_;
};

}  // namespace

std::uint64_t ArgumentValues::bits(std::string_view name) const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (values_[i].name == name) return values_[i].bits;
  }
  throw Error(ErrorCode::internal, "nothing was given for the kernel argument " + std::string(name));
}

void ArgumentValues::set(std::string_view name, std::uint64_t bits) {
  for (std::size_t i = 0; i < count_; ++i) {
    if (values_[i].name == name) {
      values_[i].bits = bits;
      return;
    }
  }
  if (count_ == values_.size()) {
    throw Error(ErrorCode::internal, "a launch takes at most " + std::to_string(values_.size()) +
                                         " buffers and numbers, and " + std::string(name) + " is one more");
  }
  values_[count_++] = {name, bits};
}

ArgumentValues workspace_values(const KernelPlan& plan, const AttentionProblem& problem, DevicePointer workspace) {
  ArgumentValues values;
  values.set(kTileCounter, workspace + kTileCounterOffset);
  for (const WorkspaceBuffer& buffer : plan.buffers)
    values.set(buffer.buffer, workspace + plan.buffer_offset(buffer.buffer, problem));
  return values;
}

bool has_tensor_map(const AttentionProblem& problem, Operand operand, const TensorView& view) {
  if (!is_of_pairs(operand)) return true;
  const bool stored = facts_of(operand).access(problem) == Access::writes;
  return (stored ? fits_stored_tensor_map : fits_tensor_map)(reinterpret_cast<DevicePointer>(view.data),
                                                             operand_shape(problem, operand), strides_of(view));
}

TensorView view_of_copy(const KernelPlan& plan, const AttentionProblem& problem, const OperandCopy& copy,
                        DevicePointer workspace) {
  const TensorStrides strides = copy_strides(operand_shape(problem, copy.operand));
  void* const data = reinterpret_cast<void*>(workspace + plan.buffer_offset(copy.buffer, problem));
  return {data, strides.batch, strides.head, strides.row};
}

void pack_arguments(const KernelLaunch& launch, const AttentionProblem& problem, const Tensors& tensors,
                    const ArgumentValues& values, const Device& device, PackedArguments& packed) {
  packed.bytes = launch.arguments.bytes;
  if (packed.bytes > PackedArguments::kCapacity) {
    throw Error(ErrorCode::internal, "kernel " + launch.entry + " takes " + std::to_string(packed.bytes) +
                                         " bytes of arguments; PackedArguments holds " +
                                         std::to_string(PackedArguments::kCapacity));
  }
  Packer(launch, problem, tensors, values, device, packed.data.data()).pack();
}

}  // namespace attune
