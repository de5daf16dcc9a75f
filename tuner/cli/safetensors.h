#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune::cli {

/// A safetensors file:
///
///   +----------+---------------------+---------------------------------------------+
///   | 8 bytes  | header_bytes        | the rest of the file                        |
///   | u64, LE: | JSON: {name:        | tensors, little-endian, row-major, without  |
///   | header_  |  {dtype, shape,     | gaps; [begin, end) of data_offsets counts   |
///   | bytes    |  data_offsets}, ... | from here                                   |
///   |          |  __metadata__: {}}  |                                             |
///   +----------+---------------------+---------------------------------------------+
struct TensorInfo {
  std::string dtype;  ///< "BF16", "F16", "F32", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< bytes, from the end of the header
};

/// Throws Error(invalid_argument): what a file holds is refused.
[[noreturn]] void refuse_file(const std::filesystem::path& path, const std::string& what);

/// A tensor to be written; `data` must outlive the call.
struct NamedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> data;
};

/// Reads a file whose header has been checked whole: length against the file's size, JSON, dtypes, shapes, and that the
/// tensors' bytes follow each other without gap or overlap to the end of the file. Every complaint is Error(io) or
/// Error(invalid_argument) that names the file and what is wrong.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(std::filesystem::path path);

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  /// Throws Error(invalid_argument) that lists the names that are there.
  const TensorInfo& find(const std::string& name) const;
  /// The values of a tensor with 2-byte elements. Throws Error(invalid_argument) for one of another type.
  std::vector<std::uint16_t> read_u16(const std::string& name);
  /// The bytes of a tensor, whatever its elements.
  std::vector<std::byte> read_bytes(const std::string& name);

 private:
  template <typename Value>
  std::vector<Value> read_values(const std::string& name, const TensorInfo& tensor);

  std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t data_at_ = 0;
  std::map<std::string, TensorInfo> tensors_;
};

/// As OutputFile writes, of which `inputs` are the rule: a file that is there is replaced whole or not at all.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::vector<std::filesystem::path>& inputs = {});

}  // namespace attune::cli
