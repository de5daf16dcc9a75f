#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "generator/problem/attention_problem.h"
#include "runtime/oracle/term_values.h"

namespace attune {

/// What dropout keeps of a problem's P, element by element: docs/dropout.md once more, apart from what the kernels say.
class DropoutMask {
 public:
  /// The seed and the offset are those of Operand::dropout_state among the terms, 0 where they have none.
  DropoutMask(const AttentionProblem& problem, const TermValues& terms);

  /// What a query of a head, counted through all batch entries, and a key of its sequence count: 0, or, kept, one over
  /// the share that is kept.
  double of(std::int64_t batch_head, std::int64_t query, std::int64_t key) const;
  /// Their random byte, and the number by which the threshold for it and seven others is rounded.
  struct Drawn {
    std::uint32_t byte, of_draw;
  };
  Drawn drawn(std::int64_t batch_head, std::int64_t query, std::int64_t key) const;

 private:
  using Counter = std::array<std::uint32_t, 2>;

  std::uint32_t seed_ = 0;      // its lower half
  std::vector<Counter> heads_;  // none: nothing is dropped
  std::uint32_t threshold_ = 0, part_ = 0;
  double scale_ = 1;
};

}  // namespace attune
