// The generated kernels of the oracle against its host code: on the emulator here, on a GPU where there is one.
#include "runtime/oracle/device_oracle.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"
#include "runtime/oracle/checksum.h"
#include "tests/catch.h"
#include "tests/runtime/forward_case.h"

using namespace attune;
using attune::testing::ForwardCase;

namespace {

void check_close(double value, double reference, double weight) {
  if (std::isinf(reference)) {
    REQUIRE(value == reference);
  } else {
    REQUIRE(std::abs(value - reference) <= 1e-12 * (1 + std::abs(reference) + weight));
  }
}

void compare_oracles(const std::shared_ptr<Device>& device, const AttentionProblem& problem, std::int64_t shift) {
  const ForwardCase data(device, problem, shift);
  const ReferenceForward expected = reference_forward(problem, data.q, data.k, data.v, data.terms);
  const ReferenceForward actual = reference_forward_on_device(device, problem, data.tensors);
  INFO(canonical_text(problem));
  REQUIRE(actual.o.size() == expected.o.size());
  REQUIRE(actual.lse.size() == expected.lse.size());
  for (std::size_t i = 0; i < expected.o.size(); ++i) {
    check_close(actual.o[i], expected.o[i], expected.weight[i]);
    check_close(actual.weight[i], expected.weight[i], expected.weight[i]);
  }
  for (std::size_t i = 0; i < expected.lse.size(); ++i) check_close(actual.lse[i], expected.lse[i], 0);
}

struct Shape {
  std::int64_t batch, heads_q, heads_kv, seq_q, seq_kv;
  int head_dim;
};

void compare_all(const std::shared_ptr<Device>& device, const std::vector<Shape>& shapes) {
  int number = 0;
  for (const Shape& shape : shapes) {
    for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
      AttentionProblem problem = make_problem(number % 2 == 0 ? DataType::bf16 : DataType::fp16, shape.batch,
                                              shape.heads_q, shape.seq_q, shape.head_dim, mask);
      problem.heads_kv = shape.heads_kv;
      problem.seq_kv = shape.seq_kv;
      if (mask == MaskKind::causal) problem.mask_offset = number % 3 == 0 ? 0 : shape.seq_kv - shape.seq_q;
      problem.layout = number % 2 == 0 ? Layout::bshd : Layout::bhsd;
      compare_oracles(device, problem, number % 3);
      ++number;
    }
    AttentionProblem window = make_problem(DataType::bf16, shape.batch, shape.heads_q, shape.seq_q, shape.head_dim);
    window.heads_kv = shape.heads_kv;
    window.seq_kv = shape.seq_kv;
    apply_window(shape.seq_kv / 3, number % 2 == 0 ? shape.seq_kv / 5 : -1, bottom_right_offset(window), &window);
    compare_oracles(device, window, number % 3);
    window.sink = true;
    compare_oracles(device, window, number % 3);
    window.lengths = number % 2 == 0 ? Lengths::used : Lengths::used_top_left;
    compare_oracles(device, simplest_mask(window), number % 3);
    window.alibi = true;
    compare_oracles(device, simplest_mask(window), number % 3);
    AttentionProblem packed = window;
    packed.packed = true;
    compare_oracles(device, simplest_mask(packed), number % 3);
    window.bias = number % 2 == 0 ? PairTensor::bhqk : PairTensor::hk;
    window.bias_fp32 = number % 3 == 0;
    window.attention_mask = number % 2 == 0 ? PairTensor::bk : PairTensor::qk;
    compare_oracles(device, simplest_mask(window), number % 3);
  }
}

void require_same(const OutputErrors& actual, const OutputErrors& expected) {
  CHECK(actual.name == expected.name);
  CHECK(actual.within == expected.within);
  // The text of a complaint names the relative error, which is a sum: nine digits of it.
  CHECK(actual.complaint == expected.complaint);
  CHECK(actual.max_abs == expected.max_abs);
  CHECK(actual.worst_ratio == expected.worst_ratio);
  CHECK(actual.worst_index == expected.worst_index);
  CHECK(actual.relative_bound == expected.relative_bound);
  const bool special = std::isinf(expected.relative) || std::isnan(expected.relative);
  if (special) {
    CHECK(std::isinf(actual.relative) == std::isinf(expected.relative));
    CHECK(std::isnan(actual.relative) == std::isnan(expected.relative));
  } else {
    CHECK(std::abs(actual.relative - expected.relative) <= 1e-12 * expected.relative);
  }
}

// The same doubles in device memory and on the host, and an O beside them: what both comparisons say of it.
class Comparison {
 public:
  Comparison(const std::shared_ptr<Device>& device, const AttentionProblem& problem, std::int64_t shift)
      : device_(device), problem_(problem), data_(device, problem, shift), oracle_(device, problem) {
    expected_ = reference_forward(problem, data_.q, data_.k, data_.v, data_.terms);
    o_.resize(expected_.o.size());
    for (std::size_t i = 0; i < o_.size(); ++i) set(i, expected_.o[i]);
  }

  const ReferenceForward& reference() const { return expected_; }
  std::size_t size() const { return o_.size(); }
  void set(std::size_t index, double value) { set_bits(index, from_double(problem_.dtype, value)); }
  void set_bits(std::size_t index, std::uint16_t bits) {
    const TensorView view = packed_view(problem_, Operand::o);
    o_[static_cast<std::size_t>(offset_of_element(problem_, view, static_cast<std::int64_t>(index)))] = bits;
  }
  void set_reference(std::size_t index, double value) { expected_.o[index] = value; }

  OutputErrors check() {
    INFO(canonical_text(problem_));
    const auto upload = [&](const std::vector<double>& values) {
      DeviceBuffer buffer(device_, values.size() * sizeof(double));
      device_->copy_to_device(buffer.pointer(), values.data(), buffer.bytes());
      return buffer;
    };
    const DeviceReference reference{upload(expected_.o), upload(expected_.weight), expected_.lse};
    device_->copy_to_device(reinterpret_cast<DevicePointer>(data_.tensors[Operand::o].data), o_.data(), 2 * o_.size());
    OutputErrors actual = oracle_.compare_o(reference, data_.tensors[Operand::o]);
    require_same(actual, compare_forward(problem_, expected_, o_, {}).outputs.front());
    return actual;
  }

 private:
  std::shared_ptr<Device> device_;
  AttentionProblem problem_;
  ForwardCase data_;
  DeviceOracle oracle_;
  ReferenceForward expected_;
  std::vector<std::uint16_t> o_;
};

// Right ones, and each kind of wrong one.
void compare_comparisons(const std::shared_ptr<Device>& device, const std::vector<const char*>& problems) {
  int number = 0;
  for (const char* text : problems) {
    for (const Layout layout : {Layout::bshd, Layout::bhsd}) {
      AttentionProblem problem = parse_problem(text);
      problem.layout = layout;
      Comparison comparison(device, problem, number++ % 2);
      CHECK(comparison.check().within);

      const double infinity = std::numeric_limits<double>::infinity();
      const auto weight = [&](std::size_t index) { return comparison.reference().weight[index]; };
      std::size_t last = comparison.size() - 1;
      while (weight(last) == 0) --last;  // of a row that does not count
      const std::size_t middle = last / 2;
      comparison.set(last, comparison.reference().o[last] + weight(last));
      CHECK_FALSE(comparison.check().within);
      CHECK(comparison.check().worst_index == static_cast<std::int64_t>(last));
      // The same infinite ratio several times: the first is named.
      comparison.set_bits(last, 0x7fff);
      comparison.set_bits(middle, 0x7fff);
      CHECK(comparison.check().worst_index == static_cast<std::int64_t>(middle));
      comparison.set(middle, infinity);
      CHECK(comparison.check().worst_index == static_cast<std::int64_t>(middle));
      comparison.set(last, comparison.reference().o[last]);
      // Infinities of the same sign are equal, those of different signs are not.
      comparison.set_reference(middle, infinity);
      CHECK(comparison.check().within);
      comparison.set_reference(middle, -infinity);
      CHECK_FALSE(comparison.check().within);
      comparison.set_reference(middle, std::numeric_limits<double>::quiet_NaN());
      CHECK_FALSE(comparison.check().within);
    }
  }
}

// Everywhere a little too large: only the norm shows it.
void compare_norms(const std::shared_ptr<Device>& device) {
  const AttentionProblem problem = parse_problem("fp16 sq40 d64");
  Comparison comparison(device, problem, 0);
  for (std::size_t i = 0; i < comparison.size(); ++i)
    comparison.set(i, comparison.reference().o[i] + comparison.reference().weight[i] / 1500);
  const OutputErrors errors = comparison.check();
  CHECK(errors.worst_ratio <= 1);
  CHECK_THAT(errors.complaint, ContainsSubstring("relative error"));
}

// Inputs of a backward call in device memory, with dO in O's place, and gradients to compare.
struct BackwardCase {
  ForwardCase data;
  std::vector<std::uint16_t> d_o;
  std::vector<float> d_lse;
  DeviceBuffer d_o_buffer, d_lse_buffer, d_q_buffer, d_k_buffer, d_v_buffer, d_sinks_buffer, d_bias_buffer;
  Tensors tensors;  // those of `data`, and of backward

  BackwardCase(const std::shared_ptr<Device>& device, const AttentionProblem& problem, std::int64_t shift,
               bool with_lse)
      : data(device, problem, shift), d_o(random_normal(problem.dtype, data.q.size(), 4)), tensors(data.tensors) {
    tensors[Operand::d_o] = place(d_o_buffer, Operand::d_o, d_o);
    tensors[Operand::d_q] = place(d_q_buffer, Operand::d_q, data.q);
    tensors[Operand::d_k] = place(d_k_buffer, Operand::d_k, data.k);
    tensors[Operand::d_v] = place(d_v_buffer, Operand::d_v, data.v);
    if (problem.sink) {
      d_sinks_buffer = DeviceBuffer(device, data.terms.bytes(Operand::sinks).size());
      tensors[Operand::d_sinks].data = reinterpret_cast<const void*>(d_sinks_buffer.pointer());
    }
    if (problem.bias_gradient) {
      d_bias_buffer = DeviceBuffer(device, operand_shape(problem, Operand::d_bias).bytes());
      tensors[Operand::d_bias] =
          packed_view(problem, Operand::d_bias, reinterpret_cast<const void*>(d_bias_buffer.pointer()));
    }
    if (!with_lse) return;
    for (const std::uint16_t bits :
         random_normal(problem.dtype, data.q.size() / static_cast<std::size_t>(problem.head_dim), 5))
      d_lse.push_back(static_cast<float>(to_double(problem.dtype, bits)));
    d_lse_buffer = DeviceBuffer(device, d_lse.size() * sizeof(float));
    device->copy_to_device(d_lse_buffer.pointer(), d_lse.data(), d_lse_buffer.bytes());
    tensors[Operand::d_lse].data = reinterpret_cast<const void*>(d_lse_buffer.pointer());
  }
  ReferenceBackward expected() const {
    return reference_backward(data.problem, {data.q, data.k, data.v, d_o, d_lse, data.terms});
  }

 private:
  TensorView place(DeviceBuffer& buffer, Operand operand, const std::vector<std::uint16_t>& values) const {
    buffer = DeviceBuffer(data.device, 2 * values.size());
    data.device->copy_to_device(buffer.pointer(), values.data(), buffer.bytes());
    TensorView view = packed_view(data.problem, operand);
    view.data = reinterpret_cast<const void*>(buffer.pointer());
    return view;
  }
};

void require_same_gradient(const ReferenceGradient& actual, const ReferenceGradient& expected) {
  REQUIRE(actual.value.size() == expected.value.size());
  for (std::size_t i = 0; i < expected.value.size(); ++i) {
    check_close(actual.value[i], expected.value[i], expected.weight[i]);
    check_close(actual.weight[i], expected.weight[i], expected.weight[i]);
  }
  CHECK(std::abs(actual.noise_squares - expected.noise_squares) <= 1e-12 * expected.noise_squares);
}

// The generated kernels against the host's scalar code: references, and what both comparisons say of gradients.
void compare_backward_oracles(const std::shared_ptr<Device>& device, const std::vector<const char*>& problems) {
  int number = 0;
  for (const char* text : problems) {
    AttentionProblem problem = parse_problem(text);
    problem.layout = number % 2 == 0 ? Layout::bshd : Layout::bhsd;
    INFO(canonical_text(problem));
    const BackwardCase with(device, problem, number % 3, number % 2 == 0);
    ++number;
    const ReferenceBackward expected = with.expected();
    const DeviceGradients actual = make_device_gradients(device, problem, with.tensors);
    const ReferenceBackward on_host = actual.to_host(*device);
    require_same_gradient(on_host.d_q, expected.d_q);
    require_same_gradient(on_host.d_k, expected.d_k);
    require_same_gradient(on_host.d_v, expected.d_v);
    REQUIRE(on_host.d_sinks.value.size() == (problem.sink ? static_cast<std::size_t>(problem.heads_q) : 0));
    for (std::size_t head = 0; head < on_host.d_sinks.value.size(); ++head) {
      check_close(on_host.d_sinks.value[head], expected.d_sinks.value[head], 1);
      check_close(on_host.d_sinks.bound[head], expected.d_sinks.bound[head], 1);
    }

    if (problem.bias_gradient) require_same_gradient(on_host.d_bias, expected.d_bias);

    // Right gradients; then a wrong last element of each.
    DeviceOracle oracle(device, problem);
    const auto rounded = [&](const ReferenceGradient& gradient, Operand shape) {
      AttentionProblem of = problem;
      if (shape != Operand::q) {
        of.heads_q = problem.heads_kv;
        of.seq_q = problem.seq_kv;
      }
      std::vector<std::uint16_t> elements(gradient.value.size());
      for (std::size_t i = 0; i < elements.size(); ++i) {
        const std::int64_t at = offset_of_element(of, packed_view(problem, shape), static_cast<std::int64_t>(i));
        elements[static_cast<std::size_t>(at)] = from_double(problem.dtype, gradient.value[i]);
      }
      return elements;
    };
    std::vector<std::uint16_t> d_q = rounded(on_host.d_q, Operand::q), d_k = rounded(on_host.d_k, Operand::k),
                               d_v = rounded(on_host.d_v, Operand::v);
    std::vector<float> d_sinks;
    for (const double value : on_host.d_sinks.value) d_sinks.push_back(static_cast<float>(value));
    std::vector<float> d_bias_fp32(on_host.d_bias.value.begin(), on_host.d_bias.value.end());
    std::vector<std::uint16_t> d_bias;
    for (const double value : on_host.d_bias.value) d_bias.push_back(from_double(problem.dtype, value));
    const auto check = [&] {
      const auto of_bias = problem.bias_fp32 ? std::as_bytes(std::span(d_bias_fp32)) : std::as_bytes(std::span(d_bias));
      if (problem.bias_gradient) device->copy_to_device(with.d_bias_buffer.pointer(), of_bias.data(), of_bias.size());
      if (problem.sink)
        device->copy_to_device(with.d_sinks_buffer.pointer(), d_sinks.data(), with.d_sinks_buffer.bytes());
      device->copy_to_device(with.d_q_buffer.pointer(), d_q.data(), 2 * d_q.size());
      device->copy_to_device(with.d_k_buffer.pointer(), d_k.data(), 2 * d_k.size());
      device->copy_to_device(with.d_v_buffer.pointer(), d_v.data(), 2 * d_v.size());
      std::vector<OutputErrors> errors = oracle.compare_gradients(actual, with.tensors);
      const std::vector<OutputErrors> of_host =
          compare_backward(problem, on_host, d_q, d_k, d_v, d_sinks, of_bias).outputs;
      REQUIRE(errors.size() == 3u + problem.sink + problem.bias_gradient);
      for (std::size_t i = 0; i < errors.size(); ++i) require_same(errors[i], of_host[i]);
      return errors;
    };
    for (const OutputErrors& errors : check()) CHECK(errors.within);
    for (std::vector<std::uint16_t>* gradient : {&d_q, &d_k, &d_v}) gradient->back() = from_double(problem.dtype, 1000);
    if (problem.sink) d_sinks.back() += 1000;
    if (problem.bias_gradient) {
      d_bias.back() = from_double(problem.dtype, 1000);
      d_bias_fp32.back() = 1000;
    }
    for (const OutputErrors& errors : check()) CHECK_FALSE(errors.within);
    for (std::vector<std::uint16_t>* gradient : {&d_q, &d_k, &d_v}) gradient->back() = 0x7fff;
    for (const OutputErrors& errors : check()) CHECK_FALSE(errors.within);
  }
}

void compare_checksums(const std::shared_ptr<Device>& device, const std::vector<std::size_t>& counts) {
  DeviceOracle oracle(device, parse_problem("sq5 d8"));
  for (const std::size_t count : counts) {
    for (const std::size_t shift : {0, 1, 4, 8}) {
      INFO(count << " elements, " << shift << " off");
      std::vector<std::uint16_t> elements = random_normal(DataType::bf16, count, count + shift);
      const DeviceBuffer buffer(device, 2 * (count + shift) + 256);
      device->fill(buffer.pointer(), 0x5a, buffer.bytes());  // what lies around takes no part
      const DevicePointer at = buffer.pointer() + 2 * shift;
      const auto on_device = [&] {
        device->copy_to_device(at, elements.data(), 2 * count);
        return oracle.checksum(at, static_cast<std::int64_t>(count));
      };
      const std::uint64_t before = on_device();
      CHECK(before == checksum(elements));
      for (const std::size_t place : {std::size_t{0}, count / 3, count - 1}) {
        elements[place] ^= place % 2 == 0 ? 1 : 0x8000;
        CHECK(on_device() != before);
        CHECK(on_device() == checksum(elements));
        elements[place] ^= place % 2 == 0 ? 1 : 0x8000;
      }
      if (count > 9) {
        std::swap(elements[1], elements[9]);  // the same place of another word
        CHECK((elements[1] == elements[9] || on_device() != before));
      }
    }
  }
}

void compare_random_numbers(const std::shared_ptr<Device>& device, std::size_t count, std::uint64_t seeds) {
  for (const DataType dtype : {DataType::fp16, DataType::bf16}) {
    DeviceOracle oracle(device, make_problem(dtype, 1, 1, 5, 8));
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const std::size_t stride = count + 3, copies = seed % 3 + 1;
      const DeviceBuffer buffer(device, 2 * stride * copies);
      device->fill(buffer.pointer(), 0xff, buffer.bytes());
      oracle.fill_random_normal(buffer.pointer() + 2, static_cast<std::int64_t>(count), seed << 40 ^ seed,
                                static_cast<std::int64_t>(copies), static_cast<std::int64_t>(stride));
      const std::vector<std::uint16_t> values = random_normal(dtype, count, seed << 40 ^ seed);
      std::vector<std::uint16_t> expected(stride * copies, 0xffff), actual(stride * copies);
      for (std::size_t copy = 0; copy < copies; ++copy)
        std::copy(values.begin(), values.end(), expected.begin() + static_cast<std::ptrdiff_t>(copy * stride + 1));
      device->copy_from_device(actual.data(), buffer.pointer(), buffer.bytes());
      CHECK((actual == expected));
    }
  }
}

}  // namespace

TEST_CASE("the fp64 kernel agrees with the scalar oracle on the emulator", "[emulator]") {
  compare_all(make_emulator_device(find_device("h200")),
              {{1, 1, 1, 1, 1, 8}, {2, 2, 1, 3, 130, 64}, {1, 3, 3, 9, 5, 136}, {1, 1, 1, 2, 129, 256}});
}

TEST_CASE("the fp64 kernel agrees with the scalar oracle on the GPU", "[gpu]") {
  compare_all(open_cuda_device(0), {{1, 1, 1, 1, 1, 8},
                                    {2, 6, 2, 129, 1000, 64},
                                    {1, 3, 3, 300, 77, 136},
                                    {1, 1, 1, 257, 129, 256},
                                    {3, 8, 1, 64, 64, 128}});
}

TEST_CASE("O is compared on the device as on the host, on the emulator", "[emulator]") {
  const auto device = make_emulator_device(find_device("h200"));
  compare_comparisons(
      device, {"fp16 b2 hq3 hkv1 sq67 skv9 d8", "bf16 b1 hq2 sq5 d72", "bf16 sq1 d256", "bf16 b3 hq2 sq129 d40 packed",
               "bf16 b4 hq2 sq129 skv140 d40 causal packed bias=bhqk max-sq40 max-skv50",
               "fp16 b3 hq2 sq90 d16 packed bias=1h1k bias-fp32 attention-mask=b1qk max-skv30"});
  compare_norms(device);
}

TEST_CASE("O is compared on the device as on the host, on the GPU", "[gpu]") {
  const auto device = open_cuda_device(0);
  compare_comparisons(device, {"fp16 b2 hq3 hkv1 sq67 skv9 d8", "bf16 b1 hq2 sq5 d72", "bf16 sq1 d256",
                               "bf16 b3 hq16 sq1500 skv40 d128", "fp16 b70 hq32 sq40 skv3 d40"});
  compare_norms(device);
}

TEST_CASE("the gradients' fp64 kernels agree with the scalar oracle, on the emulator", "[emulator]") {
  compare_backward_oracles(
      make_emulator_device(find_device("h200")),
      {"backward fp16 hq2 sq33 skv20 d8 causal@-3", "backward bf16 b2 hq3 hkv1 sq18 skv35 d72 causal",
       "backward bf16 sq1 skv17 d256", "backward fp16 hq4 hkv2 sq40 d40 causal",
       "backward bf16 b2 hq4 hkv2 sq30 skv20 d40 causal@-5 sink softcap3",
       "backward bf16 b3 hq4 hkv2 sq30 skv40 d40 causal used sink softcap3",
       "backward fp16 b2 hq4 hkv2 sq30 skv40 d40 alibi",
       "backward bf16 b2 hq4 hkv2 sq30 skv20 d40 causal used alibi softcap3",
       "backward fp16 b2 hq4 hkv2 sq30 skv40 d40 bias=1hqk attention-mask=b11k",
       "backward bf16 b2 hq4 hkv2 sq30 skv20 d40 causal alibi bias=b1qk bias-fp32 attention-mask=bhqk softcap3 sink",
       "backward fp16 b2 hq4 hkv2 sq30 skv40 d40 bias=bhqk bias-gradient",
       "backward bf16 b2 hq4 hkv2 sq30 skv20 d40 causal alibi bias=b11k bias-fp32 bias-gradient softcap3 sink used",
       "backward bf16 b2 hq4 hkv2 sq17 skv20 d16 window=9,3 bias=1hqk bias-gradient",
       "backward fp16 b3 hq2 sq40 skv20 d16 used",
       "backward bf16 b4 hq4 hkv2 sq60 skv80 d40 causal packed sink softcap3",
       "backward fp16 b7 hq2 sq40 skv70 d16 packed alibi",
       "backward bf16 b4 hq4 hkv2 sq60 skv80 d16 causal packed bias=1hqk bias-gradient max-sq20 max-skv30",
       "backward fp16 b3 hq2 sq60 skv50 d16 packed bias=b11k bias-fp32 bias-gradient attention-mask=1hqk max-sq25 "
       "max-skv70"});
  // Tiles of eight rows, where shared memory holds no larger ones.
  compare_backward_oracles(make_emulator_device(find_device("l4")), {"backward bf16 hq2 hkv1 sq19 skv12 d256 causal"});
}

TEST_CASE("the gradients' fp64 kernels agree with the scalar oracle, on the GPU", "[gpu]") {
  compare_backward_oracles(
      open_cuda_device(0),
      {"backward fp16 hq2 sq33 skv20 d8 causal@-3", "backward bf16 b2 hq6 hkv2 sq300 skv500 d72 causal",
       "backward bf16 b3 sq65 skv170 d256", "backward fp16 hq8 sq256 d128 causal",
       "backward bf16 b4 hq4 hkv2 sq300 skv200 d64 window=50,20 used sink",
       "backward fp16 b2 hq4 hkv2 sq300 skv400 d64 bias=bhqk attention-mask=b11k",
       "backward bf16 b2 hq4 hkv2 sq300 skv200 d64 causal bias=1hqk bias-fp32 bias-gradient",
       "backward bf16 b9 hq4 hkv2 sq700 skv800 d64 window=50,20 packed sink",
       "backward bf16 b9 hq4 hkv2 sq700 skv800 d64 packed bias=bhqk bias-gradient attention-mask=b11k max-sq150 "
       "max-skv160"});
}

TEST_CASE("checksums are the same on the device and on the host, on the emulator", "[emulator]") {
  compare_checksums(make_emulator_device(find_device("h200")), {1, 4, 5, 8, 2047, 5001});
}

TEST_CASE("checksums are the same on the device and on the host, on the GPU", "[gpu]") {
  compare_checksums(open_cuda_device(0), {1, 4, 5, 8, 2047, 5001, 2'500'003});
}

TEST_CASE("random numbers have the same bits on the device and on the host, on the emulator", "[emulator]") {
  compare_random_numbers(make_emulator_device(find_device("h200")), 50'001, 3);
}

TEST_CASE("random numbers have the same bits on the device and on the host, on the GPU", "[gpu]") {
  compare_random_numbers(open_cuda_device(0), 10'000'001, 6);
}
