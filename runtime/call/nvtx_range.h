#pragma once

#include <string_view>

#include "generator/config/kernel_config.h"
#include "generator/lazy_value.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// While it lives, the calling thread is in an NVTX range of the domain "attune", which profilers show: named by what
/// is done, the problem and the config, "forward bf16 b4 … | sm90 q128 …" for a call. Only where $ATTUNE_NVTX asked for
/// it when the first call came; otherwise it costs a look at one bool. Throws what allocating a name throws.
class NvtxRange {
 public:
  NvtxRange(std::string_view what, const AttentionProblem& problem, const KernelConfig& config) : open_(asked_for()) {
    if (open_) push(what, problem, config);
  }
  ~NvtxRange() {
    if (open_) pop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  static bool asked_for() {
    static constinit LazyValue<const bool> asked;
    return asked.get(read_environment);
  }
  static bool read_environment();
  static void push(std::string_view what, const AttentionProblem& problem, const KernelConfig& config);
  static void pop();

  const bool open_;
};

}  // namespace attune
