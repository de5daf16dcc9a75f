#include "runtime/argument_packer.h"

#include <cstring>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/runtime/fake_device.h"

using namespace attune;

namespace {

template <typename Value>
Value read_field(const PackedArguments& packed, const ArgumentLayout& layout, KernelArgument field) {
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    if (layout.fields[i] != field) continue;
    REQUIRE(size_of(field) == sizeof(Value));
    Value value;
    std::memcpy(&value, packed.data.data() + layout.offsets[i], sizeof(value));
    return value;
  }
  FAIL("no field " << to_string(field));
  return {};
}

KernelLaunch launch_with(std::vector<KernelArgument> fields) {
  KernelLaunch launch;
  launch.rows_per_tile = 64;
  launch.arguments = ArgumentLayout::of(std::move(fields));
  return launch;
}

}  // namespace

TEST_CASE("each field of an argument struct holds its value", "[nogpu]") {
  using A = KernelArgument;
  const KernelLaunch launch = launch_with({A::group_size,
                                           A::q,
                                           A::k,
                                           A::v,
                                           A::o,
                                           A::lse,
                                           A::q_stride_batch,
                                           A::q_stride_head,
                                           A::q_stride_row,
                                           A::k_stride_batch,
                                           A::k_stride_head,
                                           A::k_stride_row,
                                           A::v_stride_batch,
                                           A::v_stride_head,
                                           A::v_stride_row,
                                           A::o_stride_batch,
                                           A::o_stride_head,
                                           A::o_stride_row,
                                           A::o_fp64,
                                           A::lse_fp64,
                                           A::weight_fp64,
                                           A::batch,
                                           A::heads_q,
                                           A::heads_kv,
                                           A::seq_q,
                                           A::seq_kv,
                                           A::query_tiles,
                                           A::mask_offset,
                                           A::softmax_scale,
                                           A::softmax_scale_log2});
  AttentionProblem problem = make_problem(DataType::fp16, 5, 12, 130, 72, MaskKind::causal);
  problem.heads_kv = 4;
  problem.seq_kv = 999;
  problem.mask_offset = -7;
  problem.softmax_scale = 0.25f;
  const auto address = [](std::uintptr_t value) { return reinterpret_cast<void*>(value); };
  ForwardTensors tensors;
  tensors.q = {address(0x100), 11, 12, 13};
  tensors.k = {address(0x200), 21, -22, 23};
  tensors.v = {address(0x300), std::int64_t{1} << 40, 32, 33};
  tensors.o = {address(0x400), 41, 42, 43};
  tensors.lse = static_cast<float*>(address(0x500));

  PackedArguments packed;
  const testing::FakeDevice device(find_device("h200"));
  pack_arguments(launch, problem, tensors, {0, 0x600, 0x700, 0x800}, device, packed);
  CHECK(packed.bytes == launch.arguments.bytes);
  const auto pointer = [&](A field) { return read_field<std::uint64_t>(packed, launch.arguments, field); };
  const auto wide = [&](A field) { return read_field<std::int64_t>(packed, launch.arguments, field); };
  const auto narrow = [&](A field) { return read_field<std::int32_t>(packed, launch.arguments, field); };
  const auto real = [&](A field) { return read_field<float>(packed, launch.arguments, field); };
  CHECK(pointer(A::q) == 0x100);
  CHECK(pointer(A::k) == 0x200);
  CHECK(pointer(A::v) == 0x300);
  CHECK(pointer(A::o) == 0x400);
  CHECK(pointer(A::lse) == 0x500);
  CHECK(pointer(A::o_fp64) == 0x600);
  CHECK(pointer(A::lse_fp64) == 0x700);
  CHECK(pointer(A::weight_fp64) == 0x800);
  CHECK(wide(A::q_stride_batch) == 11);
  CHECK(wide(A::q_stride_head) == 12);
  CHECK(wide(A::q_stride_row) == 13);
  CHECK(wide(A::k_stride_batch) == 21);
  CHECK(wide(A::k_stride_head) == -22);
  CHECK(wide(A::k_stride_row) == 23);
  CHECK(wide(A::v_stride_batch) == std::int64_t{1} << 40);
  CHECK(wide(A::v_stride_head) == 32);
  CHECK(wide(A::v_stride_row) == 33);
  CHECK(wide(A::o_stride_batch) == 41);
  CHECK(wide(A::o_stride_head) == 42);
  CHECK(wide(A::o_stride_row) == 43);
  CHECK(narrow(A::batch) == 5);
  CHECK(narrow(A::heads_q) == 12);
  CHECK(narrow(A::heads_kv) == 4);
  CHECK(narrow(A::group_size) == 3);
  CHECK(narrow(A::seq_q) == 130);
  CHECK(narrow(A::seq_kv) == 999);
  CHECK(narrow(A::query_tiles) == 3);
  CHECK(narrow(A::mask_offset) == -7);
  CHECK(real(A::softmax_scale) == 0.25f);
  CHECK(real(A::softmax_scale_log2) == Approx(0.25 * 1.4426950408889634).epsilon(1e-6));
}

TEST_CASE("a mask offset beyond 32 bits keeps its meaning", "[nogpu]") {
  const KernelLaunch launch = launch_with({KernelArgument::mask_offset});
  AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 16, 64, MaskKind::causal);
  PackedArguments packed;
  const testing::FakeDevice device(find_device("h200"));
  problem.mask_offset = std::int64_t{1} << 40;
  pack_arguments(launch, problem, {}, {}, device, packed);
  CHECK(read_field<std::int32_t>(packed, launch.arguments, KernelArgument::mask_offset) ==
        std::numeric_limits<std::int32_t>::max());
  problem.mask_offset = -(std::int64_t{1} << 40);
  pack_arguments(launch, problem, {}, {}, device, packed);
  CHECK(read_field<std::int32_t>(packed, launch.arguments, KernelArgument::mask_offset) ==
        std::numeric_limits<std::int32_t>::min());
}

TEST_CASE("an argument struct that does not fit is refused", "[nogpu]") {
  KernelLaunch launch = launch_with({KernelArgument::q});
  launch.arguments.bytes = PackedArguments::kCapacity + 8;
  PackedArguments packed;
  const testing::FakeDevice device(find_device("h200"));
  CHECK_THROWS_AS(pack_arguments(launch, {}, {}, {}, device, packed), Error);
}
