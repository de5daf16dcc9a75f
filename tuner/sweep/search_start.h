#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/config/config_space.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_database.h"

namespace attune {

/// Where the search of a sweep starts.
struct SearchStart {
  std::vector<KernelConfig> seeds;      ///< in the order in which they are tried, the default first
  std::optional<KernelConfig> elected;  ///< by an earlier race of this problem in `database`, and in the space
};

/// The seeds of a problem on a device: the default config, this problem's best row in `database` and in each of
/// `presets`, the winners of its nearest tuned neighbours in all of them, and the tiles that FlashAttention-2 and 3
/// publish. What was tuned for another problem is adapted to this one. `device` and `sm_count` are those of the rows of
/// `spec`'s GPU. Throws Error(database).
SearchStart search_start(const AttentionProblem& problem, const std::vector<Candidate>& space,
                         const KernelConfig& default_config, const DeviceSpec& spec, const std::string& device,
                         int sm_count, const TuningDatabase& database, const DatabaseLayers& presets);

}  // namespace attune
