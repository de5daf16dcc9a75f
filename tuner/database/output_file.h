#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// What must not be written over, and what the bytes are.
struct OutputRules {
  std::vector<std::filesystem::path> inputs = {};  ///< what is read for it; with a database its log and journal
  bool over_system_database = false;               ///< what write_system_database() made may be replaced
  bool over_pack = false;                          ///< what write_kernel_pack() made may be replaced
  bool binary = false;                             ///< nothing for a terminal
};

/// The one way to write a file that a user names.
///
///   a file, or nothing yet   whole or not at all: written without a name (or, where the file system cannot, under an
///                            unpredictable one beside it), flushed, and renamed over what was there. Links are
///                            followed, mode and owner kept; a new file has the mode of the umask
///   -, /dev/stdout           standard output, as it comes
///   a pipe, /dev/null,       as it comes
///   a terminal
///
/// All else is refused: folders, other devices, SQLite databases but those of `over_system_database` and `over_pack`,
/// and each of the inputs, under whatever name. Until commit() returns, what was there is unchanged, and afterwards
/// nothing else is; SIGINT and SIGTERM leave no temporary file. Throws Error(invalid_argument) for what is refused and
/// Error(io) with the system's reason for what fails; both name the file.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path, OutputRules rules = {});
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);
  void commit();

  /// Whether a path stands for standard output: results must not be printed there, too.
  static bool is_standard_output(const std::filesystem::path& path);

 private:
  class HeldSignals;

  void open();
  void release();
  void open_through(int flags);
  void open_temporary();
  void put_in_place();
  std::string name() const;  // in messages
  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void fail(int error) const;
  void refuse_inputs() const;
  void refuse_database() const;

  std::filesystem::path path_;    // as the user named it
  std::filesystem::path target_;  // behind links; empty if the bytes go through as they come
  OutputRules rules_;
  int folder_ = -1, descriptor_ = -1;
  std::string temporary_;  // its name in the folder; empty while it has none
  std::unique_ptr<HeldSignals> held_;
};

/// The whole of it: a file of these bytes.
void write_output_file(const std::filesystem::path& path, std::string_view bytes, const OutputRules& rules = {});

/// Before work that takes long: throws what an OutputFile would throw now. Leaves nothing.
void require_writable_output(const std::filesystem::path& path, const OutputRules& rules = {});

}  // namespace attune
