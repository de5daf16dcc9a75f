#pragma once

#include <atomic>

namespace attune::cli {

/// While one of these lives, the first Ctrl-C (SIGINT) or SIGTERM sets a flag instead of ending the process; a second
/// one ends it at once. One at a time.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  const std::atomic<bool>& asked() const;
};

}  // namespace attune::cli
