#include "runtime/template_folder.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/source_folder.h"

using namespace attune;
namespace fs = std::filesystem;

TEST_CASE("the templates of the source tree are those that were built in", "[nogpu]") {
  const TemplateSet loaded = load_template_folder(attune::testing::source_folder() / "templates");
  CHECK(loaded.texts() == TemplateSet::embedded().texts());
  CHECK(loaded.texts() == TemplateSet::embedded().texts());
}

TEST_CASE("templates are named by their path; other files are left out", "[nogpu]") {
  const fs::path folder = fs::temp_directory_path() / ("attune-templates-" + std::to_string(::getpid()));
  fs::create_directories(folder / "masks");
  std::ofstream(folder / "masks" / "none.cu") << "text\n";
  std::ofstream(folder / "README.md") << "no template\n";
  const TemplateSet loaded = load_template_folder(folder);
  REQUIRE(loaded.texts().size() == 1);
  REQUIRE(loaded.find("masks/none") != nullptr);
  CHECK(*loaded.find("masks/none") == "text\n");
  fs::remove_all(folder);
  CHECK_THROWS_AS(load_template_folder(folder), Error);
}
