#pragma once

#include <functional>
#include <string_view>

namespace attune {

/// What the library says beside its answers: a database that is damaged, a cache that cannot be used, a pick that was
/// passed over. Nothing here is an error of the caller's; those are thrown.
enum class LogLevel {
  debug,    ///< what was looked at and decided, for people who work on Attune
  info,     ///< what a person may want to know once: a pick that was passed over, a cache begun anew
  warning,  ///< something of the user's is not in order, and what to do about it
};
std::string_view to_string(LogLevel level);  ///< "debug", "info", "warning"

/// Receives one message, a whole sentence or several without a trailing newline. Called by the thread that has
/// something to say, and by several at once; may log and set sinks itself; what it throws is dropped.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Where messages of at least `least` go from now on. An empty sink restores the beginning: standard error, from the
/// level that $ATTUNE_LOG names (debug, info, warning or off; warning if it is not set); that never fails. When it
/// returns, the sink before is no longer running and is never called again; only a call from inside a sink does not
/// wait. Hold no lock that the sink takes. Thread-safe.
void set_log_sink(LogSink sink, LogLevel least = LogLevel::debug);

/// Whether a message of this level would be delivered: for those that cost something to write.
bool logs(LogLevel level);

/// Delivers a message to the sink. Thread-safe; never throws.
void log(LogLevel level, std::string_view message) noexcept;

}  // namespace attune
