#include <fmt/format.h>

#include "generator/device/register_limit.h"
#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm80/family.h"
#include "generator/families/forward_sm80/shape.h"
#include "generator/families/shared/forward_rules.h"

namespace attune {
namespace {

void check_warps(const KernelConfig& config, std::vector<std::string>* reasons) {
  const int rows = config.block_q / config.warps;
  if (config.block_q % config.warps != 0 || (rows != 16 && rows != 32 && rows != 48 && rows != 64)) {
    reasons->push_back(fmt::format("q{} w{}: each warp owns 16, 32, 48 or 64 queries, so q must be {}, {}, {} or {}",
                                   config.block_q, config.warps, 16 * config.warps, 32 * config.warps,
                                   48 * config.warps, 64 * config.warps));
  }
}

void check_registers(const ForwardSm80Shape& shape, const KernelConfig& config, const DeviceSpec& device,
                     std::vector<std::string>* reasons) {
  if (!threads_fit(shape.threads, config, device, reasons)) return;
  const int limit = register_limit(shape.threads, config.ctas_per_sm, device);
  if (shape.accumulator_registers > limit - kWorkingRegisters) {
    reasons->push_back(
        fmt::format("registers: {} rows of O (head dim {}), of S (kv{}){} take {} registers of a thread beside at "
                    "least {} others; it "
                    "may have {} with {} CTAs of {} threads on an SM",
                    shape.rows_per_warp, 8 * shape.chunks, config.block_kv, config.q_in_registers ? " and of Q" : "",
                    shape.accumulator_registers, kWorkingRegisters, limit, config.ctas_per_sm, shape.threads));
  }
}

}  // namespace

void check_forward_sm80(const Question& question, const KernelConfig& config, Reasons* reasons) {
  check_warps(config, reasons);
  check_pack_gqa(question.problem, config, reasons);
  check_forward_tile(config, reasons);
  if (!reasons->empty()) return;

  const auto& [problem, device] = question;
  const ForwardSm80Shape shape = forward_sm80_shape(problem, config);
  check_sections(config, reasons);
  check_even_tiles(problem, config, reasons);
  check_key_parts(problem, config, device, reasons);
  check_shared_memory(shape.q_bytes, 0, 2 * static_cast<std::size_t>(config.stages) * shape.kv_tile_bytes,
                      shape.shared.bytes(), config, device, reasons);
  check_registers(shape, config, device, reasons);
}

}  // namespace attune
