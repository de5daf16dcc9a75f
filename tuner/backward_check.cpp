#include "tuner/backward_check.h"

#include <algorithm>
#include <limits>
#include <string>

namespace attune {
namespace {

constexpr std::uint16_t kPoison = 0x7fa5;  // NaN in both formats
constexpr std::size_t kGuard = 128;        // elements before and after a tensor

// A packed tensor of 16-bit elements on the device, guards around it.
class GuardedTensor {
 public:
  GuardedTensor(const std::shared_ptr<Device>& device, const AttentionProblem& problem, Operand operand,
                const std::vector<std::uint16_t>& values)
      : device_(device), image_(values.size() + 2 * kGuard, kPoison) {
    std::copy(values.begin(), values.end(), image_.begin() + kGuard);
    // What alignment 2 is for: rows that no vector instruction may touch.
    if (problem.alignment < 16) {
      image_.insert(image_.begin(), kPoison);
      ++first_;
    }
    buffer_ = DeviceBuffer(device, 2 * image_.size());
    device->copy_to_device(buffer_.pointer(), image_.data(), buffer_.bytes());
    view_ = packed_view(problem, operand);
    view_.data = reinterpret_cast<const void*>(buffer_.pointer() + 2 * first_);
  }

  const TensorView& view() const { return view_; }
  bool unchanged() const { return read_all() == image_; }

  // The tensor now, without its guards.
  std::vector<std::uint16_t> read(bool* guards_intact) const {
    const std::vector<std::uint16_t> now = read_all();
    const auto begin = now.begin() + static_cast<std::ptrdiff_t>(first_), end = now.end() - kGuard;
    const auto is_poison = [](std::uint16_t x) { return x == kPoison; };
    *guards_intact = std::all_of(now.begin(), begin, is_poison) && std::all_of(end, now.end(), is_poison);
    return {begin, end};
  }

 private:
  std::vector<std::uint16_t> read_all() const {
    std::vector<std::uint16_t> now(image_.size());
    device_->copy_from_device(now.data(), buffer_.pointer(), buffer_.bytes());
    return now;
  }

  std::shared_ptr<Device> device_;
  std::vector<std::uint16_t> image_;
  std::size_t first_ = kGuard;
  DeviceBuffer buffer_;
  TensorView view_;
};

// O as a forward leaves it, packed in problem.layout.
std::vector<std::uint16_t> rounded_output(const AttentionProblem& problem, const ReferenceForward& forward) {
  const TensorView view = packed_view(problem, Operand::o);
  const std::int64_t columns = problem.head_dim;
  std::vector<std::uint16_t> o(forward.o.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(o.size()); ++i) {
    const std::int64_t row = i / columns, head = row / problem.seq_q;
    const std::int64_t at = head / problem.heads_q * view.stride_batch + head % problem.heads_q * view.stride_head +
                            row % problem.seq_q * view.stride_row + i % columns;
    o[static_cast<std::size_t>(at)] = from_double(problem.dtype, forward.o[static_cast<std::size_t>(i)]);
  }
  return o;
}

DeviceBuffer upload(const std::shared_ptr<Device>& device, const std::vector<float>& values) {
  DeviceBuffer buffer(device, values.size() * sizeof(float));
  device->copy_to_device(buffer.pointer(), values.data(), buffer.bytes());
  return buffer;
}

void complain(OutputErrors& output, const std::string& complaint) {
  output.within = false;
  output.complaint += (output.complaint.empty() ? "" : "; ") + complaint;
}

}  // namespace

std::vector<OutputErrors> check_backward(AttentionRuntime& runtime, const PreparedAttention& prepared,
                                         const AttentionProblem& problem, std::uint64_t seed) {
  const auto rows = static_cast<std::size_t>(problem.batch * problem.heads_q * problem.seq_q),
             keys = static_cast<std::size_t>(problem.batch * problem.heads_kv * problem.seq_kv),
             columns = static_cast<std::size_t>(problem.head_dim);
  constexpr std::uint64_t kTensors = 5;
  const auto random = [&](std::size_t count, std::uint64_t tensor) {
    return random_normal(problem.dtype, count, kTensors * seed + tensor);
  };
  const std::vector<std::uint16_t> q = random(rows * columns, 0), k = random(keys * columns, 1),
                                   v = random(keys * columns, 2), d_o = random(rows * columns, 3);
  std::vector<float> lse, d_lse;
  for (const std::uint16_t bits : random(rows, 4)) d_lse.push_back(static_cast<float>(to_double(problem.dtype, bits)));
  const ReferenceForward forward = reference_forward(problem, q, k, v);
  for (const double value : forward.lse) lse.push_back(static_cast<float>(value));

  const std::shared_ptr<Device>& device = runtime.device();
  const std::vector<std::uint16_t> poisoned_queries(q.size(), kPoison), poisoned_keys(k.size(), kPoison);
  const GuardedTensor on_device[] = {{device, problem, Operand::q, q},
                                     {device, problem, Operand::k, k},
                                     {device, problem, Operand::v, v},
                                     {device, problem, Operand::o, rounded_output(problem, forward)},
                                     {device, problem, Operand::d_o, d_o}};
  const GuardedTensor gradients[] = {{device, problem, Operand::d_q, poisoned_queries},
                                     {device, problem, Operand::d_k, poisoned_keys},
                                     {device, problem, Operand::d_v, poisoned_keys}};
  const DeviceBuffer lse_buffer = upload(device, lse), d_lse_buffer = upload(device, d_lse);
  const DeviceBuffer workspace(device, prepared.plan.workspace_bytes_of(problem));
  runtime.launch(prepared, problem,
                 {on_device[0].view(), on_device[1].view(), on_device[2].view(), on_device[3].view(),
                  reinterpret_cast<float*>(lse_buffer.pointer())},
                 {on_device[4].view(), reinterpret_cast<const float*>(d_lse_buffer.pointer()), gradients[0].view(),
                  gradients[1].view(), gradients[2].view()},
                 reinterpret_cast<void*>(workspace.pointer()), workspace.bytes(), nullptr);
  device->synchronize(nullptr);

  bool guards_intact[3] = {};
  const std::vector<std::uint16_t> d_q = gradients[0].read(&guards_intact[0]),
                                   d_k = gradients[1].read(&guards_intact[1]),
                                   d_v = gradients[2].read(&guards_intact[2]);
  std::vector<OutputErrors> outputs =
      compare_backward(problem, reference_backward(problem, {q, k, v, d_o, d_lse}), d_q, d_k, d_v).outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!guards_intact[i]) complain(outputs[i], "memory beside " + outputs[i].name + " was overwritten");
  }
  if (!std::all_of(std::begin(on_device), std::end(on_device), [](const auto& tensor) { return tensor.unchanged(); }))
    complain(outputs.front(), "an input was overwritten");
  return outputs;
}

}  // namespace attune
