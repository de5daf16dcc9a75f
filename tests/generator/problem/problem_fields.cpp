#include "generator/problem/problem_fields.h"
#include "generator/problem/mask_geometry.h"

#include <set>
#include <string>

#include "generator/problem/dispatch_class.h"
#include "tests/catch.h"
#include "tests/generator/random_values.h"

using namespace attune;

namespace {

// Another value of a field than a problem has, with which it is valid or not.
void change(const ProblemField& field, AttentionProblem* problem) {
  const std::int64_t value = field.get(*problem);
  switch (field.form) {
    case ProblemFieldForm::number:
      return field.set(*problem, field.key == "alignment" ? 18 - value : value + 8);
    case ProblemFieldForm::real:
      // Two probabilities that eight bits give.
      if (field.key == "dropout") return field.set(*problem, real_bits(real_value(value) == 0.25f ? 0.5f : 0.25f));
      return field.set(*problem, real_bits(value == 0 ? 30 : real_value(value) * 2));
    case ProblemFieldForm::name:
      // How the diagonals of no mask move says nothing.
      if (field.key == "lengths" && !hides_pairs(problem->mask)) return field.set(*problem, value == 0 ? 1 : 0);
      return field.set(*problem, (value + 1) % static_cast<std::int64_t>(field.names.size()));
    case ProblemFieldForm::flag:
      return field.set(*problem, 1 - value);
    case ProblemFieldForm::mask:
      problem->mask = MaskKind::none;
      problem->mask_offset = problem->first_offset = 0;
      if (value == 0) REQUIRE(apply_mask_word("causal@-3", problem));
  }
}

}  // namespace

TEST_CASE("each member of a problem is a field, or an offset of its mask", "[nogpu]") {
  // Does not compile once a problem has another number of members.
  const auto& [pass, dtype, batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, mask, mask_offset, first_offset, scale,
               softcap, alibi, bias, bias_fp32, bias_gradient, attention_mask, sink, dropout, lengths, packed,
               distribution, max_seq_q, max_seq_kv, layout, alignment, deterministic, invariant] = AttentionProblem();
  (void)pass, (void)dtype, (void)batch, (void)heads_q, (void)heads_kv, (void)seq_q, (void)seq_kv, (void)head_dim;
  (void)mask, (void)mask_offset, (void)first_offset, (void)scale, (void)layout, (void)alignment, (void)deterministic,
      (void)invariant, (void)softcap, (void)alibi, (void)bias, (void)bias_fp32, (void)bias_gradient,
      (void)attention_mask, (void)sink, (void)dropout, (void)lengths, (void)packed, (void)distribution, (void)max_seq_q,
      (void)max_seq_kv;
  CHECK(problem_fields().size() == 29 - 2);

  std::set<std::string_view> keys, flags, words, called;
  for (const ProblemField& field : problem_fields()) {
    INFO(field.key);
    CHECK(keys.insert(field.key).second);
    CHECK(called.insert(field.called).second);
    CHECK((field.flag.empty() || flags.insert(field.flag).second));
    CHECK((field.word.empty() || words.insert(field.word).second));
    CHECK_FALSE(field.help.empty());
    CHECK(&problem_field(field.key) == &field);
    CHECK(field.is_standard(AttentionProblem()));
  }
}

TEST_CASE("each field of a problem shows in equality, hash, text and class", "[nogpu]") {
  RandomValues random(5);
  for (int i = 0; i < 200; ++i) {
    AttentionProblem problem = simplest_mask(random.problem());
    problem.pass = Pass::backward;
    for (const ProblemField& field : problem_fields()) {
      AttentionProblem other = problem;
      change(field, &other);
      INFO(canonical_text(problem) << " and " << canonical_text(other));
      REQUIRE(field.get(other) != field.get(problem));
      REQUIRE_FALSE(other == problem);
      REQUIRE(AttentionProblemHash()(other) != AttentionProblemHash()(problem));
      REQUIRE(canonical_text(other) != canonical_text(problem));
      REQUIRE(parse_problem(canonical_text(other)) == simplest_mask(other));
      const bool same_kernel = kernel_fields(other) == kernel_fields(problem);
      const bool is_other_term =
          field.role == FieldRole::term && field.is_standard(problem) != field.is_standard(other);
      REQUIRE(same_kernel == (field.role != FieldRole::kernel && !is_other_term));
      REQUIRE(same_kernel == (kernel_class_words(other) == kernel_class_words(problem)));
      REQUIRE((feature_words(other) != feature_words(problem)) == field.feature_weight.has_value());
      const bool counts = field.role != FieldRole::term || is_other_term;
      REQUIRE(feature_distance(problem, feature_words(other)) == (counts ? field.feature_weight.value_or(0) : 0));
    }
  }
}

TEST_CASE("one kernel drops with any probability", "[nogpu]") {
  const AttentionProblem tenth = parse_problem("forward bf16 hq4 sq128 d64 dropout0.1");
  for (const float probability : {0x1p-40f, 0.01f, 0.9f}) {
    AttentionProblem other = tenth;
    other.dropout = probability;
    CHECK(kernel_fields(tenth) == kernel_fields(other));
    CHECK(dispatch_class(tenth) == dispatch_class(other));
  }
  CHECK_FALSE(kernel_fields(tenth) == kernel_fields(parse_problem("forward bf16 hq4 sq128 d64")));
}

TEST_CASE("a field of the role argument is no part of the dispatch class, one that is picked by is", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward bf16 b2 hq4 hkv2 sq1000 skv3000 d64");
  for (const ProblemField& field : problem_fields()) {
    if (field.role != FieldRole::argument && field.role != FieldRole::pick) continue;
    AttentionProblem other = problem;
    change(field, &other);
    INFO(field.key);
    CHECK((dispatch_class(other) == dispatch_class(problem)) == (field.role == FieldRole::argument));
  }
}

TEST_CASE("features of a later version are refused", "[nogpu]") {
  CHECK_THROWS_WITH(feature_distance(AttentionProblem(), "telepathic"), ContainsSubstring("telepathic"));
}
