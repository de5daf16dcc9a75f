#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/problem/attention_problem.h"

namespace attune {

/// One of `count` parts of a list, for job arrays. Where elements cost the same, part i takes every count-th element
/// from the i-th on, so that parts are disjoint, together complete, and equally long but for one. Where they do not,
/// balanced_shard() says which ones it takes.
struct Shard {
  std::size_t index = 1;  ///< from 1 to count
  std::size_t count = 1;
  bool takes(std::size_t position) const { return position % count == index - 1; }  ///< position from 0
};

/// "2/8"; or "auto": what shard_of_task() says of this process's environment; or "auto/8" where that does not say how
/// many tasks there are. Throws Error(invalid_argument).
Shard parse_shard(std::string_view text);

/// The value of a variable of the environment, none where it is not set or empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// Which task of how many this process is, by what started it, the first of
///
///   SLURM_ARRAY_TASK_ID       with _MIN, _STEP and _COUNT, of a Slurm array, and of its tasks, which srun starts,
///   SLURM_PROCID              with SLURM_STEP_NUM_TASKS, these (each is a task of its own); also without an array
///   JOB_COMPLETION_INDEX      of an Indexed Job of Kubernetes, which does not tell how many there are: `count` must
///   OMPI_COMM_WORLD_RANK      with OMPI_COMM_WORLD_SIZE, of Open MPI
///   PMI_RANK                  with PMI_SIZE, of other MPIs
///   RANK                      with WORLD_SIZE, of torchrun
///
/// that is set. count: how many tasks there are, where the caller says it; it must agree with what is set. Throws
/// Error(invalid_argument) that says what is missing or wrong, also where nothing is set.
Shard shard_of_task(const Environment& environment, std::optional<std::size_t> count = {});

template <typename T>
std::vector<T> select(const std::vector<T>& list, const Shard& shard) {
  std::vector<T> taken;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (shard.takes(i)) taken.push_back(list[i]);
  }
  return taken;
}

/// About how many milliseconds `attune tune` takes for a problem: 30 trials of 250 ms each, for compiling, checking and
/// copying, and 400 launches at 300 TFLOP/s and 3 TB/s; two minutes at most, since a budget ends the search. It is
/// right to within a factor, which is enough to balance shards, and follows from the problem alone: whatever GPU and
/// database a task of an array has, all tasks of one version of Attune must come to the same shards.
std::int64_t estimated_sweep_ms(const AttentionProblem& problem);

/// The positions in `costs`, rising, that a shard takes: the dearest element first, each goes to the shard that has the
/// least so far, of several the first. Shards are disjoint and together complete. Of equal costs they are those of
/// Shard::takes(). No shard has more than 4/3 of what the best division would leave the fullest one (Graham, Bounds on
/// multiprocessing timing anomalies, 1969). Costs are not negative, and their sum is an int64.
std::vector<std::size_t> balanced_shard(const std::vector<std::int64_t>& costs, const Shard& shard);

}  // namespace attune
