#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace attune {

/// Held by the one process, or thread, that begins a database or replaces a corrupt one. It is a lock on a file beside
/// the database, NAME-attune-lock, which is removed with the lock and holds a line that says who has it. A stranger,
/// who may not create files in the folder, cannot take it:
///
///   the file may be opened by its owner, by the folder's group if that may write to the folder, and by everybody only
///   if everybody may replace files there;
///   in a folder such as /tmp, where everybody may create files but not replace others', a lock file is used only if it
///   belongs to this user, to root, or to the owner of the folder or of the database.
///
/// Older versions lock the folder itself, which everybody can do who may read it. That lock is taken, too, if it is
/// free, so that they wait for this one; nobody waits for it.
class DatabaseLock {
 public:
  static constexpr std::chrono::milliseconds kPatience{10'000};

  /// Waits so long at most for each holder.
  explicit DatabaseLock(const std::filesystem::path& database, std::chrono::milliseconds patience = kPatience);
  ~DatabaseLock();
  DatabaseLock(const DatabaseLock&) = delete;
  DatabaseLock& operator=(const DatabaseLock&) = delete;

  enum class State {
    held,
    unavailable,  ///< nothing can be locked there: a read-only folder, a file system without locks, a stranger's file
    busy          ///< one holder has kept it for all of the patience
  };
  State state() const { return state_; }
  /// A sentence about a stranger's file that was passed over, or about the holder of a busy one; else empty.
  const std::string& complaint() const { return complaint_; }

 private:
  enum class Attempt { locked, again, impossible };
  void take(std::chrono::milliseconds patience);
  Attempt try_to_lock();
  bool open_file();
  bool may_be_used();
  bool is_found() const;
  void close_file() noexcept;
  void release() noexcept;

  const std::filesystem::path database_, path_;
  const std::string name_;  // in its folder
  int folder_ = -1, file_ = -1;
  State state_ = State::unavailable;
  std::string complaint_, holder_;
};

}  // namespace attune
