#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "generator/error.h"

namespace attune {

/// The object of a worker's line; null if it is none, or holds what no answer does (a number that no double holds, a
/// thousand arrays in each other). A worker may have been overwritten by the kernel that it tried.
nlohmann::json parse_worker_answer(const std::string& line);

/// The text of a field, empty if the answer has none of this name.
std::string text_of(const nlohmann::json& answer, const char* field);

/// Whether no other candidate would fare better: no such device, no compiler, a file that cannot be used.
bool is_of_environment(ErrorCode code);
/// Throws the error that an answer states, as the worker saw it, if it is one of the environment. Any other is one of
/// this candidate.
void throw_if_environment_failed(const nlohmann::json& answer);

/// The same for what every worker must be able to do: throws whatever error the answer states.
void throw_if_error(const nlohmann::json& answer);

}  // namespace attune
