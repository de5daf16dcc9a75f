#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "attune/attention.h"
#include "runtime/oracle/reference_attention.h"

namespace attune::testing {

/// A problem with random inputs on a device, packed in problem.layout, and poisoned outputs.
struct ForwardCase {
  std::shared_ptr<Device> device;
  AttentionProblem problem;
  std::vector<std::uint16_t> q, k, v;
  TermValues terms;
  DeviceTerms device_terms;
  DeviceBuffer q_buffer, k_buffer, v_buffer, o_buffer, lse_buffer;
  std::int64_t shift = 0;  ///< elements between the start of each buffer and its tensor
  Tensors tensors;

  ForwardCase(std::shared_ptr<Device> on, const AttentionProblem& asked, std::int64_t shift_elements = 0)
      : device(std::move(on)),
        problem(asked),
        terms(random_terms(asked, 4)),
        device_terms(device, asked, terms),
        shift(shift_elements) {
    const auto queries = static_cast<std::size_t>(problem.row_batch() * problem.heads_q * problem.seq_q);
    const auto keys = static_cast<std::size_t>(problem.row_batch() * problem.heads_kv * problem.seq_kv);
    const auto columns = static_cast<std::size_t>(problem.head_dim);
    q = random_normal(problem.dtype, queries * columns, 1);
    k = random_normal(problem.dtype, keys * columns, 2);
    v = random_normal(problem.dtype, keys * columns, 3);
    tensors[Operand::q] = place(q, q_buffer, Operand::q);
    tensors[Operand::k] = place(k, k_buffer, Operand::k);
    tensors[Operand::v] = place(v, v_buffer, Operand::v);
    tensors[Operand::o] = place(std::vector<std::uint16_t>(q.size(), 0x7fff), o_buffer, Operand::o);
    lse_buffer = DeviceBuffer(device, queries * sizeof(float));
    device->fill(lse_buffer.pointer(), 0xff, lse_buffer.bytes());
    tensors[Operand::lse].data = reinterpret_cast<const void*>(lse_buffer.pointer());
    device_terms.add_to(&tensors);
  }

  std::vector<std::uint16_t> read_o() const {
    std::vector<std::uint16_t> values(q.size());
    device->copy_from_device(values.data(), o_buffer.pointer() + 2 * static_cast<std::uint64_t>(shift),
                             2 * values.size());
    return values;
  }
  std::vector<float> read_lse() const {
    std::vector<float> values(lse_buffer.bytes() / sizeof(float));
    device->copy_from_device(values.data(), lse_buffer.pointer(), lse_buffer.bytes());
    return values;
  }

 private:
  TensorView place(const std::vector<std::uint16_t>& values, DeviceBuffer& buffer, Operand operand) {
    std::vector<std::uint16_t> whole(values.size() + 2 * static_cast<std::size_t>(shift),
                                     0x7fff);  // NaN around the tensor
    std::copy(values.begin(), values.end(), whole.begin() + shift);
    buffer = DeviceBuffer(device, 2 * whole.size());
    device->copy_to_device(buffer.pointer(), whole.data(), buffer.bytes());
    TensorView view = packed_view(problem, operand);
    view.data = reinterpret_cast<const std::uint16_t*>(buffer.pointer()) + shift;
    return view;
  }
};

}  // namespace attune::testing
