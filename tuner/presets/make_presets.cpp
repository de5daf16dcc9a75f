// Runs at build time: make_presets OUTPUT FILE... writes the system database of the presets, which is then embedded.
// What it stores and how is the library's; only JSON is read here, so that the library needs no JSON.
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/system/standard_streams.h"
#include "tuner/database/database_json.h"
#include "tuner/database/system_database.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    attune::write_to_standard_error("usage: make_presets OUTPUT FILE...\n");
    return 2;
  }
  try {
    std::vector<attune::Measurement> rows;
    for (int i = 2; i < argc; ++i) {
      std::ifstream file(argv[i], std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      if (!file) throw std::runtime_error(std::string("cannot read ") + argv[i]);
      for (attune::Measurement& row : attune::import_measurements(text, argv[i])) rows.push_back(std::move(row));
    }
    attune::write_system_database(argv[1], rows, {},
                                  {std::string(attune::kPresetsName), std::string(attune::attune_version())});
    return 0;
  } catch (const std::exception& error) {
    attune::write_to_standard_error(std::string("make_presets: ") + error.what() + "\n");
    return 1;
  }
}
