#include "tuner/database/carried_rows.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "generator/error.h"
#include "runtime/system/json_text.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/writable_database.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "attune source hashes";
constexpr int kVersion = 1;

bool is_hash(const std::string& text) {
  constexpr std::size_t kDigits = 16;
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

SourceHashes parse_source_hashes(std::string_view text, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    return Error(ErrorCode::invalid_argument, fmt::format("{} {}", name, what));
  };
  const json document = parse_json(text, name);
  if (!document.is_object() || document.value("format", json()) != kFormat || !document.contains("hashes") ||
      !document["hashes"].is_object()) {
    throw refuse("is no list of source hashes; `scripts/same-machine-code --list FILE` writes one");
  }
  if (document.value("version", json()) != kVersion) {
    throw refuse(fmt::format("has version {} of the format, this program reads version {}",
                             shown(document.value("version", json())), kVersion));
  }
  SourceHashes hashes;
  for (const auto& [from, to] : document["hashes"].items()) {
    if (!is_hash(from) || !to.is_string() || !is_hash(to.get<std::string>())) {
      throw refuse(fmt::format("maps {} to {}: a hash has 16 hexadecimal digits", shown(json(from)), shown(to)));
    }
    hashes.emplace(from, to.get<std::string>());
  }
  return hashes;
}

CarriedRows carry_rows(const std::filesystem::path& path, const SourceHashes& hashes) {
  return WritableDatabase(path).change([&](sqlite::Connection& db) {
    struct Carried {
      std::int64_t id;
      std::string source_hash, content_hash;
    };
    sqlite::Transaction transaction(db);
    CarriedRows result;
    std::vector<Carried> carried;
    {
      sqlite::Statement rows(db, fmt::format("SELECT {}, m.id, m.content_hash FROM {}", kRowColumns, kRowTables));
      while (rows.step()) {
        std::optional<Measurement> row = read_row(rows);
        const auto found = row ? hashes.find(row->source_hash) : hashes.end();
        if (found == hashes.end() || stored_content_hash(rows) != rows.text(kRowColumnCount + 1)) {
          ++result.others;
          continue;
        }
        row->source_hash = found->second;
        carried.push_back({rows.integer(kRowColumnCount), found->second, content_hash(*row)});
      }
    }
    for (const Carried& row : carried) {
      sqlite::Statement(db, "UPDATE OR IGNORE measurement SET source_hash = ?, content_hash = ? WHERE id = ?")
          .bind(row.source_hash)
          .bind(row.content_hash)
          .bind(row.id)
          .step();
      // The same row was imported with its new hash already.
      sqlite::Statement(db, "DELETE FROM measurement WHERE id = ? AND content_hash <> ?")
          .bind(row.id)
          .bind(row.content_hash)
          .step();
    }
    result.carried = static_cast<std::int64_t>(carried.size());
    transaction.commit();
    return result;
  });
}

}  // namespace attune
