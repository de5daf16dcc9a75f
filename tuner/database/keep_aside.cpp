#include "tuner/database/keep_aside.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "tuner/database/measurement.h"

namespace attune {

namespace fs = std::filesystem;

// The log goes first: a fresh database must not find it.
fs::path keep_aside(const fs::path& path, std::error_code& error) {
  std::string stamp = utc_now();
  std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
  fs::path aside = path.string() + ".corrupt-" + stamp;
  for (int number = 2; fs::exists(fs::symlink_status(aside, error)); ++number)
    aside = fmt::format("{}.corrupt-{}-{}", path.string(), stamp, number);
  constexpr std::array kBeside = {"-wal", "-shm", "-journal"};
  std::error_code absent;
  for (const char* suffix : kBeside) fs::rename(path.string() + suffix, aside.string() + suffix, absent);
  fs::rename(path, aside, error);
  if (error) {
    for (const char* suffix : kBeside) fs::rename(aside.string() + suffix, path.string() + suffix, absent);
  }
  return aside;
}

}  // namespace attune
