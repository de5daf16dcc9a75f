// The system's file functions, of these names also for the libraries that this program links: a symbol of the program
// comes first.
#include "tests/tuner/database/faulty_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace {

std::atomic<bool> armed{false};
std::atomic<int> left{0};
std::atomic<const char*> failed{nullptr};

bool fails(const char* name) {
  if (!armed || --left != 0) return false;
  failed = name;
  return true;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int refuse(int error) {
  errno = error;
  return -1;
}

}  // namespace

extern "C" {

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = static_cast<mode_t>((flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, unsigned) : 0);
  va_end(arguments);
  if (fails("open")) return refuse((flags & O_ACCMODE) == O_RDONLY ? EIO : ENOSPC);
  static auto* const real = next<int(const char*, int, ...)>("open64");
  return real(path, flags, mode);
}

ssize_t pread64(int file, void* to, size_t bytes, off64_t at) {
  if (fails("pread")) return refuse(EIO);
  static auto* const real = next<ssize_t(int, void*, size_t, off64_t)>("pread64");
  return real(file, to, bytes, at);
}

ssize_t pwrite64(int file, const void* from, size_t bytes, off64_t at) {
  if (fails("pwrite")) return refuse(ENOSPC);
  static auto* const real = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  return real(file, from, bytes, at);
}

ssize_t write(int file, const void* from, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  if (fails("write")) return refuse(ENOSPC);
  return real(file, from, bytes);
}

int ftruncate64(int file, off64_t bytes) {
  if (fails("ftruncate")) return refuse(ENOSPC);
  static auto* const real = next<int(int, off64_t)>("ftruncate64");
  return real(file, bytes);
}

int fsync(int file) {
  if (fails("fsync")) return refuse(EIO);
  static auto* const real = next<int(int)>("fsync");
  return real(file);
}

int fdatasync(int file) {
  if (fails("fdatasync")) return refuse(EIO);
  static auto* const real = next<int(int)>("fdatasync");
  return real(file);
}

int rename(const char* from, const char* to) noexcept {
  if (fails("rename")) return refuse(ENOSPC);
  static auto* const real = next<int(const char*, const char*)>("rename");
  return real(from, to);
}

int unlink(const char* path) noexcept {
  if (fails("unlink")) return refuse(EIO);
  static auto* const real = next<int(const char*)>("unlink");
  return real(path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (fails("mkdir")) return refuse(ENOSPC);
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return real(path, mode);
}

}  // extern "C"

namespace attune::test {

FailingCall::FailingCall(int number) {
  failed = nullptr;
  left = number;
  armed = true;
}

FailingCall::~FailingCall() { armed = false; }

bool FailingCall::happened() const { return failed != nullptr; }

std::string FailingCall::name() const { return failed != nullptr ? failed.load() : "none"; }

}  // namespace attune::test
