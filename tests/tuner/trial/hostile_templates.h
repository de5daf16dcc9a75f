#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/problem/attention_problem.h"

namespace attune::test {

/// Which kernel behaves how: "honest", or the name of a file in tests/hostile/. The first row that names a kernel (by
/// hostile_name()) counts; one with an empty name stands for all others. Whatever no row names is honest.
using BehaviourTable = std::vector<std::pair<std::string, std::string>>;

/// What a forward kernel of the sm80 family differs in from others.
std::string hostile_name(const AttentionProblem& problem, const KernelConfig& config);

/// The built-in templates, with a forward kernel that behaves as the table says.
std::map<std::string, std::string> hostile_templates(const BehaviourTable& table);

/// The same as files, for ATTUNE_TEMPLATE_DIR.
void write_hostile_templates(const std::filesystem::path& folder, const BehaviourTable& table);

}  // namespace attune::test
