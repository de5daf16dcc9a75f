#pragma once

#include <string>
#include <vector>

namespace attune {

/// Something that calls need or take, and what there is of it on this machine.
struct Finding {
  std::string name;
  std::string value;
  std::string why_none;  ///< why there is nothing; empty where there is something

  /// One line.
  std::string text() const { return why_none.empty() ? value : "none: " + why_none; }
};

/// In the order in which a person asks: each GPU ("cuda:0"; "GPU" where there is none), "driver", "NVRTC", "presets"
/// (results that were shipped), "database" (results of this user), "cache" (of compiled kernels). Opens the databases
/// and, where there is a driver, the first GPU; changes nothing. Throws nothing of what it finds.
std::vector<Finding> find_on_this_machine();

}  // namespace attune
