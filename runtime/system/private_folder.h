#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/system/regular_file.h"

namespace attune {

/// A folder of Attune's own, whose files may become running code: nobody but this process's user and root can have put
/// them there. It is opened once and checked by its descriptor, and everything in it is reached by that descriptor, so
/// that renaming the folder or a parent of it changes nothing:
///   it is a folder, not a symbolic link; it belongs to the effective user, or to root; group and others cannot write;
///   no parent is writable by everybody, except for one with the sticky bit, such as /tmp.
/// Folders that are missing are made, each with mode 0700. Files are read only where they are regular, belong to one of
/// those two, and are not writable by others. Movable, not copyable; its functions are thread-safe.
class PrivateFolder {
 public:
  enum class State {
    usable,
    unavailable,  ///< it cannot be made or opened
    unsafe        ///< somebody else may have put something there
  };

  /// Whether it can be used is told by state(). `user` is whom it has to belong to.
  explicit PrivateFolder(const std::filesystem::path& folder, uid_t user = effective_user());
  ~PrivateFolder();
  PrivateFolder(PrivateFolder&& other) noexcept;
  PrivateFolder& operator=(PrivateFolder&& other) noexcept;

  State state() const { return state_; }
  bool usable() const { return state_ == State::usable; }
  /// Whether files can be put into it; one that root has filled and others read is usable all the same.
  bool writable() const { return writable_; }
  /// A sentence that names a folder which cannot be used, or only be read, and says why and how to mend it.
  const std::string& complaint() const { return complaint_; }
  const std::filesystem::path& path() const { return path_; }

  /// The contents of a file; nothing, and the reason in *why_not, if it is not there or not to be trusted.
  std::optional<std::string> read(const std::string& name, std::size_t most_bytes,
                                  std::string* why_not = nullptr) const;
  /// Writes a file whole or not at all: under an unpredictable name, mode 0600, synced, renamed. False, and the reason
  /// in *why_not, if it cannot.
  bool write(const std::string& name, std::string_view bytes, std::string* why_not = nullptr) const;

  /// Lets nobody else write to a file here that a program of ours has made as its umask says.
  void claim(const std::string& name) const noexcept;

  /// A folder in this one, with the same demands; subfolder() makes it if it is missing.
  PrivateFolder existing(const std::string& name) const;
  PrivateFolder subfolder(const std::string& name) const;
  /// A new one with an unpredictable name that begins with `prefix`. remove_older() leaves it alone while it is open.
  PrivateFolder make_temporary(const std::string& prefix) const;
  std::string name() const { return path_.filename().string(); }  ///< the last component of its path

  /// Whether anything has this name, be it a dangling link.
  bool has(const std::string& name) const;
  /// Moves what is called `name` here to `to`, under `new_name`, without replacing a file or a folder that is not
  /// empty.
  bool move(const std::string& name, const PrivateFolder& to, const std::string& new_name) const;
  /// Removes what has this name, with all that is in it.
  void remove(const std::string& name) const noexcept;
  /// Removes what killed processes left: whatever begins with `prefix`, has not changed for `age`, and is not open as
  /// somebody's make_temporary(). The age is told by the clock that the file system stamps files with, so that neither
  /// this process's clock nor another's matters. Where folders cannot be locked, as on NFS, the age alone decides.
  void remove_older(std::string_view prefix, std::chrono::seconds age) const noexcept;
  /// Syncs the folder's list of names.
  bool sync() const;

 private:
  PrivateFolder(std::filesystem::path path, uid_t user, int at, const std::string& name);
  static uid_t effective_user();
  void make_and_open(const std::filesystem::path& folder);
  void open(int at, const std::string& name);
  void refuse(State state, const std::string& complaint);
  bool trusted(uid_t owner) const { return owner == user_ || owner == 0; }
  std::filesystem::path by_descriptor(const std::string& name) const;
  std::optional<timespec> file_system_time(std::string_view prefix) const noexcept;
  bool is_held(const char* name) const noexcept;

  std::filesystem::path path_;
  uid_t user_;
  int descriptor_ = -1;
  State state_ = State::usable;
  bool writable_ = false;
  std::string complaint_;
};

/// Where a program keeps what it can make again.
struct CacheFolder {
  std::filesystem::path path;
  bool named = false;  ///< by $ATTUNE_CACHE_DIR, not found by Attune
};

/// Folders for a cache of this name, the preferred one first: $ATTUNE_CACHE_DIR/`below_named`, else
/// $XDG_CACHE_HOME/attune/`name`, ~/.cache/attune/`name`, /tmp/attune-`name`-UID. A home folder that belongs to
/// somebody else is left out, which is logged.
std::vector<CacheFolder> cache_folders(const std::string& name, const std::filesystem::path& below_named);

/// Logs a warning, the first time that this process has reason to.
void warn_once(const std::string& message);

}  // namespace attune
