// The largest problems that validate() lets through: sums and products on the way to a launch stay within their types.
// The debug preset stops at the first that does not.
#include <cstdint>
#include <string>

#include "generator/config/cost_estimate.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "generator/problem/mask_geometry.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("the largest problems are planned without overflow", "[nogpu]") {
  int planned = 0;
  for (const char* text : {
           "b1 hq1 sq2147482623 d64",
           "b1 hq1 sq2147482623 d64 causal",
           "b1 hq2000 sq2147482623 d256 causal",
           "b1 hq1 sq1 skv2147482623 d128 causal",
           "b1 hq1 sq2147482623 skv1 d128 causal",
           "b1 hq1 sq1 skv2147482623 d128 causal@-2147482623",
           "b1 hq1 sq1 skv2147482623 d128 causal@2147482623",
           "b1 hq1 sq2147482622 skv5 d128 causal@2",
           "b2147483647 hq1 sq1 d8",
           "b1 hq2147483647 hkv1 sq1 skv16 d8",
           "b1 hq2147483647 sq1 skv16 d256 align2",
           "b1 hq1 sq2147482623 skv524285 d64 bias=1hqk bias-fp32 attention-mask=b1qk",
           "b2147483647 hq1 sq1 skv5 d8 bias=b11k",
       }) {
    for (const char* pass : {"forward bf16 ", "backward fp16 "}) {
      for (const char* device_name : {"a100", "h200"}) {
        const DeviceSpec& device = find_device(device_name);
        const AttentionProblem problem = parse_problem(std::string(pass) + text);
        INFO(canonical_text(problem) << " on " << device_name);
        REQUIRE_NOTHROW(validate(problem));
        CHECK(parse_problem(canonical_text(problem)) == problem);
        CHECK(count_flops(problem) >= 0);
        CHECK(count_attended_pairs(problem) >= 0);
        CHECK(dispatch_class(problem).representative.seq_q >= 1);
        try {
          const KernelConfig config = default_config(problem, device);
          CHECK(estimate_cost(problem, config, device).microseconds > 0);
          const KernelPlan plan = generate(problem, config, device, TemplateSet::embedded(), KernelTarget::cuda);
          CHECK(plan.workspace_bytes_of(problem) <= most_workspace_bytes(problem, device));
          for (const KernelLaunch& launch : plan.launches) {
            const std::uint32_t grid = launch.grid_x(problem);  // throws where a grid cannot be that large
            CHECK(grid >= 1);
          }
          ++planned;
        } catch (const Error& error) {
          INFO(error.what());
          const bool told = error.code() == ErrorCode::unsupported || error.code() == ErrorCode::infeasible_config ||
                            error.code() == ErrorCode::invalid_argument;
          CHECK(told);
        }
      }
    }
  }
  CHECK(planned >= 20);
}
