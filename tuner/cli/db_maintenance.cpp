#include "tuner/cli/db_maintenance.h"

#include <fmt/core.h>

#include <filesystem>
#include <set>

#include "generator/error.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/database/carried_rows.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_json.h"
#include "tuner/database/database_label.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/database_pruning.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/file_system.h"
#include "tuner/database/input_file.h"
#include "tuner/database/output_file.h"
#include "tuner/database/system_database.h"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;

struct MaintenanceOptions {
  OutputOptions output;
  ConfigOptions config;
  std::string file;                // the other file of export, import, carry and ship
  std::vector<std::string> files;  // the exports of ship, the databases of merge
  DatabaseLabel label;             // of ship
  bool best = false;
  PruneRules rules;
  bool dry_run = false;
};

/// Says that nothing was tuned yet, which is no error.
int nothing_yet(const MaintenanceOptions& options) {
  const std::string path = options.config.database_path().string();
  if (options.output.json) {
    print_json({{"status", "nothing_found"}, {"database", path}});
  } else {
    print(fmt::format("{} does not exist yet: nothing was tuned; `attune tune` begins it\n", path));
  }
  return kOk;
}

int info(const MaintenanceOptions& options) {
  if (!options.config.database_exists()) return nothing_yet(options);
  const DatabaseInfo info = describe_database(options.config.database_path());
  if (options.output.json) {
    print_json({{"status", "ok"},
                {"database", info.path.string()},
                {"read_only", info.read_only},
                {"schema", info.schema},
                {"known_schema", info.known_schema},
                {"rows", info.rows},
                {"rows_by_status", info.rows_by_status},
                {"rows_by_rigor", info.rows_by_rigor},
                {"problems", info.problems},
                {"devices", info.devices},
                {"oldest", info.oldest},
                {"newest", info.newest},
                {"file_bytes", info.file_bytes},
                {"log_bytes", info.log_bytes},
                {"reclaimable_bytes", info.reclaimable_bytes},
                {"journal_mode", info.journal_mode},
                {"file_system", info.file_system},
                {"network_file_system", info.network_file_system},
                {"notes", info.notes}});
    return kOk;
  }
  const auto counts = [](const std::map<std::string, std::int64_t>& by_name) {
    std::string text;
    for (const auto& [name, count] : by_name) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
    return text;
  };
  print_field("database", fmt::format("{}{}", info.path.string(), info.read_only ? " (read-only)" : ""));
  print_field("schema", info.schema == info.known_schema
                            ? fmt::format("{}", info.schema)
                            : fmt::format("{} (this program knows {})", info.schema, info.known_schema));
  print_field("rows", fmt::format("{} (problems: {}, devices: {})", info.rows, info.problems, info.devices));
  if (info.rows > 0) {
    print_field("by status", counts(info.rows_by_status));
    print_field("by rigor", counts(info.rows_by_rigor));
    print_field("from, to", fmt::format("{}, {}", info.oldest, info.newest));
  }
  print_field("bytes", fmt::format("{} in the file, {} in its log, {} reclaimable", info.file_bytes, info.log_bytes,
                                   info.reclaimable_bytes));
  print_field("journal", info.journal_mode);
  print_field("file system", info.file_system + (info.network_file_system ? " (network)" : ""));
  for (const std::string& note : info.notes) print_field("note", note);
  return kOk;
}

/// The rows of a file, with a warning for each kind that is left out.
DatabaseContents read(const fs::path& path, Damage damage) {
  DatabaseContents contents = read_database(path, damage);
  if (!contents.damage.empty()) {
    warn(
        fmt::format("{} is damaged ({}): {} rows are read, {} could not be read; `attune db doctor --database {}` says "
                    "what to do",
                    path.string(), contents.damage, contents.rows.size(), contents.lost, shell_word(path.string())));
  }
  if (contents.unreadable > 0) warn(fmt::format("{} rows are of a newer Attune and are left out", contents.unreadable));
  if (contents.changed > 0) {
    warn(
        fmt::format("{} rows were changed after they were stored and are left out; `attune db doctor --database {}` "
                    "names them",
                    contents.changed, path.string()));
  }
  if (contents.untimed > 0) {
    warn(fmt::format("{} rows have a time that is none and are left out; `attune db doctor --database {}` names them",
                     contents.untimed, path.string()));
  }
  return contents;
}

std::int64_t left_out(const DatabaseContents& contents) {
  return contents.unreadable + contents.changed + contents.untimed + contents.lost;
}

/// Adds the shipped rows that are not among these.
void add_presets(std::vector<Measurement>& rows) {
  std::set<std::string> known;
  for (const Measurement& row : rows) known.insert(content_hash(row));
  for (const auto& database : open_system_databases()) {
    for (const TuningDatabase::Entry& entry : database->list())
      for (Measurement& row : database->find_all(entry.problem, entry.device, entry.sm_count))
        if (known.insert(content_hash(row)).second) rows.push_back(std::move(row));
  }
}

int export_rows(const MaintenanceOptions& options) {
  if (!options.config.database_exists()) {
    const auto count = [](const TuningDatabase& database) { return database.list().size(); };
    const std::string which = options.config.presets() ? "and no row of it is exported" : "and no row is exported";
    warn(fmt::format("{} does not exist yet: nothing was tuned, {}{}", options.config.database_path().string(), which,
                     options.config.hint_of_presets(count)));
  }
  DatabaseContents contents =
      options.config.database_exists() ? read(options.config.database_path(), Damage::salvage) : DatabaseContents();
  if (options.config.presets()) add_presets(contents.rows);
  const std::vector<Measurement> rows = options.best ? rows_to_ship(contents.rows) : contents.rows;
  const std::string text = export_measurements(rows);
  if (options.file.empty() || OutputFile::is_standard_output(options.file)) {
    write_output_file("-", text);
    return kOk;
  }
  write_output_file(options.file, text, {.inputs = {options.config.database_path()}});
  if (options.output.json) {
    print_json({{"status", "ok"},
                {"database", options.config.database_path().string()},
                {"output", options.file},
                {"rows", rows.size()},
                {"left_out", left_out(contents)}});
  } else {
    print_field("written", fmt::format("{} ({} rows)", options.file, rows.size()));
  }
  return kOk;
}

/// Stores rows that came from elsewhere and says how many were new.
/// from: a file, or several.
int store(const MaintenanceOptions& options, const Json& from, const std::vector<Measurement>& rows,
          std::int64_t omitted) {
  const std::shared_ptr<TuningDatabase> database = options.config.open_writable_database(options.output);
  const TuningDatabase::Appended appended = database->append_all(rows);
  if (options.output.json) {
    print_json({{"status", "ok"},
                {"database", database->path().string()},
                {"from", from},
                {"new", appended.added},
                {"known", appended.known},
                {"left_out", omitted}});
  } else {
    print_field("database", database->path().string());
    for (const Json& file : from.is_array() ? from : Json::array({from})) print_field("from", file.get<std::string>());
    print_field("rows", fmt::format("{} new, {} known", appended.added, appended.known));
  }
  return kOk;
}

int import_rows(const MaintenanceOptions& options) {
  return store(options, options.file, import_measurements(read_input_file(options.file), options.file), 0);
}

int ship(const MaintenanceOptions& options) {
  options.output.leave_stdout_to(options.file);
  check_label(options.label);
  if (options.label.name == kPresetsName)
    refuse(fmt::format("--name {}: so are those called that are part of the program; take another one", kPresetsName));
  std::vector<Measurement> rows;
  for (const std::string& file : options.files) {
    for (Measurement& row : import_measurements(read_input_file(file), file)) rows.push_back(std::move(row));
  }
  write_system_database(options.file, rows, std::vector<fs::path>(options.files.begin(), options.files.end()),
                        options.label);
  if (options.output.json) {
    print_json({{"status", "ok"},
                {"output", options.file},
                {"from", options.files},
                {"rows", rows.size()},
                {"name", options.label.name},
                {"version", options.label.version}});
  } else {
    const std::string label = to_text(options.label);
    print_field("written", fmt::format("{} ({}{} rows)", options.file, label.empty() ? "" : label + ", ", rows.size()));
  }
  return kOk;
}

int merge(const MaintenanceOptions& options) {
  std::vector<Measurement> rows;
  std::int64_t omitted = 0;
  for (const std::string& file : options.files) {
    // A database that was never begun: whoever names one here meant another.
    std::error_code unknown;
    if (fs::file_size(file, unknown) == 0 && !unknown)
      refuse(fmt::format("{} is empty: name the database to merge", file));
    DatabaseContents other = read(file, Damage::refuse);
    omitted += left_out(other);
    std::move(other.rows.begin(), other.rows.end(), std::back_inserter(rows));
  }
  return store(options, options.files, rows, omitted);
}

int carry(const MaintenanceOptions& options) {
  const SourceHashes hashes = parse_source_hashes(read_input_file(options.file), options.file);
  const CarriedRows result = carry_rows(options.config.database_path(), hashes);
  if (options.output.json) {
    print_json({{"status", "ok"},
                {"database", options.config.database_path().string()},
                {"from", options.file},
                {"hashes", hashes.size()},
                {"carried", result.carried},
                {"others", result.others}});
  } else {
    print_field("database", options.config.database_path().string());
    print_field("from", fmt::format("{} ({} hashes)", options.file, hashes.size()));
    print_field("rows", fmt::format("{} carried over, {} others unchanged", result.carried, result.others));
  }
  return kOk;
}

int prune(const MaintenanceOptions& options) {
  const PruneResult result = prune_database(options.config.database_path(), options.rules, options.dry_run);
  if (options.output.json) {
    Json document = {{"status", "ok"},
                     {"database", options.config.database_path().string()},
                     {"dry_run", options.dry_run},
                     {"kept", result.kept},
                     {"removed", Json::array()}};
    for (const PrunedRow& row : result.removed) {
      document["removed"].push_back({{"problem", row.problem},
                                     {"device", row.device},
                                     {"sm_count", row.sm_count},
                                     {"config", row.config},
                                     {"status", row.status},
                                     {"created_at", row.created_at}});
    }
    print_json(document);
    return kOk;
  }
  for (const PrunedRow& row : result.removed) {
    print_line(fmt::format("{}: {} on {} ({} SMs), {}, of {}", row.problem, row.config, row.device, row.sm_count,
                           row.status, row.created_at));
  }
  print(fmt::format("{} rows {}, {} kept\n", result.removed.size(), options.dry_run ? "would be removed" : "removed",
                    result.kept));
  return kOk;
}

int doctor(const MaintenanceOptions& options) {
  if (!options.config.database_exists()) return nothing_yet(options);
  const fs::path path = options.config.database_path();
  const DatabaseDiagnosis diagnosis = examine_database(path);
  const bool healthy = diagnosis.findings.empty();
  if (options.output.json) {
    Json document = {{"status", healthy ? "ok" : "wrong"},
                     {"database", path.string()},
                     {"rows", diagnosis.rows},
                     {"unreadable", diagnosis.unreadable},
                     {"findings", Json::array()}};
    for (const DatabaseFinding& finding : diagnosis.findings)
      document["findings"].push_back({{"check", finding.check}, {"what", finding.what}, {"advice", finding.advice}});
    print_json(document);
  } else {
    print_field("database", path.string());
    for (const DatabaseFinding& finding : diagnosis.findings) {
      print_field(finding.check, finding.what);
      print_field("", finding.advice);
    }
    print_field("rows",
                fmt::format("{} examined{}", diagnosis.rows,
                            diagnosis.unreadable > 0 ? fmt::format(", {} of a newer Attune, which this one passes over",
                                                                   diagnosis.unreadable)
                                                     : ""));
    print_field("verdict", healthy ? "nothing is wrong"
                                   : fmt::format("{} {} wrong", diagnosis.findings.size(),
                                                 diagnosis.findings.size() == 1 ? "thing is" : "things are"));
  }
  return healthy ? kOk : kCheckFailed;
}

int vacuum(const MaintenanceOptions& options) {
  const VacuumResult result = vacuum_database(options.config.database_path());
  if (options.output.json) {
    print_json({{"status", "ok"},
                {"database", options.config.database_path().string()},
                {"bytes_before", result.bytes_before},
                {"bytes_after", result.bytes_after}});
  } else {
    print_field("database", options.config.database_path().string());
    print_field("bytes", fmt::format("{} before, {} after", result.bytes_before, result.bytes_after));
  }
  return kOk;
}

}  // namespace

std::vector<Verb> make_db_maintenance(CommandLine& db) {
  std::vector<Verb> verbs;
  const auto add = [&](const std::string& name, const std::string& description, const std::string& examples,
                       int (*execute)(const MaintenanceOptions&)) {
    auto options = std::make_shared<MaintenanceOptions>();
    CommandLine* verb = add_verb(db, name, description, examples);
    options->config.add_database_to(*verb);
    options->output.add_to(*verb);
    verbs.push_back({verb, [options, execute] { return execute(*options); }});
    return std::pair(verb, options);
  };

  add("info", "path, schema, rows, sizes, journal, file system and notes of the database", "attune db info --json",
      info);

  const auto [export_verb, export_options] = add(
      "export", "all rows as JSON to read, to compare and to import, on stdout or in a file",
      "attune db export --output h200.json\nattune db export | diff h200.json -\nattune db export --best", export_rows);
  export_verb->add_option("--output", export_options->file, "file to write (default, and -: standard output)");
  export_options->config.add_presets_to(*export_verb);
  export_verb->add_flag("--best", export_options->best,
                        "of each problem and device only the best row and the default config's, without their "
                        "samples: what a preset holds");

  const auto [import_verb, import_options] = add(
      "import", "stores the rows of an export, all or (if an entry is malformed) none; known rows are not stored twice",
      "attune db import h200.json", import_rows);
  import_verb->add_option("file", import_options->file, "what `attune db export` wrote; - is standard input")
      .required();

  const auto [merge_verb, merge_options] =
      add("merge",
          "stores the rows of other databases, all or none; known rows are not stored twice, no other file is changed",
          "attune db merge node17.db --database all.db\nattune db merge shard*.db --database all.db", merge);
  merge_verb->add_option("others", merge_options->files, "other tuning databases").required();

  const auto [carry_verb, carry_options] = add(
      "carry",
      "gives rows of older kernels the source hashes of now, by a list of those with the same machine code, so that "
      "they are not taken for stale; scripts/same-machine-code --list writes one",
      "attune db carry hashes.json --database h200.db", carry);
  carry_verb->add_option("file", carry_options->file, "the list; - is standard input").required();

  const auto [prune_verb, prune_options] =
      add("prune", "removes old rows; never one that the choice of a config rests on",
          "attune db prune --keep-latest 3 --dry-run\nattune db prune --failed-older-than 30", prune);
  prune_verb->add_option("--keep-latest", prune_options->rules.keep_latest,
                         "rows to keep per problem, device and config");
  prune_verb->add_option("--failed-older-than", prune_options->rules.failed_older_than, "days after which failures go");
  prune_verb->add_flag("--dry-run", prune_options->dry_run, "say what would be removed, remove nothing");

  // It has no database of its own to look at.
  auto ship_options = std::make_shared<MaintenanceOptions>();
  CommandLine* ship_verb = add_verb(
      db, "ship", "make a system database from exports; picks use it below the user's own, and never write to it",
      "attune db ship h200.json l40s.json --name site --version 2026.11 --output /opt/attune/system.db\n"
      "ATTUNE_SYSTEM_DATABASE=/opt/attune/system.db attune explain --seq 4096 --head-dim 128");
  ship_verb->add_option("files", ship_options->files, "what `attune db export` wrote; none: an empty database");
  ship_verb->add_option("--output", ship_options->file, "the file to write; one that ship made is replaced").required();
  ship_verb->add_option("--name", ship_options->label.name, "what explanations and digests call it");
  ship_verb->add_option("--version", ship_options->label.version, "which version of it this is, for the same");
  ship_options->output.add_to(*ship_verb);
  verbs.push_back({ship_verb, [ship_options] { return ship(*ship_options); }});

  add("doctor", "examines the file without changing it and says what to do; exit status 1 if anything is wrong",
      "attune db doctor --json", doctor);
  add("vacuum", "gives unused space of the file back", "attune db vacuum", vacuum);
  return verbs;
}

}  // namespace attune::cli
