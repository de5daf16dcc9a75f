#include "generator/plan/kernel_arguments.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "generator/error.h"
#include "generator/oracle/oracle_kernels.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("fields are laid out as C++ lays them out", "[nogpu]") {
  struct Mixed {
    std::int32_t batch;
    const void* q;
    std::int32_t heads_q;
    float softmax_scale;
    std::int32_t seq_q;
    std::int64_t q_stride_row;
    float* lse;
    std::int32_t seq_kv;
  };
  const ArgumentLayout layout =
      ArgumentLayout::of({Scalar::batch, Pointer{Operand::q}, Scalar::heads_q, Scalar::softmax_scale, Scalar::seq_q,
                          Stride{Operand::q, Dimension::row}, Pointer{Operand::lse}, Scalar::seq_kv});
  const std::vector<std::size_t> expected = {offsetof(Mixed, batch),   offsetof(Mixed, q),
                                             offsetof(Mixed, heads_q), offsetof(Mixed, softmax_scale),
                                             offsetof(Mixed, seq_q),   offsetof(Mixed, q_stride_row),
                                             offsetof(Mixed, lse),     offsetof(Mixed, seq_kv)};
  CHECK(layout.offsets == expected);
  CHECK(layout.bytes == sizeof(Mixed));

  const ArgumentLayout words = ArgumentLayout::of({Scalar::batch, Scalar::softmax_scale, Scalar::seq_q});
  CHECK(words.bytes == 12);
  CHECK(ArgumentLayout::of({}).bytes == 0);
}

TEST_CASE("tensor maps are aligned to 64 bytes", "[nogpu]") {
  struct alignas(64) Map {
    std::uint64_t words[16];
  };
  struct WithMaps {
    std::int32_t batch;
    Map q_map, k_map;
    float* lse;
  };
  const ArgumentLayout layout =
      ArgumentLayout::of({Scalar::batch, TensorMap{Operand::q}, TensorMap{Operand::k}, Pointer{Operand::lse}});
  CHECK(layout.offsets == std::vector<std::size_t>{offsetof(WithMaps, batch), offsetof(WithMaps, q_map),
                                                   offsetof(WithMaps, k_map), offsetof(WithMaps, lse)});
  CHECK(layout.bytes == sizeof(WithMaps));
  CHECK(layout.alignment == alignof(WithMaps));
}

TEST_CASE("a field's type and name in the kernel", "[nogpu]") {
  const auto text = [](const KernelArgument& argument) {
    return std::string(type_text(argument)) + " " + std::string(to_string(argument));
  };
  CHECK(text(Pointer{Operand::q}) == "const void* q");
  CHECK(text(Pointer{Operand::o}) == "void* o");
  CHECK(text(Pointer{Operand::lse}) == "float* lse");
  CHECK(text(Stride{Operand::k, Dimension::head}) == "i64 k_stride_head");
  CHECK(text(Scalar::seq_q) == "i32 seq_q");
  CHECK(text(Scalar::softmax_scale) == "float softmax_scale");
  CHECK(text(Workspace{kOFp64}) == "double* o_fp64");
}

TEST_CASE("a field appears once", "[nogpu]") {
  CHECK_THROWS_AS(ArgumentLayout::of({Pointer{Operand::q}, Pointer{Operand::q}}), Error);
}

TEST_CASE("every argument has a name of its own, a type and its size", "[nogpu]") {
  Arguments all = {Workspace{kTileCounter}, Workspace{kOFp64}, kUnitRoundoff, kSeed};
  for (const Operand operand : kOperands) {
    all.push_back(Pointer{operand});
    append_strides(&all, {operand});
    all.push_back(TensorMap{operand});
  }
  for (int scalar = 0; scalar <= static_cast<int>(Scalar::tiles); ++scalar) all.push_back(static_cast<Scalar>(scalar));
  std::set<std::string> names;
  for (const KernelArgument& argument : all) {
    CHECK(names.insert(to_string(argument)).second);
    const std::string_view type = type_text(argument);
    const bool small = type == "i32" || type == "float", map = type == "TensorMap";
    CHECK((small || map || type == "i64" || type == "u64" || type == "double" || type.ends_with('*')));
    CHECK(size_of(argument) == (small ? 4u : map ? 128u : 8u));
  }
}

TEST_CASE("pointers to what some kernel writes are not const", "[nogpu]") {
  const auto type = [](Operand operand) { return std::string(type_text(Pointer{operand})); };
  CHECK(type(Operand::q) == "const void*");
  CHECK(type(Operand::o) == "void*");
  CHECK(type(Operand::lse) == "float*");
  CHECK(type(Operand::d_lse) == "const float*");
  CHECK(type(Operand::d_o) == "const void*");
  CHECK(type(Operand::d_k) == "void*");
}
