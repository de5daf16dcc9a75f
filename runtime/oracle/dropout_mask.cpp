#include "runtime/oracle/dropout_mask.h"

#include <cmath>
#include <span>

namespace attune {
namespace {

// Philox2x32 (Salmon, Moraes, Dror, Shaw 2011).
std::array<std::uint32_t, 2> philox(std::array<std::uint32_t, 2> counter, std::uint32_t key, int rounds) {
  for (; rounds > 0; --rounds) {
    const std::uint64_t product = std::uint64_t{0xd256d193} * counter[0];
    counter = {static_cast<std::uint32_t>(product >> 32) ^ key ^ counter[1], static_cast<std::uint32_t>(product)};
    key += 0x9e3779b9;
  }
  return counter;
}

std::array<std::uint32_t, 2> halves(std::uint64_t number) {
  return {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)};
}

}  // namespace

DropoutMask::DropoutMask(const AttentionProblem& problem, const TermValues& terms) {
  if (problem.dropout == 0) return;
  const double asked = problem.dropout, lower = std::floor(256 * asked);
  threshold_ = static_cast<std::uint32_t>(lower);
  part_ = static_cast<std::uint32_t>(std::floor((256 * asked - lower) * 0x1p32));
  scale_ = 1 / (1 - asked);

  const std::span<const std::int64_t> state = terms.of<std::int64_t>(Operand::dropout_state);
  const auto [low, high] = halves(state.empty() ? 0 : static_cast<std::uint64_t>(state[0]));
  const Counter of_call = philox(halves(state.empty() ? 0 : static_cast<std::uint64_t>(state[1])), high, 10);
  seed_ = low;
  const std::int64_t before = terms.sequences_before * problem.heads_q;
  for (std::int64_t head = 0; head < problem.batch * problem.heads_q; ++head)
    heads_.push_back(philox({of_call[0] ^ static_cast<std::uint32_t>(before + head), of_call[1]}, low, 10));
}

DropoutMask::Drawn DropoutMask::drawn(std::int64_t batch_head, std::int64_t query, std::int64_t key) const {
  const Counter& head = heads_[static_cast<std::size_t>(batch_head)];
  const auto of_query = static_cast<std::uint32_t>(query / 16 * 32 + query % 8 * 4 + key % 8 / 2),
             of_key = static_cast<std::uint32_t>(key / 16);
  const Counter counter = {head[0] ^ of_query, head[1] ^ of_key}, words = philox(counter, seed_, 7);
  const std::int64_t shift = 8 * (2 * (key % 2) + query % 16 / 8);
  return {words[static_cast<std::size_t>(key % 16 / 8)] >> shift & 0xff, philox(counter, seed_, 6)[1]};
}

double DropoutMask::of(std::int64_t batch_head, std::int64_t query, std::int64_t key) const {
  if (heads_.empty()) return 1;
  const auto [byte, of_draw] = drawn(batch_head, query, key);
  return byte >= threshold_ + (of_draw < part_ ? 1 : 0) ? scale_ : 0;
}

}  // namespace attune
