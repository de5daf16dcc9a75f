#include "tuner/cli/db_status.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "generator/error.h"
#include "runtime/system/printable.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/report.h"
#include "tuner/cli/shapes_options.h"
#include "tuner/cli/table.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_state.h"

namespace attune::cli {
namespace {

struct StatusOptions {
  OutputOptions output;
  ProblemOptions problem;
  ShapesOptions shapes;
  DeviceOptions device;
  ConfigOptions config;
  std::vector<std::string> files;
};

DatabaseLayers databases_of(const StatusOptions& options) {
  if (options.files.empty()) return options.config.open_databases(options.output);
  DatabaseLayers databases;
  for (const std::string& file : options.files) {
    databases.push_back(TuningDatabase::open_for_reading(file));
    if (const std::string& why = databases.back()->unreadable_because(); !why.empty())
      throw Error(ErrorCode::database, why);
  }
  if (options.config.presets())
    for (auto& shipped : open_system_databases()) databases.push_back(std::move(shipped));
  return databases;
}

std::vector<GpuModel> models_wanted(const StatusOptions& options, const DatabaseLayers& databases) {
  if (options.device.any_given()) {
    const DeviceSpec device = options.device.choose().spec;
    return {{device.name, device.sm_count}};
  }
  const std::vector<GpuModel> models = models_of(databases);
  if (models.empty())
    refuse("there is no result of any GPU yet: name the model with --target, or databases that have some");
  return models;
}

struct Line {
  const NamedProblem& named;
  GpuModel model;
  ProblemState found;
};

Json document_of(const std::vector<Line>& lines, bool all_tuned) {
  Json document = {{"status", all_tuned ? "ok" : "not_tuned"}, {"problems", Json::array()}};
  for (const Line& line : lines) {
    Json entry = {{"problem", canonical_text(line.named.problem)},
                  {"name", line.named.name},
                  {"device", line.model.device},
                  {"sm_count", line.model.sm_count},
                  {"state", to_string(line.found.state)},
                  {"why", line.found.why},
                  {"database", line.found.database}};
    if (line.found.row) {
      entry["config"] = canonical_text(line.found.row->config);
      entry["median_us"] = line.found.row->median_us;
      entry["created_at"] = line.found.row->created_at;
    }
    document["problems"].push_back(std::move(entry));
  }
  return document;
}

const Table kStatusTable = {"/problems",
                            {{"problem", "/problem"},
                             {"name", "/name"},
                             {"device", "/device"},
                             {"sm_count", "/sm_count"},
                             {"state", "/state"},
                             {"why", "/why"},
                             {"config", "/config"},
                             {"median_us", "/median_us"},
                             {"created_at", "/created_at"},
                             {"database", "/database"}}};

void print_text(const std::vector<Line>& lines) {
  std::map<GpuModel, std::map<TuningState, int>> counts;
  for (const Line& line : lines) ++counts[line.model][line.found.state];
  for (auto& [model, of_model] : counts) {
    std::string text;
    for (const TuningState state : {TuningState::tuned, TuningState::stale, TuningState::failed, TuningState::missing})
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", of_model[state], to_string(state));
    print_field(printable_line(fmt::format("{} ({} SMs)", model.device, model.sm_count)), text);
  }
  for (const Line& line : lines) {
    if (line.found.state == TuningState::tuned) continue;
    print_line(fmt::format("{:<8} {} ({} SMs)  {}{}{}", to_string(line.found.state), line.model.device,
                           line.model.sm_count, canonical_text(line.named.problem),
                           line.named.name.empty() ? "" : fmt::format("  [{}]", line.named.name),
                           line.found.why.empty() ? "" : fmt::format(": {}", line.found.why)));
  }
}

int status(const StatusOptions& options) {
  if (!options.shapes.given() && !options.problem.any_given())
    refuse("name the problems that are wanted: --shapes LIST, --model config.json or the flags of one");
  const std::vector<NamedProblem> problems = options.shapes.named_problems(options.problem);
  const DatabaseLayers databases = databases_of(options);
  std::vector<Line> lines;
  bool all_tuned = true;
  for (const GpuModel& model : models_wanted(options, databases)) {
    for (const NamedProblem& named : problems) {
      lines.push_back({named, model, tuning_state(named.problem, model, databases, CurrentBuild::of_process())});
      all_tuned = all_tuned && lines.back().found.state == TuningState::tuned;
    }
  }
  if (const Format format = options.output.format(); format != Format::text) {
    print_document(document_of(lines, all_tuned), kStatusTable, format);
  } else {
    print_text(lines);
  }
  return all_tuned ? kOk : kCheckFailed;
}

}  // namespace

Verb make_db_status(CommandLine& db) {
  auto options = std::make_shared<StatusOptions>();
  CommandLine* verb = add_verb(
      db, "status",
      "which problems of a list are tuned, stale, failed or missing, on each GPU model; exit status 1 if not all are "
      "tuned",
      "attune db status --shapes shapes.csv\nattune db status --model config.json --target h200 shard*.db --format "
      "csv");
  verb->add_option("files", options->files, "tuning databases to look into, in place of --database's");
  options->problem.add_to(*verb, Passes::all, Sizes::optional);
  options->shapes.add_to(*verb, "");
  options->device.add_target_to(*verb);
  options->config.add_database_to(*verb);
  options->config.add_presets_to(*verb);
  options->output.add_with_table_to(*verb);
  return {verb, [options] { return status(*options); }};
}

}  // namespace attune::cli
