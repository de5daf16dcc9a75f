#include "generator/text/template_set.h"

#include "generator/families/family_word.h"
#include "generator/generate.h"

#include "tests/catch.h"

using namespace attune;

namespace {

using Texts = std::map<std::string, std::string>;

// Of the template "a".
std::string hash_of(Texts texts, const Texts& known = {}) { return TemplateSet(std::move(texts)).hash_of("a", known); }

}  // namespace

TEST_CASE("the hash depends on the names and texts that a template may include, and on no others", "[nogpu]") {
  const Texts texts = {
      {"a", "x\n  //% include b\n//% include c/d \n"}, {"b", "y"}, {"c/d", "//% include e"}, {"e", "z"}, {"f", "w"}};
  const auto changed = [&](const std::string& name, const std::string& text) {
    Texts other = texts;
    other[name] = text;
    return hash_of(other);
  };
  const std::string hash = hash_of(texts);
  CHECK(hash.size() == 16);
  CHECK(hash.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(hash_of(texts) == hash);
  CHECK(changed("a", texts.at("a") + "x") != hash);
  CHECK(changed("b", "yy") != hash);
  CHECK(changed("c/d", "//% include f") != hash);
  CHECK(changed("e", "zz") != hash);
  CHECK(changed("f", "ww") == hash);
  CHECK(changed("g", "new") == hash);
  // Where one text ends and the next begins matters.
  CHECK(hash_of({{"a", "//% include b"}, {"b", "cd"}}) != hash_of({{"a", "//% include bc"}, {"bc", "d"}}));
  // A template that is missing, or includes itself, has a hash all the same: rendering says what is wrong.
  CHECK(hash_of({{"a", "//% include b"}}) != hash_of({{"a", "//% include c"}}));
  CHECK(hash_of({{"a", "//% include a"}}).size() == 16);
}

TEST_CASE("a placeholder in an included name stands for its value, or for every name it could make", "[nogpu]") {
  const Texts texts = {{"a", "//% include m/${mask}\n//% include p/${target}_${x}"},
                       {"m/none", "1"},
                       {"m/causal", "2"},
                       {"m/deep/none", "3"},
                       {"n/none", "4"},
                       {"p/cuda_1", "5"},
                       {"p/emulator_1", "6"}};
  const auto moves = [&](const std::string& name, const Texts& known = {}) {
    Texts other = texts;
    other[name] += "changed";
    return hash_of(other, known) != hash_of(texts, known);
  };
  CHECK(moves("m/none"));
  CHECK(moves("m/causal"));
  CHECK(moves("m/new"));  // one more that could be meant
  CHECK_FALSE(moves("m/deep/none"));
  CHECK_FALSE(moves("n/none"));
  CHECK(moves("p/cuda_1"));
  CHECK(moves("p/emulator_1"));
  const Texts cuda = {{"target", "cuda"}};
  CHECK(moves("p/cuda_1", cuda));
  CHECK_FALSE(moves("p/emulator_1", cuda));
  CHECK(moves("m/none", {{"mask", "none"}}));
  CHECK_FALSE(moves("m/causal", {{"mask", "none"}}));
}

TEST_CASE("a family's hash knows the texts of its own kernels", "[nogpu]") {
  Texts texts = TemplateSet::embedded().texts();
  const std::string hash = templates_hash(Pass::forward, FamilyWord::sm80);
  CHECK(templates_hash(Pass::forward, FamilyWord::sm80, TemplateSet(texts)) == hash);
  for (const char* part : {"kernels/forward_sm80", "steps/online_softmax", "masks/causal", "masks/none",
                           "primitives/sm80/cuda", "tile/swizzle"}) {
    INFO(part);
    Texts other = texts;
    REQUIRE(other.count(part) == 1);
    other[part] += "\n";
    CHECK(templates_hash(Pass::forward, FamilyWord::sm80, TemplateSet(other)) != hash);
  }
  for (const char* part : {"kernels/reference_forward", "primitives/sm80/emulator", "kernels/of_another_family"}) {
    INFO(part);
    Texts other = texts;
    other[part] += "\n";
    CHECK(templates_hash(Pass::forward, FamilyWord::sm80, TemplateSet(other)) == hash);
  }
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
