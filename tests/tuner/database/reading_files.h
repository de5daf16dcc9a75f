#pragma once

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>

#include "generator/error.h"
#include "tests/tuner/database/database_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/tuning_database.h"

namespace attune::test {

/// Everything that can be seen of a folder: names, kinds, bytes and times.
inline std::map<std::string, std::string> look_at(const std::filesystem::path& folder) {
  std::map<std::string, std::string> seen;
  const auto note = [&](const std::filesystem::path& path) {
    struct stat facts {};
    REQUIRE(::lstat(path.c_str(), &facts) == 0);
    seen[path.string()] =
        fmt::format("inode {} mode {:o} size {} at {}.{:09}, {}", facts.st_ino, facts.st_mode, facts.st_size,
                    facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, S_ISREG(facts.st_mode) ? bytes_of(path) : "");
  };
  note(folder);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) note(entry.path());
  return seen;
}

/// Every way to read a file; none may throw anything but Error. What they said, and how many rows the database showed.
struct Read {
  std::string said;
  std::size_t rows = 0;
};
inline Read read_in_every_way(const std::filesystem::path& path) {
  Read read;
  const auto attempt = [&](auto ask) {
    try {
      ask();
    } catch (const Error& error) {
      read.said += std::string(error.what()) + "\n";
    }
  };
  const Measurement example = example_measurement();
  const AttentionProblem& problem = example.problem;
  const auto database = TuningDatabase::open_for_reading(path);
  for (const std::string& note : database->notes()) read.said += note + "\n";
  attempt([&] { database->list(); });
  attempt([&] { read.rows = database->find_all(problem, example.device, example.sm_count).size(); });
  attempt([&] { database->latest(problem, example.device, example.sm_count); });
  attempt([&] { database->best(problem, example.device, example.sm_count); });
  attempt([&] { database->near(problem, example.sm_count); });
  attempt([&] { database->winners_of_neighbours(problem, example.device, example.sm_count, 3); });
  attempt([&] { read_database(path); });
  attempt([&] { read_database(path, Damage::salvage); });
  attempt([&] { describe_database(path); });
  for (const DatabaseFinding& finding : examine_database(path).findings) read.said += finding.what + "\n";
  return read;
}

}  // namespace attune::test
