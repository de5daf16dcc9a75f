// `explain` on databases whose rows are known, and without any.
#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/cli/explained_rows.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_database.h"

using namespace attune::testing;
using attune::Measurement;
using attune::MeasurementStatus;

namespace explain_test {
namespace {

Measurement failed_row(const std::string& config) {
  Measurement row = row_of(config, 0, 0);
  row.status = MeasurementStatus::wrong_result;
  row.reason = "o differs by 3";
  return row;
}

}  // namespace

TEST_CASE("explain: the pick, the runner-up's defeat, a tie and a failure", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  {
    attune::TuningDatabase database(path);
    database.append(row_of("sm80 q128 kv64 w8 st2", 200));
    database.append(row_of("sm80 q128 kv64 w4 st2", 100));
    database.append(row_of("sm80 q64 kv64 w4 st2", 100.01));
    database.append(row_of("sm80 q64 kv32 w4 st2", 101, 3));
    database.append(failed_row("sm80 q64 kv128 w4 st2"));
  }
  const nlohmann::json document = explain(path, kProblem);
  CHECK(document.at("config") == "sm80 q128 kv64 w4 st2");
  CHECK(document.at("origin") == "exact");
  CHECK(document.at("measured") == true);
  CHECK_FALSE(document.contains("tune_command"));
  const nlohmann::json& candidates = document.at("candidates");
  REQUIRE(candidates.size() == 5);
  CHECK(candidates[0].at("picked") == true);
  CHECK(candidates[0].at("median_us").get<double>() == Approx(100).epsilon(0.001));
  CHECK_FALSE(candidates[0].contains("why_not"));
  CHECK(candidates[0].at("model_over_measured").get<double>() ==
        Approx(candidates[0].at("predicted_us").get<double>() / candidates[0].at("median_us").get<double>()));
  // 168 registers of 128 threads: 4 warps of 5376, three times into 65536; 64 KiB and 1 KiB of 228 KiB: three times.
  CHECK(candidates[0].at("registers") == 168);
  CHECK(candidates[0].at("registers_from") == "compiler");
  CHECK(candidates[0].at("ctas_per_sm") == 3);
  // 8 tiles of 16 heads over 3 CTAs on each of 132 SMs.
  CHECK(candidates[0].at("waves").get<double>() == Approx(128.0 / 396));
  CHECK_THAT(candidates[1].at("why_not").get<std::string>(), ContainsSubstring("within noise"));
  CHECK_THAT(candidates[2].at("why_not").get<std::string>(), ContainsSubstring("too few samples"));
  CHECK_THAT(candidates[3].at("why_not").get<std::string>(), ContainsSubstring("slower by 100.0 %"));
  CHECK(candidates[4].at("status") == "wrong_result");
  CHECK_THAT(candidates[4].at("why_not").get<std::string>(), ContainsSubstring("wrong_result: o differs by 3"));

  // 4 D FLOP for each of 1024 * 1025 / 2 pairs of 16 heads.
  const nlohmann::json& roofline = document.at("roofline");
  CHECK(roofline.at("flops").get<double>() == 4.0 * 64 * (1024 * 1025 / 2) * 16);
  CHECK(roofline.at("reached").get<double>() ==
        Approx(roofline.at("bound_us").get<double>() / candidates[0].at("median_us").get<double>()));
  CHECK(explain(path, kProblem, "--limit 2").at("not_shown") == 3);

  // A result of a kernel that could not run today is told with the reason.
  attune::TuningDatabase(path).append(row_of("sm80 q128 kv64 w3 st2", 50));
  const nlohmann::json with_unfit = explain(path, kProblem);
  CHECK(with_unfit.at("config") == "sm80 q128 kv64 w4 st2");
  // It has no kernel now: behind all that have one, before the failure.
  CHECK_THAT(with_unfit.at("candidates").at(4).at("why_not").get<std::string>(), ContainsSubstring("does not fit: "));

  const CommandResult text =
      run_attune({"explain", "--problem", kProblem, "--target", "h200", "--database", path}, kNoGpu);
  CHECK(text.status == 0);
  CHECK_THAT(text.out, ContainsSubstring("* sm80 q128 kv64 w4 st2") && ContainsSubstring("slower by 100.0 %") &&
                           ContainsSubstring("of the roofline"));
}

TEST_CASE(
    "explain: a problem of another scale is answered by the same rows, another length by the nearest or the default",
    "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  attune::TuningDatabase(path).append(row_of("sm80 q64 kv64 w4 st2", 100));
  const nlohmann::json scaled = explain(path, kProblem + " scale0.5");
  CHECK(scaled.at("origin") == "exact");
  CHECK(scaled.at("rows") == 1);

  const nlohmann::json nearest = explain(path, "forward bf16 b2 hq8 sq2048 d64 causal align2");
  CHECK(nearest.at("origin") == "nearest shape");
  CHECK(nearest.at("measured") == false);
  CHECK(nearest.at("candidates").at(0).at("config") == "sm80 q64 kv64 w4 st2");
  CHECK(nearest.at("candidates").at(0).at("status") == "not_tried");
  CHECK_THAT(nearest.at("tune_command").get<std::string>(),
             ContainsSubstring("attune tune --problem \"forward bf16 b2 hq8 sq2048 d64 causal align2\""));

  // Tiles for 1024 queries of 16 heads are not what 16384 of 128 want: the default, and why.
  const std::string far = "forward bf16 b8 hq16 sq16384 d128 causal align2";
  const nlohmann::json standard = explain(path, far);
  CHECK(standard.at("origin") == "default");
  CHECK_THAT(standard.at("origin_detail").get<std::string>(),
             ContainsSubstring("expected to be faster than what was tuned nearby: " + kProblem + ", at distance ") &&
                 ContainsSubstring("100.0 us, user database"));
  CHECK(standard.at("measured") == false);
  CHECK(standard.at("candidates").at(0).at("config") == standard.at("config"));
  CHECK_THAT(standard.at("tune_command").get<std::string>(), ContainsSubstring("attune tune --problem \"" + far));
  const CommandResult text = run_attune({"explain", "--problem", far, "--target", "h200", "--database", path}, kNoGpu);
  CHECK_THAT(text.out, ContainsSubstring("default (expected to be faster than what was tuned nearby: " + kProblem) &&
                           ContainsSubstring("attune tune --problem"));
  const nlohmann::json plan =
      run_attune({"show", "plan", "--problem", far, "--target", "h200", "--database", path, "--json"}, kNoGpu).json();
  CHECK(plan.at("config") == standard.at("config"));
  CHECK(plan.at("origin") == "default");
  CHECK(plan.at("origin_detail") == standard.at("origin_detail"));
}

TEST_CASE("explain: a user's rows over the system's, origins, and what would tune the problem", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string user = (folder / "tuning.db").string(), system = (folder / "system.db").string();
  const std::string other = "forward bf16 b2 hq8 sq2048 d64 causal align2";
  Measurement elsewhere = row_of("sm80 q64 kv32 w4 st2", 300);
  elsewhere.device = "NVIDIA H100 80GB HBM3";
  elsewhere.problem = attune::parse_problem("forward bf16 b2 hq8 sq1024 d72 align2");
  attune::write_system_database(system, {row_of("sm80 q64 kv64 w4 st2", 100), elsewhere});
  std::map<std::string, std::string> environment = kNoGpu;
  environment["ATTUNE_DATABASE"] = user;
  environment["ATTUNE_SYSTEM_DATABASE"] = system;
  const auto ask = [&](const std::string& problem, const std::string& target = "h200") {
    const CommandResult result =
        run_attune({"explain", "--problem", problem, "--target", target, "--json"}, environment);
    INFO(result.err);
    REQUIRE(result.status == 0);
    return result.json();
  };

  nlohmann::json document = ask(kProblem);
  CHECK(document.at("origin") == "exact");
  CHECK_THAT(document.at("origin_detail").get<std::string>(), ContainsSubstring("system database"));
  CHECK(document.at("candidates").at(0).at("database") == "system");
  CHECK(document.at("basis") == "measured");
  CHECK_FALSE(document.contains("borrowed_from"));
  CHECK_FALSE(document.contains("tune_command"));
  CHECK_FALSE(std::filesystem::exists(user));

  Measurement mine = row_of("sm80 q64 kv128 w4 st2 rescale10", 120);
  mine.race = "2025-03-04T00:00:00.000000Z";
  mine.place = 1;
  attune::TuningDatabase(user).append(mine);
  document = ask(kProblem);
  CHECK(document.at("config") == "sm80 q64 kv128 w4 st2 rescale10");
  CHECK_THAT(document.at("origin_detail").get<std::string>(), ContainsSubstring("user database"));
  CHECK(document.at("candidates").at(0).at("place") == 1);
  CHECK_THAT(document.at("candidates").at(1).at("why_not").get<std::string>(), ContainsSubstring("system database"));

  document = ask(other);
  CHECK(document.at("origin") == "nearest shape");
  CHECK(document.at("basis") == "measured");
  CHECK_THAT(document.at("tune_command").get<std::string>(), ContainsSubstring("attune tune --problem \"" + other));
  document = ask("forward bf16 b2 hq8 sq1024 d72 align2");
  CHECK(document.at("origin") == "nearest device");
  CHECK_THAT(document.at("origin_detail").get<std::string>(), ContainsSubstring("NVIDIA H100 80GB HBM3 with 132 SMs"));
  CHECK(document.contains("tune_command"));
  CHECK(document.at("basis") == "borrowed");
  CHECK(document.at("borrowed_from") == "NVIDIA H100 80GB HBM3 with 132 SMs");
  document = ask(kProblem, "a100");
  CHECK(document.at("origin") == "default");
  CHECK(document.at("basis") == "model");
  CHECK(document.contains("tune_command"));

  const CommandResult text = run_attune({"explain", "--problem", other, "--target", "h200"}, environment);
  CHECK_THAT(text.out, ContainsSubstring("nearest shape (" + kProblem) && ContainsSubstring("user database") &&
                           ContainsSubstring("attune tune --problem") &&
                           ContainsSubstring("rests on       measured on this GPU, for another problem"));
  const auto rests_on = [&](const std::string& target) {
    return run_attune({"explain", "--problem", kProblem, "--target", target}, environment).out;
  };
  CHECK_THAT(rests_on("h200"), ContainsSubstring("measured on this GPU, for this very problem"));
  for (const char* hopper : {"gh200", "h100-nvl", "h800"}) {
    INFO(hopper);
    CHECK_THAT(rests_on(hopper), ContainsSubstring("borrowed from NVIDIA H200 with 132 SMs, where it was measured"));
  }
  for (const char* other_family : {"gb200", "b300", "l4", "a6000"}) {
    INFO(other_family);
    CHECK_THAT(rests_on(other_family), ContainsSubstring("guessed by the cost model: no time of it was measured"));
  }

  // One that is damaged is told of, and the user's answers.
  write_file(system, "no database");
  const CommandResult damaged =
      run_attune({"explain", "--problem", kProblem, "--target", "h200", "--json"}, environment);
  CHECK(damaged.status == 0);
  CHECK(damaged.json().at("config") == "sm80 q64 kv128 w4 st2 rescale10");
  CHECK_THAT(damaged.err, ContainsSubstring(system));
  environment["ATTUNE_SYSTEM_DATABASE"] = "";
  CHECK(run_attune({"explain", "--problem", kProblem, "--target", "h200", "--json"}, environment).err.empty());
}

TEST_CASE("explain: what the cost model ranked was measured by nobody", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  Measurement estimate = row_of("sm80 q64 kv64 w4 st2", 100, 3);
  estimate.rigor = attune::Rigor::estimate;
  attune::TuningDatabase(path).append(estimate);
  const nlohmann::json document = explain(path, kProblem);
  CHECK(document.at("origin") == "exact");
  CHECK(document.at("basis") == "model");
  CHECK_FALSE(document.contains("borrowed_from"));
  CHECK_THAT(run_attune({"explain", "--problem", kProblem, "--target", "h200"}, with_database(path)).out,
             ContainsSubstring("guessed by the cost model, of configs that were proven correct"));
}

TEST_CASE("explain without rows says so and shows the model's ranking", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  const auto family_of = [](const nlohmann::json& candidate) {
    return candidate.at("config").get<std::string>().substr(0, 4);
  };
  for (const std::string& problem : {kProblem, std::string("forward bf16 b2 hq8 sq1024 d64 causal")}) {
    INFO(problem);
    const nlohmann::json document = explain(path, problem, "--limit 4");
    CHECK(document.at("origin") == "default");
    CHECK(document.at("measured") == false);
    CHECK(document.at("rows") == 0);
    const nlohmann::json& candidates = document.at("candidates");
    REQUIRE(candidates.size() == 4);
    CHECK(family_of(candidates[0]) == (problem == kProblem ? "sm80" : "sm90"));
    for (std::size_t i = 2; i < candidates.size(); ++i)
      CHECK(candidates[i - 1].at("predicted_us").get<double>() <= candidates[i].at("predicted_us").get<double>());
    CHECK(candidates[1].at("registers_from") == "model");
    CHECK_FALSE(std::filesystem::exists(path));

    const CommandResult text = run_attune({"explain", "--problem", problem, "--target", "h200"}, with_database(path));
    CHECK_THAT(text.out, ContainsSubstring("nothing was measured") && ContainsSubstring("attune tune --problem"));
  }
}

TEST_CASE("explain names what bounds a problem", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string none = (folder / "none.db").string();
  const auto bound = [&](const std::string& problem) {
    return explain(none, problem, "--limit 1").at("roofline").at("bound_by").get<std::string>();
  };
  CHECK(bound("forward bf16 b4 hq16 sq8192 d256") == "matrix products");
  CHECK(bound("forward bf16 b4 hq16 sq8192 d16") == "exponentials");
  CHECK(bound("forward bf16 b64 hq16 sq1 skv4096 d128") == "device memory");
}

TEST_CASE("explain: occupancy and roofline of the family that is picked, in either pass", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string();
  const std::string forward = "forward bf16 b4 hq16 sq4096 d128", backward = "backward bf16 b4 hq16 sq4096 d128";
  {
    attune::TuningDatabase database(path);
    Measurement row =
        attune::test::example_measurement(forward, "sm90 q128 kv128 st2 scheduler=static-persistent", 700);
    row.shared_bytes = 196864;
    database.append(row);
    row = attune::test::example_measurement(backward, "sm80 q64 kv128 w8 st2 query-warps2 dq=atomic", 4165);
    row.registers = 255;
    database.append(row);
  }
  const nlohmann::json wgmma = explain(path, forward);
  const nlohmann::json& pick = wgmma.at("candidates").at(0);
  CHECK(pick.at("ctas_per_sm") == 1);
  CHECK(pick.at("waves").get<double>() == Approx(1));
  CHECK(pick.at("launch").at("grid") == 132);
  CHECK(pick.at("launch").at("tiles") == 2048);
  CHECK(pick.at("launch").at("threads") == 384);
  CHECK(pick.at("launch").at("persistent") == true);
  CHECK(wgmma.at("roofline").at("instruction") == "wgmma");
  CHECK(wgmma.at("roofline").at("matrix_us").get<double>() ==
        Approx(wgmma.at("roofline").at("flops").get<double>() / (4096.0 * 132 * 1980)));
  CHECK(pick.at("reached").get<double>() == Approx(wgmma.at("roofline").at("reached").get<double>()));
  CHECK_THAT(run_attune({"explain", "--problem", forward, "--target", "h200", "--database", path}, kNoGpu).out,
             ContainsSubstring("1 CTA/SM, 132 persistent CTAs of 15.5 tiles each") && ContainsSubstring("by wgmma") &&
                 ContainsSubstring("boost clock of 1980 MHz"));

  const nlohmann::json mma_sync = explain(path, backward);
  CHECK(mma_sync.at("roofline").at("instruction") == "mma.sync");
  CHECK(mma_sync.at("candidates").at(0).at("ctas_per_sm") == 1);
  CHECK(mma_sync.at("candidates").at(0).at("waves").get<double>() == Approx(2048 / 132.0));
  CHECK_THAT(run_attune({"explain", "--problem", backward, "--target", "h200", "--database", path}, kNoGpu).out,
             ContainsSubstring("1 CTA/SM, 15.52 waves") && ContainsSubstring("by mma.sync"));
}

TEST_CASE("explain compares rows of one race without samples by their medians", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string path = (folder / "tuning.db").string(), problem = "forward bf16 b4 hq16 sq4096 d128";
  const bool wide = GENERATE(false, true);
  {
    attune::TuningDatabase database(path);
    int place = 0;
    for (const char* config : {"sm80 q128 kv64 w4 st2 qsmem", "sm80 q128 kv64 w8 st2"}) {
      Measurement row = attune::test::example_measurement(problem, config, 700 * (1 + 0.1 * place));
      row.samples_us.clear();  // as in presets
      row.clocks_mhz.clear();
      if (wide) row.wide_median_us = 900 * (1 + 0.3 * place);
      row.race = "2026-11-22T08:19:57.417664Z";
      row.place = ++place;
      database.append(row);
    }
  }
  CHECK_THAT(run_attune({"explain", "--problem", problem, "--target", "h200", "--database", path}, kNoGpu).out,
             ContainsSubstring(wide ? "its mean over both spreads differs by +19.58 % (no samples are stored"
                                    : "its median differs by +10.00 % (no samples are stored"));
}

TEST_CASE("explain says when it found no presets", "[nogpu]") {
  const attune::test::TemporaryFolder folder;
  const std::string system = (folder / "system.db").string();
  std::map<std::string, std::string> environment = kNoGpu;
  const std::vector<std::string> arguments = {"explain", "--problem", kProblem, "--target", "h200", "--limit", "1"};
  const auto ask = [&] {
    std::vector<std::string> as_json = arguments;
    as_json.push_back("--json");
    return run_attune(as_json, environment).json().at("presets").get<bool>();
  };
  environment["ATTUNE_SYSTEM_DATABASE"] = "";
  CHECK_FALSE(ask());
  CHECK_THAT(run_attune(arguments, environment).out, ContainsSubstring("which switches them off"));
  attune::write_system_database(system, {});
  environment["ATTUNE_SYSTEM_DATABASE"] = system;
  CHECK_FALSE(ask());
  CHECK_THAT(run_attune(arguments, environment).out, ContainsSubstring("no shipped results were found"));
  attune::write_system_database(system, {row_of("sm80 q64 kv64 w4 st2", 100)});
  CHECK(ask());
  CHECK_THAT(run_attune(arguments, environment).out, !ContainsSubstring("presets"));
}

}  // namespace explain_test
