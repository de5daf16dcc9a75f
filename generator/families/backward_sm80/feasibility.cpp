#include "generator/families/backward_sm80/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "generator/device/register_limit.h"
#include "generator/families/backward_common/key_tiles.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/backward_sm80/shape.h"

namespace attune {
namespace {

void check_fields(const KernelConfig& config, std::vector<std::string>* reasons) {
  check_key_tile_order(config, reasons);
  if (config.block_q > kMaxBackwardBlock) {
    reasons->push_back(fmt::format("q{}: products come in 16 queries, so q must be a multiple of 16 from 16 to {}",
                                   config.block_q, kMaxBackwardBlock));
  }
  if (config.warps > kMaxBackwardWarps) {
    reasons->push_back(
        fmt::format("w{}: a CTA of the kernel of key tiles has 1 to {} warps", config.warps, kMaxBackwardWarps));
  } else if (config.warps % config.query_warps != 0) {
    reasons->push_back(fmt::format("query-warps{}: must divide the {} warps", config.query_warps, config.warps));
  } else {
    const int key_warps = config.warps / config.query_warps;
    const auto fits = [&](int keys) { return config.block_kv == keys * key_warps; };
    if (std::none_of(std::begin(kKeysOfBackwardWarp), std::end(kKeysOfBackwardWarp), fits)) {
      const auto choices = [](int warps) {
        const auto& keys = kKeysOfBackwardWarp;
        return fmt::format("{}, {} or {}", keys[0] * warps, keys[1] * warps, keys[2] * warps);
      };
      reasons->push_back(fmt::format("kv{} w{}{}: each warp owns {} keys, so kv must be {}", config.block_kv,
                                     config.warps,
                                     config.query_warps > 1 ? fmt::format(" query-warps{}", config.query_warps) : "",
                                     choices(1), choices(key_warps)));
    }
    if (config.block_q % (kMmaRows * config.query_warps) != 0) {
      reasons->push_back(
          fmt::format("q{} query-warps{}: warps that share keys take 16 queries each or a multiple of that",
                      config.block_q, config.query_warps));
    }
  }
}

void check_kernel(const char* name, int threads, std::size_t shared_bytes, int registers, const KernelConfig& config,
                  const DeviceSpec& device, std::vector<std::string>* reasons) {
  const int ctas = config.ctas_per_sm;
  if (ctas > device.ctas_per_sm || ctas * threads > device.threads_per_sm) {
    reasons->push_back(
        fmt::format("cta{}: {} CTAs of {} threads ({}) do not fit an SM of {}, which takes {} CTAs and "
                    "{} threads",
                    ctas, ctas, threads, name, device.name, device.ctas_per_sm, device.threads_per_sm));
    return;
  }
  const auto of_sm =
      static_cast<std::size_t>(ctas) * (shared_bytes + static_cast<std::size_t>(device.shared_bytes_reserved));
  if (shared_bytes > static_cast<std::size_t>(device.shared_bytes_per_block) ||
      of_sm > static_cast<std::size_t>(device.shared_bytes_per_sm)) {
    reasons->push_back(
        fmt::format("shared memory: {} takes {} bytes of each of {} CTAs; a CTA of {} may have {}, an "
                    "SM {}",
                    name, shared_bytes, ctas, device.name, device.shared_bytes_per_block, device.shared_bytes_per_sm));
  }
  const int limit = register_limit(threads, ctas, device);
  if (registers > limit - kWorkingRegisters) {
    reasons->push_back(
        fmt::format("registers: accumulators of {} take {} registers of a thread beside at least {} "
                    "others; it may have {} with {} CTAs of {} threads on an SM",
                    name, registers, kWorkingRegisters, limit, ctas, threads));
  }
}

}  // namespace

void check_backward_sm80(const Question& question, const KernelConfig& config, Reasons* reasons) {
  const auto& [problem, device] = question;
  check_fields(config, reasons);
  check_query_parts(config, reasons);
  if (!reasons->empty()) return;
  if (problem.has_fixed_order() && config.dq == DqAccumulation::atomic) {
    reasons->push_back(
        "dq=atomic deterministic: adds as they come give other bits at each run; take dq=ordered, or leave the word "
        "out");
  }
  if (config.kv_grad_per_query_head && problem.heads_q == problem.heads_kv)
    reasons->push_back("kv-grad-per-query-head: needs grouped heads (heads_q > heads_kv)");
  if (config.dq_first && (config.query_warps == 1 || config.dq == DqAccumulation::separate_kernel)) {
    reasons->push_back(
        "dq-first: only where warps share keys (query-warpsN) and add to dQ (dq=atomic|ordered) can its product come "
        "first; "
        "leave the word out");
  }
  const BackwardSm80Shape shape = backward_sm80_shape(problem, config);
  if (config.dq == DqAccumulation::separate_kernel)
    check_kernel("dQ", shape.dq_threads, shape.dq_shared.bytes(), shape.dq_registers, config, device, reasons);
  check_kernel("dK and dV", shape.dkdv_threads, shape.dkdv_shared.bytes(), shape.dkdv_registers, config, device,
               reasons);
}

}  // namespace attune
