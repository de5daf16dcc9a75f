#include "tuner/cli/safetensors.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "generator/error.h"
#include "generator/rounding.h"
#include "runtime/system/json_text.h"
#include "tuner/database/output_file.h"

static_assert(std::endian::native == std::endian::little, "safetensors data is read and written as it lies in memory");

namespace attune::cli {
namespace {

/// The format's own limit on the header.
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

std::optional<std::uint64_t> element_bytes(std::string_view dtype) {
  static const std::map<std::string_view, std::uint64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},
      {"BF16", 2}, {"U32", 4}, {"I32", 4}, {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? std::nullopt : std::optional(found->second);
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::io, fmt::format("{}: {}", path.string(), what));
}

// Why a read of the file did not bring what its size promised; errno was 0 before it.
std::string reason_of_short_read() { return errno != 0 ? std::strerror(errno) : "the file changed, or is truncated"; }

nlohmann::json parse_header(const std::filesystem::path& path, const std::string& text) {
  constexpr std::size_t kMostValues = 2'000'000;  // a tensor has some eight
  try {
    nlohmann::json header = parse_json(text, fmt::format("{}, header", path.string()), {.values = kMostValues});
    if (!header.is_object()) refuse_file(path, "not a safetensors file: its header is not a JSON object");
    return header;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("not a safetensors file, or a damaged one: {}", error.what()));
  }
}

std::uint64_t whole_number(const std::filesystem::path& path, const std::string& name, const nlohmann::json& value,
                           const char* what) {
  if (!value.is_number_unsigned()) {
    refuse_file(path,
                fmt::format("tensor '{}': {} must hold whole numbers of at least 0, not {}", name, what, shown(value)));
  }
  return value.get<std::uint64_t>();
}

TensorInfo parse_tensor(const std::filesystem::path& path, const std::string& name, const nlohmann::json& entry,
                        std::uint64_t data_bytes) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets")) {
    refuse_file(path, fmt::format("tensor '{}': its header entry must have dtype, shape and data_offsets", name));
  }
  TensorInfo tensor;
  if (!entry["dtype"].is_string()) refuse_file(path, fmt::format("tensor '{}': dtype must be a string", name));
  tensor.dtype = entry["dtype"].get<std::string>();
  const std::optional<std::uint64_t> element = element_bytes(tensor.dtype);
  if (!element) refuse_file(path, fmt::format("tensor '{}': unknown dtype '{}'", name, tensor.dtype));

  if (!entry["shape"].is_array()) refuse_file(path, fmt::format("tensor '{}': shape must be an array", name));
  std::uint64_t bytes = *element;
  for (const nlohmann::json& size : entry["shape"]) {
    const std::uint64_t factor = whole_number(path, name, size, "shape");
    tensor.shape.push_back(factor);
    if (__builtin_mul_overflow(bytes, factor, &bytes))
      refuse_file(path, fmt::format("tensor '{}': its shape overflows 64 bits", name));
  }

  const nlohmann::json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    refuse_file(path, fmt::format("tensor '{}': data_offsets must be [begin, end]", name));
  tensor.begin = whole_number(path, name, offsets[0], "data_offsets");
  tensor.end = whole_number(path, name, offsets[1], "data_offsets");
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    refuse_file(
        path,
        fmt::format(
            "tensor '{}': data_offsets [{}, {}] lie outside the {} bytes of data in the file; the file is truncated or "
            "damaged, write it again",
            name, tensor.begin, tensor.end, data_bytes));
  }
  if (tensor.end - tensor.begin != bytes) {
    refuse_file(path, fmt::format("tensor '{}': shape [{}] of {} takes {} bytes, but data_offsets hold {}", name,
                                  fmt::join(tensor.shape, ", "), tensor.dtype, bytes, tensor.end - tensor.begin));
  }
  return tensor;
}

void require_contiguous(const std::filesystem::path& path, const std::map<std::string, TensorInfo>& tensors,
                        std::uint64_t data_bytes) {
  std::vector<const std::pair<const std::string, TensorInfo>*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t at = 0;
  for (const auto* tensor : order) {
    if (tensor->second.begin != at) {
      refuse_file(path, fmt::format("tensor '{}' begins at byte {} of the data, but the one before it ends at {}: {}",
                                    tensor->first, tensor->second.begin, at,
                                    tensor->second.begin < at ? "they overlap" : "there is a gap"));
    }
    at = tensor->second.end;
  }
  if (at != data_bytes)
    refuse_file(
        path, fmt::format("{} bytes follow the last tensor: the header does not belong to this data", data_bytes - at));
}

}  // namespace

void refuse_file(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", path.string(), what));
}

SafetensorsReader::SafetensorsReader(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path_, error);
  if (error) fail(path_, fmt::format("cannot be read: {}", error.message()));
  if (!regular) fail(path_, "is not a regular file");
  const std::uint64_t file_bytes = std::filesystem::file_size(path_, error);
  file_.open(path_, std::ios::binary);
  if (error || !file_) fail(path_, fmt::format("cannot be opened: {}", std::strerror(errno)));

  std::uint64_t header_bytes = 0;
  if (file_bytes < sizeof(header_bytes)) {
    refuse_file(
        path_,
        fmt::format(
            "has {} bytes: too short for a safetensors file, which begins with the 8 bytes of its header's length",
            file_bytes));
  }
  errno = 0;
  file_.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  if (!file_) fail(path_, fmt::format("the header's length cannot be read: {}", reason_of_short_read()));
  data_at_ = sizeof(header_bytes) + header_bytes;
  if (header_bytes > kMostHeaderBytes || header_bytes > file_bytes - sizeof(header_bytes)) {
    refuse_file(
        path_,
        fmt::format(
            "its first 8 bytes say that the header has {} bytes, but the file has {}: truncated, or not safetensors",
            header_bytes, file_bytes));
  }
  std::string text(header_bytes, '\0');
  file_.read(text.data(), static_cast<std::streamsize>(header_bytes));
  if (!file_) fail(path_, fmt::format("the header cannot be read: {}", reason_of_short_read()));

  const std::uint64_t data_bytes = file_bytes - data_at_;
  const nlohmann::json header = parse_header(path_, text);
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") tensors_[name] = parse_tensor(path_, name, entry, data_bytes);
  }
  require_contiguous(path_, tensors_, data_bytes);
}

const TensorInfo& SafetensorsReader::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [other, info] : tensors_) names.push_back(other);
  refuse_file(path_, fmt::format("has no tensor '{}' (lower case); it holds: {}", name,
                                 names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "))));
}

std::vector<std::uint16_t> SafetensorsReader::read_u16(const std::string& name) {
  const TensorInfo& tensor = find(name);
  if (element_bytes(tensor.dtype) != sizeof(std::uint16_t))
    refuse_file(path_, fmt::format("tensor '{}': {} is no type of 16 bits", name, tensor.dtype));
  return read_values<std::uint16_t>(name, tensor);
}

std::vector<std::byte> SafetensorsReader::read_bytes(const std::string& name) {
  return read_values<std::byte>(name, find(name));
}

template <typename Value>
std::vector<Value> SafetensorsReader::read_values(const std::string& name, const TensorInfo& tensor) {
  const std::uint64_t bytes = tensor.end - tensor.begin;
  std::vector<Value> values(bytes / sizeof(Value));
  file_.clear();
  errno = 0;
  file_.seekg(static_cast<std::streamoff>(data_at_ + tensor.begin));
  file_.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(bytes));
  if (!file_) fail(path_, fmt::format("tensor '{}' cannot be read: {}", name, reason_of_short_read()));
  return values;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::vector<std::filesystem::path>& inputs) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (const NamedTensor& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.data.size()}}};
    at += tensor.data.size();
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  // Spaces after the JSON, so that the data begins at a multiple of 8 bytes in the file.
  text.resize(round_up(text.size(), 8), ' ');
  const std::uint64_t header_bytes = text.size();

  OutputFile file(path, {.inputs = inputs, .binary = true});
  const auto put = [&](const void* data, std::size_t bytes) {
    file.write(std::string_view(static_cast<const char*>(data), bytes));
  };
  put(&header_bytes, sizeof(header_bytes));
  put(text.data(), text.size());
  for (const NamedTensor& tensor : tensors) put(tensor.data.data(), tensor.data.size());
  file.commit();
}

}  // namespace attune::cli
