#include "generator/text/template_set.h"

#include "tests/catch.h"

using namespace attune;

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
