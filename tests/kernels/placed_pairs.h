#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "runtime/oracle/term_values.h"
#include "tests/kernels/forward_case.h"

namespace attune::tests {

/// A problem's tensors of pairs in device memory, placed as the other tensors are: padded rows start at multiples of 16
/// bytes, whatever their length, with gaps behind them; rows of those that are reversed anywhere, the last one first.
/// What lies between is NaN, or true. Packed ones are DeviceTerms'.
class PlacedPairs {
 public:
  PlacedPairs(const std::shared_ptr<Device>& device, const AttentionProblem& problem, const TermValues& terms,
              Placement placement);
  /// In place of the packed views.
  void add_to(Tensors* tensors) const;

 private:
  struct Placed {
    Operand operand;
    DeviceBuffer buffer;
    TensorView view;
  };
  std::vector<Placed> placed_;
};

/// Where a problem's gradient of a bias goes, placed likewise. All that lies between is NaN, and must stay.
class PlacedBiasGradient {
 public:
  PlacedBiasGradient(const std::shared_ptr<Device>& device, const AttentionProblem& problem, Placement placement);
  TensorView view() const;
  /// Packed. Complains if anything else was written.
  std::vector<std::byte> read(std::string* complaint) const;

 private:
  std::shared_ptr<Device> device_;
  AttentionProblem problem_;
  Placement placement_;
  DeviceBuffer buffer_;
};

}  // namespace attune::tests
