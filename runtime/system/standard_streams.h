#pragma once

#include <string>
#include <string_view>

namespace attune {

/// The one way to standard output and standard error. Whatever these are (closed, full, a pipe whose reader has gone),
/// nothing here throws, ends the process or raises a signal: what is said must not end what is done. Thread-safe.

/// What is said beside results: in one write where the system allows it, so that lines of several threads and
/// processes stay whole. What cannot be written is lost. A reader that keeps a non-blocking pipe full is waited for, a
/// second at most.
void write_to_standard_error(std::string_view text) noexcept;

/// Results. They are kept in a buffer for now, unless standard output is a terminal. Once some were lost, what follows
/// is dropped.
void write_to_standard_output(std::string_view text) noexcept;

/// Writes what is in the buffer. Returns the system's reason if any of the results was lost since the process began,
/// else an empty text: a program whose results were lost must end with a status that says so.
std::string flush_standard_output() noexcept;

/// For the beginning of main(): descriptors 0 to 2 that are closed are opened, so that no file that is opened later
/// gets what is written to a standard stream. Reading and writing fail as before.
void keep_standard_descriptors() noexcept;

/// For the beginning of main(): writing to a pipe without a reader, or beyond the limit of a file's size, returns an
/// error instead of ending the process. Programs that this one starts have the usual signals.
void survive_failed_writes() noexcept;

}  // namespace attune
