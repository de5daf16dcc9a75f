#pragma once

#include <string>

namespace attune {

/// A GPU of a node of a cluster and how it is set: what tells one bad node among a thousand from the others, by the
/// rows that were measured on it. Empty and 0 where it is not known: on the emulator, without NVML.
struct NodeGpu {
  std::string host;            ///< the node's name, by gethostname()
  std::string gpu_uuid;        ///< "GPU-b12e09d2-...", by NVML
  std::string driver_build;    ///< "580.159.04"
  int power_limit_w = 0;       ///< in force, whoever set it
  int sm_clock_limit_mhz = 0;  ///< what applications run at if nothing throttles them
  int memory_clock_mhz = 0;    ///< likewise

  bool is_known() const { return *this != NodeGpu{}; }
  friend bool operator==(const NodeGpu&, const NodeGpu&) = default;
};

}  // namespace attune
