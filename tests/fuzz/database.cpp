// A file that is opened as a database: for reading, as the system's, by the doctor; and as a pack. None changes it.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "attune/log.h"
#include "tests/fuzz/fuzz_target.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/kernel_pack.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() {
    set_log_sink([](LogLevel, std::string_view) {});
    std::string name = "/dev/shm/attune-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      name = (fs::temp_directory_path() / "attune-fuzz-XXXXXX").string();
      fuzz::require(::mkdtemp(name.data()) != nullptr);
    }
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const fs::path file = folder.path / "tuning.db";
  const std::string bytes(fuzz::text_of(data, size));
  std::ofstream(file, std::ios::binary) << bytes;
  fuzz::accepts([&] {
    const auto database = TuningDatabase::open_shipped(file);
    for (const TuningDatabase::Entry& entry : database->list()) {
      database->best(entry.problem, entry.device, entry.sm_count);
      database->find_all(entry.problem, entry.device, entry.sm_count);
    }
  });
  fuzz::accepts([&] { examine_database(file); });
  fuzz::accepts([&] { read_database(file); });
  fuzz::accepts([&] { describe_database(file); });
  fuzz::accepts([&] {
    const KernelPack pack(file);
    for (const PackPick& pick : pack.picks()) fuzz::require(pack.find(pick.problem) != nullptr);
  });
  std::ifstream after(file, std::ios::binary);
  fuzz::require(std::string(std::istreambuf_iterator<char>(after), {}) == bytes);
  return 0;
}
