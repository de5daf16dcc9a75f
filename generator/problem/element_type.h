#pragma once

#include <cmath>
#include <cstddef>
#include <string_view>

#include "generator/problem/attention_problem.h"

namespace attune {

/// What the elements of a tensor are. kElementFacts has their order.
enum class ElementType { fp16, bf16, fp32, int32, int64, boolean };

/// What follows from the type of an element. Kernels, bounds of errors, tensor maps and file formats have it from here.
struct ElementFacts {
  std::string_view name;         ///< "bf16": in problems' texts
  std::string_view ptx;          ///< "bf16": in instructions, and in the names of primitives
  std::string_view safetensors;  ///< "BF16"
  std::string_view cuda;         ///< "__nv_bfloat16": in CUDA C++
  std::string_view tensor_map;   ///< "BFLOAT16": what CU_TENSOR_MAP_DATA_TYPE_ precedes
  int bytes = 0;
  int mantissa_bits = 0;  ///< that are stored
  int exponent_bias = 0;
  /// Powers of two by which the maximum of a row may grow before O is rescaled (forward_rules.h), of P in this type.
  int rescale_threshold = 0;
  /// Bounds of the norm of the error of O, or of a gradient, over the norm of what it should be, for unit normal inputs
  /// and so many rows, or pairs, that errors average out.
  double output_bound = 0, gradient_bound = 0;

  /// What rounding to nearest changes at most, relative to a normal number.
  double unit_roundoff() const { return std::ldexp(1.0, -mantissa_bits - 1); }
  double smallest_normal() const { return std::ldexp(1.0, 1 - exponent_bias); }
  /// What rounding changes at most where numbers are subnormal: half of the smallest one.
  double smallest_step() const { return smallest_normal() * unit_roundoff(); }
};

inline constexpr ElementFacts kElementFacts[] = {
    {.name = "fp16",
     .ptx = "f16",
     .safetensors = "F16",
     .cuda = "__half",
     .tensor_map = "FLOAT16",
     .bytes = 2,
     .mantissa_bits = 10,
     .exponent_bias = 15,
     .rescale_threshold = 8,
     .output_bound = 4e-4,
     .gradient_bound = 6e-4},
    {.name = "bf16",
     .ptx = "bf16",
     .safetensors = "BF16",
     .cuda = "__nv_bfloat16",
     .tensor_map = "BFLOAT16",
     .bytes = 2,
     .mantissa_bits = 7,
     .exponent_bias = 127,
     .rescale_threshold = 10,
     .output_bound = 3e-3,
     .gradient_bound = 4e-3},
    {.name = "fp32",
     .ptx = "f32",
     .safetensors = "F32",
     .cuda = "float",
     .tensor_map = "FLOAT32",
     .bytes = 4,
     .mantissa_bits = 23,
     .exponent_bias = 127},
    {.name = "int32", .ptx = "s32", .safetensors = "I32", .cuda = "int", .tensor_map = "INT32", .bytes = 4},
    {.name = "int64", .ptx = "s64", .safetensors = "I64", .cuda = "long long", .tensor_map = "INT64", .bytes = 8},
    {.name = "bool", .ptx = "u8", .safetensors = "BOOL", .cuda = "bool", .tensor_map = "UINT8", .bytes = 1},
};

constexpr const ElementFacts& facts_of(ElementType type) { return kElementFacts[static_cast<std::size_t>(type)]; }

constexpr ElementType element_type(DataType dtype) {
  return dtype == DataType::fp16 ? ElementType::fp16 : ElementType::bf16;
}
constexpr const ElementFacts& facts_of(DataType dtype) { return facts_of(element_type(dtype)); }

constexpr int size_of(ElementType type) { return facts_of(type).bytes; }  ///< in bytes
constexpr int size_of(DataType dtype) { return facts_of(dtype).bytes; }   ///< in bytes

}  // namespace attune
