// What parent and worker say to each other: rows, devices and options.
#include "tuner/database/measurement_json.h"

#include <nlohmann/json.hpp>

#include "runtime/system/json_text.h"
#include "tests/fuzz/fuzz_target.h"
#include "tuner/trial/worker_answer.h"

using namespace attune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::accepts([&] { throw_if_error(parse_worker_answer(text)); });
  nlohmann::json object;
  if (!fuzz::accepts([&] { object = parse_json(text, "answer"); })) return 0;
  fuzz::accepts([&] {
    const Measurement row = measurement_from_json(object);
    const nlohmann::json written = measurement_to_json(row);
    fuzz::require(json_line(measurement_to_json(measurement_from_json(written))) == json_line(written));
  });
  fuzz::accepts([&] { device_spec_from_json(object); });
  fuzz::accepts([&] { trial_options_from_json(object); });
  fuzz::accepts([&] { race_options_from_json(object); });
  return 0;
}
