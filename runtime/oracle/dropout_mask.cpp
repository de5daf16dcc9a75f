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
  const double asked = problem.dropout, nearest = std::floor(256 * asked + 0.5) / 256, off = std::abs(nearest - asked);
  bits_ = nearest < 1 && off <= 0.02 * asked && off <= 0.02 * (1 - asked) ? 8 : 16;
  const double values = std::ldexp(1.0, bits_), dropped = std::min(std::floor(values * asked + 0.5), values - 1);
  threshold_ = static_cast<std::uint32_t>(dropped);
  scale_ = values / (values - dropped);

  const std::span<const std::int64_t> state = terms.of<std::int64_t>(Operand::dropout_state);
  const auto [low, high] = halves(state.empty() ? 0 : static_cast<std::uint64_t>(state[0]));
  const Counter of_call = philox(halves(state.empty() ? 0 : static_cast<std::uint64_t>(state[1])), high, 10);
  seed_ = low;
  const std::int64_t before = terms.sequences_before * problem.heads_q;
  for (std::int64_t head = 0; head < problem.batch * problem.heads_q; ++head)
    heads_.push_back(philox({of_call[0] ^ static_cast<std::uint32_t>(before + head), of_call[1]}, low, 10));
}

std::uint32_t DropoutMask::number(std::int64_t batch_head, std::int64_t query, std::int64_t key) const {
  const Counter& head = heads_[static_cast<std::size_t>(batch_head)];
  const auto of_query = static_cast<std::uint32_t>(query / 16 * 32 + query % 8 * 4 + key % 8 / 2),
             of_key = static_cast<std::uint32_t>(key / 16);
  const std::int64_t shift = 8 * (2 * (key % 2) + query % 16 / 8);
  const auto byte = [&](std::uint32_t plane) {
    const Counter drawn = philox({head[0] ^ of_query, head[1] ^ of_key ^ plane}, seed_, 7);
    return drawn[static_cast<std::size_t>(key % 16 / 8)] >> shift & 0xff;
  };
  return bits_ == 8 ? byte(0) : byte(0) << 8 | byte(0x80000000);
}

double DropoutMask::of(std::int64_t batch_head, std::int64_t query, std::int64_t key) const {
  return bits_ == 0 ? 1 : number(batch_head, query, key) >= threshold_ ? scale_ : 0;
}

}  // namespace attune
