#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attune {

/// UTC now: "2025-01-31T12:00:00.123456Z". Of this form, with six digits of a second, are all times that are stored:
/// texts of one length, which are in the order of their times.
std::string utc_now();

/// A time in that form, from ISO 8601 as other programs write it: "2025-01-31T12:00:00Z" with any fraction of a second
/// or none (what is finer than a microsecond is cut off). Nothing for a text that is none, or that names a day or an
/// hour that never was.
std::optional<std::string> canonical_time(std::string_view text);

/// What a text is ordered by among times: canonical_time(), or the text itself where it is none.
std::string time_order(std::string_view text);

}  // namespace attune
