#include "generator/problem/dropout.h"

#include <algorithm>

namespace attune {
namespace {

// A template, since exported launchers hold the very same text.
namespace rule {
#include "templates/export/dropout_rule.cu"
}  // namespace rule

}  // namespace

DropoutRule dropout_rule(float p) {
  const rule::DropoutRule found = rule::dropout_rule(p);
  return {found.bits, found.threshold};
}

double realized_dropout(float p) { return rule::dropped_share(rule::dropout_rule(p)); }

}  // namespace attune
