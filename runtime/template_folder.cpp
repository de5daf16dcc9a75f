#include "runtime/template_folder.h"

#include <fcntl.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "generator/error.h"
#include "runtime/regular_file.h"

namespace attune {
namespace {

constexpr std::size_t kMostTemplateBytes = std::size_t{16} << 20;

}  // namespace

TemplateSet load_template_folder(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> texts;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != ".cu") continue;
    std::string why_not;
    auto text = read_regular_file(AT_FDCWD, entry->path(), kMostTemplateBytes, Links::followed, &why_not);
    if (!text) throw Error(ErrorCode::io, "template " + entry->path().string() + " cannot be read: " + why_not);
    texts[entry->path().lexically_relative(folder).replace_extension().generic_string()] = std::move(*text);
  }
  if (error) throw Error(ErrorCode::io, "template folder " + folder.string() + " cannot be read: " + error.message());
  if (texts.empty()) throw Error(ErrorCode::io, "template folder " + folder.string() + " holds no *.cu files");
  return TemplateSet(std::move(texts));
}

const TemplateSet& runtime_templates() {
  static const std::optional<TemplateSet> from_folder = []() -> std::optional<TemplateSet> {
    const char* folder = std::getenv("ATTUNE_TEMPLATE_DIR");
    if (folder == nullptr || *folder == 0) return std::nullopt;
    return load_template_folder(folder);
  }();
  return from_folder ? *from_folder : TemplateSet::embedded();
}

}  // namespace attune
