#pragma once

#include <sys/types.h>

#include <vector>

namespace attune {

/// The processes below `root` that have not ended: its children, theirs, and so on, as /proc shows them. One whose
/// parent has died counts if it was adopted by `root` or a process below it (PR_SET_CHILD_SUBREAPER).
std::vector<pid_t> descendants_of(pid_t root);

/// Kills them all, whatever process group or session they have moved to. They are stopped first, so that none begins
/// another in the meantime.
void kill_descendants(pid_t root);

}  // namespace attune
