#include "tuner/database/kernel_pack.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "generator/error.h"
#include "generator/plan/source_hash.h"
#include "generator/problem/problem_fields.h"
#include "runtime/system/fork_gate.h"
#include "runtime/system/printable.h"
#include "tuner/database/database_checks.h"
#include "tuner/database/file_state.h"
#include "tuner/database/file_system.h"
#include "tuner/database/measurement.h"
#include "tuner/database/output_file.h"
#include "tuner/database/reading_connection.h"
#include "tuner/database/schema_objects.h"
#include "tuner/database/sqlite.h"
#include "tuner/database/text_digest.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;
using sqlite::Statement;

constexpr std::int64_t kPackApplicationId = 0x41747450;  // "AttP", in the file's header: see file(1)
constexpr int kPackFormat = 1;                           // the file's user_version

// Pages of 16 KiB: a cubin is read in a few pieces.
constexpr const char* kSchema = R"sql(
PRAGMA page_size = 16384;
CREATE TABLE manifest (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;
CREATE TABLE pick (
  problem     TEXT PRIMARY KEY,   -- canonical
  config      TEXT NOT NULL,      -- canonical
  origin      TEXT NOT NULL,      -- why it was picked
  detail      TEXT NOT NULL,
  source_hash TEXT NOT NULL       -- of the plan's kernels
) STRICT;
CREATE TABLE kernel (
  key         TEXT PRIMARY KEY,   -- hash of source, flags and architecture
  entry       TEXT NOT NULL,
  source_hash TEXT NOT NULL,
  cubin       BLOB NOT NULL,
  log         TEXT NOT NULL,      -- the compiler's
  compile_ms  REAL NOT NULL
) STRICT;
)sql";

constexpr const char* kContentHash = "content_hash";

std::map<std::string, std::string> fields_of(const PackManifest& manifest) {
  return {{"attune_version", manifest.attune_version},
          {"templates_hash", manifest.templates_hash},
          {"target", manifest.target},
          {"device", manifest.device},
          {"sm_count", std::to_string(manifest.sm_count)},
          {"arch", manifest.arch},
          {"compiler", manifest.compiler},
          {"created_at", manifest.created_at}};
}

// Rows in the order in which the file has them.
void sort(PackContents& contents) {
  std::sort(contents.picks.begin(), contents.picks.end(),
            [](const PackPick& a, const PackPick& b) { return canonical_text(a.problem) < canonical_text(b.problem); });
  std::sort(contents.kernels.begin(), contents.kernels.end(),
            [](const PackKernel& a, const PackKernel& b) { return a.key < b.key; });
}

// A pick's texts as the file has them: another version may have spelled them otherwise.
struct PickTexts {
  std::string problem, config;
};

std::vector<PickTexts> canonical_texts(const std::vector<PackPick>& picks) {
  std::vector<PickTexts> texts;
  for (const PackPick& pick : picks) texts.push_back({canonical_text(pick.problem), canonical_text(pick.config)});
  return texts;
}

std::string content_hash_of(const PackContents& contents, const std::vector<PickTexts>& texts) {
  TextDigest digest;
  for (const auto& [name, value] : fields_of(contents.manifest)) digest.add(name).add(value);
  digest.add(static_cast<long long>(contents.picks.size()));
  for (std::size_t i = 0; i < contents.picks.size(); ++i) {
    const PackPick& pick = contents.picks[i];
    digest.add(texts[i].problem).add(texts[i].config);
    digest.add(pick.origin).add(pick.detail).add(pick.source_hash);
  }
  digest.add(static_cast<long long>(contents.kernels.size()));
  for (const PackKernel& kernel : contents.kernels) {
    digest.add(kernel.key).add(kernel.entry).add(kernel.source_hash);
    digest.add(kernel.image).add(kernel.log).add(fmt::format("{}", kernel.compile_ms));
  }
  return digest.text();
}

std::string image_of(const PackContents& contents) {
  Connection db(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
  db.execute(kSchema);
  db.execute(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kPackApplicationId, kPackFormat).c_str());
  sqlite::Transaction transaction(db);
  std::map<std::string, std::string> fields = fields_of(contents.manifest);
  fields.emplace(kContentHash, content_hash_of(contents, canonical_texts(contents.picks)));
  for (const auto& [name, value] : fields)
    Statement(db, "INSERT INTO manifest VALUES (?, ?)").bind(name).bind(value).step();
  for (const PackPick& pick : contents.picks) {
    Statement(db, "INSERT INTO pick VALUES (?, ?, ?, ?, ?)")
        .bind(canonical_text(pick.problem))
        .bind(canonical_text(pick.config))
        .bind(pick.origin)
        .bind(pick.detail)
        .bind(pick.source_hash)
        .step();
  }
  for (const PackKernel& kernel : contents.kernels) {
    Statement(db, "INSERT INTO kernel VALUES (?, ?, ?, ?, ?, ?)")
        .bind(kernel.key)
        .bind(kernel.entry)
        .bind(kernel.source_hash)
        .bind_blob(kernel.image.data(), kernel.image.size())
        .bind(kernel.log)
        .bind(kernel.compile_ms)
        .step();
  }
  transaction.commit();
  sqlite3_int64 bytes = 0;
  const std::unique_ptr<unsigned char, decltype(&sqlite3_free)> copy(sqlite3_serialize(db.handle(), "main", &bytes, 0),
                                                                     &sqlite3_free);
  if (!copy) throw std::bad_alloc();
  return {reinterpret_cast<const char*>(copy.get()), static_cast<std::size_t>(bytes)};
}

void refuse_what_is_there(const fs::path& path, bool replace) {
  std::error_code error;
  if (replace || !fs::is_regular_file(path, error)) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} is not written: it exists already; --force replaces it", path.string()));
}

OutputRules rules_of(const std::vector<fs::path>& inputs) {
  return {.inputs = inputs, .over_pack = true, .binary = true};
}

// What a file says that cannot be, or cannot be read: its bytes are not what was written.
struct Damage {
  std::string why;
};

AttentionProblem by_scale_and_layout(const AttentionProblem& asked) {
  AttentionProblem problem = simplest_mask(asked);
  reset_arguments(&problem);
  problem.layout = Layout::bshd;
  return problem;
}

// Before anything is read: a column that another schema computes may be of any size. A file that has this schema holds
// what is read of it, each page once.
void check_tables(Connection& db) {
  Connection made(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
  made.execute(kSchema);
  const SchemaObjects right = objects_of(made), present = objects_of(db);
  for (auto next = right.rbegin(); next != right.rend(); ++next) {  // tables before their indices
    const auto& [key, object] = *next;
    const auto found = present.find(key);
    const std::string name = key.first + " " + key.second;
    if (found == present.end()) throw Damage{fmt::format("its {} is missing", name)};
    if (found->second != object) throw Damage{fmt::format("its {} is not what `attune pack` makes", name)};
  }
  for (const auto& [key, object] : present) {
    if (!right.contains(key))
      throw Damage{fmt::format("its {} {} is none that `attune pack` makes", key.first, key.second)};
  }
  check_integrity(db);
}

PackContents contents_of(Connection& db, std::string* content_hash, std::vector<PickTexts>* texts) {
  PackContents contents;
  std::map<std::string, std::string> fields;
  Statement manifest(db, "SELECT name, value FROM manifest");
  while (manifest.step()) fields[manifest.text(0)] = manifest.text(1);
  const auto field = [&](const std::string& name) -> const std::string& {
    const auto found = fields.find(name);
    if (found == fields.end()) throw Damage{"its manifest lacks " + name};
    return found->second;
  };
  PackManifest& said = contents.manifest;
  said.attune_version = field("attune_version");
  said.templates_hash = field("templates_hash");
  said.target = field("target");
  said.device = field("device");
  said.sm_count = std::atoi(field("sm_count").c_str());
  said.arch = field("arch");
  said.compiler = field("compiler");
  said.created_at = field("created_at");
  if (!canonical_time(said.created_at)) throw Damage{"its date is none"};
  *content_hash = field(kContentHash);

  Statement picks(db, "SELECT problem, config, origin, detail, source_hash FROM pick ORDER BY problem");
  while (picks.step()) {
    contents.picks.push_back(
        {parse_problem(picks.text(0)), parse_config(picks.text(1)), picks.text(2), picks.text(3), picks.text(4)});
    validate(contents.picks.back().problem);
    texts->push_back({picks.text(0), picks.text(1)});
  }
  Statement kernels(db, "SELECT key, entry, source_hash, cubin, log, compile_ms FROM kernel ORDER BY key");
  while (kernels.step()) {
    contents.kernels.push_back({kernels.text(0), kernels.text(1), kernels.text(2), std::string(kernels.blob(3)),
                                kernels.text(4), kernels.real(5)});
  }
  return contents;
}

}  // namespace

void write_kernel_pack(const fs::path& path, const PackContents& given, const std::vector<fs::path>& inputs,
                       bool replace) {
  PackContents contents = given;
  sort(contents);
  std::string image;
  try {
    image = image_of(contents);
  } catch (const Failure& failure) {
    throw Error(ErrorCode::database, fmt::format("cannot make the pack {}: {}", path.string(), failure.message));
  }
  refuse_what_is_there(path, replace);
  write_output_file(path, image, rules_of(inputs));
}

void require_writable_pack(const fs::path& path, const std::vector<fs::path>& inputs, bool replace) {
  refuse_what_is_there(path, replace);
  require_writable_output(path, rules_of(inputs));
}

KernelPack::KernelPack(const fs::path& path) : path_(path) {
  const ForkGate::Section section;  // a child could not use SQLite where another thread was using it
  constexpr const char* kMakeAnew = "copy it again from where it was made, or make it anew with `attune pack`";
  const auto no_pack = [&](const std::string& what) {
    return Error(ErrorCode::invalid_argument,
                 fmt::format("{} is no pack of kernels: {}; `attune pack` makes one", path_.string(), what));
  };
  const auto damaged = [&](const std::string& why) {
    return Error(ErrorCode::invalid_argument,
                 fmt::format("the pack {} is damaged ({}): {}", path_.string(), printable_line(why), kMakeAnew));
  };
  const FileState before = state_of(path_);
  if (before.inode == 0) {
    throw Error(ErrorCode::io, fmt::format("there is no pack {}: `attune pack --shapes FILE --target GPU --output {}` "
                                           "makes one",
                                           path_.string(), shell_word(path_.string())));
  }
  try {
    if (const std::string why = no_file_because(path_); !why.empty()) {
      throw Error(ErrorCode::io, fmt::format("the pack {} cannot be read: {}", path_.string(), why));
    }
    const DatabaseHeader header(resolved(path_));
    if (!header.is_database()) {
      if (before.bytes == 0) throw damaged("it is empty");
      throw no_pack("it has another format");
    }
    if (header.application() == kApplicationId)
      throw no_pack("it is a tuning database, which ATTUNE_DATABASE or --database names");
    if (header.application() != kPackApplicationId) throw no_pack("it is another program's database");
    read();
    if (!(state_of(path_) == before)) throw Damage{"it changed while it was read"};
  } catch (const Damage& damage) {
    throw damaged(damage.why);
  } catch (const Failure& failure) {
    // What the file has as its size and as its pages differs from what it says.
    const int code = failure.primary();
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR || code == SQLITE_TOOBIG ||
        (code == SQLITE_IOERR && failure.code == SQLITE_IOERR_SHORT_READ)) {
      throw damaged(failure.message);
    }
    throw Error(ErrorCode::io, fmt::format("the pack {} cannot be read: {}", path_.string(), failure.message));
  }
  index();
}

void KernelPack::read() {
  const std::unique_ptr<Connection> db = connect_immutable(resolved(path_));
  if (const std::int64_t format = db->integer("PRAGMA user_version"); format > kPackFormat) {
    throw Error(ErrorCode::unsupported,
                fmt::format("the pack {} has format {}, and attune {} knows {}: update Attune, or make the pack with "
                            "this version",
                            path_.string(), format, attune_version(), kPackFormat));
  }
  std::string stored;
  std::vector<PickTexts> texts;
  try {
    check_tables(*db);
    contents_ = contents_of(*db, &stored, &texts);
  } catch (const Error& error) {
    throw Damage{error.what()};
  }
  content_hash_ = content_hash_of(contents_, texts);
  if (content_hash_ != stored) throw Damage{"its content does not have the hash that was written with it"};
}

void KernelPack::index() {
  for (std::size_t i = 0; i < contents_.picks.size(); ++i) {
    const AttentionProblem problem = by_scale_and_layout(contents_.picks[i].problem);
    by_problem_.emplace(problem, i);
    by_class_[dispatch_class(problem)].push_back(i);
  }
  for (std::size_t i = 0; i < contents_.kernels.size(); ++i) by_key_.emplace(contents_.kernels[i].key, i);
}

void KernelPack::require_usable(const TemplateSet& templates) const {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::unsupported,
                fmt::format("the pack {} cannot be used: {}. Make it anew with this version's `attune pack`",
                            path_.string(), what));
  };
  const PackManifest& said = manifest();
  if (said.attune_version != attune_version())
    refuse(
        fmt::format("attune {} made it, and this is attune {}", printable_line(said.attune_version), attune_version()));
  if (said.templates_hash != hash_of_templates(templates)) {
    refuse(fmt::format("it was made from other kernel templates than those of this {} ({}, here {})",
                       &templates == &TemplateSet::embedded() ? "build" : "ATTUNE_TEMPLATE_DIR",
                       printable_line(said.templates_hash), hash_of_templates(templates)));
  }
}

bool KernelPack::is_for(const DeviceSpec& device) const {
  return manifest().device == device.name && manifest().sm_count == device.sm_count;
}

const PackPick* KernelPack::find(const AttentionProblem& problem) const {
  const auto found = by_problem_.find(by_scale_and_layout(problem));
  return found == by_problem_.end() ? nullptr : &contents_.picks[found->second];
}

std::vector<const PackPick*> KernelPack::same_class(const AttentionProblem& problem) const {
  std::vector<const PackPick*> rows;
  const auto found = by_class_.find(dispatch_class(by_scale_and_layout(problem)));
  if (found == by_class_.end()) return rows;
  for (const std::size_t i : found->second) rows.push_back(&contents_.picks[i]);
  return rows;
}

const PackKernel* KernelPack::find_kernel(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &contents_.kernels[found->second];
}

bool is_kernel_pack(std::string_view head) {
  constexpr std::size_t kApplicationIdAt = 68;
  constexpr std::string_view kId = "AttP";
  return head.size() >= kApplicationIdAt + kId.size() && head.substr(kApplicationIdAt, kId.size()) == kId;
}

std::string hash_of_templates(const TemplateSet& templates) {
  TextDigest digest;
  for (const auto& [name, text] : templates.texts()) digest.add(name).add(text);
  return digest.text().substr(0, 16);
}

}  // namespace attune
