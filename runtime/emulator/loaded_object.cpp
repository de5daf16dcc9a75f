#include "runtime/emulator/loaded_object.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace attune {

// The loader knows objects by their path. The descriptor stays open as long as the object is loaded: the next one of
// the same number would be taken for this one.
LoadedObject::LoadedObject(const std::string& bytes) : descriptor_(::memfd_create("attune-kernel", MFD_CLOEXEC)) {
  for (std::string_view rest = bytes; descriptor_ >= 0 && !rest.empty();) {
    const ssize_t count = ::write(descriptor_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      why_not_ = std::strerror(errno);
      return;
    }
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  if (descriptor_ < 0) {
    why_not_ = std::string("no memory file can be made: ") + std::strerror(errno);
    return;
  }
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor_);
  handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* const why = ::dlerror();
    why_not_ = why != nullptr ? why : "unknown";
  }
}

LoadedObject::~LoadedObject() {
  if (handle_ != nullptr) ::dlclose(handle_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void* LoadedObject::find(const char* symbol) const { return handle_ != nullptr ? ::dlsym(handle_, symbol) : nullptr; }

}  // namespace attune
