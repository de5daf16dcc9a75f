#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "runtime/oracle/reference_attention.h"
#include "tests/kernels/data_kinds.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_case.h"

namespace attune::tests {

/// One call of the backward kernels, with everything that can vary about it.
struct BackwardCase {
  AttentionProblem problem;
  KernelConfig config;
  bool looked_up = false;  ///< instead of the config: what a call of the problem finds
  Placement placement = Placement::packed;
  std::optional<Placement> pair_placement;  ///< of tensors of pairs, where it is another
  bool with_lse = false;                    ///< the loss depends on LSE
  std::optional<double> sink;               ///< what the heads' sinks are near; else what the rows' LSE is near
  double loudness = 0;                      ///< Q and K are random around it and around 1, or around 0 where it is 0
  std::optional<DataKind> data;             ///< instead of loudness
  std::uint64_t seed = 1;
};
BackwardCase backward_case(const std::string& problem, const std::string& config);
std::string to_string(const BackwardCase& test);

/// Packed inputs in problem.layout, O and LSE as a forward would leave them, and what the gradients should be.
struct BackwardData {
  std::vector<std::uint16_t> q, k, v, o, d_o;
  std::vector<float> lse, d_lse;
  TermValues terms;
  ReferenceBackward reference;

  explicit BackwardData(const BackwardCase& test);
};

/// The elements of a packed tensor in problem.layout as (B, H, S, D).
std::vector<double> unpacked(const AttentionProblem& problem, Operand operand,
                             const std::vector<std::uint16_t>& packed);

struct BackwardResult {
  std::vector<std::uint16_t> d_q, d_k, d_v;  ///< packed, in problem.layout
  std::vector<float> d_sinks;                ///< of a problem that has them
  std::vector<std::byte> d_bias;             ///< likewise, packed
  std::string complaint;                     ///< about memory that should not have changed
  friend bool operator==(const BackwardResult&, const BackwardResult&) = default;
};
BackwardResult run_backward(AttentionRuntime& runtime, const BackwardCase& test, const BackwardData& data,
                            Stream stream = nullptr);

/// Right on the first device, and the same bits on the others.
void check_case(Devices& devices, const BackwardCase& test);

}  // namespace attune::tests
