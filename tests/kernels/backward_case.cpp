#include "tests/kernels/backward_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "generator/error.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/kernels/placed_pairs.h"

namespace attune::tests {
namespace {

constexpr std::uint16_t kPoison = 0x7fa5;  // NaN in both formats
constexpr std::int64_t kMargin = 64;       // elements before and after a tensor

// A tensor on the device, placed as the case asks, and its packed image.
class Tensor {
 public:
  // packed: in problem.layout, or empty for an output, which is poisoned.
  Tensor(const std::shared_ptr<Device>& device, const BackwardCase& test, Operand operand,
         const std::vector<std::uint16_t>& packed)
      : device_(device), packed_(packed_view(test.problem, operand)) {
    const AttentionProblem& problem = test.problem;
    const bool of_keys =
        operand == Operand::k || operand == Operand::v || operand == Operand::d_k || operand == Operand::d_v;
    batch_ = problem.row_batch();
    heads_ = of_keys ? problem.heads_kv : problem.heads_q;
    rows_ = of_keys ? problem.seq_kv : problem.seq_q;
    columns_ = problem.head_dim;
    const bool aligned = problem.alignment >= 16;
    const std::int64_t gap = test.placement == Placement::packed ? 0 : aligned ? 8 : 3, pitch = columns_ + gap;
    if (problem.layout == Layout::bshd) {
      strides_.stride_head = pitch;
      strides_.stride_row = heads_ * pitch + gap;
      strides_.stride_batch = rows_ * strides_.stride_row + gap;
    } else {
      strides_.stride_row = pitch;
      strides_.stride_head = rows_ * pitch + gap;
      strides_.stride_batch = heads_ * strides_.stride_head + gap;
    }
    origin_ = kMargin + (aligned ? 8 : 1);
    image_.assign(static_cast<std::size_t>(origin_ + batch_ * strides_.stride_batch + kMargin), kPoison);
    if (test.placement == Placement::reversed) {
      origin_ += (rows_ - 1) * strides_.stride_row;
      strides_.stride_row = -strides_.stride_row;
    }
    used_.assign(image_.size(), false);
    for_rows([&](std::int64_t placed, std::int64_t from) {
      for (std::int64_t d = 0; d < columns_; ++d) {
        used_[static_cast<std::size_t>(placed + d)] = true;
        if (!packed.empty()) image_[static_cast<std::size_t>(placed + d)] = packed[static_cast<std::size_t>(from + d)];
      }
    });
    buffer_ = DeviceBuffer(device, 2 * image_.size());
    device->copy_to_device(buffer_.pointer(), image_.data(), buffer_.bytes());
    view_ = strides_;
    view_.data = reinterpret_cast<const void*>(buffer_.pointer() + 2 * static_cast<std::uint64_t>(origin_));
    if (test.placement == Placement::padded) {  // absurd strides for dimensions of extent 1
      if (rows_ == 1) view_.stride_row = 12345;
      if (heads_ == 1) view_.stride_head = -777;
      if (batch_ == 1) view_.stride_batch = 1;
    }
  }

  const TensorView& view() const { return view_; }

  // Its elements now, packed. Complains about memory beside the rows that has changed.
  std::vector<std::uint16_t> read(std::string* complaint) const {
    std::vector<std::uint16_t> now(image_.size());
    device_->copy_from_device(now.data(), buffer_.pointer(), buffer_.bytes());
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!used_[i] && now[i] != image_[i]) *complaint = "memory between or beside rows was overwritten";
    }
    std::vector<std::uint16_t> packed(static_cast<std::size_t>(batch_ * heads_ * rows_ * columns_));
    for_rows([&](std::int64_t placed, std::int64_t to) {
      std::copy_n(now.begin() + placed, columns_, packed.begin() + to);
    });
    return packed;
  }

 private:
  template <typename Body>
  void for_rows(const Body& body) const {
    for (std::int64_t b = 0; b < batch_; ++b) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        for (std::int64_t s = 0; s < rows_; ++s) {
          body(origin_ + b * strides_.stride_batch + h * strides_.stride_head + s * strides_.stride_row,
               b * packed_.stride_batch + h * packed_.stride_head + s * packed_.stride_row);
        }
      }
    }
  }

  std::shared_ptr<Device> device_;
  TensorView packed_, strides_, view_;
  std::int64_t batch_ = 0, heads_ = 0, rows_ = 0, columns_ = 0, origin_ = 0;
  std::vector<std::uint16_t> image_;
  std::vector<bool> used_;
  DeviceBuffer buffer_;
};

// Calls body(index of (B, H, S, D), index of the packed tensor) for each row of an operand.
template <typename Body>
void for_packed_rows(const AttentionProblem& problem, Operand operand, const Body& body) {
  const bool of_keys =
      operand == Operand::k || operand == Operand::v || operand == Operand::d_k || operand == Operand::d_v;
  const std::int64_t heads = of_keys ? problem.heads_kv : problem.heads_q;
  const std::int64_t rows = of_keys ? problem.seq_kv : problem.seq_q;
  const TensorView view = packed_view(problem, operand);
  std::int64_t from = 0;
  for (std::int64_t b = 0; b < problem.row_batch(); ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t s = 0; s < rows; ++s, from += problem.head_dim)
        body(from, b * view.stride_batch + h * view.stride_head + s * view.stride_row);
    }
  }
}

// (B, H, S, D), rounded, as a packed tensor in problem.layout.
std::vector<std::uint16_t> packed(const AttentionProblem& problem, Operand operand, const std::vector<double>& values) {
  std::vector<std::uint16_t> elements(values.size());
  for_packed_rows(problem, operand, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t d = 0; d < problem.head_dim; ++d) {
      elements[static_cast<std::size_t>(to + d)] =
          from_double(problem.dtype, values[static_cast<std::size_t>(from + d)]);
    }
  });
  return elements;
}

}  // namespace

BackwardCase backward_case(const std::string& problem, const std::string& config) {
  BackwardCase test;
  test.problem = parse_problem(problem);
  test.config = parse_config(config);
  return test;
}

std::string to_string(const BackwardCase& test) {
  const char* placements[] = {"packed", "padded", "reversed"};
  std::ostringstream text;
  text << canonical_text(test.problem) << " | " << (test.looked_up ? "looked up" : canonical_text(test.config)) << " | "
       << placements[static_cast<int>(test.placement)] << (test.with_lse ? " gradient of LSE" : "");
  if (test.pair_placement) text << " pairs " << placements[static_cast<int>(*test.pair_placement)];
  if (test.sink) text << " sinks near " << *test.sink;
  if (test.data) text << ' ' << to_string(*test.data);
  return text.str();
}

BackwardData::BackwardData(const BackwardCase& test) {
  const AttentionProblem& problem = test.problem;
  const auto rows = static_cast<std::size_t>(problem.row_batch() * problem.heads_q * problem.seq_q);
  const auto keys = static_cast<std::size_t>(problem.row_batch() * problem.heads_kv * problem.seq_kv);
  const auto columns = static_cast<std::size_t>(problem.head_dim);
  if (test.data) {
    const auto make = [&](Operand operand) {
      return packed(problem, operand, data_values(*test.data, problem, operand, static_cast<std::uint32_t>(test.seed)));
    };
    q = make(Operand::q);
    k = make(Operand::k);
  } else {
    q = random_normal(problem.dtype, rows * columns, 8 * test.seed);
    k = random_normal(problem.dtype, keys * columns, 8 * test.seed + 1);
  }
  if (test.loudness != 0 && !test.data) {
    const auto move = [&](std::vector<std::uint16_t>& values, double by) {
      for (std::uint16_t& bits : values) bits = from_double(problem.dtype, to_double(problem.dtype, bits) / 8 + by);
    };
    move(q, test.loudness);
    move(k, 1);
  }
  v = random_normal(problem.dtype, keys * columns, 8 * test.seed + 2);
  d_o = random_normal(problem.dtype, rows * columns, 8 * test.seed + 3);
  if (test.with_lse) {
    for (const std::uint16_t bits : random_normal(problem.dtype, rows, 8 * test.seed + 4))
      d_lse.push_back(static_cast<float>(to_double(problem.dtype, bits)));
  }
  terms = make_terms(problem, static_cast<std::uint32_t>(test.seed), test.sink);
  // What lies in rows that do not count may be anything.
  const auto spoil = [&](std::vector<std::uint16_t>* values, Operand operand) {
    const bool of_queries = operand == Operand::q;
    const std::int64_t heads = of_queries ? problem.heads_q : problem.heads_kv,
                       all = of_queries ? problem.seq_q : problem.seq_kv;
    for_packed_rows(problem, operand, [&](std::int64_t from, std::int64_t to) {
      const std::int64_t row = from / problem.head_dim;
      if (!row_of(problem, terms, of_queries, row / all / heads, row % all).counts())
        std::fill_n(values->begin() + to, problem.head_dim, kPoison);
    });
  };
  spoil(&q, Operand::q);
  spoil(&d_o, Operand::q);
  spoil(&k, Operand::k);
  spoil(&v, Operand::k);
  const ReferenceForward forward = reference_forward(problem, q, k, v, terms);
  for (std::size_t row = 0; row < rows; ++row) {
    lse.push_back(static_cast<float>(forward.lse[row]));
    // The loss does not depend on an LSE of -inf: what a framework leaves there must not be looked at.
    if (test.with_lse && std::isinf(lse.back())) d_lse[row] = std::numeric_limits<float>::quiet_NaN();
    const auto query = static_cast<std::int64_t>(row) % problem.seq_q,
               batch = static_cast<std::int64_t>(row) / problem.seq_q / problem.heads_q;
    if (row_of(problem, terms, true, batch, query).counts()) continue;
    lse[row] = std::numeric_limits<float>::quiet_NaN();
    if (test.with_lse) d_lse[row] = lse[row];
  }
  o = packed(problem, Operand::o, forward.o);
  spoil(&o, Operand::q);
  reference = reference_backward(problem, {q, k, v, d_o, d_lse, terms});
}

std::vector<double> unpacked(const AttentionProblem& problem, Operand operand,
                             const std::vector<std::uint16_t>& packed) {
  std::vector<double> values(packed.size());
  for_packed_rows(problem, operand, [&](std::int64_t to, std::int64_t from) {
    for (std::int64_t d = 0; d < problem.head_dim; ++d)
      values[static_cast<std::size_t>(to + d)] = to_double(problem.dtype, packed[static_cast<std::size_t>(from + d)]);
  });
  return values;
}

BackwardResult run_backward(AttentionRuntime& runtime, const BackwardCase& test, const BackwardData& data,
                            Stream stream) {
  const std::shared_ptr<Device>& device = runtime.device();
  const Tensor q(device, test, Operand::q, data.q), k(device, test, Operand::k, data.k),
      v(device, test, Operand::v, data.v), o(device, test, Operand::o, data.o),
      d_o(device, test, Operand::d_o, data.d_o);
  const Tensor d_q(device, test, Operand::d_q, {}), d_k(device, test, Operand::d_k, {}),
      d_v(device, test, Operand::d_v, {});
  const auto upload = [&](const std::vector<float>& values) {
    DeviceBuffer buffer(device, std::max<std::size_t>(1, values.size()) * sizeof(float));
    if (!values.empty()) device->copy_to_device(buffer.pointer(), values.data(), buffer.bytes());
    return buffer;
  };
  const DeviceBuffer lse = upload(data.lse), d_lse = upload(data.d_lse);
  const DeviceTerms terms(device, test.problem, data.terms);
  const Placement pair_placement = test.pair_placement.value_or(test.placement);
  const PlacedPairs pairs(device, test.problem, data.terms, pair_placement);
  // Those of heads that are not there must not be written.
  constexpr std::size_t kGuard = 2;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> d_sinks_image(data.terms.of<float>(Operand::sinks).size() + 2 * kGuard, nan);
  const DeviceBuffer d_sinks = upload(d_sinks_image);
  Tensors tensors;
  tensors[Operand::q] = q.view();
  tensors[Operand::k] = k.view();
  tensors[Operand::v] = v.view();
  tensors[Operand::o] = o.view();
  tensors[Operand::lse].data = reinterpret_cast<const void*>(lse.pointer());
  tensors[Operand::d_o] = d_o.view();
  tensors[Operand::d_q] = d_q.view();
  tensors[Operand::d_k] = d_k.view();
  tensors[Operand::d_v] = d_v.view();
  terms.add_to(&tensors);
  pairs.add_to(&tensors);
  if (test.with_lse) tensors[Operand::d_lse].data = reinterpret_cast<const void*>(d_lse.pointer());
  std::optional<PlacedBiasGradient> d_bias;
  if (test.problem.bias_gradient)
    tensors[Operand::d_bias] = d_bias.emplace(device, test.problem, pair_placement).view();
  if (test.problem.sink) tensors[Operand::d_sinks].data = reinterpret_cast<const float*>(d_sinks.pointer()) + kGuard;

  const auto prepared =
      test.looked_up
          ? nullptr
          : runtime.prepare(generate(test.problem, test.config, device->spec(), runtime_templates(), device->target()));
  const DeviceBuffer workspace(device, prepared == nullptr ? runtime.workspace_bytes(test.problem)
                                                           : prepared->plan.workspace_bytes_of(test.problem));
  device->fill(workspace.pointer(), 0xff, workspace.bytes());
  auto* const used = reinterpret_cast<void*>(workspace.pointer());
  if (prepared == nullptr) {
    runtime.backward(test.problem, tensors, used, workspace.bytes(), stream);
  } else {
    runtime.launch(*prepared, test.problem, tensors, used, workspace.bytes(), stream);
  }
  device->synchronize(stream);

  BackwardResult result;
  // Rows in no sequence are not written, and the reference has zeros there.
  const auto read = [&](const Tensor& tensor, Operand operand) {
    std::vector<std::uint16_t> values = tensor.read(&result.complaint);
    const bool of_queries = operand == Operand::d_q;
    const std::int64_t heads = of_queries ? test.problem.heads_q : test.problem.heads_kv,
                       all = of_queries ? test.problem.seq_q : test.problem.seq_kv;
    for_packed_rows(test.problem, operand, [&](std::int64_t at, std::int64_t from) {
      const std::int64_t row = at / test.problem.head_dim;
      if (row_of(test.problem, data.terms, of_queries, row / all / heads, row % all).sequence >= 0) return;
      const auto first = values.begin() + from, last = first + test.problem.head_dim;
      if (std::any_of(first, last, [](std::uint16_t bits) { return bits != kPoison; }))
        result.complaint = "a row in no sequence was written";
      std::fill(first, last, std::uint16_t{0});
    });
    return values;
  };
  result.d_q = read(d_q, Operand::d_q);
  result.d_k = read(d_k, Operand::d_k);
  result.d_v = read(d_v, Operand::d_v);
  device->copy_from_device(d_sinks_image.data(), d_sinks.pointer(), d_sinks.bytes());
  result.d_sinks.assign(d_sinks_image.begin() + kGuard, d_sinks_image.end() - kGuard);
  for (std::size_t i = 0; i < kGuard; ++i) {
    if (!std::isnan(d_sinks_image[i]) || !std::isnan(d_sinks_image[d_sinks_image.size() - 1 - i]))
      result.complaint = "memory beside the gradient of the sinks was overwritten";
  }
  if (d_bias) result.d_bias = d_bias->read(&result.complaint);
  const std::pair<const Tensor*, const std::vector<std::uint16_t>*> inputs[] = {
      {&q, &data.q}, {&k, &data.k}, {&v, &data.v}, {&o, &data.o}, {&d_o, &data.d_o}};
  for (const auto& [tensor, values] : inputs) {
    if (tensor->read(&result.complaint) != *values) result.complaint = "an input was overwritten";
  }
  if (!terms.holds(data.terms)) result.complaint = "what the terms read was overwritten";
  std::vector<float> lse_after(data.lse.size());
  device->copy_from_device(lse_after.data(), lse.pointer(), lse.bytes());
  if (std::memcmp(lse_after.data(), data.lse.data(), lse.bytes()) != 0) result.complaint = "LSE was overwritten";
  return result;
}

void check_case(Devices& devices, const BackwardCase& test) {
  INFO(to_string(test));
  if (!devices.takes_next(test.problem, test.config)) return;
  const BackwardData data(test);
  BackwardResult first;
  for (const std::size_t i : devices.of_next_case()) {
    INFO(devices.names[i]);
    BackwardResult result;
    try {
      result = run_backward(*devices.runtimes[i], test, data);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
      return;
    }
    // Adds as they come differ from device to device: each sum must be right, and its bits are nobody's business.
    const bool unordered = test.looked_up || test.config.dq == DqAccumulation::atomic;
    if (i == 0 || unordered) {
      CHECK(result.complaint == "");
      for (const OutputErrors& output : compare_backward(test.problem, data.reference, result.d_q, result.d_k,
                                                         result.d_v, result.d_sinks, result.d_bias)
                                            .outputs)
        CHECK(output.complaint == "");
    }
    if (unordered) result.d_q.clear();
    if (test.looked_up || (unordered && adds_key_sums(test.config))) {
      result.d_k.clear();
      result.d_v.clear();
    }
    if (i == 0) {
      first = std::move(result);
    } else {
      CHECK(first == result);
    }
  }
}

}  // namespace attune::tests
