#include "generator/problem/operand_shape.h"

#include <algorithm>
#include <set>
#include <string>

#include "generator/error.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("the shape of each operand", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward fp16 b2 hq6 hkv3 sq100 skv300 d72");
  for (const Operand operand : {Operand::q, Operand::o, Operand::d_q, Operand::d_o})
    CHECK(operand_shape(problem, operand) == OperandShape{2, 6, 100, 72, ElementType::fp16});
  for (const Operand operand : {Operand::k, Operand::v, Operand::d_k, Operand::d_v})
    CHECK(operand_shape(problem, operand) == OperandShape{2, 3, 300, 72, ElementType::fp16});
  for (const Operand operand : {Operand::lse, Operand::d_lse})
    CHECK(operand_shape(problem, operand) == OperandShape{2, 6, 100, 1, ElementType::fp32});
  const OperandShape k = operand_shape(problem, Operand::k);
  CHECK(k.all_rows() == 2 * 3 * 300);
  CHECK(k.elements() == 2 * 3 * 300 * 72);
  CHECK(k.bytes() == 2 * 2 * 3 * 300 * 72);
  CHECK(operand_shape(problem, Operand::lse).bytes() == 4 * 2 * 6 * 100);
  CHECK(operand_shape(parse_problem("bf16"), Operand::q).element == ElementType::bf16);
}

TEST_CASE("a gradient is shaped and packed as what it is a gradient of", "[nogpu]") {
  for (const char* layout : {"", " bhsd"}) {
    const AttentionProblem problem = parse_problem("backward b2 hq6 hkv3 sq100 skv300 d72" + std::string(layout));
    for (const auto& [gradient, of] : {std::pair(Operand::d_q, Operand::q), std::pair(Operand::d_k, Operand::k),
                                       std::pair(Operand::d_v, Operand::v), std::pair(Operand::d_o, Operand::o)}) {
      CHECK(operand_shape(problem, gradient) == operand_shape(problem, of));
      CHECK(packed_strides(problem, gradient).row == packed_strides(problem, of).row);
    }
  }
}

TEST_CASE("strides of packed tensors", "[nogpu]") {
  const auto strides = [](const char* text, Operand operand) {
    const auto [batch, head, row] = packed_strides(parse_problem(text), operand);
    return std::array{batch, head, row};
  };
  CHECK(strides("b2 hq6 hkv3 sq100 skv300 d72", Operand::q) == std::array<std::int64_t, 3>{43200, 72, 432});
  CHECK(strides("b2 hq6 hkv3 sq100 skv300 d72", Operand::v) == std::array<std::int64_t, 3>{64800, 72, 216});
  CHECK(strides("b2 hq6 hkv3 sq100 skv300 d72 bhsd", Operand::v) == std::array<std::int64_t, 3>{64800, 21600, 72});
  CHECK(strides("b2 hq6 sq100 d72 alibi", Operand::alibi_slopes) == std::array<std::int64_t, 3>{6, 1, 6});
  // Tensors of pairs have one order, and 0 along what they repeat along.
  CHECK(strides("b2 hq6 sq100 skv300 d72 bias=bhqk", Operand::bias) == std::array<std::int64_t, 3>{180000, 30000, 300});
  CHECK(strides("b2 hq6 sq100 skv300 d72 bias=1hqk", Operand::bias) == std::array<std::int64_t, 3>{0, 30000, 300});
  CHECK(strides("b2 hq6 sq100 skv300 d72 attention-mask=b11k", Operand::attention_mask) ==
        std::array<std::int64_t, 3>{300, 0, 0});
  CHECK(strides("b2 hq6 sq100 skv300 d72 bias=111k", Operand::bias) == std::array<std::int64_t, 3>{0, 0, 0});
  CHECK_THROWS_AS(strides("b2", Operand::lse), Error);
  CHECK_THROWS_AS(strides("b2", Operand::d_lse), Error);
}

TEST_CASE("each operand has names of its own, and is read or written by some pass", "[nogpu]") {
  const AttentionProblem forward = parse_problem("forward sink used alibi bias=bhqk attention-mask=b11k"),
                         backward =
                             parse_problem("backward sink used alibi bias=bhqk bias-gradient attention-mask=b11k"),
                         packed = parse_problem("forward packed dropout0.1");
  std::set<std::string_view> names, identifiers;
  for (const Operand operand : kOperands) {
    CHECK(names.insert(to_string(operand)).second);
    CHECK(identifiers.insert(identifier(operand)).second);
    const auto in = [&](const OperandList& operands) { return std::count(operands.begin(), operands.end(), operand); };
    CHECK(in(inputs_of(forward)) + in(outputs_of(forward)) + in(inputs_of(backward)) + in(outputs_of(backward)) +
              in(inputs_of(packed)) >=
          1);
    CHECK(is_written(operand) == (in(outputs_of(forward)) + in(outputs_of(backward)) > 0));
  }
}

TEST_CASE("a problem without a term has no operand of it", "[nogpu]") {
  const auto names = [](const OperandList& operands) {
    std::string text;
    for (const Operand operand : operands) text += std::string(to_string(operand)) + " ";
    return text;
  };
  CHECK(names(inputs_of(parse_problem("forward"))) == "q k v ");
  CHECK(names(inputs_of(parse_problem("forward sink"))) == "q k v sinks ");
  CHECK(names(outputs_of(parse_problem("forward sink"))) == "o lse ");
  CHECK(names(inputs_of(parse_problem("forward used"))) == "q k v seqused_q seqused_kv ");
  CHECK(names(inputs_of(parse_problem("forward packed"))) == "q k v seqused_q seqused_kv cu_seqlens_q cu_seqlens_kv ");
  CHECK(names(inputs_of(parse_problem("forward alibi"))) == "q k v alibi_slopes ");
  CHECK(names(inputs_of(parse_problem("forward bias=bhqk"))) == "q k v bias ");
  CHECK(names(inputs_of(parse_problem("forward attention-mask=11qk"))) == "q k v attention_mask ");
  CHECK(names(inputs_of(parse_problem("forward dropout0.1"))) == "q k v dropout_state ");
  CHECK(names(inputs_of(parse_problem("backward"))) == "q k v o lse do dlse ");
  CHECK(names(inputs_of(parse_problem("backward sink"))) == "q k v o lse do dlse sinks ");
  CHECK(names(inputs_of(parse_problem("backward sink used-top-left causal"))) ==
        "q k v o lse do dlse sinks seqused_q seqused_kv ");
  CHECK(names(outputs_of(parse_problem("backward"))) == "dq dk dv ");
  CHECK(names(outputs_of(parse_problem("backward sink"))) == "dq dk dv dsinks ");
  const OperandShape shape = operand_shape(parse_problem("b3 hq6 hkv2 sq100 skv300 d72 sink"), Operand::d_sinks);
  CHECK(shape == OperandShape{1, 6, 1, 1, ElementType::fp32});
  CHECK(operand_shape(parse_problem("b3 hq6 used"), Operand::seqused_kv) ==
        OperandShape{3, 1, 1, 1, ElementType::int32});
  const AttentionProblem packed = parse_problem("b3 hq6 hkv2 sq100 skv300 d72 packed alibi");
  CHECK(operand_shape(packed, Operand::q) == OperandShape{1, 6, 100, 72, ElementType::bf16});
  CHECK(operand_shape(packed, Operand::v) == OperandShape{1, 2, 300, 72, ElementType::bf16});
  CHECK(operand_shape(packed, Operand::lse) == OperandShape{1, 6, 100, 1, ElementType::fp32});
  CHECK(operand_shape(packed, Operand::alibi_slopes) == OperandShape{3, 6, 1, 1, ElementType::fp32});
  CHECK(operand_shape(packed, Operand::cu_seqlens_kv) == OperandShape{4, 1, 1, 1, ElementType::int32});
  CHECK(operand_shape(packed, Operand::seqused_q) == OperandShape{3, 1, 1, 1, ElementType::int32});
}
