#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attune/attention.h"

namespace attune::tests {

/// How the scores of a row lie. Scores are scaled, in natural units: exp(score) is what softmax sums. A leap is in
/// powers of two of exp(score), ln 2 natural units each. bindings/python/comparison/inputs.py makes the same kinds but
/// huge.
enum class ScorePattern {
  normal,    ///< normal, of this standard deviation
  t3,        ///< Q and K are Student's t with 3 degrees of freedom, scaled to scores of this standard deviation
  sink,      ///< key 0, which kernels walk last, is so far above the rest
  rare,      ///< one key of each 500 is so far above the rest
  near,      ///< scores rise evenly along the keys, by so much from the first to the last; fall if it is negative
  leap,      ///< a key after the first eighth of the row, late in a kernel's walk, is so many powers of two above
  equal,     ///< all keys are the same; the parameter is not used
  dominant,  ///< all keys are the same but the middle one, which is so many powers of two above
  huge,      ///< q k lies this far from zero, a power of two, and differs from key to key by few of its last bits in
             ///< fp32, all of it exact; in each fifth row it is those bits alone. Not in data_suite()
};

struct DataKind {
  ScorePattern pattern = ScorePattern::normal;
  double parameter = 1;
};

/// "sink:12", "equal".
std::string to_string(const DataKind& kind);

/// What every forward and backward must serve with the same exactness.
const std::vector<DataKind>& data_suite();

/// How far the scores of a key lie above those of a row of `normal:1`, in natural units. 0 for normal and t3.
double key_offset(const DataKind& kind, std::int64_t key, std::int64_t seq_kv);

/// Whether element 0 of each row of Q and K makes the offsets of keys.
bool has_offsets(const DataKind& kind);

/// Values of Q, K, V or dO before they are rounded: (B, H, S, D), whatever the layout. V and dO are standard normal. Of
/// the kinds that have offsets, element 0 of each row of Q is one number, and element 0 of K makes the offset of it.
std::vector<double> data_values(const DataKind& kind, const AttentionProblem& problem, Operand operand,
                                std::uint32_t seed);

}  // namespace attune::tests
