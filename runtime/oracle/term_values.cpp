#include "runtime/oracle/term_values.h"

#include <algorithm>
#include <string>

#include "generator/error.h"

namespace attune {
namespace {

bool may_be_left_out(const AttentionProblem& problem, Operand operand) {
  return facts_of(operand).access(problem) == Access::may_read;
}

}  // namespace

std::span<const std::byte> TermValues::bytes(Operand operand) const {
  const auto found = values_.find(operand);
  return found == values_.end() ? std::span<const std::byte>() : std::span<const std::byte>(found->second);
}

void require_terms(const AttentionProblem& problem, const TermValues& terms) {
  const OperandList list = term_inputs_of(problem);
  for (const Operand operand : kOperands) {
    const std::size_t bytes = terms.bytes(operand).size();
    const bool has = std::find(list.begin(), list.end(), operand) != list.end();
    const std::size_t wanted = has ? operand_shape(problem, operand).bytes() : 0;
    if (bytes == wanted || (bytes == 0 && has && may_be_left_out(problem, operand))) continue;
    throw Error(ErrorCode::invalid_argument, std::string(to_string(operand)) + " holds " + std::to_string(bytes) +
                                                 " bytes, " + canonical_text(problem) + " has " +
                                                 std::to_string(wanted));
  }
}

DeviceTerms::DeviceTerms(const std::shared_ptr<Device>& device, const AttentionProblem& problem,
                         const TermValues& terms)
    : device_(device), problem_(problem) {
  for (const Operand operand : term_inputs_of(problem)) {
    const std::span<const std::byte> bytes = terms.bytes(operand);
    if (bytes.empty()) continue;
    DeviceBuffer& buffer = buffers_[operand] = DeviceBuffer(device, bytes.size());
    device->copy_to_device(buffer.pointer(), bytes.data(), bytes.size());
  }
}

void DeviceTerms::add_to(Tensors* tensors) const {
  for (const auto& [operand, buffer] : buffers_) {
    const auto* data = reinterpret_cast<const void*>(buffer.pointer());
    (*tensors)[operand] = has_strides(operand) ? packed_view(problem_, operand, data) : TensorView{data};
  }
}

bool DeviceTerms::holds(const TermValues& terms) const {
  return std::all_of(buffers_.begin(), buffers_.end(), [&](const auto& entry) {
    std::vector<std::byte> bytes(entry.second.bytes());
    device_->copy_from_device(bytes.data(), entry.second.pointer(), bytes.size());
    return std::ranges::equal(bytes, terms.bytes(entry.first));
  });
}

}  // namespace attune
