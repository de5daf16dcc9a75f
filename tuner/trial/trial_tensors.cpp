#include "tuner/trial/trial_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "generator/rounding.h"
#include "runtime/oracle/checksum.h"
#include "runtime/oracle/parallel_for.h"

namespace attune {
namespace {

constexpr std::uint8_t kGuardPattern = 0xa5;
constexpr std::size_t kInputMargin = 256;  // NaN on each side of an input
constexpr double kEvictingFactor = 2;      // copies of the inputs exceed the L2 by this
constexpr double kSelfEvictingFactor = 4;  // inputs this much larger than the L2 need no copies
constexpr std::size_t kMaxCopies = 4096;
constexpr std::size_t kPieceBytes = 1u << 20;

// By all cores: one thread moves pageable memory at a fraction of the bus. `copy` takes the first byte and how many.
template <typename Copy>
void in_pieces(std::size_t bytes, const Copy& copy) {
  parallel_for(ceil_div(bytes, kPieceBytes),
               [&](std::size_t i) { copy(i * kPieceBytes, std::min(kPieceBytes, bytes - i * kPieceBytes)); });
}

}  // namespace

OutputErrors broken_output(const std::string& name, std::string complaint) {
  OutputErrors errors;
  errors.name = name;
  errors.within = false;
  errors.relative = errors.max_abs = std::numeric_limits<double>::quiet_NaN();
  errors.complaint = std::move(complaint);
  return errors;
}

TensorCopies::TensorCopies(std::size_t bytes, std::size_t margin, std::size_t shift, std::size_t copies)
    : bytes_(bytes), margin_(margin), shift_(shift), copies_(copies), stride_(2 * margin + shift + bytes) {
  if (copies > 1) stride_ = (stride_ + 255) / 256 * 256;
}

TrialTensors::TrialTensors(std::shared_ptr<Device> device, const AttentionProblem& problem)
    : device_(std::move(device)), problem_(problem), inputs_(inputs_of(problem)), outputs_(outputs_of(problem)) {
  const auto bytes = [&](Operand operand) { return operand_shape(problem, operand).bytes(); };
  std::size_t input_bytes = 0;
  for (const Operand operand : inputs_) input_bytes += bytes(operand);
  const auto l2 = static_cast<double>(device_->spec().l2_bytes);
  std::size_t copies = 1;
  if (device_->can_time() && static_cast<double>(input_bytes) < kSelfEvictingFactor * l2) {
    copies = std::min(kMaxCopies,
                      static_cast<std::size_t>(std::ceil(kEvictingFactor * l2 / static_cast<double>(input_bytes))) + 1);
  }
  // The emulator reports any access outside an allocation: there the margin would only hide it.
  const std::size_t margin = device_->can_time() ? kInputMargin : 0;
  const auto shift = [&](Operand operand) {
    const bool moves = problem.alignment != 16 && has_whole_rows(operand);
    return moves ? static_cast<std::size_t>(problem.alignment) : 0;
  };
  const auto lay_out = [&](Operand operand, std::size_t around) {
    tensors_.at(static_cast<std::size_t>(operand)) = TensorCopies(bytes(operand), around, shift(operand), copies);
  };
  for (const Operand operand : inputs_) lay_out(operand, margin);
  for (const Operand operand : outputs_) lay_out(operand, kGuardBytes);
}

const TensorCopies& TrialTensors::of(Operand operand) const { return tensors_.at(static_cast<std::size_t>(operand)); }

std::size_t TrialTensors::missing_bytes() const {
  std::size_t bytes = 0;
  for (const TensorCopies& tensor : tensors_) bytes += tensor.buffer() == 0 ? tensor.total_bytes() : 0;
  return bytes;
}

void TrialTensors::allocate() {
  for (const OperandList& operands : {inputs_, outputs_}) {
    for (const Operand operand : operands) tensors_.at(static_cast<std::size_t>(operand)).allocate(device_);
  }
}

Tensors TrialTensors::call(std::size_t copy) const {
  Tensors tensors;
  for (const OperandList& operands : {inputs_, outputs_}) {
    for (const Operand operand : operands) {
      const auto* data = reinterpret_cast<const void*>(of(operand).tensor(copy));
      tensors[operand] = has_strides(operand) ? packed_view(problem_, operand, data) : TensorView{data};
    }
  }
  return tensors;
}

void TrialTensors::fill_random(Operand operand, std::uint64_t seed, DeviceOracle* oracle) {
  const TensorCopies& tensor = of(operand);
  const auto count = static_cast<std::size_t>(operand_shape(problem_, operand).elements());
  if (oracle == nullptr) return upload(operand, random_normal(problem_.dtype, count, seed).data());
  device_->fill(tensor.buffer(), kNotANumber, tensor.total_bytes());
  oracle->fill_random_normal(tensor.tensor(0), static_cast<std::int64_t>(count), seed,
                             static_cast<std::int64_t>(tensor.copies()),
                             static_cast<std::int64_t>(tensor.stride() / sizeof(std::uint16_t)));
}

void TrialTensors::upload(Operand operand, const void* values) {
  const TensorCopies& tensor = of(operand);
  if (tensor.copies() == 1) {
    device_->fill(tensor.buffer(), kNotANumber, tensor.total_bytes());
    return write(tensor.tensor(0), values, tensor.bytes());
  }
  std::vector<std::uint8_t> image(tensor.total_bytes(), kNotANumber);
  for (std::size_t copy = 0; copy < tensor.copies(); ++copy)
    std::memcpy(image.data() + copy * tensor.stride() + tensor.tensor_offset(), values, tensor.bytes());
  device_->copy_to_device(tensor.buffer(), image.data(), image.size());
}

void TrialTensors::poison_outputs() {
  for (const Operand operand : outputs_) {
    device_->fill(of(operand).region(0), kGuardPattern, of(operand).region_bytes());
    device_->fill(of(operand).tensor(0), kNotANumber, of(operand).bytes());
  }
}

void TrialTensors::check_guards(std::vector<OutputErrors>& errors) const {
  const auto changed = [](std::uint8_t byte) { return byte != kGuardPattern; };
  for (const Operand operand : outputs_) {
    const TensorCopies& tensor = of(operand);
    const std::string_view name = to_string(operand);
    const DevicePointer end = tensor.tensor(0) + tensor.bytes();
    std::vector<std::uint8_t> before(tensor.tensor_offset());
    std::vector<std::uint8_t> after(tensor.region_bytes() - tensor.tensor_offset() - tensor.bytes());
    device_->copy_from_device(before.data(), tensor.region(0), before.size());
    device_->copy_from_device(after.data(), end, after.size());
    const auto first = std::find_if(before.begin(), before.end(), changed);
    const auto last = std::find_if(after.rbegin(), after.rend(), changed);
    if (first != before.end()) {
      errors.push_back(broken_output(
          "guards",
          fmt::format("the kernel wrote up to {} bytes before the first element of {}", before.end() - first, name)));
    }
    if (last != after.rend()) {
      errors.push_back(broken_output(
          "guards",
          fmt::format("the kernel wrote up to {} bytes beyond the last element of {}", after.rend() - last, name)));
    }
  }
}

std::vector<std::uint64_t> TrialTensors::input_checksums(DeviceOracle* oracle) const {
  std::vector<std::uint64_t> sums;
  for (const Operand operand : inputs_) {
    const DevicePointer region = of(operand).region(0);
    const std::size_t elements = of(operand).region_bytes() / sizeof(std::uint16_t);
    if (oracle != nullptr) {
      sums.push_back(oracle->checksum(region, static_cast<std::int64_t>(elements)));
    } else {
      std::vector<std::uint16_t> values(elements);
      read(values.data(), region, of(operand).region_bytes());
      sums.push_back(checksum(values));
    }
  }
  return sums;
}

void TrialTensors::read(void* to, DevicePointer from, std::size_t bytes) const {
  in_pieces(bytes, [&](std::size_t first, std::size_t count) {
    device_->copy_from_device(static_cast<std::uint8_t*>(to) + first, from + first, count);
  });
}

void TrialTensors::write(DevicePointer to, const void* from, std::size_t bytes) {
  in_pieces(bytes, [&](std::size_t first, std::size_t count) {
    device_->copy_to_device(to + first, static_cast<const std::uint8_t*>(from) + first, count);
  });
}

}  // namespace attune
