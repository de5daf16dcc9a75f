#include "generator/template_set.h"

#include "tests/catch.h"

using namespace attune;

namespace {
std::string hash_of(std::map<std::string, std::string> texts) { return TemplateSet(std::move(texts)).hash(); }
}  // namespace

TEST_CASE("the hash depends on every name and text", "[nogpu]") {
  const std::string hash = hash_of({{"a", "x"}, {"b", "y"}});
  CHECK(hash.size() == 16);
  CHECK(hash.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(hash_of({{"a", "x"}, {"b", "y"}}) == hash);
  CHECK(hash_of({{"a", "x"}, {"b", "z"}}) != hash);
  CHECK(hash_of({{"a", "x"}, {"c", "y"}}) != hash);
  CHECK(hash_of({{"a", "xb"}, {"", "y"}}) != hash);
  CHECK(hash_of({{"ab", "c"}}) != hash_of({{"a", "bc"}}));
}

TEST_CASE("templates are found by name", "[nogpu]") {
  const TemplateSet set(std::map<std::string, std::string>{{"kernels/a", "text"}});
  REQUIRE(set.find("kernels/a") != nullptr);
  CHECK(*set.find("kernels/a") == "text");
  CHECK(set.find("kernels/b") == nullptr);
}

TEST_CASE("the embedded templates hold the kernels", "[nogpu]") {
  CHECK(TemplateSet::embedded().find("kernels/forward_sm80") != nullptr);
  CHECK(TemplateSet::embedded().find("kernels/reference_forward") != nullptr);
  CHECK(&TemplateSet::embedded() == &TemplateSet::embedded());
}
