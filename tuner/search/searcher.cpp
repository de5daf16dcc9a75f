#include "tuner/search/searcher.h"

#include <algorithm>
#include <set>

#include "generator/config/config_fields.h"
#include "generator/families/kernel_family.h"

namespace attune {
namespace {

constexpr double kSmallStep = 1.5;  // a field of which one value is at most so many times the other

bool is_small_step(const KernelConfig& a, const KernelConfig& b) {
  const auto near = [](int x, int y) { return std::max(x, y) <= kSmallStep * std::min(x, y); };
  return near(a.block_q, b.block_q) && near(a.block_kv, b.block_kv) && near(a.warps, b.warps);
}

// Only the first of configs that agree in all fields by which the opening tells them apart.
std::vector<std::size_t> diverse_top(const std::vector<Candidate>& space, int count) {
  std::set<std::vector<int>> seen;
  std::vector<std::size_t> top;
  for (std::size_t i = 0; i < space.size() && static_cast<int>(top.size()) < count; ++i) {
    std::vector<int> kind;
    for (const ConfigField& field : config_fields()) {
      if (field.sets_apart) kind.push_back(field.get(space[i].config));
    }
    if (seen.insert(std::move(kind)).second) top.push_back(i);
  }
  return top;
}

bool has_tile(const KernelConfig& config, const KernelFamily& family, const PublishedTile& published) {
  return config.family == family.word && config.block_q == published.block_q && config.block_kv == published.block_kv &&
         (published.warps == 0 || config.warps == published.warps);
}

// The head dim of the rows that serve this one: the least that is large enough; 0 if none is.
int serving_head_dim(const AttentionProblem& problem, const KernelFamily& family) {
  for (const PublishedTile& published : family.published) {
    if (published.max_head_dim >= problem.head_dim) return published.max_head_dim;
  }
  return 0;
}

constexpr std::string_view kTileMove = "tile";

// Steps between two tiles: their queries, keys and warps, and the warps that share keys.
int tile_moves(const KernelConfig& a, const KernelConfig& b) {
  const int warps = a.warps != b.warps, queries = a.block_q != b.block_q, keys = a.block_kv != b.block_kv;
  if (a.query_warps != b.query_warps) {
    // With a warp's keys kept, either the warps or the tile's keys follow.
    const bool same_keys_of_warp = a.block_kv * a.query_warps * b.warps == b.block_kv * b.query_warps * a.warps;
    return queries + (same_keys_of_warp && warps + keys == 1 ? 1 : 1 + warps + keys);
  }
  const bool same_rows_of_warp = a.block_q * b.warps == b.block_q * a.warps;
  return (warps && same_rows_of_warp ? 1 : queries + warps) + keys;
}

}  // namespace

bool one_move_apart(const KernelConfig& a, const KernelConfig& b) {
  int moves = (a.family != b.family) + tile_moves(a, b);
  std::string_view moved = kTileMove;  // fields of one move stand together or apart; what was counted is not again
  for (const ConfigField& field : config_fields()) {
    if (moves > 1) return false;
    if (field.move == kTileMove || field.get(a) == field.get(b)) continue;
    moves += field.move != moved;
    moved = field.move;
  }
  return moves == 1;
}

std::vector<KernelConfig> published_seeds(const AttentionProblem& problem, const std::vector<Candidate>& space) {
  std::vector<KernelConfig> seeds;
  for (const KernelFamily& family : kernel_families()) {
    if (family.pass != problem.pass) continue;
    for (const PublishedTile& published : family.published) {
      if (published.max_head_dim != serving_head_dim(problem, family)) continue;
      const auto found = std::find_if(space.begin(), space.end(), [&](const Candidate& candidate) {
        return has_tile(candidate.config, family, published);
      });
      if (found != space.end()) seeds.push_back(found->config);
    }
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
