#include "tuner/search/searcher.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace attune {
namespace {

constexpr double kSmallStep = 1.5;  // a field of which one value is at most so many times the other

bool is_small_step(const KernelConfig& a, const KernelConfig& b) {
  const auto near = [](int x, int y) { return std::max(x, y) <= kSmallStep * std::min(x, y); };
  return near(a.block_q, b.block_q) && near(a.block_kv, b.block_kv) && near(a.warps, b.warps);
}

std::vector<std::size_t> diverse_top(const std::vector<Candidate>& space, int count) {
  using Kind = std::tuple<int, int, int, int, Persistence, QueryGradient, bool>;
  std::set<Kind> seen;
  std::vector<std::size_t> top;
  for (std::size_t i = 0; i < space.size() && static_cast<int>(top.size()) < count; ++i) {
    const KernelConfig& config = space[i].config;
    const Kind kind(config.block_q, config.block_kv, config.warps, config.stages, config.persistence, config.dq,
                    config.heads_apart);
    if (seen.insert(kind).second) top.push_back(i);
  }
  return top;
}

struct PublishedTile {
  Pass pass;
  KernelFamily family;
  int max_head_dim;  // the largest that it serves
  int block_q, block_kv;
  int warps;  // sm80
};
constexpr KernelFamily kMma = KernelFamily::sm80, kWgmma = KernelFamily::sm90;
constexpr PublishedTile kPublishedTiles[] = {
    // FlashAttention-2, for compute capabilities 8.0 and 8.6
    {Pass::forward, kMma, 64, 128, 128, 4},
    {Pass::forward, kMma, 64, 128, 64, 4},
    {Pass::forward, kMma, 96, 128, 64, 4},
    {Pass::forward, kMma, 96, 64, 64, 4},
    {Pass::forward, kMma, 128, 128, 64, 4},
    {Pass::forward, kMma, 128, 128, 32, 4},
    {Pass::forward, kMma, 128, 64, 64, 4},
    {Pass::forward, kMma, 160, 128, 32, 4},
    {Pass::forward, kMma, 160, 64, 64, 4},
    {Pass::forward, kMma, 192, 128, 64, 8},
    {Pass::forward, kMma, 192, 64, 64, 4},
    {Pass::forward, kMma, 256, 128, 64, 8},
    {Pass::forward, kMma, 256, 64, 64, 4},
    // FlashAttention-3
    {Pass::forward, kWgmma, 64, 192, 128, 0},
    {Pass::forward, kWgmma, 96, 192, 144, 0},
    {Pass::forward, kWgmma, 128, 128, 128, 0},
    {Pass::forward, kWgmma, 128, 128, 176, 0},
    {Pass::forward, kWgmma, 192, 128, 112, 0},
    {Pass::forward, kWgmma, 256, 128, 80, 0},
    // FlashAttention-2, backward
    {Pass::backward, kMma, 64, 128, 128, 8},
    {Pass::backward, kMma, 128, 64, 128, 8},
    {Pass::backward, kMma, 256, 64, 64, 8},
};

bool has_tile(const KernelConfig& config, const PublishedTile& published) {
  return config.family == published.family && config.block_q == published.block_q &&
         config.block_kv == published.block_kv && (config.family != kMma || config.warps == published.warps);
}

// The head dim of the rows that serve this one: the least that is large enough; 0 if none is.
int serving_head_dim(const AttentionProblem& problem, KernelFamily family) {
  int serving = 0;
  for (const PublishedTile& published : kPublishedTiles) {
    const bool serves =
        published.pass == problem.pass && published.family == family && published.max_head_dim >= problem.head_dim;
    if (serves && (serving == 0 || published.max_head_dim < serving)) serving = published.max_head_dim;
  }
  return serving;
}

}  // namespace

namespace {

// Of queries, keys and warps.
int tile_moves(const KernelConfig& a, const KernelConfig& b) {
  const int warps = a.warps != b.warps, queries = a.block_q != b.block_q, keys = a.block_kv != b.block_kv;
  if (a.split != b.split) {
    // With a warp's keys kept, either the warps or the tile's keys follow.
    const bool same_keys_of_warp = a.block_kv * a.split * b.warps == b.block_kv * b.split * a.warps;
    return queries + (same_keys_of_warp && warps + keys == 1 ? 1 : 1 + warps + keys);
  }
  const bool same_rows_of_warp = a.block_q * b.warps == b.block_q * a.warps;
  return (warps && same_rows_of_warp ? 1 : queries + warps) + keys;
}

}  // namespace

bool one_move_apart(const KernelConfig& a, const KernelConfig& b) {
  int moves = a.family != b.family;
  moves += tile_moves(a, b);
  moves += a.stages != b.stages;
  moves += a.q_in_registers != b.q_in_registers;
  moves += a.tile_order != b.tile_order || a.l2_parts != b.l2_parts;
  moves += a.rescale_threshold != b.rescale_threshold || a.without_maximum != b.without_maximum;
  moves += a.whole_tiles != b.whole_tiles;
  moves += a.ctas_per_sm != b.ctas_per_sm;
  moves += a.warpgroup_order != b.warpgroup_order;
  moves += a.overlap != b.overlap;
  // Only CTAs that take several tiles have a second stage of Q.
  moves += a.persistence != b.persistence || a.q_stages != b.q_stages;
  moves += a.v_stages != b.v_stages;
  moves += a.p_in_shared != b.p_in_shared;
  moves += a.cluster != b.cluster;
  moves += a.packed_heads != b.packed_heads;
  moves += a.emulated_exponentials != b.emulated_exponentials;
  moves += a.producer_registers != b.producer_registers;
  moves += a.heads_apart != b.heads_apart;
  moves += a.dq_first != b.dq_first;
  moves += a.dq != b.dq;
  return moves == 1;
}

std::vector<KernelConfig> published_seeds(const AttentionProblem& problem, const std::vector<Candidate>& space) {
  std::vector<KernelConfig> seeds;
  for (const PublishedTile& published : kPublishedTiles) {
    if (published.pass != problem.pass || published.max_head_dim != serving_head_dim(problem, published.family))
      continue;
    const auto found = std::find_if(space.begin(), space.end(),
                                    [&](const Candidate& candidate) { return has_tile(candidate.config, published); });
    if (found != space.end()) seeds.push_back(found->config);
  }
  return seeds;
}

Searcher::Searcher(std::vector<Candidate> space, const std::vector<KernelConfig>& seeds, const SearchLimits& limits)
    : space_(std::make_shared<const std::vector<Candidate>>(std::move(space))), limits_(limits) {
  proposed_.resize(space_->size());
  std::vector<bool> listed(space_->size());
  const auto list = [&](std::size_t index) {
    if (!listed[index]) opening_.push_back(index);
    listed[index] = true;
  };
  for (const KernelConfig& seed : seeds) {
    const auto found = std::find_if(space_->begin(), space_->end(),
                                    [&](const Candidate& candidate) { return candidate.config == seed; });
    if (found != space_->end()) list(static_cast<std::size_t>(found - space_->begin()));
  }
  for (const std::size_t index : diverse_top(*space_, limits_.model_top)) list(index);
}

const std::vector<std::size_t>& Searcher::neighbours_of(std::size_t index) const {
  const auto [found, is_new] = neighbours_->try_emplace(index);
  std::vector<std::size_t>& neighbours = found->second;
  if (!is_new) return neighbours;
  const KernelConfig& from = (*space_)[index].config;
  for (std::size_t i = 0; i < space_->size(); ++i) {
    if (one_move_apart(from, (*space_)[i].config)) neighbours.push_back(i);
  }
  std::stable_partition(neighbours.begin(), neighbours.end(),
                        [&](std::size_t i) { return is_small_step(from, (*space_)[i].config); });
  return neighbours;
}

std::optional<std::size_t> Searcher::move_from(std::size_t from) const {
  for (const std::size_t neighbour : neighbours_of(from)) {
    if (!proposed_[neighbour]) return neighbour;
  }
  return std::nullopt;
}

std::optional<std::size_t> Searcher::propose() {
  const auto take = [&](std::size_t index) {
    proposed_[index] = true;
    return index;
  };
  for (const std::size_t index : opening_) {
    if (!proposed_[index]) return take(index);
  }
  for (const auto& [time, index] : times_) {
    if (time > kReach * times_.front().first) break;
    if (const auto move = move_from(index)) return take(*move);
  }
  const auto rest = std::find(proposed_.begin(), proposed_.end(), false);
  if (rest == proposed_.end()) return std::nullopt;
  return take(static_cast<std::size_t>(rest - proposed_.begin()));
}

std::optional<std::size_t> Searcher::next() {
  if (!ended_by_.empty()) return std::nullopt;
  if (limits_.patience > 0 && without_improvement_ >= limits_.patience) {
    ended_by_ = "patience";
    return std::nullopt;
  }
  const auto proposal = propose();
  if (!proposal) ended_by_ = "space exhausted";
  return proposal;
}

void Searcher::tell(std::size_t index, double time) {
  ++told_;
  const bool in_opening = told_ <= static_cast<int>(opening_.size());
  const bool improves = time > 0 && (mark_ <= 0 || time < kImprovement * mark_);
  if (improves) mark_ = time;
  without_improvement_ = improves || in_opening ? 0 : without_improvement_ + 1;
  if (time > 0) times_.insert(std::lower_bound(times_.begin(), times_.end(), std::pair(time, index)), {time, index});
}

std::size_t Searcher::planned() const {
  if (limits_.patience <= 0) return space_->size();
  const std::size_t told = static_cast<std::size_t>(told_);
  const std::size_t begun = std::max(told, opening_.size());
  return std::min(space_->size(), begun + static_cast<std::size_t>(limits_.patience - without_improvement_));
}

std::vector<std::size_t> Searcher::upcoming(std::size_t count) const {
  Searcher ahead = *this;
  std::vector<std::size_t> proposals;
  while (proposals.size() < count) {
    const auto proposal = ahead.propose();
    if (!proposal) break;
    proposals.push_back(*proposal);
  }
  return proposals;
}

}  // namespace attune
