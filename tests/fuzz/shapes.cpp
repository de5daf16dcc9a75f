// Lists of problems, as JSON and as CSV: whatever is accepted is a valid problem.
#include "runtime/system/printable.h"
#include "tests/fuzz/fuzz_target.h"
#include "tuner/sweep/shapes_file.h"
#include "tuner/sweep/shard.h"

using namespace attune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const auto check = [](const std::vector<NamedProblem>& problems) {
    fuzz::require(!problems.empty());
    for (const NamedProblem& named : problems) {
      validate(named.problem);
      fuzz::require(printable(named.name) == named.name);
    }
  };
  fuzz::accepts([&] { check(parse_shapes_json(text, "list.json")); });
  fuzz::accepts([&] { check(parse_shapes_csv(text, "list.csv")); });
  fuzz::accepts([&] { parse_shard(text); });
  return 0;
}
