#include "tuner/database/file_system.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <cstdint>
#include <string_view>

namespace attune {

namespace fs = std::filesystem;

FileSystem file_system_of(const fs::path& folder) {
  struct statfs facts {};
  if (::statfs(folder.c_str(), &facts) != 0) return {};
  struct Known {
    std::uint32_t magic;
    const char* name;
    bool network;
  };
  constexpr Known kKnown[] = {
      {0x6969, "NFS", true},          {0x517b, "SMB", true},        {0xfe534d42, "SMB2", true},
      {0xff534d42, "CIFS", true},     {0x01021997, "9P", true},     {0x00c36400, "Ceph", true},
      {0x0bd00bd0, "Lustre", true},   {0x47504653, "GPFS", true},   {0x65735546, "FUSE", true},
      {0x19830326, "BeeGFS", true},   {0x5346414f, "AFS", true},    {0x6b414653, "kAFS", true},
      {0x73757245, "Coda", true},     {0x7461636f, "OCFS2", true},  {0x01161970, "GFS2", true},
      {0xaad7aaea, "PanFS", true},    {0x564c, "NCP", true},        {0xef53, "ext4", false},
      {0x58465342, "XFS", false},     {0x9123683e, "Btrfs", false}, {0x01021994, "tmpfs", false},
      {0x794c7630, "overlay", false}, {0x2fc12fc1, "ZFS", false},   {0xf2f52010, "F2FS", false},
  };
  const auto magic = static_cast<std::uint32_t>(facts.f_type);
  for (const Known& known : kKnown) {
    if (magic == known.magic) return {known.name, known.network};
  }
  return {fmt::format("0x{:x}", magic), false};
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

bool is_full(const fs::path& folder) {
  struct statvfs facts {};
  constexpr std::uint64_t kOneTransaction = 64 << 10;
  return ::statvfs(folder.c_str(), &facts) == 0 &&
         facts.f_bavail * static_cast<std::uint64_t>(facts.f_frsize) < kOneTransaction;
}

}  // namespace attune
