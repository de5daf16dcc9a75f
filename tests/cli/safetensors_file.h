#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace attune::testing {

/// A safetensors file in memory, written byte by byte so that a test can make a wrong one.
struct RawFile {
  std::string header, data;
  std::uint64_t claimed_header_bytes = 0;  ///< 0: the header's own length

  std::string bytes() const {
    const std::uint64_t length = claimed_header_bytes ? claimed_header_bytes : header.size();
    std::string result(8, '\0');
    for (int i = 0; i < 8; ++i) result[i] = static_cast<char>(length >> (8 * i));
    return result + header + data;
  }
};

/// A well-formed file of tensors that hold `fill`.
struct TensorSpec {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
};
inline RawFile make_raw_file(const std::vector<TensorSpec>& tensors, char fill = 0) {
  RawFile file;
  nlohmann::json header = nlohmann::json::object();
  for (const TensorSpec& tensor : tensors) {
    std::uint64_t bytes = tensor.dtype == "F32" ? 4 : 2;
    for (const std::uint64_t size : tensor.shape) bytes *= size;
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {file.data.size(), file.data.size() + bytes}}};
    file.data.append(bytes, fill);
  }
  file.header = header.dump();
  return file;
}

/// What a file says, read by code of the tests' own.
struct ParsedFile {
  nlohmann::json header;
  std::string data;

  explicit ParsedFile(const std::string& bytes) {
    std::uint64_t length = 0;
    for (int i = 0; i < 8; ++i)
      length |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes.at(i))) << (8 * i);
    header = nlohmann::json::parse(bytes.substr(8, length));
    data = bytes.substr(8 + length);
  }
  std::vector<std::uint64_t> shape(const std::string& name) const { return header.at(name).at("shape"); }
  std::string bytes_of(const std::string& name) const {
    const std::vector<std::uint64_t> offsets = header.at(name).at("data_offsets");
    return data.substr(offsets.at(0), offsets.at(1) - offsets.at(0));
  }
  template <typename T>
  std::vector<T> values(const std::string& name) const {
    const std::string bytes = bytes_of(name);
    std::vector<T> result(bytes.size() / sizeof(T));
    bytes.copy(reinterpret_cast<char*>(result.data()), bytes.size());
    return result;
  }
};

}  // namespace attune::testing
