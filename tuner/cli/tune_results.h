#pragma once

#include <string>
#include <vector>

#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/tune_list.h"
#include "tuner/database/tuned_configs.h"

namespace attune::cli {

/// "ok", "nothing_found", "not_stored", "interrupted", "not_begun", "error": the status of its document.
std::string status_of(const Tuned& tuned);

/// Results that could not be stored (a full disk) make the run a failure, although they are shown.
ExitStatus exit_status_of(const std::vector<Tuned>& all, bool interrupted);

/// The document of one problem. `asked`: the rigor of the command line; `picks`: over the database of the results.
Json to_json(const Tuned& tuned, const ChosenDevice& device, Rigor asked, TunedConfigs& picks);

/// The same for people, of all problems.
void print_all(const std::vector<Tuned>& all, const ChosenDevice& device, Rigor asked, TunedConfigs& picks);

/// Keeps results that could not be stored in a file, and says where, so that an hour of a GPU is not lost to a full
/// disk.
void keep_unsaved(const std::vector<Tuned>& all, const TuningDatabase& database);

}  // namespace attune::cli
