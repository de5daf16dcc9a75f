// Forward kernels whose tiles hold the rows of several query heads.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Query heads that share K and V in one tile: few or many of them, positions that begin and end within a warp, tiles of
// several CTAs, a key that leaps.
const Configs kPacked = {"sm80 q16 kv32 w1 st2 rescale10 pack-gqa",
                         "sm80 q48 kv16 w1 st3 order=tile-major-reversed pack-gqa",
                         "sm80 q64 kv48 w4 st1 qsmem order=l2-sections-reversed rescale10 pack-gqa",
                         "sm80 q192 kv32 w4 st2 order=head-major-reversed rescale10 cta2 pack-gqa"};
const Configs kPackedSm90 = {
    "sm90 q64 kv64 st1 qreg order=tile-major-reversed rescale10 overlap=within pack-gqa",
    "sm90 q128 kv48 st2 order=tile-major rescale10 overlap=within scheduler=static-persistent pack-gqa",
    "sm90 q192 kv32 st2 order=l2-sections-reversed rescale10 qst2 ordered overlap=across scheduler=dynamic-persistent "
    "pack-gqa",
    "sm90 q128 kv32 st2 order=head-major-reversed rescale10 overlap=across scheduler=dynamic-persistent vst1 cluster2 "
    "pack-gqa",
};
struct HeadGroup {
  int heads;
  std::vector<const char*> lengths, masks;
};
const std::vector<const char*> kLengths = {"sq1 skv70", "sq67 skv129", "sq130 skv40"},
                               kMasks = {"", " causal", " causal@-60"};
// The more heads, the fewer queries are several tiles.
const std::vector<HeadGroup> kGroups = {{2, kLengths, kMasks},
                                        {3, kLengths, kMasks},
                                        {8, {"sq1 skv70", "sq17 skv129", "sq33 skv40"}, {"", " causal", " causal@-15"}},
                                        {64, {"sq1 skv70", "sq3 skv129", "sq5 skv40"}, {"", " causal", " causal@-2"}}};
const std::vector<HeadGroup> kGroupsOfManyRows = {{8, kLengths, kMasks}, {64, kLengths, kMasks}};
void check_groups(Devices& devices, const Configs& configs, const std::vector<HeadGroup>& groups) {
  for (const char* config : configs) {
    for (const HeadGroup& group : groups) {
      if (parse_config(config).block_q % group.heads != 0) continue;
      const std::string heads = "b2 hq" + std::to_string(2 * group.heads) + " hkv2 ";
      for (const char* lengths : group.lengths) {
        for (const char* mask : group.masks)
          check_case(devices, case_from("forward bf16 " + heads + lengths + " d16" + mask, config));
      }
    }
  }
}
void check_pack_gqa(Devices& devices, const Configs& configs) {
  check_groups(devices, configs, kGroups);
  const int kv_heads = heads_for(devices, 48);
  for (const char* config : configs) {
    check_case(devices,
               case_from(fmt::format("forward bf16 b1 hq{} hkv{} sq300 d8 causal", 2 * kv_heads, kv_heads), config));
    ForwardCase leap = case_from("forward bf16 b1 hq4 hkv2 sq70 skv150 d64 causal", config);
    leap.loud_key = 3;
    leap.loudness = 200;
    check_case(devices, leap);
  }
}
// Lengths that fill the tiles; rows that lie at no multiple of 16 bytes, and in an order of their own.
void check_packed_rows(Devices& devices, const char* even, const char* unaligned) {
  for (const char* mask : {"", " causal"})
    check_case(devices, case_from(std::string("forward fp16 b1 hq4 hkv2 sq96 skv128 d40") + mask, even));
  if (unaligned == nullptr) return;
  for (const Placement placement : {Placement::padded, Placement::reversed}) {
    ForwardCase test = case_from("forward fp16 b2 hq6 hkv2 sq70 skv130 d72 causal bhsd align2", unaligned);
    test.placement = placement;
    check_case(devices, test);
  }
}
constexpr const char* kPackedEven = "sm80 q64 kv64 w4 st2 even-tiles pack-gqa";
constexpr const char* kPackedUnaligned = "sm80 q48 kv32 w1 st2 rescale8 pack-gqa";
constexpr const char* kPackedEvenSm90 = "sm90 q64 kv64 st2 even-tiles overlap=within pack-gqa";

}  // namespace

TEST_CASE("forward is right in all modes of the emulator: packed heads", "[emulator]") {
  Devices devices = forward_emulators(kFewSms);
  check_pack_gqa(devices, kPacked);
  check_packed_rows(devices, kPackedEven, kPackedUnaligned);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: packed heads", "[emulator]") {
  Devices devices = forward_emulators(kFewSms);
  check_pack_gqa(devices, kPackedSm90);
  check_packed_rows(devices, kPackedEvenSm90, nullptr);
}

TEST_CASE("forward is right in all modes of the emulator: packed heads, more rows", "[emulator][slow]") {
  Devices devices = forward_emulators();
  check_groups(devices, kPacked, kGroupsOfManyRows);
}

TEST_CASE("sm90 forward is right in all modes of the emulator: packed heads, more rows", "[emulator][slow]") {
  Devices devices = forward_emulators();
  check_groups(devices, kPackedSm90, kGroupsOfManyRows);
}

TEST_CASE("forward is right on the GPU: packed heads", "[gpu]") {
  Devices devices = Devices::gpu();
  check_pack_gqa(devices, kPacked);
  check_groups(devices, kPacked, kGroupsOfManyRows);
  check_packed_rows(devices, kPackedEven, kPackedUnaligned);
}

TEST_CASE("sm90 forward is right on the GPU: packed heads", "[gpu]") {
  Devices devices = Devices::gpu();
  if (devices.spec().compute_major != 9) {
    WARN("skipped: " << devices.spec().name << " is no Hopper GPU");
    return;
  }
  check_pack_gqa(devices, kPackedSm90);
  check_groups(devices, kPackedSm90, kGroupsOfManyRows);
  check_packed_rows(devices, kPackedEvenSm90, nullptr);
}

}  // namespace attune::tests
