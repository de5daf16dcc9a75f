#include "tuner/database/sound_rows.h"

#include <fmt/format.h>

#include <mutex>

#include "attune/log.h"
#include "runtime/system/printable.h"
#include "tuner/database/database_rows.h"

namespace attune {

void SoundRows::note(const sqlite::Statement& query, const std::string& what) {
  const std::string hash = query.text(kRowColumnCount);
  const std::lock_guard lock(mutex_);
  if (told_.count(hash) > 0) return;
  to_tell_.push_back(fmt::format("{}: measurement {} (\"{}\" of \"{}\" on {}) {}", path_.string(),
                                 query.integer(kRowColumnCount + 1), printable_line(query.text(3)),
                                 printable_line(query.text(0)), printable_line(query.text(1)), what));
  told_.insert(hash);
}

void SoundRows::tell() {
  std::vector<std::string> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(to_tell_);
  }
  for (const std::string& message : messages) log(LogLevel::warning, message);
}

std::optional<Measurement> SoundRows::read(const sqlite::Statement& query, std::vector<std::int64_t>& passed_over) {
  std::string why;
  std::optional<Measurement> row;
  if (stored_content_hash(query) != query.text(kRowColumnCount)) {
    why = "it was changed after it was stored";
  } else {
    row = read_row(query);
    if (!row) return std::nullopt;  // of a newer version
    why = impossibility(*row);
    if (why.empty()) return row;
  }
  passed_over.push_back(query.integer(kRowColumnCount + 1));
  note(query, fmt::format("is passed over: {}. `attune db doctor --database {}` says more", why, path_.string()));
  return std::nullopt;
}

std::optional<Measurement> SoundRows::read_pickable(const sqlite::Statement& query,
                                                    std::vector<std::int64_t>& passed_over) {
  std::optional<Measurement> row = read(query, passed_over);
  if (!row) return row;
  const std::string why = error_beyond_bounds(*row);
  if (why.empty()) return row;
  passed_over.push_back(query.integer(kRowColumnCount + 1));
  note(query, "is never picked: " + why);
  return std::nullopt;
}

}  // namespace attune
