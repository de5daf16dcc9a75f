#pragma once

#include <cstdint>

namespace attune {

// Which elements of P dropout drops: the function of a seed, an offset, a batch entry, a query head, a query and a key
// that docs/dropout.md states, and templates/attention/dropout.cu computes. The same numbers drop the same elements in
// every later release. Here: with which probability.

/// An element is dropped where a random number of so many bits, 8 or 16, is below the threshold.
struct DropoutRule {
  int bits = 8;
  std::int64_t threshold = 0;
};
/// Eight bits where they give the probability p, and 1 - p, within 2 % of themselves, else sixteen: the nearest number.
/// For p of at least 0 and less than 1.
DropoutRule dropout_rule(float p);

/// The probability with which elements are dropped where p is asked for; below 2^-17 it is 0. What is kept is divided
/// by the share that is kept indeed, so that expectations are exact.
double realized_dropout(float p);

}  // namespace attune
