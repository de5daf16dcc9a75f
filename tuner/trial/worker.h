#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace attune {

/// The device that a name asks for: "cuda:N", "cuda" (cuda:0), or "emulator" standing for `spec`. Throws
/// Error(invalid_argument) for another name, Error(no_device).
std::shared_ptr<Device> open_device(const std::string& name, const DeviceSpec& spec);

/// N of "cuda:N"; 0 for other devices.
int cuda_ordinal(const std::string& device_name);

/// The devices that a list names, each once: "cuda:0,2" is cuda:0 and cuda:2, any other name itself. Throws
/// Error(invalid_argument) for what is no device.
std::vector<std::string> device_names(const std::string& list);

/// The whole of `attune worker`: dies with its parent, and what it has started with it (supervise()); keeps standard
/// output for answers (whatever else prints goes to standard error), serves requests from standard input until it ends.
/// Returns the exit status.
int worker_main();

/// The worker's loop: one JSON object a line in, one a line out, in order.
///
///   request  {"op": "identify" | "prepare" | "compile" | "trial" | "race", "device": "cuda:0", "spec": {...},
///   "problem": "forward
///   ...",
///             "seed": 1, "config": "sm80 ...", "options": {...}}; a race has "configs": [...] in place of the config
///   answers
///    identify {"device_name": ..., "sm_count": ..., "compiler": ..., "driver": ..., "can_time": ...}
///    prepare {"prepared": true} once inputs and reference are there; false where each trial makes its own
///    compile {"status": "ok" | "infeasible" | "compile_failed", "reason": ..., "from_cache": true | false}
///    trial   {"measurement": {...}}, or {"failed": "launch_failed", "reason": ...} for a CUDA error
///    race    {"race": {"samples_us": [[...], ...], "wide_samples_us": [[...], ...], "clocks_mhz": [[...], ...],
///             "protocol": ...}}, the second one with the option "wide" alone; or {"failed": ..., "reason": ...}
///    any     {"error": ..., "code": N} if the environment, not the config, is at fault;
///            "last": true beside the rest if the process is of no use any more
/// Returns 0 at the end of input, 1 after an answer with "last".
int run_worker(std::istream& requests, std::ostream& answers);

}  // namespace attune
