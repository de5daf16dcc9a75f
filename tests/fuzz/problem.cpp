// A problem's canonical text: what is accepted is written as it is read.
#include "generator/problem/attention_problem.h"

#include "tests/fuzz/fuzz_target.h"

using namespace attune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepts([&] {
    const AttentionProblem problem = parse_problem(fuzz::text_of(data, size));
    validate(problem);
    fuzz::require(parse_problem(canonical_text(problem)) == problem);
    fuzz::require(count_flops(problem) >= 0 && count_bytes(problem) >= 0);
  });
  return 0;
}
