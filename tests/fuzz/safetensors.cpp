// Tensors of a user: what the header says never leads outside the file.
#include "tuner/cli/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz_target.h"

using namespace attune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = ::memfd_create("fuzz", MFD_CLOEXEC);
  fuzz::require(file >= 0 && ::write(file, data, size) == static_cast<ssize_t>(size));
  fuzz::accepts([&] {
    cli::SafetensorsReader reader("/proc/self/fd/" + std::to_string(file));
    for (const auto& entry : reader.tensors()) {
      const cli::TensorInfo& tensor = entry.second;
      fuzz::require(tensor.begin <= tensor.end && tensor.end <= size);
      const bool read =
          fuzz::accepts([&] { fuzz::require(reader.read_u16(entry.first).size() == (tensor.end - tensor.begin) / 2); });
      fuzz::require(!read || (tensor.end - tensor.begin) % 2 == 0);
    }
  });
  ::close(file);
  return 0;
}
