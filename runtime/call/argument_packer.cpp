#include "runtime/call/argument_packer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "generator/error.h"

namespace attune {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr std::int64_t kMapAlignment = 16;  // bytes that strides of a tensor map are multiples of

// Lengths have 31 bits, so that an offset beyond them hides all keys or none, as its nearest 32-bit value does.
std::int64_t clamped_offset(std::int64_t offset) {
  using Limits = std::numeric_limits<std::int32_t>;
  return std::clamp<std::int64_t>(offset, Limits::min(), Limits::max());
}

// A tile's rows beyond the only row of a tensor have addresses too, which are aligned only if no stride of its own
// moves them.
std::int64_t row_stride(const TensorView& view, std::int64_t rows) { return rows > 1 ? view.stride_row : 0; }

class Packer {
 public:
  Packer(const KernelLaunch& launch, const AttentionProblem& problem, const ForwardTensors& tensors,
         const ArgumentValues& values, const Device& device, std::byte* data)
      : launch_(launch), problem_(problem), tensors_(tensors), values_(values), device_(device), data_(data) {}

  void pack() {
    const ArgumentLayout& layout = launch_.arguments;
    for (std::size_t i = 0; i < layout.fields.size(); ++i) pack_field(layout.fields[i], data_ + layout.offsets[i]);
  }

 private:
  template <typename Value>
  static void put(std::byte* to, Value value) {
    std::memcpy(to, &value, sizeof(value));
  }
  static void put_int32(std::byte* to, std::int64_t value) { put(to, static_cast<std::int32_t>(value)); }

  void pack_field(KernelArgument field, std::byte* to) const {
    switch (field) {
      case KernelArgument::q:
        return put(to, tensors_.q.data);
      case KernelArgument::k:
        return put(to, tensors_.k.data);
      case KernelArgument::v:
        return put(to, tensors_.v.data);
      case KernelArgument::o:
        return put(to, tensors_.o.data);
      case KernelArgument::lse:
        return put(to, tensors_.lse);
      case KernelArgument::q_stride_batch:
        return put(to, tensors_.q.stride_batch);
      case KernelArgument::q_stride_head:
        return put(to, tensors_.q.stride_head);
      case KernelArgument::q_stride_row:
        return put(to, row_stride(tensors_.q, problem_.seq_q));
      case KernelArgument::k_stride_batch:
        return put(to, tensors_.k.stride_batch);
      case KernelArgument::k_stride_head:
        return put(to, tensors_.k.stride_head);
      case KernelArgument::k_stride_row:
        return put(to, row_stride(tensors_.k, problem_.seq_kv));
      case KernelArgument::v_stride_batch:
        return put(to, tensors_.v.stride_batch);
      case KernelArgument::v_stride_head:
        return put(to, tensors_.v.stride_head);
      case KernelArgument::v_stride_row:
        return put(to, row_stride(tensors_.v, problem_.seq_kv));
      case KernelArgument::o_stride_batch:
        return put(to, tensors_.o.stride_batch);
      case KernelArgument::o_stride_head:
        return put(to, tensors_.o.stride_head);
      case KernelArgument::o_stride_row:
        return put(to, row_stride(tensors_.o, problem_.seq_q));
      case KernelArgument::d_q:
        return put(to, values_.gradients->d_q.data);
      case KernelArgument::d_k:
        return put(to, values_.gradients->d_k.data);
      case KernelArgument::d_v:
        return put(to, values_.gradients->d_v.data);
      case KernelArgument::d_o:
        return put(to, values_.gradients->d_o.data);
      case KernelArgument::d_lse:
        return put(to, values_.gradients->d_lse);
      case KernelArgument::statistics:
        return put(to, values_.statistics);
      case KernelArgument::d_q_sums:
        return put(to, values_.d_q_sums);
      case KernelArgument::turns:
        return put(to, values_.turns);
      case KernelArgument::d_k_sums:
        return put(to, values_.d_k_sums);
      case KernelArgument::d_v_sums:
        return put(to, values_.d_v_sums);
      case KernelArgument::key_turns:
        return put(to, values_.key_turns);
      case KernelArgument::scores:
        return put(to, values_.scores);
      case KernelArgument::o_blocks:
        return put(to, values_.o_blocks);
      case KernelArgument::row_states:
        return put(to, values_.row_states);
      case KernelArgument::d_q_stride_batch:
        return put(to, values_.gradients->d_q.stride_batch);
      case KernelArgument::d_q_stride_head:
        return put(to, values_.gradients->d_q.stride_head);
      case KernelArgument::d_q_stride_row:
        return put(to, row_stride(values_.gradients->d_q, problem_.seq_q));
      case KernelArgument::d_k_stride_batch:
        return put(to, values_.gradients->d_k.stride_batch);
      case KernelArgument::d_k_stride_head:
        return put(to, values_.gradients->d_k.stride_head);
      case KernelArgument::d_k_stride_row:
        return put(to, row_stride(values_.gradients->d_k, problem_.seq_kv));
      case KernelArgument::d_v_stride_batch:
        return put(to, values_.gradients->d_v.stride_batch);
      case KernelArgument::d_v_stride_head:
        return put(to, values_.gradients->d_v.stride_head);
      case KernelArgument::d_v_stride_row:
        return put(to, row_stride(values_.gradients->d_v, problem_.seq_kv));
      case KernelArgument::d_o_stride_batch:
        return put(to, values_.gradients->d_o.stride_batch);
      case KernelArgument::d_o_stride_head:
        return put(to, values_.gradients->d_o.stride_head);
      case KernelArgument::d_o_stride_row:
        return put(to, row_stride(values_.gradients->d_o, problem_.seq_q));
      case KernelArgument::o_fp64:
        return put(to, values_.o_fp64);
      case KernelArgument::lse_fp64:
        return put(to, values_.lse_fp64);
      case KernelArgument::weight_fp64:
        return put(to, values_.weight_fp64);
      case KernelArgument::d_q_fp64:
        return put(to, values_.d_q_fp64);
      case KernelArgument::d_k_fp64:
        return put(to, values_.d_k_fp64);
      case KernelArgument::d_v_fp64:
        return put(to, values_.d_v_fp64);
      case KernelArgument::row_statistics:
        return put(to, values_.row_statistics);
      case KernelArgument::batch:
        return put_int32(to, problem_.batch);
      case KernelArgument::heads_q:
        return put_int32(to, problem_.heads_q);
      case KernelArgument::heads_kv:
        return put_int32(to, problem_.heads_kv);
      case KernelArgument::group_size:
        return put_int32(to, problem_.heads_q / problem_.heads_kv);
      case KernelArgument::seq_q:
        return put_int32(to, problem_.seq_q);
      case KernelArgument::seq_kv:
        return put_int32(to, problem_.seq_kv);
      case KernelArgument::query_tiles:
        return put_int32(to, launch_.query_tiles(problem_));
      case KernelArgument::key_tiles:
        return put_int32(to, launch_.key_tiles(problem_));
      case KernelArgument::section_heads:
        return put_int32(to, launch_.section_heads(problem_));
      case KernelArgument::mask_offset:
        return put_int32(to, clamped_offset(problem_.mask_offset));
      case KernelArgument::softmax_scale:
        return put(to, problem_.softmax_scale);
      case KernelArgument::softmax_scale_log2:
        return put(to, problem_.softmax_scale * kLog2E);
      case KernelArgument::tiles:
        return put_int32(to, launch_.tiles(problem_));
      case KernelArgument::tile_counter:
        return put(to, values_.workspace + kTileCounterOffset);
      case KernelArgument::recomputed_blocks:
        return put(to, values_.counters != 0 ? values_.counters + kRecomputedBlocksOffset : DevicePointer{0});
      case KernelArgument::q_map:
        return put_map(to, Operand::q, tensors_.q, problem_.heads_q, problem_.seq_q);
      case KernelArgument::k_map:
        return put_map(to, Operand::k, tensors_.k, problem_.heads_kv, problem_.seq_kv);
      case KernelArgument::v_map:
        return put_map(to, Operand::v, tensors_.v, problem_.heads_kv, problem_.seq_kv);
      case KernelArgument::o_map:
        return put_map(to, Operand::o, tensors_.o, problem_.heads_q, problem_.seq_q);
      case KernelArgument::unit_roundoff:
        return put(to, values_.unit_roundoff);
      case KernelArgument::smallest_step:
        return put(to, values_.smallest_step);
      case KernelArgument::partials:
        return put(to, values_.partials);
      case KernelArgument::elements:
        return put(to, values_.elements);
      case KernelArgument::element_count:
        return put(to, values_.element_count);
      case KernelArgument::copies:
        return put(to, values_.copies);
      case KernelArgument::copy_stride:
        return put(to, values_.copy_stride);
      case KernelArgument::seed:
        return put(to, values_.seed);
    }
  }

  void put_map(std::byte* to, Operand operand, const TensorView& view, std::int64_t heads, std::int64_t rows) const {
    const auto spec = std::find_if(launch_.tensor_maps.begin(), launch_.tensor_maps.end(),
                                   [&](const TensorMapSpec& map) { return map.operand == operand; });
    if (spec == launch_.tensor_maps.end())
      throw Error(ErrorCode::internal, "no tensor map of " + std::string(to_string(operand)) + " is described");
    // The stride of a dimension of extent 1 says nothing and may be odd.
    const auto stride_bytes = [&](std::int64_t stride, std::int64_t extent) {
      return static_cast<std::uint64_t>(extent > 1 ? stride * size_of(problem_.dtype) : kMapAlignment);
    };
    TensorMapRequest request;
    request.address = reinterpret_cast<DevicePointer>(view.data);
    request.dims = {static_cast<std::uint64_t>(problem_.head_dim), static_cast<std::uint64_t>(heads),
                    static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(problem_.batch)};
    request.strides_bytes = {stride_bytes(view.stride_head, heads), stride_bytes(view.stride_row, rows),
                             stride_bytes(view.stride_batch, problem_.batch)};
    request.box = {static_cast<std::uint32_t>(spec->box_columns), static_cast<std::uint32_t>(spec->box_heads),
                   static_cast<std::uint32_t>(spec->box_rows), 1};
    request.swizzle_bytes = spec->swizzle_bytes;
    device_.encode_tensor_map(request, to);
  }

  const KernelLaunch& launch_;
  const AttentionProblem& problem_;
  const ForwardTensors& tensors_;
  const ArgumentValues& values_;
  const Device& device_;
  std::byte* data_;
};

}  // namespace

void pack_arguments(const KernelLaunch& launch, const AttentionProblem& problem, const ForwardTensors& tensors,
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
