#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/database/reading_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::bytes_of;
using attune::test::numbered;
using attune::test::Read;
using attune::test::read_in_every_way;
using attune::test::require_equal;
using attune::test::TemporaryFolder;
using attune::test::write_rows;
namespace fs = std::filesystem;

TEST_CASE("what can be read of a damaged file is saved, and what is lost is counted", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  constexpr int kRows = 200;
  {
    std::vector<Measurement> rows;
    for (int i = 0; i < kRows; ++i) rows.push_back(numbered(i));
    TuningDatabase(file).append_all(rows);
  }
  const std::string whole = bytes_of(file);
  const std::int64_t pages = static_cast<std::int64_t>(whole.size()) / 4096;
  std::mt19937 random(1);
  int salvaged = 0;
  for (int i = 0; i < 12; ++i) {
    std::string bytes = whole;
    const auto page = 1 + random() % static_cast<std::size_t>(pages - 1);  // not the first, which holds the schema
    for (std::size_t at = page * 4096; at < (page + 1) * 4096; ++at) bytes[at] = static_cast<char>(at * 37);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    const DatabaseContents contents = read_database(file, Damage::salvage);
    INFO("page " << page << " of " << pages << ": " << contents.rows.size() << " rows, " << contents.lost << " lost, "
                 << contents.damage);
    REQUIRE_FALSE(contents.damage.empty());
    REQUIRE_THROWS_AS(read_database(file), Error);
    std::set<double> numbers;
    for (const Measurement& row : contents.rows) {
      attune::test::require_equal(row, numbered(static_cast<int>(row.samples_us[0])));
      numbers.insert(row.samples_us[0]);
    }
    REQUIRE(numbers.size() == contents.rows.size());
    REQUIRE(static_cast<std::int64_t>(contents.rows.size()) + contents.lost + contents.changed >= kRows);
    if (contents.rows.size() >= kRows - 20) ++salvaged;
  }
  REQUIRE(salvaged >= 9);  // all but a page that others hang from
}

namespace {

// Flips each `step`-th bit of the header, and `others` bits beyond it.
void flip_bits(std::size_t step, int others) {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db", changed = folder / "changed.db";
  constexpr int kRows = 12;
  write_rows(file, kRows);
  std::set<std::string> hashes;
  for (const Measurement& row : read_database(file).rows) hashes.insert(content_hash(row));
  REQUIRE(hashes.size() == kRows);
  const std::string whole = bytes_of(file);
  const auto flip = [&](std::size_t bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    std::ofstream(changed, std::ios::binary | std::ios::trunc) << bytes;
    INFO("bit " << bit % 8 << " of byte " << bit / 8);
    const Read read = read_in_every_way(changed);
    for (const Damage damage : {Damage::refuse, Damage::salvage}) {
      try {
        const DatabaseContents contents = read_database(changed, damage);
        for (const Measurement& row : contents.rows) REQUIRE(hashes.contains(content_hash(row)));
        const auto told = contents.changed + contents.lost + contents.unreadable;
        if (contents.damage.empty() && read.said.empty()) REQUIRE(contents.rows.size() == kRows);
        if (contents.damage.empty()) REQUIRE(static_cast<std::int64_t>(contents.rows.size()) + told >= kRows);
      } catch (const Error&) {
        // said
      }
    }
    REQUIRE(bytes_of(changed) == bytes);
    REQUIRE(std::distance(fs::directory_iterator(folder.path()), {}) == 2);
  };
  for (std::size_t bit = 0; bit < 100 * 8; bit += step) flip(bit);
  std::mt19937 random(7);
  for (int i = 0; i < others; ++i) flip(800 + random() % (whole.size() * 8 - 800));
}

}  // namespace

TEST_CASE("a changed bit of an index is told, where lookups by it would find nothing", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db", changed = folder / "changed.db";
  write_rows(file, 3);
  const Measurement example = numbered(0);
  const std::string whole = bytes_of(file);
  int flips = 0;
  // Each of them is in a table and in an index of it.
  for (const std::string& text :
       {canonical_text(example.problem), canonical_text(example.config), example.device, content_hash(example)}) {
    for (std::size_t at = whole.find(text); at != std::string::npos; at = whole.find(text, at + 1)) {
      std::string bytes = whole;
      bytes[at + text.size() - 1] = static_cast<char>(bytes[at + text.size() - 1] ^ 1);
      std::ofstream(changed, std::ios::binary | std::ios::trunc) << bytes;
      INFO("\"" << text << "\" at byte " << at);
      ++flips;
      const auto database = TuningDatabase::open_for_reading(changed);
      REQUIRE(database->notes().size() == 1);
      CHECK_THAT(database->notes()[0], ContainsSubstring("is corrupt") && ContainsSubstring("index"));
      const DatabaseDiagnosis diagnosis = examine_database(changed);
      REQUIRE_FALSE(diagnosis.findings.empty());
      CHECK(diagnosis.findings[0].check == "integrity");
      CHECK_THROWS_WITH(read_database(changed), ContainsSubstring("index"));
      const DatabaseContents saved = read_database(changed, Damage::salvage);
      CHECK_FALSE(saved.damage.empty());
      CHECK(static_cast<std::int64_t>(saved.rows.size()) + saved.changed == 3);  // changed: the bit is the table's
      CHECK_FALSE(TuningDatabase::open_shipped(changed)->notes().empty());
      CHECK_THAT(TuningDatabase(changed).notes().at(0), ContainsSubstring("it is kept as"));
    }
  }
  CHECK(flips >= 8);
}

TEST_CASE("a changed bit of the header or elsewhere crashes nothing, and no changed row is exported", "[nogpu]") {
  flip_bits(3, 100);  // of each byte two or three bits
}

TEST_CASE("every bit of the header, and others by seed: nothing crashes, and no changed row is exported",
          "[nogpu][slow]") {
  flip_bits(1, 200);
}
