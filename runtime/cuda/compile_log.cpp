#include "runtime/cuda/compile_log.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

namespace attune {
namespace {

constexpr int kMostBytes = std::numeric_limits<int>::max();

// The number that stands directly before `words`, 0 if the words do not occur. One that is no int is the largest: a
// log may say anything, and a kernel of whom it says so is none to be taken for a thrifty one.
int number_before(std::string_view line, std::string_view words) {
  const std::size_t at = line.find(words);
  if (at == std::string_view::npos) return 0;
  std::size_t begin = at;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1]))) --begin;
  int number = 0;
  const auto [end, error] = std::from_chars(line.data() + begin, line.data() + at, number);
  return error == std::errc::result_out_of_range ? kMostBytes : number;
}

void add(int& sum, int bytes) { sum = bytes > kMostBytes - sum ? kMostBytes : sum + bytes; }

// "(C7510)": the codes by which ptxas tells that wgmma was serialized or setmaxnreg ignored.
bool has_advisory_code(std::string_view line) {
  for (std::size_t at = line.find("C75"); at != std::string_view::npos; at = line.find("C75", at + 1)) {
    const auto digit = [&](std::size_t i) {
      return i < line.size() && std::isdigit(static_cast<unsigned char>(line[i]));
    };
    if (digit(at + 3) && digit(at + 4) && (at == 0 || !std::isalnum(static_cast<unsigned char>(line[at - 1]))))
      return true;
  }
  return false;
}

bool is_advisory(std::string_view line) {
  const auto has = [&](std::string_view words) { return line.find(words) != std::string_view::npos; };
  return has_advisory_code(line) || has("serialized") || has("serialization") || (has("setmaxnreg") && has("ignored"));
}

}  // namespace

void read_compile_log(const std::string& log, KernelResources& resources) {
  resources.log = log;
  resources.registers = resources.spill_bytes = resources.stack_bytes = 0;
  resources.advisories.clear();
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string_view line(log.data() + begin, end - begin);
    resources.registers = std::max(resources.registers, number_before(line, " registers"));
    add(resources.stack_bytes, number_before(line, " bytes stack frame"));
    add(resources.spill_bytes, number_before(line, " bytes spill stores"));
    add(resources.spill_bytes, number_before(line, " bytes spill loads"));
    if (is_advisory(line)) resources.advisories.emplace_back(line);
    begin = end + 1;
  }
}

std::string name_templates(const std::string& log, const std::vector<TemplateLine>& lines) {
  const std::string opening = std::string(kKernelFileName) + "(";
  std::string named;
  std::size_t done = 0;
  for (std::size_t at = log.find(opening); at != std::string::npos; at = log.find(opening, at + 1)) {
    const std::size_t digits = at + opening.size();
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(log.data() + digits, log.data() + log.size(), number);
    if (error != std::errc() || number == 0 || number > lines.size()) continue;
    const TemplateLine& line = lines[number - 1];
    named += log.substr(done, at - done) + "templates/" + line.file + ".cu(" + std::to_string(line.line);
    done = static_cast<std::size_t>(end - log.data());
  }
  return named + log.substr(done);
}

}  // namespace attune
