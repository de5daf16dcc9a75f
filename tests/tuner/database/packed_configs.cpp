// What calls pick where packs are loaded, and by which digest ranks know that they pick equally.
#include "tuner/database/packed_configs.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "generator/error.h"
#include "generator/generate.h"
#include "runtime/cuda/kernel_source.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/forked_child.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/database/kernel_packs.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/system_database.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::example_pack;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::testing::error_of;
namespace fs = std::filesystem;

namespace packed_configs_test {
namespace {

constexpr const char* kA = "sm80 q64 kv64 w4 st2";
constexpr const char* kB = "sm80 q128 kv64 w4 st2";
constexpr const char* kC = "sm80 q64 kv32 w4 st2";
constexpr const char* kWhole = "sm80 q64 kv64 w4 st2 even-tiles";
constexpr const char* kProblem = "forward bf16 b1 hq2 sq1000 d64";

const DeviceSpec& a100() { return find_device("a100"); }

using Rows = std::vector<std::pair<std::string, std::string>>;

struct Packs {
  TemporaryFolder folder;
  std::shared_ptr<LoadedPacks> loaded = std::make_shared<LoadedPacks>();
  int count = 0;

  fs::path add(const Rows& rows, const std::string& target = "a100") {
    fs::path path = folder / ("pack" + std::to_string(count++));
    write_kernel_pack(path, example_pack(rows, target));
    loaded->load(path);
    return path;
  }
  std::string pick(const std::string& problem, const std::vector<KernelConfig>& passed_over = {}) const {
    const auto choice = loaded->pick(parse_problem(problem), a100(), passed_over);
    if (!choice) return "nothing";
    CHECK(choice->origin == ConfigOrigin::packed);
    return canonical_text(choice->config);
  }
};

Measurement row_of(const std::string& problem, const std::string& config, double us,
                   const std::string& device = "NVIDIA A100-SXM4-80GB", int sm_count = 108) {
  Measurement row = example_measurement(problem, config, us);
  row.device = device;
  row.sm_count = sm_count;
  return row;
}

// Picks of packs over those of a user's database alone.
struct Source {
  TemporaryFolder folder;
  std::shared_ptr<TuningDatabase> database = std::make_shared<TuningDatabase>(folder / "tuning.db");
  int opened = 0;
  PackedConfigs configs;

  explicit Source(std::shared_ptr<LoadedPacks> packs = std::make_shared<LoadedPacks>(), bool frozen = false)
      : configs(
            std::move(packs),
            [this] {
              ++opened;
              return std::make_shared<TunedConfigs>(database);
            },
            frozen) {}

  std::string digest(const DeviceSpec& device = a100()) const {
    return configs.digest(device, TemplateSet::embedded());
  }
};

}  // namespace

TEST_CASE("a pack's row answers for its problem, then for other lengths of its dispatch class", "[nogpu]") {
  Packs packs;
  CHECK(packs.pick(kProblem) == "nothing");
  const fs::path first = packs.add({{kProblem, kA}, {"forward bf16 b1 hq2 sq800 d64", kB}});
  const auto choice = packs.loaded->pick(parse_problem(kProblem), a100(), {});
  REQUIRE(choice);
  CHECK(choice->detail == std::string(kProblem) + " of " + first.string() + ": exact, a test");
  CHECK(choice->tune_command.empty());
  CHECK(packs.pick(std::string(kProblem) + " scale0.3 bhsd") == kA);
  CHECK(packs.pick("forward bf16 b1 hq2 sq1010 d64") == kA);  // 769 to 1023 and no multiple of 256, as both rows
  CHECK(packs.pick("forward bf16 b1 hq2 sq810 d64") == kB);
  CHECK(packs.pick("forward bf16 b1 hq2 sq1024 d64") == "nothing");
  CHECK(packs.pick("forward bf16 b2 hq2 sq1000 d64") == "nothing");
  CHECK(packs.pick(kProblem, {parse_config(kA)}) == kB);
  CHECK(packs.pick(kProblem, {parse_config(kA), parse_config(kB)}) == "nothing");

  // An exact row of a later pack goes before the class of an earlier one, one of an earlier pack before both.
  packs.add({{"forward bf16 b1 hq2 sq1010 d64", kC}, {kProblem, kC}});
  CHECK(packs.pick("forward bf16 b1 hq2 sq1010 d64") == kC);
  CHECK(packs.pick(kProblem) == kA);
  CHECK(packs.loaded->all().size() == 2);
  packs.loaded->load(first);  // it is there
  CHECK(packs.loaded->all().size() == 2);

  // Whole tiles serve the lengths of their class that are multiples of them.
  packs.add({{"forward bf16 b1 hq2 sq2048 skv2048 d64", kWhole}});
  CHECK(packs.pick("forward bf16 b1 hq2 sq1792 d64") == kWhole);
  CHECK(packs.pick("forward bf16 b1 hq2 sq1792 skv2000 d64") == "nothing");
}

TEST_CASE("a pack's row answers for masks that hide nothing, however they are asked for", "[nogpu]") {
  Packs packs;
  const std::string decoding = "forward bf16 b4 hq8 hkv2 sq1 skv4096 d128";
  packs.add({{decoding, "sm80 q16 kv64 w1 st2"}});
  AttentionProblem problem = parse_problem(decoding);
  for (const std::int64_t offset : {4095, 5000, 4094}) {
    problem.mask = MaskKind::causal;
    problem.mask_offset = offset;
    CHECK(packs.loaded->pick(problem, a100(), {}).has_value() == (offset >= 4095));
    problem.mask = MaskKind::window;
    problem.first_offset = -7;
    CHECK(packs.loaded->pick(problem, a100(), {}).has_value() == (offset >= 4095));
    problem.first_offset = 0;
  }
}

TEST_CASE("on a GPU that no loaded pack is for, a call is an error that says so", "[nogpu]") {
  Packs packs;
  const fs::path path = packs.add({{kProblem, kA}}, "h200");
  const std::string text = error_of(ErrorCode::unsupported, [&] { packs.pick(kProblem); });
  CHECK_THAT(text, ContainsSubstring("NVIDIA A100-SXM4-80GB with 108 SMs") &&
                       ContainsSubstring(path.string() + " is for NVIDIA H200 with 132 SMs") &&
                       ContainsSubstring("attune pack"));
  packs.add({{kProblem, kB}});
  CHECK(packs.pick(kProblem) == kB);
}

TEST_CASE("packed kernels are found by their source and architecture alone", "[nogpu]") {
  Packs packs;
  const fs::path path = packs.add({{kProblem, kA}});
  const KernelPlan plan = generate(parse_problem(kProblem), parse_config(kA), a100());
  const auto kernel = packs.loaded->find(plan.launches[0]);
  REQUIRE(kernel);
  CHECK_THAT(kernel->compiled.image, ContainsSubstring("cubin of " + kernel_key(plan.launches[0])));
  CHECK(kernel->compiled.resources.registers == 32);
  CHECK(kernel->compiled.resources.shared_bytes == plan.launches[0].shared_bytes);
  CHECK(kernel->origin == "the pack " + path.string() + ", which NVRTC 13.0 (test) compiled");
  CHECK(packs.loaded->has(plan.launches[0]));
  const KernelPlan other = generate(parse_problem(kProblem), parse_config(kB), a100());
  CHECK_FALSE(packs.loaded->has(other.launches[0]));
  CHECK_FALSE(packs.loaded->find(other.launches[0]));
  CHECK_FALSE(
      packs.loaded->has(generate(parse_problem(kProblem), parse_config(kA), find_device("rtx4090")).launches[0]));
}

TEST_CASE("what was loaded stays, whatever becomes of the file; what cannot be loaded changes nothing", "[nogpu]") {
  Packs packs;
  const fs::path path = packs.add({{kProblem, kA}});
  std::ofstream(path, std::ios::trunc) << "nothing";
  CHECK(packs.pick(kProblem) == kA);
  CHECK_THROWS_AS(packs.loaded->load(path), Error);
  CHECK_THROWS_AS(packs.loaded->load(packs.folder / "none"), Error);
  CHECK(packs.loaded->all().size() == 1);
  CHECK(packs.pick(kProblem) == kA);
}

TEST_CASE("packs go before the databases, which are opened at the first problem that no pack has", "[nogpu]") {
  Packs packs;
  packs.add({{kProblem, kA}});
  Source source(packs.loaded);
  CHECK_FALSE(source.configs.frozen());
  source.database->append(row_of(kProblem, kB, 100));
  source.database->append(row_of("forward bf16 b1 hq2 sq500 d64", kB, 100));
  const auto origin = [&](const std::string& problem) {
    const auto choice = source.configs.find(parse_problem(problem), a100());
    return choice ? choice->origin : ConfigOrigin::given;
  };
  CHECK(origin(kProblem) == ConfigOrigin::packed);
  CHECK(source.opened == 0);
  CHECK(origin("forward bf16 b1 hq2 sq500 d64") == ConfigOrigin::exact);
  CHECK(origin("forward bf16 b1 hq2 sq510 d64") != ConfigOrigin::packed);
  CHECK(source.opened == 1);
}

TEST_CASE("packs are loaded while threads pick and look for kernels", "[nogpu]") {
  Packs packs;
  packs.add({{kProblem, kA}});
  const fs::path second = packs.folder / "second";
  write_kernel_pack(second, example_pack({{"forward bf16 b1 hq2 sq500 d64", kB}}));
  const KernelPlan plan = generate(parse_problem(kProblem), parse_config(kA), a100());
  std::atomic<int> wrong = 0, found = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50 || found == 0; ++n) {
        if (!packs.loaded->pick(parse_problem(kProblem), a100(), {})) ++wrong;
        if (!packs.loaded->find(plan.launches[0])) ++wrong;
        if (packs.loaded->pick(parse_problem("forward bf16 b1 hq2 sq500 d64"), a100(), {})) ++found;
      }
    });
  }
  packs.loaded->load(second);
  packs.loaded->load(second);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(packs.loaded->all().size() == 2);
}

TEST_CASE("a digest is equal where picks are, and no other", "[nogpu]") {
  Source source;
  const std::string nothing = source.digest();
  CHECK(nothing.size() == 32);
  CHECK(source.digest() == nothing);
  CHECK(Source().digest() == nothing);
  CHECK(source.digest(find_device("h200")) != nothing);
  CHECK(Source(std::make_shared<LoadedPacks>(), true).digest() != nothing);
  DeviceSpec fewer = a100();
  --fewer.sm_count;
  CHECK(source.digest(fewer) != nothing);

  // Rows that may be picked here count.
  source.database->append(row_of(kProblem, kA, 100));
  const std::string first = source.digest();
  CHECK(first != nothing);
  // What cannot be picked does not: a trial that failed, a GPU of another capability.
  Measurement failed = row_of(kProblem, kB, 90);
  failed.status = MeasurementStatus::wrong_result;
  failed.reason = "wrong";
  source.database->append(failed);
  source.database->append(row_of(kProblem, kB, 90, "NVIDIA H200", 132));
  CHECK(source.digest() == first);
  // The same order by other times, measured at another time and stored in another order, is the same.
  source.database->append(row_of(kProblem, kC, 120));
  const std::string two = source.digest();
  CHECK(two != first);
  Source other;
  Measurement later = row_of(kProblem, kC, 150);
  later.created_at = "2025-03-01T12:00:00.000001Z";
  other.database->append(later);
  other.database->append(row_of(kProblem, kA, 140));
  CHECK(other.digest() == two);
  // Another order is not.
  other.database->append(row_of(kProblem, kC, 130));
  CHECK(other.digest() != two);
  // A GPU of the same capability is one to pick from.
  source.database->append(row_of(kProblem, kB, 90, "NVIDIA A30", 56));
  CHECK(source.digest() != two);

  // A row that somebody has changed is not picked.
  Source changed;
  changed.database->append(row_of(kProblem, kA, 100));
  changed.database->append(row_of(kProblem, kB, 110));
  run_sql(changed.folder / "tuning.db",
          "UPDATE measurement SET median_us = 1 WHERE config = '" + std::string(kB) + "'");
  CHECK(changed.digest() == first);
}

TEST_CASE("a digest knows the packs for the device, their order, and nothing of their dates", "[nogpu]") {
  const auto digest = [](const std::vector<Rows>& rows, const std::string& target = "a100") {
    Packs packs;
    for (const Rows& each : rows) packs.add(each, target);
    return Source(packs.loaded).digest();
  };
  const std::string one = digest({{{kProblem, kA}}});
  CHECK(digest({{{kProblem, kA}}}) == one);  // in another folder
  CHECK(digest({{{kProblem, kB}}}) != one);
  CHECK(digest({}) != one);
  CHECK(digest({{{kProblem, kA}}}, "h200") == digest({}));
  CHECK(digest({{{kProblem, kA}}, {{kProblem, kB}}}) != digest({{{kProblem, kB}}, {{kProblem, kA}}}));

  Packs packs;
  PackContents contents = example_pack({{kProblem, kA}});
  contents.manifest.created_at = "2026-01-01T00:00:00.000001Z";
  write_kernel_pack(packs.folder / "later", contents);
  packs.loaded->load(packs.folder / "later");
  CHECK(Source(packs.loaded).digest() == one);
}

TEST_CASE("a digest of the shipped presets takes milliseconds", "[nogpu]") {
  PackedConfigs configs(
      std::make_shared<LoadedPacks>(), [] { return std::make_shared<TunedConfigs>(nullptr, open_system_databases()); },
      false);
  const DeviceSpec& h200 = find_device("h200");
  const std::string first = configs.digest(h200, TemplateSet::embedded());  // opens the presets
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK(configs.digest(h200, TemplateSet::embedded()) == first);
    least =
        std::min(least, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  INFO(least << " ms");
  CHECK(least < 50);  // 4 of them, on a machine that is busy with other things
}

TEST_CASE("ranked rows are those of best(), and what it would say next", "[nogpu]") {
  Source source;
  for (const auto& [config, us] : {std::pair(kA, 100.0), {kB, 90.0}, {kC, 110.0}})
    source.database->append(row_of(kProblem, config, us));
  source.database->append(row_of(kProblem, kB, 105));  // newer, of the same rigor: it stands
  std::vector<std::string> configs;
  for (const TuningDatabase::Ranked& row : source.database->ranked([](const std::string&, int) { return true; })) {
    CHECK(row.problem == kProblem);
    CHECK_FALSE(row.estimate);
    configs.push_back(row.config);
  }
  CHECK(configs == std::vector<std::string>{kA, kB, kC});
  CHECK(canonical_text(source.database->best(parse_problem(kProblem), a100().name, a100().sm_count)->config) == kA);
  CHECK(source.database->ranked([](const std::string&, int) { return false; }).empty());
}

TEST_CASE("a child that is forked while another thread opens the databases opens them itself", "[nogpu]") {
  const TemporaryFolder folder;
  auto database = std::make_shared<TuningDatabase>(folder / "tuning.db");
  Measurement row = example_measurement(kProblem, kA, 10);
  row.device = a100().name;
  row.sm_count = a100().sm_count;
  database->append(row);
  std::atomic<bool> opening{false}, go_on{false};
  PackedConfigs configs(
      std::make_shared<LoadedPacks>(),
      [&] {
        opening = true;
        opening.notify_all();
        go_on.wait(false);
        return std::make_shared<TunedConfigs>(database);
      },
      false);
  const auto picks = [&] {
    const auto choice = configs.find(parse_problem(kProblem), a100());
    return choice && canonical_text(choice->config) == kA;
  };
  std::thread thread([&] { CHECK(picks()); });
  opening.wait(false);
  CHECK(attune::testing::succeeds_in_child([&] {
    go_on = true;
    return picks();
  }));
  go_on = true;
  go_on.notify_all();
  thread.join();
  CHECK(attune::testing::succeeds_in_child(picks));
}

TEST_CASE("children pick while threads of their parent load packs, ask databases and log", "[nogpu]") {
  Packs packs;
  const fs::path path = packs.add({{kProblem, kA}});
  const auto database = std::make_shared<TuningDatabase>(packs.folder / "tuning.db");
  Measurement row = example_measurement("forward bf16 b1 hq2 sq256 d64", kB, 10);
  row.device = a100().name;
  row.sm_count = a100().sm_count;
  database->append(row);
  auto tuned = std::make_shared<TunedConfigs>(database);
  PackedConfigs configs(
      packs.loaded, [&] { return tuned; }, false);
  const auto pick = [&](int length) {
    configs.find(parse_problem(kProblem), a100());
    configs.find(parse_problem("forward bf16 b1 hq2 sq" + std::to_string(length) + " d128"), a100());
    packs.loaded->load(path);
    return configs.digest(a100(), TemplateSet::embedded()).size() == 32;
  };
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (int length = 100 * i + 1; !stop; ++length) pick(length);
    });
  }
  for (int i = 0; i < 30; ++i) CHECK(attune::testing::succeeds_in_child([&] { return pick(100000 + i); }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace packed_configs_test
