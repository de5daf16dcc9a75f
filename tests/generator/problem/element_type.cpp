#include "generator/problem/element_type.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string_view>

#include "tests/catch.h"

using namespace attune;

TEST_CASE("facts of the types of elements", "[nogpu]") {
  const ElementFacts &fp16 = facts_of(ElementType::fp16), &bf16 = facts_of(ElementType::bf16),
                     &fp32 = facts_of(ElementType::fp32);
  CHECK(fp32.unit_roundoff() == std::numeric_limits<float>::epsilon() / 2);
  CHECK(fp32.smallest_normal() == std::numeric_limits<float>::min());
  CHECK(fp32.smallest_step() == static_cast<double>(std::numeric_limits<float>::denorm_min()) / 2);
  CHECK(bf16.unit_roundoff() == 0x1p-8);
  CHECK(bf16.smallest_normal() == 0x1p-126);
  CHECK(bf16.smallest_step() == 0x1p-134);
  CHECK(fp16.unit_roundoff() == 0x1p-11);
  CHECK(fp16.smallest_normal() == 0x1p-14);
  CHECK(fp16.smallest_step() == 0x1p-25);
  CHECK(size_of(ElementType::fp32) == sizeof(float));
  for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
    CHECK(size_of(dtype) == sizeof(std::uint16_t));
    CHECK(to_string(dtype) == facts_of(dtype).name);
  }
}

TEST_CASE("every type of elements has names of its own, of each kind", "[nogpu]") {
  for (const auto name : {&ElementFacts::name, &ElementFacts::ptx, &ElementFacts::safetensors, &ElementFacts::cuda,
                          &ElementFacts::tensor_map}) {
    std::set<std::string_view> names;
    for (const ElementFacts& element : kElementFacts) {
      CHECK_FALSE((element.*name).empty());
      CHECK(names.insert(element.*name).second);
    }
  }
}
