#pragma once

#include <cstddef>
#include <functional>

namespace attune {

/// Calls body(0) ... body(count - 1), spread over all cores; returns when all have ended. An exception of a body is
/// thrown again here.
void parallel_for(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace attune
