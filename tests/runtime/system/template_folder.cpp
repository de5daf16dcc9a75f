#include "runtime/system/template_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/source_folder.h"
#include "tests/temporary_folder.h"

using namespace attune;
using attune::testing::TemporaryFolder;
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

TEST_CASE("a template folder with a FIFO or an endless file is an error, not a wait", "[nogpu]") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "first.cu") << "text\n";
  const auto refused = [&](const std::string& words) {
    CHECK_THROWS_WITH(load_template_folder(folder.path()),
                      ContainsSubstring("template " + (folder.path() / "second.cu").string() + " cannot be read: ") &&
                          ContainsSubstring(words));
    fs::remove(folder.path() / "second.cu");
  };
  REQUIRE(::mkfifo((folder.path() / "second.cu").c_str(), 0600) == 0);
  refused("it is a FIFO, not a file");
  fs::create_symlink("/dev/zero", folder.path() / "second.cu");
  refused("it is a device, not a file");
  fs::create_directory(folder.path() / "second.cu");
  refused("it is a folder, not a file");
  REQUIRE(::mkfifo((folder.path() / "fifo").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(load_template_folder(folder.path() / "fifo"), ContainsSubstring("cannot be read"));
  fs::create_symlink("first.cu", folder.path() / "second.cu");  // a link to a file is its owner's choice
  CHECK(load_template_folder(folder.path()).texts().size() == 2);
}
