// One main for all test programs. Beside Catch2's own arguments:
//   test_room "[gpu]"               without a GPU, or "[nvrtc]" without NVRTC: skipped, exit status 77 and the reason
//   test_room "[gpu]" --part 2/8    every eighth of the cases that match, from the second on: for several processes
//   test_room --check-labels a,b    fails if a case has none of these labels, and so would never run
// The last line is "attune-tests: N passed, N failed, N skipped" with, after a colon, why; scripts/test adds them up.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc_compiler.h"

namespace {
constexpr int kSkipped = 77;

struct Case {
  std::string name;
  std::vector<std::string> tags;
  bool has(const std::string& tag) const { return std::find(tags.begin(), tags.end(), tag) != tags.end(); }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
#if defined(CATCH_VERSION_MAJOR) && CATCH_VERSION_MAJOR >= 3
  for (const Catch::TestCaseInfo* info : Catch::getRegistryHub().getTestCaseRegistry().getAllInfos()) {
    Case& made = cases.emplace_back(Case{info->name, {}});
    for (const Catch::Tag& tag : info->tags) made.tags.push_back(static_cast<std::string>(tag.original));
  }
#else
  for (const Catch::TestCase& test : Catch::getRegistryHub().getTestCaseRegistry().getAllTests()) {
    cases.push_back({test.name, test.tags});
  }
#endif
  return cases;
}

// The tags that a filter such as "[nvrtc]~[gpu]" asks for, and those that it excludes.
struct TagFilter {
  std::vector<std::string> wanted, excluded;

  explicit TagFilter(const std::string& text) {
    for (std::size_t open = text.find('['); open != std::string::npos; open = text.find('[', open + 1)) {
      const std::size_t close = text.find(']', open);
      if (close == std::string::npos) break;
      const bool negated = open > 0 && text[open - 1] == '~';
      (negated ? excluded : wanted).push_back(text.substr(open + 1, close - open - 1));
    }
  }
  bool wants(const std::string& tag) const { return std::find(wanted.begin(), wanted.end(), tag) != wanted.end(); }
  bool matches(const Case& test) const {
    return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& tag) { return test.has(tag); }) &&
           std::none_of(excluded.begin(), excluded.end(), [&](const std::string& tag) { return test.has(tag); });
  }
};

// Empty if the tests that a filter asks for can run here.
std::string why_skipped(const TagFilter& filter) {
  if (filter.wants("gpu")) {
    std::string why;
    if (attune::list_cuda_devices(&why).empty()) return why.empty() ? "no GPU" : why;
  }
  if (filter.wants("nvrtc")) {
    try {
      attune::nvrtc_identity();
    } catch (const attune::Error& error) {
      return error.what();
    }
  }
  return {};
}

int check_labels(const std::string& list) {
  std::vector<std::string> labels;
  std::istringstream stream(list);
  for (std::string label; std::getline(stream, label, ',');) labels.push_back(label);
  int without = 0;
  for (const Case& test : all_cases()) {
    if (std::any_of(labels.begin(), labels.end(), [&](const std::string& label) { return test.has(label); })) continue;
    std::printf("never run: \"%s\" has none of the labels %s\n", test.name.c_str(), list.c_str());
    ++without;
  }
  return without == 0 ? 0 : 1;
}

void report(std::size_t passed, std::size_t failed, std::size_t skipped, std::string why = {}) {
  std::replace(why.begin(), why.end(), '\n', ' ');
  std::printf("attune-tests: %zu passed, %zu failed, %zu skipped%s%s\n", passed, failed, skipped,
              why.empty() ? "" : ": ", why.c_str());
}

#if defined(CATCH_VERSION_MAJOR) && CATCH_VERSION_MAJOR >= 3
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

Catch::Totals& totals() {
  static Catch::Totals value;
  return value;
}

struct CountingListener : ListenerBase {
  using ListenerBase::ListenerBase;
  void testRunEnded(const Catch::TestRunStats& stats) override { totals() = stats.totals; }
};
CATCH_REGISTER_LISTENER(CountingListener)

// Takes "--part I/N" out of the arguments, whose tag filter becomes the names of that part of the cases it matches.
// False if the part is none, or there is no filter.
bool take_part(std::vector<std::string>* arguments) {
  const auto option = std::find(arguments->begin(), arguments->end(), "--part");
  if (option == arguments->end()) return true;
  std::size_t part = 0, parts = 0;
  if (option + 1 == arguments->end() || std::sscanf((option + 1)->c_str(), "%zu/%zu", &part, &parts) != 2 || part < 1 ||
      part > parts)
    return false;
  arguments->erase(option, option + 2);
  bool filtered = false;
  for (std::string& argument : *arguments) {
    const TagFilter filter(argument);
    if (filter.wanted.empty()) continue;
    filtered = true;
    std::string names;
    std::size_t number = 0;
    for (const Case& test : all_cases()) {
      if (!filter.matches(test) || number++ % parts != part - 1) continue;
      names += names.empty() ? "\"" : ",\"";
      for (const char c : test.name) names += (c == ',' ? "\\" : "") + std::string(1, c);
      names += '"';
    }
    argument = names.empty() ? "[no case is left for this part]" : names;
  }
  return filtered;
}
}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--check-labels") return check_labels(argv[2]);

  for (int i = 1; i < argc; ++i) {
    const TagFilter filter(argv[i]);
    const std::vector<Case> cases = all_cases();
    const auto matching =
        std::count_if(cases.begin(), cases.end(), [&](const Case& test) { return filter.matches(test); });
    if (!filter.wanted.empty() && matching == 0) {
      report(0, 0, 0);
      return 0;
    }
    const std::string why = why_skipped(filter);
    if (!why.empty()) {
      report(0, 0, static_cast<std::size_t>(matching), why);
      return kSkipped;
    }
  }

  std::vector<std::string> arguments(argv, argv + argc);
  if (!take_part(&arguments)) {
    std::fprintf(stderr, "--part takes I/N, with I from 1 to N, beside a filter of tags: \"[gpu]\" --part 2/8\n");
    return 2;
  }
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  const int failed = Catch::Session().run(static_cast<int>(pointers.size()), pointers.data());
  report(totals().testCases.passed, totals().testCases.failed + totals().testCases.failedButOk, 0);
  return failed < 255 ? failed : 255;
}
