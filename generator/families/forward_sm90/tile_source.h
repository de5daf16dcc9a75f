#pragma once

#include "generator/config/kernel_config.h"

namespace attune {

/// A way in which CTAs come by tiles, with the stages of Q that it may have. At even distances tiles need no
/// counter that is zeroed before each launch, and a CTA knows its next one early; long tiles under a mask may then be
/// unlucky.
struct TileSource {
  Persistence persistence;
  int q_stages;
};
inline constexpr TileSource kTileSources[] = {{Persistence::none, 1},
                                              {Persistence::fixed, 1},
                                              {Persistence::fixed, 2},
                                              {Persistence::on_demand, 1},
                                              {Persistence::on_demand, 2}};

}  // namespace attune
