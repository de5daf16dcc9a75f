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
  for (const char* key :
       {"a100",        "a10",      "a30",       "l4",      "l40s",  "rtx3090", "rtx4090",    "rtx5090",
        "gh200",       "h100-nvl", "h100-pcie", "h800",    "h20",   "gb200",   "b300",       "a6000",
        "rtx6000-ada", "h100",     "h200",      "b200",    "sm_80", "sm_86",   "sm_87",      "sm_89",
        "sm_90a",      "sm_100a",  "sm_103a",   "sm_120a", "sm_90", "H200",    "nvidia h200"}) {
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
  const std::pair<const char*, double> tflops[] = {
      {"a100", 312},      {"a30", 165},        {"a10", 125},       {"a40", 149.7},         {"a5000", 111.1},
      {"a6000", 154.8},   {"l4", 121},         {"l40", 181.05},    {"l40s", 362},          {"rtx3080", 59.5},
      {"rtx3090", 71},    {"rtx3090ti", 80},   {"rtx4080", 97.5},  {"rtx4090", 165},       {"rtx6000-ada", 364.2},
      {"rtx5080", 112.6}, {"rtx5070ti", 87.9}, {"rtx5090", 209.5}, {"rtx-pro-6000", 503.8}};
  for (const auto& [key, expected] : tflops) {
    const DeviceSpec& device = find_device(key);
    INFO(key);
    CHECK(device.mma_flops_per_clock * device.sm_count * device.clock_mhz * 1e-6 == Approx(expected).epsilon(0.02));
  }
}

// The same of GPUs whose fastest instruction is another one, which run it below the boost clock.
TEST_CASE("peak rates are the data sheets' at a clock just below boost", "[nogpu]") {
  const std::pair<const char*, double> tflops[] = {
      {"h100", 989},      {"h800", 989},     {"h200", 989},     {"gh200", 989}, {"gh200-144gb", 989},
      {"h100-pcie", 756}, {"h100-nvl", 835}, {"h200-nvl", 835}, {"h20", 148},   {"b200", 2250},
      {"b300", 2250},     {"gb200", 2500},   {"gb300", 2500}};
  for (const auto& [key, expected] : tflops) {
    const DeviceSpec& device = find_device(key);
    INFO(key);
    const double peak = device.peak_flops_per_clock * device.sm_count * device.clock_mhz * 1e-6;
    CHECK(expected <= 1.005 * peak);
    CHECK(expected >= 0.86 * peak);
    // wgmma's are counted on where there is one; tcgen05's by no kernel.
    CHECK((device.wgmma_flops_per_clock == device.peak_flops_per_clock) == (device.compute_major == 9));
  }
}

// GPUs of one chip differ in what a board enables, and in nothing else.
TEST_CASE("boards of one chip share what its SMs have", "[nogpu]") {
  for (const auto& [one, other] :
       {std::pair("h100", "gh200"), std::pair("h100", "h100-nvl"), std::pair("h100", "h800"),
        std::pair("b200", "gb200"), std::pair("b300", "gb300"), std::pair("l40s", "rtx6000-ada"),
        std::pair("a40", "a6000"), std::pair("a100", "a100-pcie-40gb")}) {
    INFO(one << ", " << other);
    DeviceSpec same = find_device(other);
    const DeviceSpec& device = find_device(one);
    same.key = device.key;
    same.name = device.name;
    same.sm_count = device.sm_count;
    same.l2_bytes = device.l2_bytes;
    same.clock_mhz = device.clock_mhz;
    same.memory_gbps = device.memory_gbps;
    CHECK(same == device);
  }
}

TEST_CASE("names of architectures", "[nogpu]") {
  CHECK(arch_name(find_device("a100")) == "sm_80");
  CHECK(arch_name(find_device("rtx4090")) == "sm_89");
  CHECK(arch_name(find_device("h200")) == "sm_90a");
  CHECK(arch_name(find_device("b200")) == "sm_100a");
  CHECK(arch_name(find_device("sm_103a")) == "sm_103a");
  CHECK(arch_name(find_device("rtx5090")) == "sm_120");
  CHECK(arch_name(find_device("NVIDIA GH200 480GB")) == "sm_90a");
  CHECK(arch_name(find_device("NVIDIA B300 SXM6 AC")) == "sm_103a");
  CHECK(arch_name(find_device("NVIDIA RTX PRO 6000 Blackwell Server Edition")) == "sm_120");
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
