// An export of measurements: what is accepted is exported as it was imported.
#include "tests/fuzz/fuzz_target.h"
#include "tuner/database/database_json.h"

using namespace attune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepts([&] {
    const std::string once = export_measurements(import_measurements(fuzz::text_of(data, size), "export.json"));
    fuzz::require(export_measurements(import_measurements(once, "again.json")) == once);
  });
  return 0;
}
