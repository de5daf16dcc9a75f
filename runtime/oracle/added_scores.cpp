#include "runtime/oracle/added_scores.h"

#include <cmath>
#include <limits>
#include <span>

#include "runtime/oracle/reference_attention.h"
#include "runtime/oracle/sequences.h"

namespace attune {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

std::vector<double> bias_of(const AttentionProblem& problem, const TermValues& terms) {
  if (problem.bias_fp32) {
    const std::span<const float> values = terms.of<float>(Operand::bias);
    return {values.begin(), values.end()};
  }
  std::vector<double> values;
  for (const std::uint16_t bits : terms.of<std::uint16_t>(Operand::bias))
    values.push_back(to_double(problem.dtype, bits));
  return values;
}

std::vector<double> mask_of(const TermValues& terms) {
  std::vector<double> values;
  for (const std::uint8_t attends : terms.of<std::uint8_t>(Operand::attention_mask))
    values.push_back(attends != 0 ? 0 : kHidden);
  return values;
}

}  // namespace

AddedScores::AddedScores(const AttentionProblem& problem, const TermValues& terms)
    : heads_(problem.heads_q), sequences_(sequences_of(problem, terms)) {
  if (problem.alibi) {
    const std::span<const float> slopes = terms.of<float>(Operand::alibi_slopes);
    slopes_.assign(slopes.begin(), slopes.end());
  }
  if (problem.bias != PairTensor::none) bias_ = {bias_of(problem, terms), packed_strides(problem, Operand::bias)};
  if (problem.attention_mask != PairTensor::none)
    mask_ = {mask_of(terms), packed_strides(problem, Operand::attention_mask)};
}

double AddedScores::of(std::int64_t batch_head, std::int64_t query, std::int64_t key) const {
  const std::int64_t batch = batch_head / heads_, head = batch_head % heads_;
  double added = of_pair(bias_, batch, head, query, key) + of_pair(mask_, batch, head, query, key);
  if (!slopes_.empty()) {
    const MaskGeometry& sequence = sequences_[static_cast<std::size_t>(batch)];
    const auto distance = static_cast<double>(query + sequence.seq_kv - sequence.seq_q - key);
    added -= slopes_[static_cast<std::size_t>(batch_head)] * std::abs(distance);
  }
  return added;
}

double AddedScores::of_pair(const Pairs& pairs, std::int64_t batch, std::int64_t head, std::int64_t query,
                            std::int64_t key) {
  if (pairs.values.empty()) return 0;
  const auto& [stride_batch, stride_head, stride_row] = pairs.strides;
  return pairs.values[static_cast<std::size_t>(batch * stride_batch + head * stride_head + query * stride_row + key)];
}

}  // namespace attune
