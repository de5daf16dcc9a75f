#include "tuner/report/report_page.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "generator/error.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/verb.h"
#include "tuner/database/input_file.h"
#include "tuner/database/output_file.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuned_shapes.h"
#include "tuner/report/report_data.h"
#include "tuner/sweep/shapes_file.h"

namespace attune::cli {
namespace {

using Entries = std::vector<TuningDatabase::Entry>;

struct ReportOptions {
  OutputOptions output;
  ProblemOptions problem;
  ConfigOptions config;
  std::string page, target, shapes;
  std::vector<std::string> peers;
  std::size_t max_rows = ReportRequest{}.max_rows;
};

/// Those of one device: named as the rows name it, else as `attune devices` does.
Entries of_target(const Entries& entries, const std::string& target) {
  const auto named = [&](const std::string& name) {
    Entries found;
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(found),
                 [&](const TuningDatabase::Entry& entry) { return entry.device == name; });
    return found;
  };
  Entries found = named(target);
  return found.empty() ? named(find_device(target).name) : found;
}

int nothing_found(const ReportOptions& options, const std::string& message) {
  if (options.output.json) {
    print_json(
        {{"status", "nothing_found"}, {"database", options.config.database_path().string()}, {"message", message}});
  } else {
    print(fmt::format("{}; {} was not written\n", message, options.page));
  }
  return kCheckFailed;
}

std::vector<PeerFile> read_peers(const std::vector<std::string>& paths) {
  std::vector<PeerFile> files;
  for (const std::string& path : paths) {
    files.push_back(parse_peers(read_input_file(path), path));
    files.back().name = std::filesystem::path(path).filename().string();
  }
  return files;
}

/// How many named problems have no results.
std::size_t without_results(const ReportRequest& request) {
  return static_cast<std::size_t>(
      std::count_if(request.names.begin(), request.names.end(), [&](const NamedProblem& named) {
        return !named.name.empty() &&
               std::none_of(request.entries.begin(), request.entries.end(), [&](const TuningDatabase::Entry& entry) {
                 return same_but_scale_and_layout(entry.problem, named.problem);
               });
      }));
}

/// What a person should know of the page: rows that are not on it, times that are none.
std::vector<std::string> remarks(const Json& data, const ReportRequest& request) {
  std::vector<std::string> said;
  if (const std::size_t missing = without_results(request); missing > 0)
    said.push_back(fmt::format("{} of the problems that --shapes names have no results, and are not shown", missing));
  std::int64_t unreadable = 0, left_out = 0;
  bool measured = false;
  for (const Json& problem : data.at("problems")) {
    unreadable += problem.at("unreadable").get<std::int64_t>();
    if (problem.at("trials").is_null()) left_out += problem.at("rows").get<std::int64_t>();
    for (const auto& [rigor, rows] : problem.at("rigors").items()) measured = measured || rigor != "estimate";
  }
  if (!measured) said.push_back("nothing was measured: its times are the cost model's estimates");
  if (unreadable > 0)
    said.push_back(fmt::format(
        "{} rows are not shown: a newer version of Attune wrote them, or they do not count, as `attune db doctor` says",
        unreadable));
  if (left_out > 0)
    said.push_back(fmt::format("{} rows are left out of the pictures of single searches; --rows takes more", left_out));
  for (const Json& file : data.at("peer_files")) {
    const auto rows = file.at("rows").get<std::int64_t>(), shown = file.at("shown").get<std::int64_t>();
    if (shown < rows) {
      said.push_back(fmt::format("{} of {} rows of {} ({}) are of problems or devices without results, and not shown",
                                 rows - shown, rows, file.at("file").get<std::string>(),
                                 file.at("gpu").get<std::string>()));
    }
  }
  return said;
}

/// Where else there may be results: a system's database is a database like any other.
std::string hint_of_system(const ReportOptions& options) {
  std::string hint =
      options.config.hint_of_presets([](const TuningDatabase& database) { return database.list().size(); });
  for (const std::filesystem::path& path : system_database_paths()) {
    std::error_code ignored;
    if (hint.empty() || !std::filesystem::exists(path, ignored)) continue;
    hint += fmt::format(" (--database {} those of this file alone)", path.string());
  }
  return hint;
}

std::string hint_of_target(const ReportOptions& options) {
  return options.config.hint_of_presets(
      [&](const TuningDatabase& database) { return of_target(database.list(), options.target).size(); });
}

std::string hint_of_problem(const ReportOptions& options, const AttentionProblem& problem) {
  return options.config.hint_of_presets([&](const TuningDatabase& database) {
    const Entries entries = options.target.empty() ? database.list() : of_target(database.list(), options.target);
    return static_cast<std::size_t>(std::count_if(entries.begin(), entries.end(), [&](const auto& entry) {
      return same_but_scale_and_layout(entry.problem, problem);
    }));
  });
}

/// The one database that the page is about; null if there is none.
std::shared_ptr<TuningDatabase> database_of(const ReportOptions& options) {
  const DatabaseLayers databases = options.config.open_databases(options.output);
  if (databases.empty()) return nullptr;
  if (databases.size() == 1) return databases.front();
  std::string names;
  for (const auto& database : databases) names += (names.empty() ? "" : " and ") + database->path().filename().string();
  return join_databases(databases, names);
}

int run(const ReportOptions& options) {
  options.output.leave_stdout_to(options.page);
  const std::shared_ptr<TuningDatabase> database = database_of(options);
  Entries entries = database ? database->list() : Entries{};
  const std::string path = options.config.database_path().string();
  if (entries.empty())
    return nothing_found(options,
                         fmt::format("{} holds no results: `attune tune` makes some{}", path, hint_of_system(options)));
  if (!options.target.empty()) {
    std::set<std::string> devices;
    for (const TuningDatabase::Entry& entry : entries) devices.insert(entry.device);
    entries = of_target(entries, options.target);
    if (entries.empty()) {
      return nothing_found(options, fmt::format("{} holds no results of {}; it has those of {}{}", path, options.target,
                                                fmt::join(devices, ", "), hint_of_target(options)));
    }
  }
  ReportRequest request;
  std::optional<AttentionProblem> problem;
  if (options.problem.any_given()) problem = options.problem.problem();
  const std::optional<std::size_t> selected =
      most_rows(entries, problem, [&](const TuningDatabase::Entry& entry) { return is_measured(*database, entry); });
  if (!selected) {
    const std::string text = canonical_text(*problem);
    return nothing_found(
        options, fmt::format("{} holds no results of \"{}\": `attune tune --problem \"{}\"` makes some{}", path, text,
                             text, hint_of_problem(options, *problem)));
  }
  request.peers = read_peers(options.peers);
  if (!options.shapes.empty()) request.names = read_shapes(options.shapes);
  request.entries = std::move(entries);
  request.selected = *selected;
  request.max_rows = options.max_rows;

  const Json data = report_data(*database, request);
  const std::string page = report_page(data);
  OutputRules rules{.inputs = system_database_paths()};
  rules.inputs.push_back(options.config.database_path());
  rules.inputs.insert(rules.inputs.end(), options.peers.begin(), options.peers.end());
  if (!options.shapes.empty()) rules.inputs.push_back(options.shapes);
  write_output_file(options.page, page, rules);
  const std::vector<std::string> said = remarks(data, request);
  std::int64_t rows = 0;
  for (const TuningDatabase::Entry& entry : request.entries) rows += entry.rows;
  if (options.output.json) {
    print_json({{"status", "ok"},
                {"report", options.page},
                {"bytes", page.size()},
                {"problems", request.entries.size()},
                {"rows", rows},
                {"opened_at", canonical_text(request.entries[request.selected].problem)},
                {"remarks", said}});
    return kOk;
  }
  print_field("report", fmt::format("{} ({} KiB)", options.page, (page.size() + 1023) / 1024));
  print_field("shows", fmt::format("{} problems, {} rows; opens at {}", request.entries.size(), rows,
                                   canonical_text(request.entries[request.selected].problem)));
  for (const std::string& remark : said) print_field("remark", remark);
  return kOk;
}

}  // namespace

Verb make_report(CommandLine& command) {
  auto options = std::make_shared<ReportOptions>();
  CommandLine* verb = add_verb(
      command, "report",
      "write one page about the tuning database: the best config of each shape, searches as "
      "pictures, rooflines, predictions beside measurements. This needs no GPU and no network; the exit status "
      "is 1 if there are no results",
      "attune report --output report.html\n"
      "attune report --output report.html --presets --target h200\n"
      "attune report --output report.html --peers comparison.json --target h200 --problem "
      "\"forward bf16 b4 hq16 sq4096 d128 causal\"");
  verb->add_option("--output", options->page, "the page: replaced whole or not at all; - is standard output")
      .required();
  verb->add_option("--peers", options->peers,
                   "times of other libraries, shown beside: what compare_with_torch.py --json wrote; may be repeated");
  verb->add_option("--shapes", options->shapes,
                   "what the page calls problems: a list with the field name, as `attune tune --shapes` takes it");
  verb->add_option("--target", options->target, "only results of this device: h200, a100, \"NVIDIA H200\", ...")
      .group("Device");
  verb->add_option("--rows", options->max_rows,
                   "add the single results of further problems, those with most first, up to so many (default 10000)");
  options->problem.add_to(*verb, Passes::all, Sizes::optional);
  options->config.add_database_to(*verb);
  options->config.add_presets_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
