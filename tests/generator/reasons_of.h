#pragma once

#include <string>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/generate.h"
#include "generator/problem/attention_problem.h"

namespace attune::testing {

/// Why a config does not serve a problem, a reason a line; empty if it does.
inline std::string reasons_of(const std::string& problem, const std::string& config,
                              const std::string& device = "h200") {
  std::string text;
  for (const std::string& reason : infeasibility(parse_problem(problem), parse_config(config), find_device(device)))
    text += reason + "\n";
  return text;
}

}  // namespace attune::testing
