#include "tuner/database/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/test_files.h"

using namespace attune;
using attune::test::TemporaryFolder;

TEST_CASE("an input is read whole: a file, a pipe, one whose writer comes late", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string bytes = std::string(300'000, 'x') + '\0' + "end";
  std::ofstream(folder / "file", std::ios::binary) << bytes;
  CHECK(read_input_file(folder / "file") == bytes);

  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::ofstream pipe(folder / "pipe", std::ios::binary);
    pipe << bytes.substr(0, 7) << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    pipe << bytes.substr(7);
  });
  CHECK(read_input_file(folder / "pipe") == bytes);
  writer.join();
}

TEST_CASE("what cannot be read names the file and the reason, and nothing is waited for without end", "[nogpu]") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(read_input_file(folder / "none"), ContainsSubstring("none cannot be read: No such file"));
  CHECK_THROWS_WITH(read_input_file(folder.path()), ContainsSubstring("cannot be read: it is a folder"));
  CHECK_THROWS_WITH(read_input_file("/dev/zero"), ContainsSubstring("/dev/zero cannot be read: it is a device"));
  CHECK_THROWS_WITH(read_input_file(folder / "pipe"), ContainsSubstring("it is a pipe that nobody writes to"));
  std::ofstream(folder / "large") << "x";
  REQUIRE(::truncate((folder / "large").c_str(), (std::int64_t{1} << 30) + 1) == 0);
  CHECK_THROWS_WITH(read_input_file(folder / "large"), ContainsSubstring("larger than a GiB"));
}
