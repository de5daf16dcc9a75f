#include "tuner/sweep/sweep_effort.h"

#include <algorithm>

namespace attune {

SweepEffort effort_of(Rigor rigor, std::size_t space_size) {
  const int size = static_cast<int>(space_size);
  switch (rigor) {
    case Rigor::estimate:
      return {.model_top = 10, .patience = 10, .sample_seconds = 0, .race_seconds = 0, .budget_seconds = 60};
    case Rigor::measure:
      return {.patience = std::clamp(size / 25, 15, 40)};
    case Rigor::patient:
      return {.model_top = 30,
              .patience = std::clamp(size / 5, 75, 200),
              .sample_seconds = 0.1,
              .race_seconds = 2,
              .budget_seconds = 600};
    case Rigor::exhaustive:
      return {.model_top = 30, .patience = 0, .sample_seconds = 0.03, .race_seconds = 2, .budget_seconds = 0};
  }
  return {};
}

}  // namespace attune
