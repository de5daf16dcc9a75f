#include "tuner/database/tuned_configs.h"

#include <fmt/format.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <thread>

#include "generator/config/cost_estimate.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/system_database.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::measured_now;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::test::test_build;
namespace fs = std::filesystem;

namespace tuned_configs_test {
namespace {

constexpr const char* kA = "sm80 q64 kv64 w4 st2";
constexpr const char* kB = "sm80 q128 kv64 w4 st2 rescale10";
constexpr const char* kC = "sm80 q128 kv128 w8 st2";
constexpr const char* kWhole = "sm80 q128 kv64 w4 st2 rescale10 even-tiles";
constexpr const char* kUnfit = "sm80 q128 kv64 w3 st2 rescale10";  // 128 queries are no multiple of 3 warps of 16
// A problem that fills the device: tiles differ little there by the cost model, kA takes 1.16 times as long as the
// default config, kB as long, kWhole 0.99, kC 1.17. Rows that TMA cannot copy, here and below: the default is of family
// sm80, too.
constexpr const char* kProblem = "forward bf16 b4 hq8 sq4096 d64 align2";

const DeviceSpec& h200() { return find_device("h200"); }

// Times below are thousandths of what is stored: none that a device could not take.
constexpr double kScale = 1000;

Measurement row_of(const std::string& problem, const std::string& config, double us, const DeviceSpec& device = h200(),
                   Rigor rigor = Rigor::measure) {
  Measurement row = example_measurement(problem, config, kScale * us);
  row.device = device.name;
  row.sm_count = device.sm_count;
  row.rigor = rigor;
  row.predicted_us = us;
  return measured_now(std::move(row));
}

// A user's database and a system's, as they are on a disk.
struct Databases {
  TemporaryFolder folder;
  std::shared_ptr<TuningDatabase> user = std::make_shared<TuningDatabase>(folder / "tuning.db");

  std::shared_ptr<TunedConfigs> over(const std::vector<Measurement>& system) {
    write_system_database(folder / "system.db", system);
    return std::make_shared<TunedConfigs>(user, DatabaseLayers{TuningDatabase::open_shipped(folder / "system.db")},
                                          test_build());
  }
};

std::string config_of(const std::optional<ConfigChoice>& choice) {
  return choice ? canonical_text(choice->config) : "nothing";
}

ConfigChoice found(TunedConfigs& tuned, const std::string& problem, const DeviceSpec& device = h200()) {
  const auto choice = tuned.find(parse_problem(problem), device);
  INFO(problem << " on " << device.name);
  REQUIRE(choice);
  return *choice;
}

double predicted(const std::string& problem, const std::string& config) {
  return estimate_cost(parse_problem(problem), parse_config(config), h200()).microseconds;
}

}  // namespace

TEST_CASE("picks: exact, then what is tuned nearby or the default, measured before estimated", "[nogpu]") {
  const TemporaryFolder folder;
  const auto database = std::make_shared<TuningDatabase>(folder / "tuning.db");
  TunedConfigs tuned(database, {}, test_build());
  DeviceSpec device = h200();
  const auto add = [&](const std::string& problem, const std::string& config, double us, Rigor rigor = Rigor::measure) {
    database->append(row_of(problem, config, us, h200(), rigor));
  };
  const auto find = [&](const std::string& problem) { return tuned.find(parse_problem(problem), device); };

  REQUIRE_FALSE(find("forward bf16 b4 hq8 sq2048 d64 align2"));
  add(kProblem, kWhole, 50);
  add(kProblem, kA, 70);
  add("forward bf16 b4 hq8 sq16384 d64 align2", kC, 900);

  auto choice = find(kProblem);
  REQUIRE(config_of(choice) == kWhole);
  REQUIRE(choice->origin == ConfigOrigin::exact);
  REQUIRE(choice->tune_command.empty());
  REQUIRE(choice->detail == std::string(kProblem) + ", 50000.0 us, user database");

  SECTION("scale and layout do not make another problem") {
    choice = find("forward bf16 b4 hq8 sq4096 d64 align2 scale0.3 bhsd");
    REQUIRE(choice);
    REQUIRE(choice->origin == ConfigOrigin::exact);
  }
  SECTION("what was tuned for this very problem, though by the cost model, can be asked for") {
    const std::string asked = "forward bf16 b4 hq8 sq2048 d64 align2";
    REQUIRE_FALSE(tuned.find_exact(parse_problem(asked), device));
    add(asked, kA, 3, Rigor::estimate);
    add(asked, kC, 2, Rigor::estimate);
    const auto exact = tuned.find_exact(parse_problem(asked), device);
    REQUIRE(exact);
    REQUIRE(exact->origin == ConfigOrigin::exact);
    REQUIRE_THAT(exact->detail, ContainsSubstring(asked + ", by the cost model, user database"));
    REQUIRE_FALSE(exact->tune_command.empty());
    choice = find(asked);
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
    REQUIRE(choice->detail == std::string(kProblem) +
                                  ", at distance 2.25, 50000.0 us, user database; what the cost model ranked first for "
                                  "this very problem, " +
                                  config_of(exact) + ", comes after all that was measured");
    add(asked, kB, 40);
    REQUIRE(config_of(tuned.find_exact(parse_problem(asked), device)) == kB);
    REQUIRE(config_of(find(asked)) == kB);
    REQUIRE(find(asked)->detail == asked + ", 40000.0 us, user database");
  }
  SECTION("nearest, whole tiles where they fit") {
    choice = find("forward bf16 b4 hq8 sq2048 d64 align2");
    REQUIRE(config_of(choice) == kWhole);
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
    REQUIRE(choice->tune_command == "attune tune --problem \"forward bf16 b4 hq8 sq2048 d64 align2\"");
    REQUIRE(choice->detail == std::string(kProblem) + ", at distance 2.25, 50000.0 us, user database");
  }
  SECTION("whole tiles are dropped where only they do not fit, and that is told") {
    add(kProblem, std::string(kUnfit) + " whole", 10);
    REQUIRE(config_of(find(kProblem)) == kWhole);
    choice = find("forward bf16 b4 hq8 sq4001 d64 align2");
    REQUIRE(config_of(choice) == kB);
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
    REQUIRE_THAT(choice->detail, ContainsSubstring("50000.0 us, user database, without even-tiles"));
    // Neither it nor what it comes from is offered once more.
    const AttentionProblem odd = parse_problem("forward bf16 b4 hq8 sq4001 d64 align2");
    REQUIRE(config_of(tuned.find(odd, device, {parse_config(kB)})) == kA);
    REQUIRE(config_of(tuned.find(odd, device, {parse_config(kWhole)})) == kA);
  }
  SECTION("of several neighbours the one that the cost model expects to be fastest, the nearer the likelier") {
    const std::string asked = "forward bf16 b4 hq8 sq8192 d64 align2";  // both are a factor of two away
    REQUIRE(predicted(asked, kWhole) < predicted(asked, kC));
    choice = find(asked);
    REQUIRE(config_of(choice) == kWhole);
    REQUIRE_THAT(choice->detail, ContainsSubstring("sq4096") && ContainsSubstring("distance 1.55"));
    // A little slower by the model, and much nearer.
    const std::string slower = "sm80 q128 kv48 w4 st2 qsmem order=tile-major", much_slower = "sm80 q64 kv128 w4 st2";
    REQUIRE(predicted(asked, slower) > 1.05 * predicted(asked, kWhole));
    REQUIRE(predicted(asked, slower) < 1.15 * predicted(asked, kWhole));
    add("forward bf16 b4 hq8 sq8000 d64 align2", slower, 300);
    choice = find(asked);
    REQUIRE(config_of(choice) == slower);
    REQUIRE_THAT(choice->detail, ContainsSubstring("sq8000") && ContainsSubstring("distance 0.05"));
    // Much slower by the model: nearness does not make up for it.
    REQUIRE(predicted(asked, much_slower) > 1.2 * predicted(asked, kWhole));
    add("forward bf16 b4 hq8 sq8000 d64 align2", much_slower, 200);
    REQUIRE(config_of(find(asked)) == kWhole);
  }
  SECTION("a neighbour of another head dim, as far as it fits") {
    choice = find("forward bf16 b4 hq8 sq4096 d72 align2");
    REQUIRE(config_of(choice) == kWhole);
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
    REQUIRE_THAT(choice->detail, ContainsSubstring("sq4096 d64 align2, at distance 0.40"));
    REQUIRE_FALSE(choice->tune_command.empty());
    add("forward bf16 b4 hq8 sq4096 d80 align2", kB, 60);
    choice = find("forward bf16 b4 hq8 sq4096 d80 align2 scale1");
    REQUIRE(choice->origin == ConfigOrigin::exact);
  }
  SECTION("the default config where the cost model expects it to be faster than what is tuned far away") {
    const AttentionProblem far = parse_problem("forward bf16 b4 hq8 sq4096 d128 align2");
    const KernelConfig standard = default_config(far, device);
    REQUIRE_FALSE(infeasibility(far, parse_config(kB), device).empty());
    choice = tuned.find(far, device);
    REQUIRE(config_of(choice) == canonical_text(standard));
    REQUIRE(choice->origin == ConfigOrigin::default_config);
    REQUIRE(choice->tune_command == tune_command(far));
    REQUIRE(choice->detail == "expected to be faster than what was tuned nearby: " + std::string(kProblem) +
                                  ", at distance 3.20, 70000.0 us, user database");
    choice = tuned.find(far, device, {standard});
    REQUIRE(config_of(choice) == kC);
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
    REQUIRE(config_of(tuned.find(far, device, {standard, parse_config(kC)})) == kA);
    REQUIRE_FALSE(tuned.find(far, device, {standard, parse_config(kA), parse_config(kC)}));
    // As it would be chosen far away, it is a neighbour's choice nearby.
    add("forward bf16 b4 hq8 sq4000 d128 align2", canonical_text(standard), 90);
    choice = tuned.find(far, device);
    REQUIRE(config_of(choice) == canonical_text(standard));
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
  }
  SECTION("a config that was passed over is not picked, the default neither") {
    REQUIRE(config_of(tuned.find(parse_problem(kProblem), device, {parse_config(kWhole)})) == kA);
    std::vector<KernelConfig> passed_over = {parse_config(kWhole), parse_config(kA)};
    const KernelConfig standard = default_config(parse_problem(kProblem), device);
    choice = tuned.find(parse_problem(kProblem), device, passed_over);
    REQUIRE(config_of(choice) == canonical_text(standard));
    REQUIRE(choice->origin == ConfigOrigin::default_config);
    passed_over.push_back(standard);
    choice = tuned.find(parse_problem(kProblem), device, passed_over);
    REQUIRE(config_of(choice) == kC);
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
    passed_over.push_back(parse_config(kC));
    REQUIRE_FALSE(tuned.find(parse_problem(kProblem), device, passed_over));
    REQUIRE(config_of(find(kProblem)) == kWhole);
  }
  SECTION("the work for each SM and the group size count") {
    add("forward bf16 b8 hq8 sq2048 d64 align2", kWhole, 100);
    choice = find("forward bf16 b4 hq8 sq2048 d64 align2");  // 1.5 from this, 2.25 from the other
    REQUIRE(choice);
    REQUIRE_THAT(choice->detail, ContainsSubstring("b8") && ContainsSubstring("distance 1.50"));
    choice = find("forward bf16 b8 hq8 hkv1 sq2048 d64 align2");
    REQUIRE(choice);
    REQUIRE_THAT(choice->detail, ContainsSubstring("b8") && ContainsSubstring("distance 0.90"));
  }
  SECTION("the other dtype is a neighbour, a little further off than its own") {
    choice = find("forward fp16 b4 hq8 sq4096 d64 align2");
    // fp16 wants O to be rescaled earlier.
    REQUIRE(config_of(choice) == "sm80 q128 kv64 w4 st2 rescale8 even-tiles");
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
    REQUIRE_THAT(choice->detail, ContainsSubstring("bf16") && ContainsSubstring("distance 0.20") &&
                                     ContainsSubstring("with rescale8, as this dtype wants it"));
    add("forward fp16 b4 hq8 sq4224 d64 align2", kWhole, 50);
    choice = find("forward fp16 b4 hq8 sq4096 d64 align2");
    REQUIRE_THAT(choice->detail, ContainsSubstring("fp16") && ContainsSubstring("distance 0.07"));
  }
  SECTION("another mask, alignment or family of devices is no neighbour") {
    REQUIRE_FALSE(find("forward bf16 b4 hq8 sq4096 d64 causal align2"));
    REQUIRE_FALSE(find("forward bf16 b4 hq8 sq4096 d64"));
    device = find_device("a100");
    REQUIRE_FALSE(find(kProblem));
  }
  SECTION("estimates answer only if nothing was measured") {
    const std::string asked = "forward bf16 b4 hq8 sq4096 d72 causal align2";
    add(asked, kB, 3, Rigor::estimate);
    choice = find(asked);
    REQUIRE(choice);
    REQUIRE(choice->origin == ConfigOrigin::exact);
    REQUIRE_THAT(choice->detail, ContainsSubstring("by the cost model"));
    REQUIRE_FALSE(choice->tune_command.empty());
    choice = find("forward bf16 b4 hq8 sq4000 d72 causal align2");
    REQUIRE(choice);
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
    REQUIRE_THAT(choice->detail, ContainsSubstring("by the cost model"));
    add("forward bf16 b4 hq8 sq4000 d72 causal align2", kB, 3);
    choice = find(asked);  // appending made it forget the answer
    REQUIRE(choice);
    REQUIRE(choice->origin == ConfigOrigin::nearest_shape);
    REQUIRE_THAT(choice->detail, !ContainsSubstring("by the cost model"));
  }
  SECTION("answers are remembered, and rows that this version cannot read are misses") {
    run_sql(folder / "tuning.db", "UPDATE measurement SET config = 'sm999 nonsense'");
    REQUIRE(find(kProblem));
    TunedConfigs fresh(std::make_shared<TuningDatabase>(folder / "tuning.db"));
    REQUIRE_FALSE(fresh.find(parse_problem(kProblem), h200()));
  }
  SECTION("a problem that this version cannot read is a miss, whatever its columns say") {
    run_sql(folder / "tuning.db", "UPDATE problem SET text = text || ' softcap30'");
    TunedConfigs fresh(std::make_shared<TuningDatabase>(folder / "tuning.db"));
    REQUIRE_FALSE(fresh.find(parse_problem(kProblem), h200()));
  }
}

TEST_CASE("picks on Hopper: what was tuned nearby of either family, or its default", "[nogpu]") {
  Databases databases;
  const auto tuned = databases.over({});
  const std::string asked = "forward bf16 b4 hq8 sq2048 d64", nearby = "forward bf16 b4 hq8 sq1920 d64";
  const std::string standard = canonical_text(default_config(parse_problem(asked), h200()));
  REQUIRE_THAT(standard, ContainsSubstring("sm90"));
  // Tiles of sm80 were tuned nearby: by the cost model the default is faster by far.
  REQUIRE(predicted(asked, kA) > 1.3 * predicted(asked, standard));
  databases.user->append(row_of(nearby, kA, 50));
  ConfigChoice choice = found(*tuned, asked);
  REQUIRE(canonical_text(choice.config) == standard);
  REQUIRE(choice.origin == ConfigOrigin::default_config);
  REQUIRE_THAT(choice.detail, ContainsSubstring("expected to be faster than what was tuned nearby: " + nearby));
  REQUIRE(choice.tune_command == tune_command(parse_problem(asked)));
  // So they were for this problem: a measurement wins.
  REQUIRE(canonical_text(found(*tuned, nearby).config) == kA);
  // Tiles of sm90 win nearby, though they are not expected to be the fastest.
  const std::string of_sm90 = "sm90 q128 kv96 st3 qreg rescale10 ordered overlap=within";
  REQUIRE(predicted(asked, of_sm90) > predicted(asked, standard));
  REQUIRE(predicted(asked, of_sm90) < 1.15 * predicted(asked, standard));
  databases.user->append(row_of(nearby, of_sm90, 40));
  choice = found(*tuned, asked);
  REQUIRE(canonical_text(choice.config) == of_sm90);
  REQUIRE(choice.origin == ConfigOrigin::nearest_shape);
  // Lengths may ask for a change.
  databases.user->append(row_of(nearby, "sm90 q128 kv96 st3 qreg rescale10 even-tiles ordered overlap=within", 30));
  choice = found(*tuned, "forward fp16 b4 hq8 sq2048 d64");
  REQUIRE(canonical_text(choice.config) == "sm90 q128 kv96 st3 qreg rescale8 ordered overlap=within");
  REQUIRE(choice.origin == ConfigOrigin::nearest_shape);
  REQUIRE_THAT(choice.detail, ContainsSubstring("without even-tiles, which do not fit"));
}

TEST_CASE("picks: far away all candidates are trusted alike, however many shapes are nearer", "[nogpu]") {
  Databases databases;
  const auto tuned = databases.over({});
  const std::string asked = "forward bf16 b4 hq8 sq8192 d64 align2";
  for (int queries = 16; queries <= 64; queries += 16) {
    for (int stages = 1; stages <= 4; ++stages) {
      const std::string slow = fmt::format("sm80 q{} kv16 w1 st{}", queries, stages);
      REQUIRE(predicted(asked, slow) > 1.2 * predicted(asked, kWhole));
      databases.user->append(
          row_of(fmt::format("forward bf16 b4 hq8 sq{} d64 align2", 2000 + queries + stages), slow, 9));
    }
  }
  databases.user->append(row_of("forward bf16 b4 hq8 sq1024 d64 align2", kWhole, 9));
  const ConfigChoice choice = found(*tuned, asked);
  REQUIRE(canonical_text(choice.config) == kWhole);
  REQUIRE_THAT(choice.detail, ContainsSubstring("sq1024"));
}

TEST_CASE("picks: a user's own database wins over the system's on each level", "[nogpu]") {
  Databases databases;
  const std::string other = "forward bf16 b4 hq8 sq8192 d64 align2", asked = "forward bf16 b4 hq8 sq2048 d64 align2";
  const DeviceSpec& h100 = find_device("h100");
  SECTION("exact: the slower one of the user's") {
    const auto tuned = databases.over({row_of(kProblem, kA, 10)});
    REQUIRE_THAT(found(*tuned, kProblem).detail, ContainsSubstring("10000.0 us, system database"));
    databases.user->append(row_of(kProblem, kB, 90));
    const ConfigChoice choice = found(*tuned, kProblem);
    REQUIRE(canonical_text(choice.config) == kB);
    REQUIRE(choice.origin == ConfigOrigin::exact);
    REQUIRE_THAT(choice.detail, ContainsSubstring("90000.0 us, user database"));
  }
  SECTION("exact of the system's before the user's nearest shape") {
    const auto tuned = databases.over({row_of(kProblem, kA, 10)});
    databases.user->append(row_of(other, kB, 90));
    const ConfigChoice choice = found(*tuned, kProblem);
    REQUIRE(canonical_text(choice.config) == kA);
    REQUIRE(choice.origin == ConfigOrigin::exact);
  }
  SECTION("nearest shape: both in one list, of two as near the user's") {
    const auto tuned = databases.over({row_of(kProblem, kB, 10)});
    REQUIRE(found(*tuned, asked).origin == ConfigOrigin::nearest_shape);
    databases.user->append(row_of(other, kB, 90));
    ConfigChoice choice = found(*tuned, asked);
    REQUIRE(canonical_text(choice.config) == kB);
    REQUIRE(choice.detail == std::string(kProblem) + ", at distance 2.25, 10000.0 us, system database");
    databases.user->append(row_of(kProblem, kB, 80));
    choice = found(*tuned, asked);
    REQUIRE(choice.detail == std::string(kProblem) + ", at distance 2.25, 80000.0 us, user database");
    // The nearer one of the user's.
    databases.user->append(row_of("forward bf16 b4 hq8 sq2000 d64 align2", kB, 40));
    REQUIRE_THAT(found(*tuned, asked).detail, ContainsSubstring("sq2000") && ContainsSubstring("user database"));
  }
  SECTION("nearest shape of the system's before the user's nearest device") {
    const auto tuned = databases.over({row_of(kProblem, kB, 10)});
    databases.user->append(row_of(asked, kC, 90, h100));
    REQUIRE(canonical_text(found(*tuned, asked).config) == kB);
  }
  SECTION("nearest device") {
    const auto tuned = databases.over({row_of(asked, kA, 10, h100)});
    ConfigChoice choice = found(*tuned, asked);
    REQUIRE(choice.origin == ConfigOrigin::nearest_device);
    REQUIRE_THAT(choice.detail, ContainsSubstring("NVIDIA H100 80GB HBM3 with 132 SMs: " + asked) &&
                                    ContainsSubstring("system database"));
    REQUIRE_FALSE(choice.tune_command.empty());
    databases.user->append(row_of(asked, kB, 90, find_device("h100-pcie")));
    choice = found(*tuned, asked);
    REQUIRE(canonical_text(choice.config) == kB);
    REQUIRE_THAT(choice.detail,
                 ContainsSubstring("NVIDIA H100 PCIe with 114 SMs") && ContainsSubstring("user database"));
  }
  SECTION("what was measured before what the user's cost model says") {
    const auto tuned = databases.over({row_of(kProblem, kB, 10)});
    databases.user->append(row_of(asked, kA, 1, h200(), Rigor::estimate));
    REQUIRE(canonical_text(found(*tuned, asked).config) == kB);
    REQUIRE(config_of(tuned->find(parse_problem(asked), h200(), {parse_config(kB)})) == kA);
  }
  SECTION("what does not fit is passed over, from one database into the other") {
    const auto tuned = databases.over({row_of("forward bf16 b4 hq8 sq4001 d64 align2", kA, 10)});
    databases.user->append(row_of("forward bf16 b4 hq8 sq4002 d64 align2", kUnfit, 5));
    const ConfigChoice choice = found(*tuned, "forward bf16 b4 hq8 sq4003 d64 align2");
    REQUIRE(canonical_text(choice.config) == kA);
    REQUIRE_THAT(choice.detail, ContainsSubstring("system database"));
  }
}

TEST_CASE("picks: the nearest device has the compute capability, then the SMs, then the clock", "[nogpu]") {
  Databases databases;
  const auto tuned = databases.over({});
  DeviceSpec mine = h200();
  const auto device_of = [&] { return tuned->find(parse_problem(kProblem), mine).value_or(ConfigChoice{}).detail; };
  databases.user->append(row_of(kProblem, kA, 1, find_device("a100")));
  REQUIRE(device_of().empty());

  databases.user->append(row_of(kProblem, kB, 2, find_device("h100-pcie")));
  REQUIRE_THAT(device_of(), ContainsSubstring("H100 PCIe"));
  databases.user->append(row_of("forward bf16 b4 hq8 sq2048 d64 align2", kB, 3, find_device("h100")));
  REQUIRE_THAT(device_of(), ContainsSubstring("H100 80GB HBM3") && ContainsSubstring("distance 2.25"));
  // What is far there loses to the default, as on this device.
  const auto far = tuned->find(parse_problem("forward bf16 b1 hq8 sq512 d64 align2"), mine);
  REQUIRE(far);
  REQUIRE(far->origin == ConfigOrigin::default_config);
  REQUIRE_THAT(far->detail, ContainsSubstring("tuned nearby: NVIDIA H100 "));
  // The exact problem comes first within one device.
  databases.user->append(row_of(kProblem, kA, 9, find_device("h100")));
  REQUIRE_THAT(device_of(), ContainsSubstring("H100 80GB HBM3") && !ContainsSubstring("distance"));

  // A GPU that is not in the table, or a part of one, has a family by its own facts.
  mine.name = "NVIDIA H200 MIG 3g.71gb";
  mine.sm_count = 60;
  REQUIRE_THAT(device_of(), ContainsSubstring("H100 PCIe"));
  Measurement slice = row_of(kProblem, kC, 4, mine);
  slice.sm_count = 48;
  databases.user->append(slice);
  REQUIRE_THAT(device_of(), ContainsSubstring("MIG 3g.71gb with 48 SMs"));

  // As many SMs, another clock: two GPUs of the table that differ in nothing else.
  mine = find_device("h100");
  mine.name = "NVIDIA H100 of a kind";
  mine.clock_mhz = 1900;
  mine.sm_count = 123;                                             // 9 from both
  REQUIRE_THAT(device_of(), ContainsSubstring("H100 80GB HBM3"));  // 1980 is nearer than 1755
  mine.clock_mhz = 1700;
  REQUIRE_THAT(device_of(), ContainsSubstring("H100 PCIe"));
}

TEST_CASE("picks: what is missing, read-only or damaged never stops an answer", "[nogpu]") {
  Databases databases;
  const fs::path system = databases.folder / "system.db";
  REQUIRE_FALSE(TunedConfigs(nullptr).find(parse_problem(kProblem), h200()));
  databases.over({row_of(kProblem, kA, 10)});

  SECTION("a read-only folder gets nothing beside the file, and the file stays as it is") {
    ::chmod(databases.folder.path().c_str(), 0755);
    fs::remove(databases.folder / "tuning.db");
    for (const char* suffix : {"-wal", "-shm"}) fs::remove((databases.folder / "tuning.db").string() + suffix);
    ::chmod(system.c_str(), 0444);
    ::chmod(databases.folder.path().c_str(), 0555);
    const auto written = fs::last_write_time(system);
    std::string detail;
    {
      const int user = ::setfsuid(65534);  // permission bits say nothing to root
      const auto shipped = TuningDatabase::open_shipped(system);
      TunedConfigs tuned(nullptr, {shipped});
      detail = tuned.find(parse_problem(kProblem), h200()).value_or(ConfigChoice{}).detail;
      ::setfsuid(static_cast<uid_t>(user));
      REQUIRE(shipped->notes().empty());
      REQUIRE(shipped->read_only());
      REQUIRE_THROWS_AS(shipped->append(row_of(kProblem, kB, 5)), Error);
      REQUIRE(std::distance(fs::directory_iterator(databases.folder.path()), {}) == 1);
    }
    ::chmod(databases.folder.path().c_str(), 0755);
    REQUIRE_THAT(detail, ContainsSubstring("system database"));
    REQUIRE(fs::last_write_time(system) == written);
  }
  SECTION("a damaged system file is left alone and noted; the user's still answers") {
    std::string bytes;
    SECTION("text") { bytes = std::string(9000, '?'); }
    SECTION("empty") {}
    SECTION("another program's") {
      fs::remove(system);
      run_sql(system, "CREATE TABLE recipes (name TEXT)");
      std::ifstream input(system, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(input), {});
    }
    SECTION("pages") {
      std::ifstream input(system, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(input), {});
      REQUIRE(bytes.size() > 20000);
      for (std::size_t i = 4096; i < 20000; ++i) bytes[i] = static_cast<char>(i * 37);
    }
    std::ofstream(system, std::ios::binary | std::ios::trunc) << bytes;
    databases.user->append(row_of(kProblem, kB, 90));
    const auto shipped = TuningDatabase::open_shipped(system);
    REQUIRE(shipped->notes().size() == 1);
    REQUIRE_THAT(shipped->notes()[0], ContainsSubstring(system.string()));
    TunedConfigs tuned(databases.user, {shipped}, test_build());
    REQUIRE(canonical_text(found(tuned, kProblem).config) == kB);
    std::ifstream input(system, std::ios::binary);
    REQUIRE(std::string(std::istreambuf_iterator<char>(input), {}) == bytes);
    for (const auto& entry : fs::directory_iterator(databases.folder.path()))
      REQUIRE_THAT(entry.path().filename().string(), !ContainsSubstring("corrupt"));
  }
}

TEST_CASE("picks are quick: a miss among many shapes, and every answer after the first", "[nogpu]") {
  Databases databases;
  std::vector<Measurement> system, user;
  for (int batch = 1; batch <= 16; ++batch) {
    for (int step = 1; step <= 32; ++step) {
      const std::string problem =
          "forward bf16 b" + std::to_string(batch) + " hq16 sq" + std::to_string(step * 512) + " d128";
      system.push_back(row_of(problem, kA, 100));
      user.push_back(row_of(problem + " causal", kB, 100));
      user.push_back(row_of(problem + " causal", kA, 120));
    }
  }
  databases.user->append_all(user);
  const auto tuned = databases.over(system);
  found(*tuned, "forward bf16 b3 hq16 sq777 d128 causal");  // warm: files read, statements known to the cache of pages
  // This thread's CPU time, so that what else the machine does is not counted.
  const auto now = [] {
    timespec time{};
    REQUIRE(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
  };
  const auto microseconds = [&](const std::vector<std::string>& problems) {
    std::vector<double> times;
    for (const std::string& text : problems) {
      const AttentionProblem problem = parse_problem(text);
      const double begin = now();
      tuned->find(problem, h200());
      times.push_back(now() - begin);
    }
    return quantile(times, 0.5);
  };
  std::vector<std::string> unknown, near, far;
  for (int i = 0; i < 50; ++i) {
    unknown.push_back("forward fp16 b1 hq16 sq" + std::to_string(100 + i) + " d64 align2");
    near.push_back("forward bf16 b1 hq16 sq" + std::to_string(100 + i) + " d128 causal");
    far.push_back("forward fp16 b1 hq16 sq" + std::to_string(100 + i) + " d64");
  }
  const double miss = microseconds(unknown), neighbour = microseconds(near), of_other_head_dim = microseconds(far),
               again = microseconds(near);
  INFO("a miss " << miss << " us, a neighbour among 512 shapes " << neighbour << " us, of another head dim "
                 << of_other_head_dim << " us, again " << again << " us");
  CHECK(miss < 500);
  CHECK(neighbour < 10'000);
  CHECK(of_other_head_dim < 10'000);
  CHECK(again < 20);
}

TEST_CASE("threads share picks while rows are stored", "[nogpu]") {
  Databases databases;
  const auto tuned = databases.over({row_of(kProblem, kA, 10)});
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        Measurement row = row_of(kProblem, kB, 90);
        row.samples_us = {1.0 + t, 2.0 + i};
        if (t == 0) databases.user->append(row);
        if (!tuned->find(row.problem, h200())) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures == 0);
  REQUIRE(canonical_text(found(*tuned, kProblem).config) == kB);
}

TEST_CASE("backward picks: exact, what is tuned nearby, never another pass's", "[nogpu]") {
  constexpr const char *kBackward = "backward bf16 b4 hq16 sq4096 d64",
                       *kAtomic = "sm90 q128 kv128 st3 overlap=within dq=atomic dsst1", *kOwn = "sm80 q64 kv64 w4 st2";
  Databases databases;
  const auto tuned = databases.over({row_of("forward bf16 b4 hq16 sq4096 d64", kB, 40)});
  CHECK_FALSE(tuned->find(parse_problem(kBackward), h200()));
  databases.user->append(row_of(kBackward, kAtomic, 50));
  databases.user->append(row_of(kBackward, kOwn, 70));

  const ConfigChoice exact = found(*tuned, kBackward);
  CHECK(canonical_text(exact.config) == kAtomic);
  CHECK(exact.origin == ConfigOrigin::exact);
  CHECK(exact.tune_command.empty());

  const ConfigChoice near = found(*tuned, "backward bf16 b4 hq16 sq4000 d64");
  CHECK(canonical_text(near.config) == kAtomic);
  CHECK(near.origin == ConfigOrigin::nearest_shape);
  CHECK(near.tune_command == "attune tune --problem \"backward bf16 b4 hq16 sq4000 d64\"");

  // Adds as they come are no answer to a problem that wants the same bits, although they are faster.
  const std::string deterministic = std::string(kBackward) + " deterministic";
  const ConfigChoice same_bits = found(*tuned, deterministic);
  CHECK(same_bits.config.dq != DqAccumulation::atomic);
  CHECK(same_bits.origin != ConfigOrigin::exact);
  databases.user->append(row_of(deterministic, kOwn, 65));
  const ConfigChoice then = found(*tuned, deterministic);
  CHECK(canonical_text(then.config) == kOwn);
  CHECK(then.origin == ConfigOrigin::exact);
  CHECK(canonical_text(found(*tuned, kBackward).config) == kAtomic);

  // Heads that share no keys take a neighbour's tiles, together.
  databases.user->append(row_of("backward bf16 b4 hq16 hkv4 sq4096 d128",
                                "sm90 q64 kv128 st3 overlap=within kv-grad-per-query-head dq=atomic", 90));
  const ConfigChoice together = found(*tuned, "backward bf16 b4 hq16 sq4096 d128");
  CHECK(canonical_text(together.config) == "sm90 q64 kv128 st3 overlap=within dq=atomic");
  CHECK_THAT(together.detail, ContainsSubstring("without kv-grad-per-query-head, which needs grouped heads"));

  // Longer walks than the neighbour's are split.
  const std::string tiles = "sm90 q128 kv128 st3 ordered overlap=within ";
  databases.user->append(row_of("backward bf16 b4 hq16 sq131072 d64", tiles + "dq=atomic dsst1", 900000));
  const ConfigChoice split = found(*tuned, "backward bf16 b4 hq16 sq140000 d64");
  CHECK(canonical_text(split.config) == tiles + "query-parts3 dq=atomic dsst1");
  CHECK_THAT(split.detail, ContainsSubstring("with 3 in place of 1 parts of the queries"));
  CHECK(canonical_text(found(*tuned, "backward bf16 b4 hq16 sq130000 d64").config) == tiles + "dq=atomic dsst1");

  DeviceSpec h100 = find_device("h100");
  const ConfigChoice other_device = found(*tuned, kBackward, h100);
  CHECK(other_device.origin == ConfigOrigin::nearest_device);
}

}  // namespace tuned_configs_test
