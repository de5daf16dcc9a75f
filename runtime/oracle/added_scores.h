#pragma once

#include <cstdint>
#include <vector>

#include "generator/problem/mask_geometry.h"
#include "runtime/oracle/term_values.h"

namespace attune {

/// What the scores of a problem gain between the product, or the softcap of it, and the mask.
class AddedScores {
 public:
  AddedScores(const AttentionProblem& problem, const TermValues& terms);
  /// What is added to the score of a query of a head, counted through all batch entries, and a key; -inf if it is
  /// hidden.
  double of(std::int64_t batch_head, std::int64_t query, std::int64_t key) const;

 private:
  /// A tensor of pairs in double: of a mask 0 where it is true, -inf where it is not. Empty: the problem has none.
  struct Pairs {
    std::vector<double> values;
    TensorStrides strides;
  };
  static double of_pair(const Pairs& pairs, std::int64_t batch, std::int64_t head, std::int64_t query,
                        std::int64_t key);

  std::int64_t heads_;
  std::vector<MaskGeometry> sequences_;
  std::vector<double> slopes_;  // by head of all batch entries; empty without ALiBi
  Pairs bias_, mask_;
};

}  // namespace attune
