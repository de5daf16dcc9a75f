#include "generator/device/device_spec.h"

#include <set>

#include "generator/error.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("known devices are ordered, distinct and sane", "[nogpu]") {
  std::set<std::string> names;
  std::string previous;
  for (const DeviceSpec& device : known_devices()) {
    INFO(device.key);
    CHECK(previous < device.key);
    previous = device.key;
    CHECK(names.insert(device.name).second);
    CHECK(device.shared_bytes_per_block + device.shared_bytes_reserved == device.shared_bytes_per_sm);
    CHECK(device.registers_per_sm == 65536);
    CHECK(device.sm_count > 0);
    CHECK(device.l2_bytes >= (4 << 20));
    CHECK(device.clock_mhz > 1000);
    CHECK(device.memory_gbps > 100);
    CHECK(&find_device(device.key) == &device);
    CHECK(&find_device(device.name) == &device);
    REQUIRE(find_device_by_name(device.name));
    CHECK(*find_device_by_name(device.name) == device);
  }
  for (const char* key : {"a100",    "a10",     "a30",     "l4",    "l40s",  "rtx3090",    "rtx4090", "rtx5090",
                          "h100",    "h200",    "b200",    "sm_80", "sm_86", "sm_87",      "sm_89",   "sm_90a",
                          "sm_100a", "sm_103a", "sm_120a", "sm_90", "H200",  "nvidia h200"}) {
    CHECK_NOTHROW(find_device(key));
  }
}

TEST_CASE("shared memory of a CTA by architecture", "[nogpu]") {
  const std::pair<const char*, int> kib[] = {{"sm_80", 163},  {"sm_86", 99},    {"sm_87", 163}, {"sm_89", 99},
                                             {"sm_90a", 227}, {"sm_100a", 227}, {"sm_120", 99}};
  for (const auto& [key, expected] : kib) {
    INFO(key);
    CHECK(find_device(key).shared_bytes_per_block == expected * 1024);
  }
}

// Data sheets: dense fp16 or bf16 with fp32 accumulation, at the boost clock. Hopper and Blackwell reach theirs with
// other instructions.
TEST_CASE("mma rates give the data sheets' figures", "[nogpu]") {
  const std::pair<const char*, double> tflops[] = {{"a100", 312},    {"a30", 165},      {"a10", 125},
                                                   {"l4", 121},      {"l40s", 362},     {"rtx3090", 71},
                                                   {"rtx4090", 165}, {"rtx5090", 209.5}};
  for (const auto& [key, expected] : tflops) {
    const DeviceSpec& device = find_device(key);
    INFO(key);
    CHECK(device.mma_flops_per_clock * device.sm_count * device.clock_mhz * 1e-6 == Approx(expected).epsilon(0.02));
  }
}

TEST_CASE("names of architectures", "[nogpu]") {
  CHECK(arch_name(find_device("a100")) == "sm_80");
  CHECK(arch_name(find_device("rtx4090")) == "sm_89");
  CHECK(arch_name(find_device("h200")) == "sm_90a");
  CHECK(arch_name(find_device("b200")) == "sm_100a");
  CHECK(arch_name(find_device("sm_103a")) == "sm_103a");
  CHECK(arch_name(find_device("rtx5090")) == "sm_120");
  for (const DeviceSpec& device : known_devices()) {
    if (device.key.starts_with("sm_")) CHECK(arch_name(device) == device.key);
  }
}

TEST_CASE("an unknown target lists the known ones", "[nogpu]") {
  try {
    find_device("gtx1080");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK_THAT(error.what(),
               ContainsSubstring("'gtx1080'") && ContainsSubstring("a100") && ContainsSubstring("sm_90a"));
  }
  CHECK_THROWS_AS(find_device(""), Error);
  CHECK_FALSE(find_device_by_name("NVIDIA TITAN V"));
}

TEST_CASE("the nearest architecture at or below stands for an unknown GPU", "[nogpu]") {
  CHECK(generic_device(8, 0).key == "sm_80");
  CHECK(generic_device(8, 8).key == "sm_87");
  CHECK(generic_device(9, 0).key == "sm_90a");
  CHECK(generic_device(10, 1).key == "sm_100a");
  CHECK(generic_device(12, 9).key == "sm_121");
  CHECK(generic_device(15, 0).key == "sm_121");
  try {
    generic_device(7, 5);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK_THAT(error.what(), ContainsSubstring("7.5"));
  }
}
