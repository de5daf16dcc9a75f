#pragma once

#include <string>
#include <string_view>

namespace attune {

/// Text that may come from outside (a database's device names, a compiler's log, a path) as a terminal can show it
/// without obeying it: every control character but newline and tab, DEL, the C1 controls, marks and overrides of
/// writing direction, separators that terminals disagree on and bytes that are no UTF-8 are spelled out, as "\x1b",
/// "\u202e" and "\xff". All else, a backslash too, stays as it is; so a JSON document stays one, whose strings hold no
/// control character and may hold "\u007f".
std::string printable(std::string_view text);

/// The same of what belongs on one line, where a newline would begin what looks like another: newlines and tabs are
/// spelled out, too, as "\x0a" and "\x09".
std::string printable_line(std::string_view text);

}  // namespace attune
