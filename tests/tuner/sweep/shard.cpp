// Parts of a list: which one a job takes, as it is told or as its environment says.
#include "tuner/sweep/shard.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"

using namespace attune;

namespace {

using Variables = std::map<std::string, std::string>;

std::string text_of(const Shard& shard) { return std::to_string(shard.index) + "/" + std::to_string(shard.count); }

std::string shard_of(const Variables& variables, std::optional<std::size_t> count = {}) {
  const auto environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  return text_of(shard_of_task(environment, count));
}

}  // namespace

TEST_CASE("shards are disjoint, complete and even", "[nogpu]") {
  std::vector<int> list(23);
  for (int i = 0; i < 23; ++i) list[static_cast<std::size_t>(i)] = i;
  for (const std::size_t count : {1u, 2u, 5u, 23u, 40u}) {
    std::vector<int> together;
    for (std::size_t i = 1; i <= count; ++i) {
      const std::vector<int> part = select(list, Shard{i, count});
      CHECK(part.size() >= 23 / count);
      CHECK(part.size() <= 23 / count + 1);
      together.insert(together.end(), part.begin(), part.end());
    }
    std::sort(together.begin(), together.end());
    CHECK(together == list);
  }
  CHECK(parse_shard("3/8").index == 3);
  CHECK(parse_shard("3/8").count == 8);
  for (const char* bad : {"", "3", "0/8", "9/8", "3/", "/8", "3/8x", "-1/8", "a/b", "3 /8", "1/0"})
    CHECK_THROWS_WITH(parse_shard(bad), ContainsSubstring(std::string("\"") + bad + "\"") && ContainsSubstring("2/8"));
}

TEST_CASE("shards of elements of different costs are balanced, disjoint and complete", "[nogpu]") {
  // A few large ones among many small ones, as lists of shapes have them.
  std::vector<std::int64_t> costs;
  for (int i = 0; i < 50; ++i) costs.push_back(i % 10 == 3 ? 60'000 : 7'500 + 100 * i);
  for (const std::size_t count : {1u, 2u, 4u, 7u, 50u, 80u}) {
    INFO(count << " shards");
    std::vector<std::size_t> together;
    std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
    for (std::size_t i = 1; i <= count; ++i) {
      const std::vector<std::size_t> part = balanced_shard(costs, Shard{i, count});
      CHECK(std::is_sorted(part.begin(), part.end()));
      std::int64_t sum = 0;
      for (const std::size_t position : part) sum += costs.at(position);
      least = std::min(least, sum);
      most = std::max(most, sum);
      together.insert(together.end(), part.begin(), part.end());
    }
    std::sort(together.begin(), together.end());
    std::vector<std::size_t> all(costs.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    CHECK(together == all);
    // What is placed last goes to the least loaded, and is the cheapest.
    if (count <= 4) CHECK(most - least <= 13'000);
  }
}

TEST_CASE("shards of elements that cost the same take every count-th", "[nogpu]") {
  const std::vector<std::int64_t> costs(23, 7'500);
  for (const std::size_t count : {1u, 5u, 23u, 40u}) {
    for (std::size_t i = 1; i <= count; ++i) {
      std::vector<std::size_t> expected;
      for (std::size_t position = i - 1; position < costs.size(); position += count) expected.push_back(position);
      CHECK(balanced_shard(costs, Shard{i, count}) == expected);
    }
  }
  CHECK(balanced_shard({}, Shard{1, 2}).empty());
  CHECK(balanced_shard({1}, Shard{std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max()})
            .empty());
}

TEST_CASE("the cost of a sweep rises with its problem's work, up to what a budget leaves", "[nogpu]") {
  const auto cost = [](const char* text) { return estimated_sweep_ms(parse_problem(text)); };
  CHECK(cost("forward bf16 b1 hq1 sq16 d64") == 7'500);
  CHECK(cost("forward bf16 b1 hq16 sq16384 d128") == 10'468);  // 2.2e12 FLOPs, 0.27 GB
  CHECK(cost("backward bf16 b1 hq16 sq16384 d128") > cost("forward bf16 b1 hq16 sq16384 d128"));
  CHECK(cost("forward bf16 b1 hq16 sq16384 d128 causal") < cost("forward bf16 b1 hq16 sq16384 d128"));
  CHECK(cost("forward bf16 b64 hq64 sq1048576 d128") == 120'000);
}

TEST_CASE("a task's shard is what started it says", "[nogpu]") {
  const Variables array = {{"SLURM_ARRAY_TASK_ID", "3"}, {"SLURM_ARRAY_TASK_COUNT", "8"}};
  CHECK(shard_of({{"SLURM_ARRAY_TASK_ID", "0"}, {"SLURM_ARRAY_TASK_MIN", "0"}, {"SLURM_ARRAY_TASK_COUNT", "8"}}) ==
        "1/8");
  CHECK(shard_of({{"SLURM_ARRAY_TASK_ID", "8"}, {"SLURM_ARRAY_TASK_MIN", "1"}, {"SLURM_ARRAY_TASK_COUNT", "8"}}) ==
        "8/8");
  CHECK(shard_of({{"SLURM_ARRAY_TASK_ID", "9"},
                  {"SLURM_ARRAY_TASK_MIN", "3"},
                  {"SLURM_ARRAY_TASK_STEP", "2"},
                  {"SLURM_ARRAY_TASK_COUNT", "4"}}) == "4/4");
  Variables tasks = array;
  tasks.insert({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}});  // a batch script, which is not one of srun's tasks
  CHECK(shard_of(tasks) == "4/8");
  tasks["SLURM_STEP_NUM_TASKS"] = "4";
  CHECK(shard_of(tasks) == "14/32");
  CHECK(shard_of({{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}) ==
        "3/4");
  CHECK(shard_of({{"JOB_COMPLETION_INDEX", "0"}}, 5) == "1/5");
  CHECK(shard_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, 2) == "2/2");
  CHECK(shard_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}) == "1/3");
  CHECK(shard_of({{"RANK", "7"}, {"WORLD_SIZE", "8"}}) == "8/8");
}

TEST_CASE("an environment that does not say which task it is of is refused", "[nogpu]") {
  const auto refused = [](const Variables& variables, const char* words, std::optional<std::size_t> count = {}) {
    CHECK_THROWS_WITH(shard_of(variables, count), ContainsSubstring(words));
  };
  refused({}, "this is no task of an array");
  refused({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, "this is no task of an array");
  refused({{"SLURM_ARRAY_TASK_ID", "3"}}, "SLURM_ARRAY_TASK_COUNT is not set");
  refused({{"SLURM_ARRAY_TASK_ID", "three"}, {"SLURM_ARRAY_TASK_COUNT", "4"}},
          "SLURM_ARRAY_TASK_ID=three is no whole number");
  refused({{"SLURM_ARRAY_TASK_ID", "7"}, {"SLURM_ARRAY_TASK_MIN", "1"}, {"SLURM_ARRAY_TASK_COUNT", "3"}},
          "not evenly apart");
  refused({{"SLURM_ARRAY_TASK_ID", "1"}, {"SLURM_ARRAY_TASK_STEP", "0"}, {"SLURM_ARRAY_TASK_COUNT", "3"}},
          "not evenly apart");
  refused({{"JOB_COMPLETION_INDEX", "2"}}, "write --shard auto/N");
  refused({{"JOB_COMPLETION_INDEX", "5"}}, "counts 5 tasks, and this one has number 5 from 0", 5);
  refused({{"RANK", "1"}}, "WORLD_SIZE is not set");
  refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK=-1 is no whole number");
  refused({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "there are 2 tasks", 3);
}
