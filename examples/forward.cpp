// One attention call in C++: buffers on the GPU, the call, and its result beside the oracle's.
#include <cstdio>
#include <vector>

#include "attune/attention.h"
#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/oracle/reference_attention.h"

int main() try {
  const std::shared_ptr<attune::Device> device = attune::open_cuda_device(0);
  const attune::AttentionProblem problem =
      attune::make_problem(attune::DataType::bf16, /*batch=*/2, /*heads=*/8, /*seq=*/1000,
                           /*head_dim=*/128, attune::MaskKind::causal);
  const std::size_t rows = 2 * 8 * 1000, elements = rows * 128;
  const auto q = attune::random_normal(problem.dtype, elements, 1),
             k = attune::random_normal(problem.dtype, elements, 2),
             v = attune::random_normal(problem.dtype, elements, 3);
  const std::size_t bytes = 2 * elements;
  attune::DeviceBuffer q_buffer(device, bytes), k_buffer(device, bytes), v_buffer(device, bytes),
      o_buffer(device, bytes), lse_buffer(device, 4 * rows);
  device->copy_to_device(q_buffer.pointer(), q.data(), bytes);
  device->copy_to_device(k_buffer.pointer(), k.data(), bytes);
  device->copy_to_device(v_buffer.pointer(), v.data(), bytes);

  const auto tensor = [&](attune::Operand operand, const attune::DeviceBuffer& buffer) {
    return attune::packed_view(problem, operand, reinterpret_cast<const void*>(buffer.pointer()));
  };
  attune::Tensors tensors;
  tensors[attune::Operand::q] = tensor(attune::Operand::q, q_buffer);
  tensors[attune::Operand::k] = tensor(attune::Operand::k, k_buffer);
  tensors[attune::Operand::v] = tensor(attune::Operand::v, v_buffer);
  tensors[attune::Operand::o] = tensor(attune::Operand::o, o_buffer);
  tensors[attune::Operand::lse].data = reinterpret_cast<const void*>(lse_buffer.pointer());

  const std::size_t workspace_bytes = attune::attention_workspace_bytes(problem);
  const attune::DeviceBuffer workspace(device, workspace_bytes);
  attune::attention_forward(problem, tensors, reinterpret_cast<void*>(workspace.pointer()), workspace_bytes, nullptr);
  device->synchronize(nullptr);

  std::vector<std::uint16_t> o(elements);
  std::vector<float> lse(rows);
  device->copy_from_device(o.data(), o_buffer.pointer(), bytes);
  device->copy_from_device(lse.data(), lse_buffer.pointer(), 4 * rows);
  const auto errors = attune::compare_forward(problem, attune::reference_forward(problem, q, k, v), o, lse);
  std::printf("%s by %s: relative error of O %.2e, %s\n", canonical_text(problem).c_str(),
              canonical_text(attune::current_runtime().prepare(problem)->choice.config).c_str(),
              errors.outputs[0].relative, errors.within() ? "within the bounds" : "WRONG");
  return errors.within() ? 0 : 1;
} catch (const attune::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
