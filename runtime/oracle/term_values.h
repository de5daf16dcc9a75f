#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "attune/attention.h"
#include "generator/problem/attention_problem.h"
#include "generator/problem/operand_shape.h"
#include "runtime/device.h"

namespace attune {

/// What the terms of a problem read beside q, k and v, on the host: the elements of each operand of
/// term_inputs_of(problem), packed as packed_view() has it or contiguous. An operand that a call leaves out has none.
class TermValues {
 public:
  template <typename Element>
  void set(Operand operand, std::span<const Element> elements) {
    const std::span<const std::byte> bytes = std::as_bytes(elements);
    values_[operand].assign(bytes.begin(), bytes.end());
  }
  template <typename Element>
  void set(Operand operand, const std::vector<Element>& elements) {
    set(operand, std::span<const Element>(elements));
  }
  std::span<const std::byte> bytes(Operand operand) const;
  template <typename Element>
  std::span<const Element> of(Operand operand) const {
    const std::span<const std::byte> raw = bytes(operand);
    return {reinterpret_cast<const Element*>(raw.data()), raw.size() / sizeof(Element)};
  }

  /// How many sequences come before a packed one that is a problem of its own. Dropout counts heads through all.
  std::int64_t sequences_before = 0;

 private:
  std::map<Operand, std::vector<std::byte>> values_;
};

/// Throws Error(invalid_argument) unless each operand has as many elements as the problem's shape of it, or none where
/// a call may leave it out, and no other operand any.
void require_terms(const AttentionProblem& problem, const TermValues& terms);

/// Random values of all of them. Sinks are as large as the LSE of random inputs is, so that they take a good part of
/// each sum; slopes fall from head to head as models have them, to 2^-8; biases are normal, with -inf for one in eight,
/// and masks true for fifteen in sixteen pairs of one document, of eight of any lengths that follow each other, or of
/// the first keys, half of them or more, where the mask repeats along the queries; used lengths lie evenly between none
/// and all, but for the first batch entry of several, which has all; packed sequences are cut anywhere, queries and
/// keys of equal numbers alike, and use up to twice as many rows as they have in the mean; dropout's seed and offset
/// have 64 random bits each.
TermValues random_terms(const AttentionProblem& problem, std::uint64_t seed);

/// TermValues in device memory.
class DeviceTerms {
 public:
  DeviceTerms(const std::shared_ptr<Device>& device, const AttentionProblem& problem, const TermValues& terms);
  /// The views of a call. What a call leaves out stays null.
  void add_to(Tensors* tensors) const;
  /// Whether the memory still holds the values.
  bool holds(const TermValues& terms) const;

 private:
  std::shared_ptr<Device> device_;
  AttentionProblem problem_;
  std::map<Operand, DeviceBuffer> buffers_;
};

}  // namespace attune
