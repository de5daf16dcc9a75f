#pragma once

#include <memory>
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

}  // namespace attune::tests
