#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace attune {

/// Measurement::source_hash of kernels that have another source now and the same machine code: old hash, new hash.
using SourceHashes = std::map<std::string, std::string>;

/// What scripts/same-machine-code writes:
///
///   {"format": "attune source hashes", "version": 1, "hashes": {"59512bcf7d27da8b": "858ebd34b3d0afa1", ...}}
///
/// `name` stands for the file in messages. Throws Error(invalid_argument) for what is no such list, and for a hash that
/// is none: one has 16 hexadecimal digits.
SourceHashes parse_source_hashes(std::string_view text, const std::string& name);

struct CarriedRows {
  std::int64_t carried = 0;  ///< rows that have their new hash now
  std::int64_t others = 0;   ///< rows that the list does not name, and those that were changed after they were stored
};
/// Gives rows of a database the hashes that their kernels have now, in one transaction; nothing else of them changes.
/// Throws Error(database) if the file is not there, damaged, or cannot be written.
CarriedRows carry_rows(const std::filesystem::path& path, const SourceHashes& hashes);

}  // namespace attune
