// Parts of a list: which one a job takes, as it is told or as its environment says.
#include "tuner/sweep/shard.h"

#include <map>
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
