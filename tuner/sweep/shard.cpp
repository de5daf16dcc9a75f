#include "tuner/sweep/shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <queue>
#include <tuple>

#include "generator/error.h"

namespace attune {
namespace {

std::optional<std::size_t> whole_number(std::string_view text) {
  std::size_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) return {};
  return number;
}

// What is set must be a number; what is not has the fallback, or is missed.
std::size_t number_of(const Environment& environment, const char* name, std::optional<std::size_t> fallback = {}) {
  const std::optional<std::string> text = environment(name);
  if (!text) {
    if (fallback) return *fallback;
    refuse(fmt::format("--shard auto: {} is not set; write --shard I/N", name));
  }
  const std::optional<std::size_t> number = whole_number(*text);
  if (!number) refuse(fmt::format("--shard auto: {}={} is no whole number; write --shard I/N", name, *text));
  return *number;
}

struct Task {
  std::size_t position, count;  // position from 0
};

Task task_of(std::size_t position, std::size_t count, const char* of) {
  if (position >= count)
    refuse(fmt::format("--shard auto: {} counts {} tasks, and this one has number {} from 0", of, count, position));
  return {position, count};
}

Task task_of_slurm_array(const Environment& environment) {
  const std::size_t id = number_of(environment, "SLURM_ARRAY_TASK_ID"),
                    count = number_of(environment, "SLURM_ARRAY_TASK_COUNT"),
                    first = number_of(environment, "SLURM_ARRAY_TASK_MIN", 0),
                    step = number_of(environment, "SLURM_ARRAY_TASK_STEP", 1);
  // Nothing tells which of three the task 5 of --array=1,5,7 is.
  if (step == 0 || id < first || (id - first) % step != 0 || (id - first) / step >= count) {
    refuse(
        fmt::format("--shard auto: the array's numbers are not evenly apart (this task is {}, the first {}, the step "
                    "{}, and there are {}): "
                    "submit it with --array=1-{} or the like, or write --shard I/N",
                    id, first, step, count, count));
  }
  return {(id - first) / step, count};
}

Task task_of_environment(const Environment& environment, std::optional<std::size_t> count) {
  constexpr const char* kLaunchers[][2] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"RANK", "WORLD_SIZE"}};
  const bool of_array = environment("SLURM_ARRAY_TASK_ID").has_value();
  // srun sets both for each task of a step; a batch script outside of one has the first alone.
  const bool of_step = environment("SLURM_PROCID").has_value() && environment("SLURM_STEP_NUM_TASKS").has_value();
  if (of_array || of_step) {
    const Task array = of_array ? task_of_slurm_array(environment) : Task{0, 1};
    const Task step = of_step ? task_of(number_of(environment, "SLURM_PROCID"),
                                        number_of(environment, "SLURM_STEP_NUM_TASKS"), "SLURM_STEP_NUM_TASKS")
                              : Task{0, 1};
    return {array.position * step.count + step.position, array.count * step.count};
  }
  if (environment("JOB_COMPLETION_INDEX")) {
    if (!count) {
      refuse(
          "--shard auto: JOB_COMPLETION_INDEX is set, and Kubernetes does not tell a container how many completions "
          "its job has: write --shard auto/N, of as many as the job's spec.completions");
    }
    return task_of(number_of(environment, "JOB_COMPLETION_INDEX"), *count, "auto/N");
  }
  for (const auto& [rank, size] : kLaunchers)
    if (environment(rank)) return task_of(number_of(environment, rank), number_of(environment, size), size);
  refuse(
      "--shard auto: this is no task of an array: none of SLURM_ARRAY_TASK_ID, SLURM_PROCID with SLURM_STEP_NUM_TASKS, "
      "JOB_COMPLETION_INDEX, OMPI_COMM_WORLD_RANK, PMI_RANK and RANK is set; write --shard I/N");
}

std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == 0) return {};
  return value;
}

}  // namespace

Shard shard_of_task(const Environment& environment, std::optional<std::size_t> count) {
  const Task task = task_of_environment(environment, count);
  if (count && *count != task.count)
    refuse(fmt::format("--shard auto/{}: what started this process says that there are {} tasks", *count, task.count));
  return {task.position + 1, task.count};
}

Shard parse_shard(std::string_view text) {
  constexpr std::string_view kAuto = "auto";
  if (text == kAuto) return shard_of_task(variable);
  const std::size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const std::optional<std::size_t> count = whole_number(text.substr(slash + 1));
    if (text.substr(0, slash) == kAuto && count.value_or(0) > 0) return shard_of_task(variable, count);
    const std::optional<std::size_t> index = whole_number(text.substr(0, slash));
    if (index && count && *index >= 1 && *index <= *count) return {*index, *count};
  }
  refuse(
      fmt::format("shard \"{}\": expected I/N with I from 1 to N, such as 2/8, or auto in a task of an array", text));
}

std::int64_t estimated_sweep_ms(const AttentionProblem& problem) {
  constexpr double kTrials = 30, kTrialMs = 250, kLaunches = 400, kFlopsPerMs = 300e9, kBytesPerMs = 3e9,
                   kMostMs = 120e3;
  const double launch_ms = count_flops(problem) / kFlopsPerMs + count_bytes(problem) / kBytesPerMs;
  return std::llround(std::min(kTrials * kTrialMs + kLaunches * launch_ms, kMostMs));
}

std::vector<std::size_t> balanced_shard(const std::vector<std::int64_t>& costs, const Shard& shard) {
  std::vector<std::size_t> dearest_first(costs.size());
  std::iota(dearest_first.begin(), dearest_first.end(), std::size_t{0});
  std::stable_sort(dearest_first.begin(), dearest_first.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  struct Load {
    std::int64_t cost;
    std::size_t shard;  // from 0
    bool operator>(const Load& other) const { return std::tie(cost, shard) > std::tie(other.cost, other.shard); }
  };
  // No more shards than elements get any: a count of 10^18 needs no memory.
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least_first;
  for (std::size_t i = 0; i < std::min(shard.count, costs.size()); ++i) least_first.push({0, i});
  std::vector<std::size_t> taken;
  for (const std::size_t position : dearest_first) {
    Load least = least_first.top();
    least_first.pop();
    if (least.shard == shard.index - 1) taken.push_back(position);
    least.cost += costs[position];
    least_first.push(least);
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

}  // namespace attune
