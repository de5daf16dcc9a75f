#pragma once

#include "generator/config/kernel_config.h"

namespace attune {

/// A way in which CTAs come by tiles, with the stages of Q that it may have. At even distances tiles need no
/// counter that is zeroed before each launch, and a CTA knows its next one early; long tiles under a mask may then be
/// unlucky.
struct TileSource {
  TileScheduler tile_scheduler;
  int q_stages;
};
inline constexpr TileSource kTileSources[] = {{TileScheduler::single, 1},
                                              {TileScheduler::static_persistent, 1},
                                              {TileScheduler::static_persistent, 2},
                                              {TileScheduler::dynamic_persistent, 1},
                                              {TileScheduler::dynamic_persistent, 2}};

}  // namespace attune
