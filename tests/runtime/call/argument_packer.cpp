#include "runtime/call/argument_packer.h"

#include <array>
#include <cstring>

#include "generator/error.h"
#include "generator/families/forward_sm90/plan.h"
#include "generator/oracle/oracle_kernels.h"
#include "tests/catch.h"
#include "tests/runtime/fake_device.h"

using namespace attune;

namespace {

template <typename Value>
Value read_field(const PackedArguments& packed, const ArgumentLayout& layout, const KernelArgument& field) {
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

KernelLaunch launch_with(Arguments fields) {
  KernelLaunch launch;
  launch.rows_per_tile = 64;
  launch.arguments = ArgumentLayout::of(std::move(fields));
  return launch;
}

}  // namespace

TEST_CASE("each field of an argument struct holds its value", "[nogpu]") {
  Arguments fields = {Scalar::group_size};  // 4 bytes, and 4 of padding
  append_pointers(&fields, {Operand::q, Operand::k, Operand::v, Operand::o, Operand::lse});
  append_strides(&fields, {Operand::q, Operand::k, Operand::v, Operand::o});
  append(&fields, {Workspace{kOFp64},
                   Workspace{kLseFp64},
                   Workspace{kWeightFp64},
                   Scalar::batch,
                   Scalar::heads_q,
                   Scalar::heads_kv,
                   Scalar::seq_q,
                   Scalar::seq_kv,
                   Scalar::query_tiles,
                   Scalar::mask_offset,
                   Scalar::softmax_scale,
                   Scalar::softmax_scale_log2,
                   kUnitRoundoff,
                   kSmallestStep,
                   Workspace{kPartials},
                   Workspace{kElements},
                   kElementCount,
                   kCopies,
                   kCopyStride,
                   kSeed});
  const KernelLaunch launch = launch_with(std::move(fields));
  AttentionProblem problem = make_problem(DataType::fp16, 5, 12, 130, 72, MaskKind::causal);
  problem.heads_kv = 4;
  problem.seq_kv = 999;
  problem.mask_offset = -7;
  problem.softmax_scale = 0.25f;
  const auto address = [](std::uintptr_t value) { return reinterpret_cast<void*>(value); };
  Tensors tensors;
  tensors[Operand::q] = {address(0x100), 11, 12, 13};
  tensors[Operand::k] = {address(0x200), 21, -22, 23};
  tensors[Operand::v] = {address(0x300), std::int64_t{1} << 40, 32, 33};
  tensors[Operand::o] = {address(0x400), 41, 42, 43};
  tensors[Operand::lse].data = address(0x500);

  PackedArguments packed;
  const testing::FakeDevice device(find_device("h200"));
  ArgumentValues values;
  values.set(kOFp64, 0x600);
  values.set(kLseFp64, 0x700);
  values.set(kWeightFp64, 0x800);
  values.set(kUnitRoundoff, 0.5);
  values.set(kSmallestStep, 0.125);
  values.set(kPartials, 0x900);
  values.set(kElements, 0xa00);
  values.set(kElementCount, std::int64_t{1} << 41);
  values.set(kCopies, std::int64_t{51});
  values.set(kCopyStride, std::int64_t{52});
  values.set(kSeed, std::uint64_t{52});
  values.set(kSeed, std::uint64_t{53});  // the last counts
  pack_arguments(launch, problem, tensors, values, device, packed);
  CHECK(packed.bytes == launch.arguments.bytes);
  const auto pointer = [&](const KernelArgument& field) {
    return read_field<std::uint64_t>(packed, launch.arguments, field);
  };
  const auto wide = [&](const KernelArgument& field) {
    return read_field<std::int64_t>(packed, launch.arguments, field);
  };
  const auto narrow = [&](const KernelArgument& field) {
    return read_field<std::int32_t>(packed, launch.arguments, field);
  };
  const auto real = [&](const KernelArgument& field) { return read_field<float>(packed, launch.arguments, field); };
  CHECK(pointer(Pointer{Operand::q}) == 0x100);
  CHECK(pointer(Pointer{Operand::k}) == 0x200);
  CHECK(pointer(Pointer{Operand::v}) == 0x300);
  CHECK(pointer(Pointer{Operand::o}) == 0x400);
  CHECK(pointer(Pointer{Operand::lse}) == 0x500);
  CHECK(pointer(Workspace{kOFp64}) == 0x600);
  CHECK(pointer(Workspace{kLseFp64}) == 0x700);
  CHECK(pointer(Workspace{kWeightFp64}) == 0x800);
  CHECK(read_field<double>(packed, launch.arguments, kUnitRoundoff) == 0.5);
  CHECK(read_field<double>(packed, launch.arguments, kSmallestStep) == 0.125);
  CHECK(pointer(Workspace{kPartials}) == 0x900);
  CHECK(pointer(Workspace{kElements}) == 0xa00);
  CHECK(wide(kElementCount) == std::int64_t{1} << 41);
  CHECK(wide(kCopies) == 51);
  CHECK(wide(kCopyStride) == 52);
  CHECK(pointer(kSeed) == 53);
  CHECK(wide(Stride{Operand::q, Dimension::batch}) == 11);
  CHECK(wide(Stride{Operand::q, Dimension::head}) == 12);
  CHECK(wide(Stride{Operand::q, Dimension::row}) == 13);
  CHECK(wide(Stride{Operand::k, Dimension::batch}) == 21);
  CHECK(wide(Stride{Operand::k, Dimension::head}) == -22);
  CHECK(wide(Stride{Operand::k, Dimension::row}) == 23);
  CHECK(wide(Stride{Operand::v, Dimension::batch}) == std::int64_t{1} << 40);
  CHECK(wide(Stride{Operand::v, Dimension::head}) == 32);
  CHECK(wide(Stride{Operand::v, Dimension::row}) == 33);
  CHECK(wide(Stride{Operand::o, Dimension::batch}) == 41);
  CHECK(wide(Stride{Operand::o, Dimension::head}) == 42);
  CHECK(wide(Stride{Operand::o, Dimension::row}) == 43);
  CHECK(narrow(Scalar::batch) == 5);
  CHECK(narrow(Scalar::heads_q) == 12);
  CHECK(narrow(Scalar::heads_kv) == 4);
  CHECK(narrow(Scalar::group_size) == 3);
  CHECK(narrow(Scalar::seq_q) == 130);
  CHECK(narrow(Scalar::seq_kv) == 999);
  CHECK(narrow(Scalar::query_tiles) == 3);
  CHECK(narrow(Scalar::mask_offset) == -7);
  CHECK(real(Scalar::softmax_scale) == 0.25f);
  CHECK(real(Scalar::softmax_scale_log2) == Approx(0.25 * 1.4426950408889634).epsilon(1e-6));
}

TEST_CASE("a mask offset beyond 32 bits keeps its meaning", "[nogpu]") {
  const KernelLaunch launch = launch_with({Scalar::mask_offset});
  AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 16, 64, MaskKind::causal);
  PackedArguments packed;
  const testing::FakeDevice device(find_device("h200"));
  problem.mask_offset = std::int64_t{1} << 40;
  pack_arguments(launch, problem, {}, {}, device, packed);
  CHECK(read_field<std::int32_t>(packed, launch.arguments, Scalar::mask_offset) ==
        std::numeric_limits<std::int32_t>::max());
  problem.mask_offset = -(std::int64_t{1} << 40);
  pack_arguments(launch, problem, {}, {}, device, packed);
  CHECK(read_field<std::int32_t>(packed, launch.arguments, Scalar::mask_offset) ==
        std::numeric_limits<std::int32_t>::min());
}

namespace {
// Writes down what it is asked for.
class MapKeeper final : public Device {
 public:
  mutable std::vector<TensorMapRequest> requests;
  void encode_tensor_map(const TensorMapRequest& request, void* to) const override {
    requests.push_back(request);
    std::memset(to, 0x5a, kTensorMapBytes);
  }
  const DeviceSpec& spec() const override { return fake_.spec(); }
  KernelTarget target() const override { return KernelTarget::cuda; }
  std::string description() const override { return "keeper"; }
  Toolchain toolchain() const override { return {}; }
  std::shared_ptr<const CompiledKernel> compile(const KernelLaunch&) override { return nullptr; }
  DevicePointer allocate(std::size_t) override { return 0; }
  void free(DevicePointer) noexcept override {}
  std::size_t free_bytes() const override { return 0; }
  void copy_to_device(DevicePointer, const void*, std::size_t) override {}
  void copy_from_device(void*, DevicePointer, std::size_t) override {}
  void fill(DevicePointer, std::uint8_t, std::size_t, Stream) override {}
  void launch(const CompiledKernel&, std::uint32_t, const void*, std::size_t, Stream) override {}
  void synchronize(Stream) override {}
  bool can_time() const override { return false; }

 private:
  testing::FakeDevice fake_{find_device("h200")};
};
}  // namespace

TEST_CASE("tensor maps are made by the device, with strides that say something", "[nogpu]") {
  KernelLaunch launch =
      launch_with({Pointer{Operand::lse}, TensorMap{Operand::k}, Scalar::tiles, Workspace{kTileCounter}});
  launch.tensor_maps = {{Operand::k, 32, 80, 64, 4}};
  CHECK(launch.arguments.alignment == 64);
  CHECK(launch.arguments.offsets[1] == 64);
  CHECK(launch.arguments.bytes % 64 == 0);
  AttentionProblem problem = make_problem(DataType::bf16, 3, 4, 130, 72);
  problem.heads_kv = 1;
  problem.seq_kv = 500;
  Tensors tensors;
  tensors[Operand::k] = {reinterpret_cast<void*>(0x1000), 40000, 7, 80};
  PackedArguments packed;
  const MapKeeper device;
  pack_arguments(launch, problem, tensors, workspace_values(KernelPlan(), problem, 0x900), device, packed);
  REQUIRE(device.requests.size() == 1);
  const TensorMapRequest& request = device.requests[0];
  CHECK(request.address == 0x1000);
  CHECK(request.rank == 4);
  CHECK(request.dims == std::array<std::uint64_t, 5>{72, 1, 500, 3});
  CHECK(request.strides_bytes == std::array<std::uint64_t, 4>{16, 160, 80000});  // one head: its stride says nothing
  CHECK(request.box == std::array<std::uint32_t, 5>{32, 4, 80, 1});
  CHECK(request.swizzle_bytes == 64);
  CHECK(packed.data[64] == std::byte{0x5a});
  CHECK(packed.data[64 + kTensorMapBytes - 1] == std::byte{0x5a});
  CHECK(read_field<std::int32_t>(packed, launch.arguments, Scalar::tiles) == 3 * 3 * 4);
  CHECK(read_field<std::uint64_t>(packed, launch.arguments, Workspace{kTileCounter}) == 0x900 + kTileCounterOffset);

  CHECK_THROWS_WITH(pack_arguments(launch, problem, tensors, {}, device, packed),
                    ContainsSubstring("nothing was given for the kernel argument tile_counter"));
  launch.tensor_maps.clear();
  CHECK_THROWS_AS(pack_arguments(launch, problem, tensors, {}, device, packed), Error);
}

TEST_CASE("a tensor of pairs that no map describes has none, and the kernel is told", "[nogpu]") {
  KernelLaunch launch = launch_with({TensorMap{Operand::bias}, ByTensorMap{Operand::bias}});
  launch.tensor_maps = {{Operand::bias, 64, 128, 128}};
  AttentionProblem problem = make_problem(DataType::bf16, 3, 4, 130, 64);
  problem.seq_kv = 577;
  problem.bias = parse_problem("forward bias=1hqk").bias;
  PackedArguments packed;
  const MapKeeper device;
  Tensors tensors;
  const auto pack = [&](std::uintptr_t address, std::int64_t row) {
    tensors[Operand::bias] = {reinterpret_cast<void*>(address), -1, 130 * row, row};
    pack_arguments(launch, problem, tensors, {}, device, packed);
    return read_field<std::int32_t>(packed, launch.arguments, ByTensorMap{Operand::bias});
  };
  CHECK(pack(0x1000, 584) == 1);
  REQUIRE(device.requests.size() == 1);
  CHECK(device.requests[0].dims == std::array<std::uint64_t, 5>{577, 4, 130, 1});
  CHECK(device.requests[0].strides_bytes == std::array<std::uint64_t, 4>{130 * 1168, 1168, 16});
  CHECK(packed.data[0] == std::byte{0x5a});
  for (const auto& [address, row] : {std::pair(0x1002, 584), {0x1000, 577}}) {
    CHECK(pack(static_cast<std::uintptr_t>(address), row) == 0);
    CHECK(device.requests.size() == 1);
    CHECK(packed.data[0] == std::byte{0});
    CHECK(packed.data[kTensorMapBytes - 1] == std::byte{0});
  }
}

TEST_CASE("an argument struct that does not fit is refused", "[nogpu]") {
  KernelLaunch launch = launch_with({Pointer{Operand::q}});
  launch.arguments.bytes = PackedArguments::kCapacity + 8;
  PackedArguments packed;
  const testing::FakeDevice device(find_device("h200"));
  CHECK_THROWS_AS(pack_arguments(launch, {}, {}, {}, device, packed), Error);
}
