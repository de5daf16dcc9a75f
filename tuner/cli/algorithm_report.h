#pragma once

#include "tuner/cli/output.h"
#include "tuner/trial/algorithm_bench.h"

namespace attune::cli {

/// {"read_bytes", "written_bytes"}.
Json to_json(const MemoryTraffic& traffic);
/// "12.3 MB read, 4.5 MB written".
std::string describe(const MemoryTraffic& traffic);

/// Prints what bench_algorithms() found, as text or one JSON document, and returns the exit status: 1 if any algorithm
/// failed.
int report_algorithms(const Device& device, const AttentionProblem& problem, std::uint64_t seed,
                      const std::vector<AlgorithmResult>& results, const OutputOptions& output);

}  // namespace attune::cli
