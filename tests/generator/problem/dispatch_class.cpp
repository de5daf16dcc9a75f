#include "generator/problem/dispatch_class.h"

#include "tests/catch.h"
#include "tests/generator/random_values.h"

using namespace attune;

TEST_CASE("the kernel class forgets what the kernel takes as arguments", "[nogpu]") {
  AttentionProblem problem = make_problem(DataType::bf16, 4, 16, 4096, 128, MaskKind::causal);
  const KernelConfig config;
  const std::string name = kernel_class(problem, config);
  CHECK(name == "forward bf16 d128 causal sm80 q128 kv64 w4 st2");

  AttentionProblem same = problem;
  same.batch = 7;
  same.heads_q = 12;
  same.heads_kv = 3;
  same.seq_q = 1;
  same.seq_kv = 999;
  same.mask_offset = 5;
  same.softmax_scale = 3;
  same.layout = Layout::bhsd;
  CHECK(kernel_class(same, config) == name);

  const auto differs = [&](auto change) {
    AttentionProblem other = problem;
    change(other);
    return kernel_class(other, config) != name;
  };
  CHECK(differs([](AttentionProblem& p) { p.dtype = DataType::fp16; }));
  CHECK(differs([](AttentionProblem& p) { p.head_dim = 64; }));
  CHECK(differs([](AttentionProblem& p) { p.mask = MaskKind::none; }));
  CHECK(differs([](AttentionProblem& p) { p.alignment = 2; }));
  KernelConfig other = config;
  other.stages = 3;
  CHECK(kernel_class(problem, other) != name);

  // Packed heads are the exception: how many share K and V is a constant of the kernel.
  const KernelConfig packed = parse_config("sm90 pack-gqa");
  problem.heads_kv = 4;
  CHECK(kernel_class(problem, packed) == "forward bf16 d128 causal group4 sm90 q128 kv64 st2 pack-gqa");
  same = problem;
  same.heads_q = 8;
  same.heads_kv = 2;
  CHECK(kernel_class(same, packed) == kernel_class(problem, packed));
  same.heads_kv = 4;
  CHECK(kernel_class(same, packed) != kernel_class(problem, packed));
}

TEST_CASE("lengths of a dispatch class are bucketed", "[nogpu]") {
  const auto bucket = [](std::int64_t length) {
    return dispatch_class(make_problem(DataType::bf16, 1, 1, length, 64)).representative.seq_q;
  };
  const std::pair<std::int64_t, std::int64_t> expected[] = {
      {1, 1},       {2, 2},       {3, 3},       {4, 4},      {5, 6},      {6, 6},       {7, 8},
      {9, 12},      {13, 16},     {100, 128},   {129, 192},  {193, 255},  {255, 255},   {256, 256},
      {257, 384},   {385, 511},   {512, 512},   {768, 768},  {769, 1023}, {1000, 1023}, {1024, 1024},
      {1025, 1535}, {1280, 1536}, {4095, 4095}, {4096, 4096}};
  for (const auto& [length, end] : expected) {
    INFO(length);
    CHECK(bucket(length) == end);
  }
}

TEST_CASE("a dispatch class is valid, its own class, and hardly shorter than its members", "[nogpu]") {
  RandomValues random(4);
  for (int i = 0; i < 3000; ++i) {
    AttentionProblem problem = random.problem();
    if (i % 7 == 0) {
      problem.seq_q = random.between(1, 40) * 256;
      problem.seq_kv = random.between(1, 40) * 256;
    }
    const DispatchClass key = dispatch_class(problem);
    INFO(canonical_text(problem) << " -> " << canonical_text(key));
    REQUIRE_NOTHROW(validate(key.representative));
    REQUIRE(dispatch_class(key.representative) == key);
    REQUIRE(KernelClass(key.representative) == KernelClass(problem));
    REQUIRE(key.representative.seq_q >= problem.seq_q - 1);
    REQUIRE(key.representative.seq_kv >= problem.seq_kv - 1);
    REQUIRE(key.representative.seq_q <= std::max<std::int64_t>(2, problem.seq_q * 3 / 2 + 1));
    const bool whole = problem.seq_q % 256 == 0 && problem.seq_kv % 256 == 0;
    REQUIRE((key.representative.seq_q % 256 == 0 && key.representative.seq_kv % 256 == 0) == whole);
  }
  const std::int64_t longest = (std::int64_t{1} << 31) - 1025;
  CHECK_NOTHROW(
      validate(dispatch_class(make_problem(DataType::bf16, 1, 1, longest, 64, MaskKind::causal)).representative));
}

TEST_CASE("decoding stays in a class while its keys grow", "[nogpu]") {
  AttentionProblem problem = make_problem(DataType::bf16, 1, 8, 1, 128, MaskKind::causal);
  problem.seq_kv = 2050;
  problem.mask_offset = 2049;
  const DispatchClass key = dispatch_class(problem);
  CHECK(key.representative.seq_q == 1);
  for (std::int64_t keys = 2050; keys < 3072; ++keys) {
    problem.seq_kv = keys;
    problem.mask_offset = keys - 1;
    REQUIRE(dispatch_class(problem) == key);
  }
}

TEST_CASE("a dispatch class buckets the sides of a window", "[nogpu]") {
  const auto of = [](const char* text) { return canonical_text(dispatch_class(parse_problem(text))); };
  CHECK(of("sq8192 d128 window=1023,0") == "forward bf16 b1 hq1 sq8192 d128 window=1023,0");
  CHECK(of("sq8192 d128 window=900,0") == "forward bf16 b1 hq1 sq8192 d128 window=1023,0");
  CHECK(of("sq8192 d128 window=700,40") == "forward bf16 b1 hq1 sq8192 d128 window=767,47");
  CHECK(of("sq8000 d128 window=700,open") == "forward bf16 b1 hq1 sq8191 d128 window=767,open");
  CHECK(of("sq1000 skv3000 d128 window=63,0") == "forward bf16 b1 hq1 sq1023 skv3071 d128 window=63,0");
  CHECK(of("sq1000 d128 window=990,0") == "forward bf16 b1 hq1 sq1023 d128 window=1021,0");
  CHECK(of("sq1000 d128 window=990,999") == "forward bf16 b1 hq1 sq1023 d128 window=1021,open");
}

TEST_CASE("a window's dispatch class is that of no other mask, however little it hides", "[nogpu]") {
  const auto of = [](const char* text) { return dispatch_class(parse_problem(text)); };
  const DispatchClass causal = of("sq1024 d64 causal"), none = of("sq1024 d64");
  CHECK(of("sq1024 d64 window=800,0") != causal);
  CHECK(of("sq1024 d64 window=1022,0") != causal);
  CHECK(of("sq1024 d64 window=800,open") != none);
  CHECK(of("sq1024 d64 window=800,1000") != none);
  CHECK(of("sq1024 d64 window=1023,0") == causal);  // hides what the causal mask does
  CHECK(of("sq1024 d64 window=1023,1023") == none);
  // One that was made by its fields, and hides nothing, has kernels of its own.
  AttentionProblem hides_nothing = parse_problem("sq1024 d64");
  hides_nothing.mask = MaskKind::window;
  hides_nothing.first_offset = -2000;
  hides_nothing.mask_offset = kOpenDiagonal;
  CHECK(dispatch_class(hides_nothing) != none);
  CHECK(!same_source(hides_nothing, parse_problem("sq1024 d64"), KernelConfig()));
}

TEST_CASE("a dispatch class keeps the alignment of the diagonal and forgets the scale", "[nogpu]") {
  AttentionProblem problem = make_problem(DataType::bf16, 1, 8, 1000, 128, MaskKind::causal);
  problem.seq_kv = 3000;
  problem.mask_offset = 2000;
  const DispatchClass bottom_right = dispatch_class(problem);
  CHECK(canonical_text(bottom_right) == "forward bf16 b1 hq8 sq1023 skv3071 d128 causal");
  problem.mask_offset = 0;
  const DispatchClass top_left = dispatch_class(problem);
  CHECK(canonical_text(top_left) == "forward bf16 b1 hq8 sq1023 skv3071 d128 causal-top-left");
  problem.mask_offset = 100;
  CHECK(dispatch_class(problem) == top_left);
  problem.mask_offset = 1900;
  problem.softmax_scale = 9;
  CHECK(dispatch_class(problem) == bottom_right);
}
