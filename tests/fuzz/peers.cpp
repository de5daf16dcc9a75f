// Other libraries' times, as compare_with_torch.py writes them.
#include "tests/fuzz/fuzz_target.h"
#include "tuner/report/report_peers.h"

using namespace attune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepts([&] {
    for (const PeerRow& row : parse_peers(fuzz::text_of(data, size), "peers.json").rows) validate(row.problem);
  });
  return 0;
}
