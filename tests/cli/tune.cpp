// `tune`, `db` and `bench`: what is stored, what is picked afterwards, and what happens to a database that cannot be
// used.
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

TEST_CASE("tune on the emulator: correct, ranked by the cost model, stored, picked", "[emulator]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("new/tuning.db")}};
  const CommandResult tuned =
      run_attune(words("tune --max-candidates 3 --budget 1.5m --json" + kShape + kEmulator), environment);
  INFO(tuned.err);
  REQUIRE(tuned.status == 0);
  const nlohmann::json document = tuned.json();
  CHECK(document.at("status") == "ok");
  CHECK(document.at("timed") == false);
  CHECK_THAT(document.at("basis").get<std::string>(), ContainsSubstring("cost model"));
  CHECK_THAT(document.at("basis").get<std::string>(), ContainsSubstring("emulator"));
  CHECK(document.at("tried") == 3);
  CHECK(document.at("counts").at("ok") == 3);
  CHECK(document.at("best").at("rigor") == "estimate");
  CHECK(document.at("default").at("status") == "ok");
  // A line for each trial where stderr is no terminal.
  CHECK_THAT(tuned.err, ContainsSubstring("3/3"));

  SECTION("db list and db best find it") {
    const nlohmann::json list = run_attune(words("db list --json"), environment).json();
    REQUIRE(list.at("entries").size() == 1);
    CHECK(list.at("entries").at(0).at("problem") == "forward bf16 b1 hq2 sq48 d64 causal");
    CHECK(list.at("entries").at(0).at("rows") == 3);
    const CommandResult best = run_attune(words("db best --target a100 --json" + kShape), environment);
    CHECK(best.status == 0);
    CHECK(best.json().at("best").at(0).at("config") == document.at("best").at("config"));
    CHECK(run_attune(words("db best --json"), environment).json().at("best").size() == 1);
    CHECK(run_attune(words("db best --target a100 --json"), environment).json().at("best").size() == 1);
    CHECK(run_attune(words("db best --target h200 --json"), environment).status == 1);
    CHECK(run_attune(words("db best --target h200 --json" + kShape), environment).status == 1);
    CHECK(run_attune(words("db best --target a100 --heads 2 --seq 49 --head-dim 64"), environment).status == 1);
  }
  SECTION("check and show pick it: exact, and for another length the nearest shape") {
    const nlohmann::json check = run_attune(words("check --json" + kShape + kEmulator), environment).json();
    CHECK(check.at("origin") == "exact");
    CHECK(check.at("config") == document.at("best").at("config"));
    const nlohmann::json plan =
        run_attune(words("show plan --target a100 --heads 2 --seq 60 --head-dim 64 --causal --json"), environment)
            .json();
    CHECK(plan.at("origin") == "nearest shape");
    CHECK(run_attune(words("show plan --target a100 --heads 2 --seq 60 --head-dim 128 --json"), environment)
              .json()
              .at("origin") == "default");
  }
  SECTION("a second run tries nothing again") {
    const nlohmann::json again =
        run_attune(words("tune --max-candidates 3 --budget 100 --json" + kShape + kEmulator), environment).json();
    CHECK(again.at("tried") == 0);
    CHECK(again.at("reused") == 3);
    CHECK(again.at("best").at("config") == document.at("best").at("config"));
  }
}

TEST_CASE("tune a backward problem on the emulator: proven, stored, picked, taken elsewhere", "[emulator]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  const std::string shape = " --pass backward --heads 2 --seq 40 --head-dim 16 --causal";
  const CommandResult tuned = run_attune(
      words("tune --max-candidates 3 --budget 100 --json" + shape + kEmulator + " --deterministic"), environment);
  INFO(tuned.err);
  REQUIRE(tuned.status == 0);
  const nlohmann::json document = tuned.json();
  CHECK(document.at("problem") == "backward bf16 b1 hq2 sq40 d16 causal deterministic");
  CHECK(document.at("counts").at("ok") == 3);
  CHECK(document.at("best").at("error_o").get<double>() > 0);

  const auto origin = [&](const std::string& problem) {
    return run_attune(words("explain --json --target a100" + problem), environment).json().at("origin");
  };
  CHECK(origin(shape + " --deterministic") == "exact");
  CHECK(origin(" --heads 2 --seq 40 --head-dim 16 --causal") == "default");
  const nlohmann::json check =
      run_attune(words("check --json" + shape + kEmulator + " --deterministic"), environment).json();
  CHECK(check.at("config") == document.at("best").at("config"));
  CHECK(check.at("outputs").size() == 3);

  REQUIRE(run_attune(words("db export --output " + (folder.file("rows.json"))), environment).status == 0);
  const std::map<std::string, std::string> elsewhere = {{"ATTUNE_DATABASE", folder.file("other.db")}};
  REQUIRE(run_attune(words("db import " + (folder.file("rows.json"))), elsewhere).status == 0);
  const CommandResult best = run_attune(words("db best --target a100 --json --deterministic" + shape), elsewhere);
  CHECK(best.json().at("best").at(0).at("config") == document.at("best").at("config"));
}

TEST_CASE("a database of a newer version is read, never written, and tune says so", "[emulator]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  const std::string tune = "tune --max-candidates 1 --json" + kShape + kEmulator;
  REQUIRE(run_attune(words(tune), environment).status == 0);
  std::string bytes = read_file(folder.file("tuning.db"));
  // The user version of an SQLite file: four bytes from offset 60, the highest first.
  REQUIRE(bytes.size() > 100);
  bytes[62] = 1;
  write_file(folder.file("tuning.db"), bytes);

  const CommandResult refused = run_attune(words(tune), environment);
  INFO(refused.err);
  CHECK(refused.status == 2);
  CHECK(refused.json().at("code") == "database");
  CHECK_THAT(refused.err, ContainsSubstring("tuning.db"));
  CHECK_THAT(refused.err, ContainsSubstring("newer"));
  const CommandResult check = run_attune(words("check --json" + kShape + kEmulator), environment);
  CHECK(check.status == 0);
  CHECK_THAT(check.err, ContainsSubstring("newer"));
  CHECK(read_file(folder.file("tuning.db")) == bytes);
}

TEST_CASE("on a full disk tune says so before it works, and what was stored stays", "[emulator]") {
  const TemporaryFolder folder;
  const std::string mount_point = folder.file("small");
  std::filesystem::create_directory(mount_point);
  if (::mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=512k") != 0) {
    WARN("not seen: a file system of 512 KiB cannot be mounted here");
    return;
  }
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", mount_point + "/tuning.db"}};
  const std::string tune = "tune --json" + kShape + kEmulator + " --max-candidates ";
  const CommandResult first = run_attune(words(tune + "1"), environment);
  write_file(mount_point + "/filler", std::string(512 << 10, 'x'));
  const CommandResult full = run_attune(words(tune + "2"), environment);
  std::filesystem::remove(mount_point + "/filler");
  const CommandResult list = run_attune(words("db list --json"), environment);
  ::umount2(mount_point.c_str(), MNT_DETACH);

  CHECK(first.status == 0);
  INFO(full.err);
  CHECK(full.status == 2);
  CHECK_THAT(full.err, ContainsSubstring("tuning.db") && ContainsSubstring("full"));
  CHECK(full.json().at("code") == "database");
  CHECK(list.status == 0);
  CHECK(list.json().at("entries").at(0).at("rows") == 1);
}

TEST_CASE("what tune could not store is in a file, which import stores", "[emulator]") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("tmp"));
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")},
                                                          {"TMPDIR", folder.file("tmp")}};
  const std::string kTune = "tune --max-candidates 14 --budget 100 --progress none --json";
  REQUIRE(run_attune(words("tune --max-candidates 1 --progress none" + kShape + kEmulator), environment).status == 0);
  // No file of the command grows beyond 40 KiB, as on a disk that fills up: that holds the log of a few rows, and its
  // index.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{rlim_t{40} << 10, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const CommandResult tuned = run_attune(words(kTune + kShape + kEmulator), environment);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  INFO(tuned.err);
  REQUIRE(tuned.status == 2);
  REQUIRE_THAT(tuned.err, ContainsSubstring("of 13 results are not stored") && ContainsSubstring("attune db import"));
  std::vector<std::string> kept;
  for (const auto& made : std::filesystem::directory_iterator(folder.file("tmp")))
    kept.push_back((made.path() / "results.json").string());
  REQUIRE(kept.size() == 1);
  const auto rows = [&] {
    return run_attune(words("db list --json"), environment).json().at("entries").at(0).at("rows").get<int>();
  };
  CHECK(rows() < 14);
  CHECK(run_attune({"db", "import", kept.front()}, environment).status == 0);
  CHECK(rows() == 14);
}

TEST_CASE("tune in text says what its ranking rests on", "[emulator]") {
  const TemporaryFolder folder;
  std::vector<std::string> arguments = words("tune --max-candidates 1" + kShape + kEmulator);
  arguments.insert(arguments.end(), {"--database", folder.file("tuning.db")});
  const CommandResult result = run_attune(arguments);
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK_THAT(result.out, ContainsSubstring("ranked by the cost model, proven on the emulator"));
  CHECK_THAT(result.out, ContainsSubstring("best"));
  CHECK(std::filesystem::exists(folder.file("tuning.db")));
}

TEST_CASE("a rigor that needs a GPU says what is done without one, in text and JSON", "[emulator]") {
  const TemporaryFolder folder;
  const auto tune = [&](const std::string& more) {
    std::vector<std::string> arguments = words("tune --max-candidates 1" + kShape + kEmulator + more);
    arguments.insert(arguments.end(), {"--database", folder.file("tuning.db")});
    return run_attune(arguments);
  };
  const CommandResult text = tune(" --rigor exhaustive");
  INFO(text.err);
  CHECK(text.status == 0);
  CHECK_THAT(text.out, ContainsSubstring("--rigor exhaustive times candidates, which the emulator cannot") &&
                           ContainsSubstring("the cost model ranked all") &&
                           ContainsSubstring("1 of the first were proven"));
  const nlohmann::json document = tune(" --rigor exhaustive --json").json();
  CHECK(document.at("rigor_asked") == "exhaustive");
  CHECK(document.at("rigor") == "estimate");
  CHECK_THAT(document.at("instead").get<std::string>(), ContainsSubstring("cost model"));
  const nlohmann::json asked_for = tune(" --rigor estimate --json").json();
  CHECK(asked_for.at("rigor_asked") == "estimate");
  CHECK_FALSE(asked_for.contains("instead"));
}

TEST_CASE("tune and bench on the GPU", "[gpu]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  const std::string problem = " --batch 2 --heads 4 --seq 1024 --head-dim 64 --device cuda:0 --json";
  const CommandResult tuned = run_attune(words("tune --max-candidates 4 --budget 60" + problem), environment);
  INFO(tuned.err);
  REQUIRE(tuned.status == 0);
  CHECK(tuned.json().at("timed") == true);
  CHECK(tuned.json().at("best").at("median_us").get<double>() > 0);
  // The race ranks by the mean of both spreads; the best may be behind the default on one of them.
  CHECK(tuned.json().at("speed_over_default").get<double>() > 0.99);
  CHECK_THAT(tuned.json().at("race_ranks_by").get<std::string>(), ContainsSubstring("geometric mean"));
  CHECK_THAT(tuned.json().at("best").at("protocol").get<std::string>(), ContainsSubstring("spreads 1 and 8"));
  for (const nlohmann::json& finalist : tuned.json().at("race")) CHECK(finalist.at("wide_median_us").get<double>() > 0);
  CHECK(tuned.json().at("best").at("wide_samples_us").size() == tuned.json().at("best").at("samples_us").size());

  const CommandResult bench = run_attune(words("bench --seconds 0.2" + problem), environment);
  INFO(bench.err);
  REQUIRE(bench.status == 0);
  const nlohmann::json document = bench.json();
  CHECK(document.at("origin") == "exact");
  CHECK(document.at("config") == tuned.json().at("best").at("config"));
  CHECK(document.at("p20_us").get<double>() <= document.at("median_us").get<double>());
  CHECK(document.at("median_us").get<double>() <= document.at("p80_us").get<double>());
  CHECK(document.at("tflops").get<double>() > 0);
  CHECK(document.contains("sm_clock_mhz"));
  const CommandResult wide = run_attune(words("bench --seconds 0.2 --spread 8" + problem), environment);
  INFO(wide.err);
  REQUIRE(wide.status == 0);
  CHECK(wide.json().at("spread") == 8);
  CHECK(wide.json().at("config") == document.at("config"));  // the pick is that of the problem that was asked for
  CHECK_THAT(wide.json().at("problem").get<std::string>(), ContainsSubstring("scale1"));
}

TEST_CASE("looking things up leaves no database behind", "[nogpu]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  CHECK(run_attune(words("show plan --seq 16 --head-dim 64 --target a100"), environment).status == 0);
  CHECK(run_attune(words("db list"), environment).status == 0);
  CHECK(run_attune(words("db list --json"), environment).json().at("entries").empty());
  CHECK(run_attune(words("db best"), environment).status == 1);
  const CommandResult best = run_attune(words("db best --seq 16 --head-dim 64 --target a100 --json"), environment);
  CHECK(best.status == 1);
  CHECK(best.json().at("status") == "nothing_found");
  CHECK_FALSE(std::filesystem::exists(folder.file("tuning.db")));
}

TEST_CASE("a verb that reads leaves what is no database where it is, says so, and goes on", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string garbage = "this was never SQLite" + std::string(5000, 'x');
  write_file(folder.file("tuning.db"), garbage);
  const CommandResult result = run_attune(words("show plan --seq 16 --head-dim 64 --target a100 --json"),
                                          {{"ATTUNE_DATABASE", folder.file("tuning.db")}});
  CHECK(result.status == 0);
  CHECK(result.json().at("origin") == "default");
  CHECK_THAT(result.err, ContainsSubstring("tuning.db is not a tuning database"));
  CHECK(read_file(folder.file("tuning.db")) == garbage);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a database that cannot take results is refused before tuning, and kept", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("folder.db");
  std::filesystem::create_directory(path);
  std::vector<std::string> tune = words("tune --max-candidates 1 --json" + kShape + kEmulator);
  tune.insert(tune.end(), {"--database", path});
  const CommandResult result = run_attune(tune);
  INFO(result.err);
  CHECK(result.status == 2);
  CHECK(result.json().at("code") == "database");
  CHECK_THAT(result.err, ContainsSubstring("folder.db"));
  CHECK(std::filesystem::is_directory(path));
}

TEST_CASE("tune of a list: every problem, shards of it, events as JSON", "[emulator]") {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {{"ATTUNE_DATABASE", folder.file("tuning.db")}};
  const std::string shapes = folder.file("shapes.csv");
  write_file(shapes, "heads,seq,head-dim,causal\n2,48,64,true\n2,33,32,false\n1,40,16,true\n");
  const std::string tune = "tune --max-candidates 1 --json --progress json" + kEmulator + " --shapes " + shapes;
  const CommandResult first = run_attune(words(tune + " --shard 1/2"), environment);
  INFO(first.err);
  REQUIRE(first.status == 0);
  CHECK(first.json().at("status") == "ok");
  REQUIRE(first.json().at("results").size() == 2);
  CHECK(first.json().at("results").at(0).at("problem") == "forward bf16 b1 hq2 sq48 d64 causal");
  CHECK(first.json().at("results").at(1).at("problem") == "forward bf16 b1 hq1 sq40 d16 causal");

  // Every line of stderr is an event.
  std::map<std::string, int> events;
  std::istringstream lines(first.err);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    const nlohmann::json event = nlohmann::json::parse(line);
    ++events[event.at("event")];
    if (event.at("event") != "trial") continue;
    CHECK(event.at("status") == "ok");
    CHECK(event.at("done") == 1);
    CHECK(event.at("total") == 1);
    CHECK(event.at("seconds").get<double>() > 0);
    CHECK(event.at("seconds_left").get<double>() == 0);
    CHECK(event.contains("compile_queue"));
    CHECK(event.at("best").at("config") == event.at("config"));
  }
  CHECK(events == std::map<std::string, int>{{"begin", 2}, {"trial", 2}, {"end", 2}});

  const nlohmann::json rest = run_attune(words(tune + " --shard 2/2"), environment).json();
  REQUIRE(rest.at("results").size() == 1);
  CHECK(rest.at("results").at(0).at("problem") == "forward bf16 b1 hq2 sq33 d32");
  const nlohmann::json list = run_attune(words("db list --json"), environment).json();
  CHECK(list.at("entries").size() == 3);

  // More shards than problems: nothing to do is no failure.
  const CommandResult empty = run_attune(words(tune + " --shard 4/4"), environment);
  CHECK(empty.status == 0);
  CHECK(empty.json().at("results").empty());
}

TEST_CASE("Ctrl-C: what was measured is kept, and the same command goes on", "[emulator]") {
  const TemporaryFolder folder;
  const std::string log = folder.file("log");
  const std::string tune = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "attune").string() +
                           " tune --device emulator --target a100 --heads 2 --seq 48 "
                           "--head-dim 64 --causal --json --progress plain --database " +
                           (folder.file("tuning.db"));
  // As a terminal does it: to the whole process group, once the second trial has been told.
  const std::string script = "set -m\n" + tune + " >" + (folder.file("out")) + " 2>" + log +
                             " &\n"
                             "child=$!\n"
                             "for i in $(seq 600); do [ $(grep -c 'best:' " +
                             log +
                             ") -ge 2 ] && break; sleep 0.1; done\n"
                             "kill -INT -$child\nwait $child\necho $? >" +
                             (folder.file("status")) + "\n";
  write_file(folder.file("script"), script);
  REQUIRE(std::system(("bash " + (folder.file("script"))).c_str()) == 0);
  INFO(read_file(log));
  CHECK(read_file(folder.file("status")) == "130\n");
  CHECK_THAT(read_file(log), ContainsSubstring("interrupted") && ContainsSubstring("the same command goes on"));
  const nlohmann::json document = nlohmann::json::parse(read_file(folder.file("out")));
  CHECK(document.at("status") == "interrupted");
  const int tried = document.at("tried");
  CHECK(tried >= 2);
  const CommandResult again = run_attune(words("tune --json --max-candidates " + std::to_string(tried + 1) + kShape +
                                               kEmulator + " --database " + (folder.file("tuning.db"))));
  CHECK(again.status == 0);
  CHECK(again.json().at("reused") == tried);
  CHECK(again.json().at("tried") == 1);
}

TEST_CASE("tune refuses what it does not understand before it begins", "[nogpu]") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& line, const std::string& part) {
    const CommandResult result = run_attune(words("tune " + line + kShape + kEmulator), kNoGpu);
    INFO(line << ": " << result.err);
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring(part));
  };
  refused("--rigor thorough", "estimate, measure, patient or exhaustive");
  refused("--space half", "whole or reduced");
  refused("--progress loud", "auto, line, plain, json or none");
  refused("--budget 0", "--budget 0");
  refused("--budget nan", "--budget nan");
  refused("--patience -1", "--patience -1");
  refused("--max-candidates -2", "--max-candidates -2");
  refused("--trial-timeout 0", "--trial-timeout 0");
  refused("--compile-workers -2", "--compile-workers -2");
  refused("--shard 3/2", "\"3/2\"");
  refused("--shapes " + (folder.file("none.json")), "--shapes already names the problems");
  const auto device_refused = [&](const std::string& device, const std::string& part) {
    const CommandResult result = run_attune(words("tune" + kShape + " --device " + device), kNoGpu);
    INFO(device << ": " << result.err);
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring(part));
  };
  device_refused("all", "--device all needs a GPU");
  device_refused("cuda:0,1", "needs a GPU");
  device_refused("cuda:0,0", "twice");
  device_refused("cuda:0,x", "cuda:N");
}

TEST_CASE("tune --compile-only fills the cubin cache and times nothing", "[nvrtc]") {
  const TemporaryFolder folder;
  std::map<std::string, std::string> environment = kNoGpu;
  environment["ATTUNE_CACHE_DIR"] = folder.file("cache");
  environment["ATTUNE_DATABASE"] = folder.file("tuning.db");
  const CommandResult result = run_attune(
      words("tune --compile-only --max-candidates 2 --target a100 --json" + kShape + GENERATE("", " --pass backward")),
      environment);
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK(result.json().at("compiled") == 2);
  CHECK_FALSE(std::filesystem::exists(folder.file("tuning.db")));
}
