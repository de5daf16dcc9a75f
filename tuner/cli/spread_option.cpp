#include "tuner/cli/spread_option.h"

#include <fmt/core.h>

#include <cmath>

#include "generator/error.h"
#include "tuner/cli/output.h"
#include "tuner/database/measurement.h"

namespace attune::cli {

void SpreadOption::add_to(CommandLine& verb, const std::string& when) {
  verb.add_option(
      "--spread", factor,
      fmt::format("{}factor on the softmax scale (default 1), for scores that spread so much wider: the speed "
                  "of some forward kernels hangs on it. The race of `attune tune` times at 1 and {}",
                  when, kWideSpread));
}

void SpreadOption::require_sound() const {
  if (!std::isfinite(factor) || factor <= 0)
    throw Error(ErrorCode::invalid_argument, fmt::format("--spread {}: must be a positive number", factor));
}

AttentionProblem SpreadOption::apply(const AttentionProblem& problem) const {
  require_sound();
  AttentionProblem wide = problem;
  wide.softmax_scale = static_cast<float>(factor * problem.softmax_scale);
  try {
    validate(wide);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--spread {}: {}", factor, error.what()));
  }
  return wide;
}

void SpreadOption::print() const {
  if (given()) print_field("spread", fmt::format("{:g}: scores are so many times as wide as the problem's", factor));
}

}  // namespace attune::cli
