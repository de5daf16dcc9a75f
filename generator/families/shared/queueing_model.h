#pragma once

namespace attune {

/// Mean value analysis (Reiser and Lavenberg 1980) of a closed network of two stations, `products` and `exponentials`
/// clocks a visit, and a delay: clocks in which each of `warps` customers, the warps of a scheduler, has made one
/// round. Between whole numbers the rate is interpolated.
double round_clocks(double warps, double products, double exponentials, double delay);

}  // namespace attune
