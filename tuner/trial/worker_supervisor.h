#pragma once

#include <functional>

namespace attune {

/// Runs `work` in a child of this process and watches over it: whatever the child has started, in whatever process
/// group or session, is killed when the child ends, of itself or by a signal, and when the parent of this process dies,
/// be it by SIGKILL. This process ends as the child did; in the child the function returns what `work` returned.
///
/// This needs no privilege: this process adopts the orphans among its descendants (PR_SET_CHILD_SUBREAPER), and does
/// nothing that could crash. What it cannot reach: processes that took another user's rights (setuid programs), and all
/// of them if somebody sends SIGKILL to this process alone, without kill_descendants() before; then only the child dies
/// with it.
///
/// To be called before the process has threads. Throws Error(io) if no child can be made.
int supervise(const std::function<int()>& work);

}  // namespace attune
