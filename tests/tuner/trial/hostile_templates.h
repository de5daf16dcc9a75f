#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace attune::test {

/// Which kernel class behaves how: "honest", or the name of a file in tests/hostile/. The first row that names a class
/// counts; one with an empty class stands for all others. Whatever no row names is honest.
using BehaviourTable = std::vector<std::pair<std::string, std::string>>;

/// The built-in templates, with a forward kernel that behaves as the table says.
std::map<std::string, std::string> hostile_templates(const BehaviourTable& table);

/// The same as files, for ATTUNE_TEMPLATE_DIR.
void write_hostile_templates(const std::filesystem::path& folder, const BehaviourTable& table);

}  // namespace attune::test
