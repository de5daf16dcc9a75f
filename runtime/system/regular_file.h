#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace attune {

/// Whether symbolic links may lead to a file.
enum class Links { followed, refused };

/// The whole of a regular file of at most `most_bytes` bytes. Never waits: a FIFO, socket, device or folder is no
/// regular file and is not opened for long. Nothing, and the reason in *why_not ("Permission denied", "it is a FIFO,
/// not a file"), otherwise. `at` is a folder's descriptor, or AT_FDCWD; `accepts` may refuse what the file is with a
/// reason of its own.
std::optional<std::string> read_regular_file(int at, const std::filesystem::path& path, std::size_t most_bytes,
                                             Links links, std::string* why_not = nullptr,
                                             const std::function<std::string(const struct stat&)>& accepts = nullptr);

}  // namespace attune
