#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune::cli {

/// "; did you mean --heads?" if one of the words is spelled nearly like this one or begins with it, else "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& words);

}  // namespace attune::cli
