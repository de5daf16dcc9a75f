#include "runtime/call/argument_packer.h"

#include <array>
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
                                           A::softmax_scale_log2,
                                           A::unit_roundoff,
                                           A::smallest_step,
                                           A::partials,
                                           A::elements,
                                           A::element_count,
                                           A::copies,
                                           A::copy_stride,
                                           A::seed});
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
  const ArgumentValues values{.o_fp64 = 0x600,
                              .lse_fp64 = 0x700,
                              .weight_fp64 = 0x800,
                              .unit_roundoff = 0.5,
                              .smallest_step = 0.125,
                              .partials = 0x900,
                              .elements = 0xa00,
                              .element_count = std::int64_t{1} << 41,
                              .copies = 51,
                              .copy_stride = 52,
                              .seed = 53};
  pack_arguments(launch, problem, tensors, values, device, packed);
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
  CHECK(read_field<double>(packed, launch.arguments, A::unit_roundoff) == 0.5);
  CHECK(read_field<double>(packed, launch.arguments, A::smallest_step) == 0.125);
  CHECK(pointer(A::partials) == 0x900);
  CHECK(pointer(A::elements) == 0xa00);
  CHECK(wide(A::element_count) == std::int64_t{1} << 41);
  CHECK(wide(A::copies) == 51);
  CHECK(wide(A::copy_stride) == 52);
  CHECK(pointer(A::seed) == 53);
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
  using A = KernelArgument;
  KernelLaunch launch = launch_with({A::lse, A::k_map, A::tiles, A::tile_counter, A::recomputed_blocks});
  launch.tensor_maps = {{Operand::k, 32, 80, 64, 4}};
  CHECK(launch.arguments.alignment == 64);
  CHECK(launch.arguments.offsets[1] == 64);
  CHECK(launch.arguments.bytes % 64 == 0);
  AttentionProblem problem = make_problem(DataType::bf16, 3, 4, 130, 72);
  problem.heads_kv = 1;
  problem.seq_kv = 500;
  ForwardTensors tensors;
  tensors.k = {reinterpret_cast<void*>(0x1000), 40000, 7, 80};
  PackedArguments packed;
  const MapKeeper device;
  pack_arguments(launch, problem, tensors, {.workspace = 0x900, .counters = 0x900}, device, packed);
  REQUIRE(device.requests.size() == 1);
  const TensorMapRequest& request = device.requests[0];
  CHECK(request.address == 0x1000);
  CHECK(request.dims == std::array<std::uint64_t, 4>{72, 1, 500, 3});
  CHECK(request.strides_bytes == std::array<std::uint64_t, 3>{16, 160, 80000});  // one head: its stride says nothing
  CHECK(request.box == std::array<std::uint32_t, 4>{32, 4, 80, 1});
  CHECK(request.swizzle_bytes == 64);
  CHECK(packed.data[64] == std::byte{0x5a});
  CHECK(packed.data[64 + kTensorMapBytes - 1] == std::byte{0x5a});
  CHECK(read_field<std::int32_t>(packed, launch.arguments, A::tiles) == 3 * 3 * 4);
  CHECK(read_field<std::uint64_t>(packed, launch.arguments, A::tile_counter) == 0x900 + kTileCounterOffset);
  CHECK(read_field<std::uint64_t>(packed, launch.arguments, A::recomputed_blocks) == 0x900 + kRecomputedBlocksOffset);
  pack_arguments(launch, problem, tensors, {.workspace = 0x900}, device, packed);
  CHECK(read_field<std::uint64_t>(packed, launch.arguments, A::recomputed_blocks) == 0);

  launch.tensor_maps.clear();
  CHECK_THROWS_AS(pack_arguments(launch, problem, tensors, {}, device, packed), Error);
}

TEST_CASE("an argument struct that does not fit is refused", "[nogpu]") {
  KernelLaunch launch = launch_with({KernelArgument::q});
  launch.arguments.bytes = PackedArguments::kCapacity + 8;
  PackedArguments packed;
  const testing::FakeDevice device(find_device("h200"));
  CHECK_THROWS_AS(pack_arguments(launch, {}, {}, {}, device, packed), Error);
}
