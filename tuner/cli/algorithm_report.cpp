#include "tuner/cli/algorithm_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "tuner/cli/exit_status.h"
#include "tuner/cli/report.h"
#include "tuner/cli/table.h"

namespace attune::cli {
namespace {

constexpr const char* kCounted = "bytes that threads ask for, before caches";

/// What follows from a median time.
struct Speed {
  double median_us, tflops, gbps, share;  ///< share: of the device's memory rate; above 1 where caches serve

  Speed(const AlgorithmResult& result, const Device& device) {
    const MemoryTraffic traffic = total_traffic(result.traffic);
    median_us = quantile(result.samples_us, 0.5);
    tflops = result.plan.flops / median_us * 1e-6;
    gbps = (traffic.read_bytes + traffic.written_bytes) / median_us * 1e-3;
    share = gbps / device.spec().memory_gbps;
  }
};

const Table kAlgorithmTable = {"/algorithms",
                               {{"algorithm", "/algorithm"},
                                {"config", "/config"},
                                {"status", "/status"},
                                {"reason", "/reason"},
                                {"median_us", "/median_us"},
                                {"tflops", "/tflops"},
                                {"counted_gbps", "/counted_gbps"},
                                {"read_bytes", "/counted_traffic/read_bytes"},
                                {"written_bytes", "/counted_traffic/written_bytes"},
                                {"workspace_bytes", "/workspace_bytes"}}};

Json entry_of(const AlgorithmResult& result, const Device& device) {
  Json entry = {{"algorithm", to_string(result.algorithm)}, {"status", to_string(result.status)}};
  if (!result.reason.empty()) entry["reason"] = result.reason;
  if (!result.plan.launches.empty()) {
    entry["config"] = canonical_text(result.plan.config);
    entry["workspace_bytes"] = result.plan.workspace_bytes_of(result.plan.problem);
    entry["counted_traffic"] = to_json(total_traffic(result.traffic));
    entry["launches"] = Json::array();
    for (std::size_t i = 0; i < result.traffic.size(); ++i) {
      entry["launches"].push_back(
          {{"entry", result.plan.launches[i].entry}, {"counted_traffic", to_json(result.traffic[i])}});
    }
  }
  if (!result.outputs.empty()) entry["outputs"] = to_json(result.outputs);
  if (!result.samples_us.empty()) {
    const Speed speed(result, device);
    entry["median_us"] = speed.median_us;
    entry["p20_us"] = quantile(result.samples_us, 0.2);
    entry["p80_us"] = quantile(result.samples_us, 0.8);
    entry["samples"] = result.samples_us.size();
    entry["tflops"] = speed.tflops;
    entry["counted_gbps"] = speed.gbps;
    entry["share_of_memory_rate"] = speed.share;
    entry["sm_clock_mhz"] = result.sm_clock_mhz;
  }
  return entry;
}

void print_result(const AlgorithmResult& result, const Device& device) {
  print_field("algorithm", to_string(result.algorithm));
  if (!result.plan.launches.empty()) {
    print_field("  workspace", fmt::format("{} bytes", result.plan.workspace_bytes_of(result.plan.problem)));
    print_field("  counted", describe(total_traffic(result.traffic)));
  }
  print_errors(result.outputs);
  if (!result.samples_us.empty()) {
    const Speed speed(result, device);
    print_field("  median",
                fmt::format("{:.2f} us ({} samples, p20 {:.2f}, p80 {:.2f})", speed.median_us, result.samples_us.size(),
                            quantile(result.samples_us, 0.2), quantile(result.samples_us, 0.8)));
    const std::string beside =
        speed.share <= 1
            ? fmt::format("{:.0f} % of device memory's", 100 * speed.share)
            : fmt::format("more than the {:.0f} of device memory: caches serve the rest", device.spec().memory_gbps);
    print_field("  speed", fmt::format("{:.1f} TFLOP/s; counted {:.0f} GB/s, {}", speed.tflops, speed.gbps, beside));
  }
  print_field("  status", result.reason.empty() ? std::string(to_string(result.status))
                                                : fmt::format("{}: {}", to_string(result.status), result.reason));
}

}  // namespace

Json to_json(const MemoryTraffic& traffic) {
  return {{"read_bytes", traffic.read_bytes}, {"written_bytes", traffic.written_bytes}};
}

std::string describe(const MemoryTraffic& traffic) {
  return fmt::format("{:.4g} bytes read, {:.4g} written ({})", traffic.read_bytes, traffic.written_bytes, kCounted);
}

int report_algorithms(const Device& device, const AttentionProblem& problem, std::uint64_t seed,
                      const std::vector<AlgorithmResult>& results, const OutputOptions& output) {
  const bool ok = std::all_of(results.begin(), results.end(),
                              [](const AlgorithmResult& result) { return result.status == MeasurementStatus::ok; });
  const bool timed = std::any_of(results.begin(), results.end(),
                                 [](const AlgorithmResult& result) { return !result.samples_us.empty(); });
  if (const Format format = output.format(); format != Format::text) {
    Json document = {{"status", ok ? "ok" : "failed"},
                     {"problem", canonical_text(problem)},
                     {"device", device.description()},
                     {"seed", seed},
                     {"timed", timed},
                     {"flops", count_flops(problem)},
                     {"fewest_bytes", count_bytes(problem)},
                     {"counted_traffic_is", kCounted}};
    if (timed) document["memory_gbps"] = device.spec().memory_gbps;
    document["algorithms"] = Json::array();
    for (const AlgorithmResult& result : results) document["algorithms"].push_back(entry_of(result, device));
    print_document(document, kAlgorithmTable, format);
  } else {
    print_field("problem", canonical_text(problem));
    print_field("device", device.description());
    print_field("work", fmt::format("{:.4g} FLOP, at least {:.4g} bytes of device memory", count_flops(problem),
                                    count_bytes(problem)));
    for (const AlgorithmResult& result : results) print_result(result, device);
  }
  return ok ? kOk : kCheckFailed;
}

}  // namespace attune::cli
