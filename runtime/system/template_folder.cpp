#include "runtime/system/template_folder.h"

#include <fcntl.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "generator/error.h"
#include "generator/lazy_value.h"
#include "runtime/system/regular_file.h"

namespace attune {
namespace {

constexpr std::size_t kMostTemplateBytes = std::size_t{16} << 20;
constexpr std::string_view kKernels = "kernels/";

// The templates of the folder that $ATTUNE_TEMPLATE_DIR names. Every complaint names the variable: whoever reads it may
// have set that long ago.
TemplateSet load_named_folder(const std::string& folder) {
  const auto refuse = [](const std::string& why) {
    return Error(ErrorCode::io, why +
                                    "; ATTUNE_TEMPLATE_DIR names that folder: set it to the folder templates/ of "
                                    "Attune's sources, or unset it for the templates that are built in");
  };
  std::optional<TemplateSet> loaded;
  try {
    loaded = load_template_folder(folder);
  } catch (const Error& error) {
    throw refuse(error.what());
  }
  for (const auto& [name, text] : TemplateSet::embedded().texts()) {
    if (name.starts_with(kKernels) && loaded->find(name) != nullptr) return std::move(*loaded);
  }
  throw refuse("template folder " + folder + " holds none of the kernels, such as kernels/forward_sm80.cu");
}

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
  static constinit LazyValue<std::optional<TemplateSet>> from_folder;
  const std::optional<TemplateSet>& found = from_folder.get([]() -> std::optional<TemplateSet> {
    const char* folder = std::getenv("ATTUNE_TEMPLATE_DIR");
    if (folder == nullptr || *folder == 0) return std::nullopt;
    return load_named_folder(folder);
  });
  return found ? *found : TemplateSet::embedded();
}

}  // namespace attune
