#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "generator/rounding.h"
#include "runtime/oracle/error_summary.h"
#include "runtime/oracle/parallel_for.h"
#include "runtime/oracle/reference_attention.h"
#include "runtime/oracle/unpacked.h"

namespace attune {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kPartRows = 256;  // of a head, compared by one thread

std::string locate_row(const OperandShape& shape, std::int64_t row) {
  const std::int64_t heads = shape.heads, rows = shape.rows;
  return "batch " + std::to_string(row / rows / heads) + ", head " + std::to_string(row / rows % heads) + ", row " +
         std::to_string(row % rows);
}

// `locate` turns an index into words such as "batch 0, head 1, row 2, column 3". No relative bound: 0.
template <typename Locate>
OutputErrors finish(std::string name, double relative_bound, const ErrorSummary& summary,
                    const std::function<ComparedElement(std::int64_t)>& element, const Locate& locate) {
  OutputErrors errors;
  errors.name = std::move(name);
  errors.relative_bound = relative_bound;
  errors.max_abs = summary.max_abs;
  errors.worst_ratio = summary.worst_ratio;
  errors.worst_index = summary.worst_index;
  errors.relative = summary.error_squares == 0 ? 0 : std::sqrt(summary.error_squares / summary.reference_squares);
  const bool relative_within = relative_bound == 0 || errors.relative <= relative_bound;
  errors.within = errors.worst_ratio <= 1 && relative_within;
  std::ostringstream text;
  text.precision(9);
  if (errors.worst_ratio > 1) {
    const ComparedElement worst = element(errors.worst_index);
    text << errors.name << " at " << locate(errors.worst_index) << " is " << worst.value << ", the reference is "
         << worst.reference << ": the error is " << errors.worst_ratio << " times the bound of " << worst.bound
         << " for this element";
  } else if (!relative_within) {
    text << errors.name << " has a relative error of " << errors.relative << ", the bound is " << relative_bound;
  }
  errors.complaint = text.str();
  return errors;
}

void require_size(std::size_t size, std::size_t wanted, const char* name) {
  if (size != wanted) {
    throw Error(ErrorCode::invalid_argument, std::string(name) + " holds " + std::to_string(size) +
                                                 " elements, the reference " + std::to_string(wanted));
  }
}

}  // namespace

void ErrorSummary::add(std::int64_t index, double value, double reference, double bound) {
  double error = std::abs(value - reference);
  if (value == reference) error = 0;  // infinities of the same sign
  if (std::isnan(error)) error = kInfinity;
  max_abs = std::max(max_abs, error);
  if (error > worst_ratio * bound) {
    worst_ratio = error / bound;
    worst_index = index;
  }
  error_squares += error * error;
  if (std::isfinite(reference)) reference_squares += reference * reference;
}

void ErrorSummary::merge(const ErrorSummary& other) {
  max_abs = std::max(max_abs, other.max_abs);
  if (other.worst_ratio > worst_ratio || (other.worst_ratio == worst_ratio && other.worst_index < worst_index)) {
    worst_ratio = other.worst_ratio;
    worst_index = other.worst_index;
  }
  error_squares += other.error_squares;
  reference_squares += other.reference_squares;
}

std::int64_t offset_of_element(const AttentionProblem& problem, const TensorView& tensor, std::int64_t index) {
  const std::int64_t row = index / problem.head_dim, head = row / problem.seq_q;
  return head / problem.heads_q * tensor.stride_batch + head % problem.heads_q * tensor.stride_head +
         row % problem.seq_q * tensor.stride_row + index % problem.head_dim;
}

ComparedOutput compared_o(const AttentionProblem& problem) {
  const OutputBounds bounds = forward_bounds(problem);
  const double step = bounds.smallest_step / bounds.relative;
  return {"o", Operand::o, bounds, static_cast<double>(operand_shape(problem, Operand::o).elements()) * step * step};
}

OutputErrors errors_of(const AttentionProblem& problem, const ComparedOutput& output, ErrorSummary summary,
                       const std::function<ComparedElement(std::int64_t index)>& element) {
  const OperandShape shape = operand_shape(problem, output.shape);
  summary.reference_squares += output.noise_squares;
  return finish(output.name, output.bounds.relative, summary, element, [&](std::int64_t at) {
    return locate_row(shape, at / shape.columns) + ", column " + std::to_string(at % shape.columns);
  });
}

OutputErrors compare_tensor(const AttentionProblem& problem, const ComparedTensor& tensor) {
  const ComparedOutput& output = tensor.output;
  require_size(tensor.elements.size(), tensor.reference.size(), output.name.c_str());
  const TensorView view = packed_view(problem, output.shape);
  const OperandShape shape = operand_shape(problem, output.shape);
  const std::int64_t columns = shape.columns, rows = shape.rows;
  const auto line_of = [&](std::int64_t row) {  // of all heads
    const std::int64_t head = row / rows;
    return tensor.elements.data() + head / shape.heads * view.stride_batch + head % shape.heads * view.stride_head +
           row % rows * view.stride_row;
  };
  const auto compared = [&](std::int64_t index, std::uint16_t bits) {
    const double ref = tensor.reference[index];
    return ComparedElement{to_double(problem.dtype, bits), ref, output.bounds.of_element(ref, tensor.weight[index])};
  };
  // One summary for each part of a head, so that the sums do not depend on the number of threads.
  const std::int64_t parts_of_head = ceil_div(rows, kPartRows);
  std::vector<ErrorSummary> summaries(static_cast<std::size_t>(shape.batch * shape.heads * parts_of_head));
  parallel_for(summaries.size(), [&](std::size_t part) {
    const auto head = static_cast<std::int64_t>(part) / parts_of_head;
    const std::int64_t first = static_cast<std::int64_t>(part) % parts_of_head * kPartRows;
    ErrorSummary mine;
    for (std::int64_t row = head * rows + first; row < head * rows + std::min(first + kPartRows, rows); ++row) {
      const std::uint16_t* line = line_of(row);
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t index = row * columns + column;
        const ComparedElement element = compared(index, line[column]);
        mine.add(index, element.value, element.reference, element.bound);
      }
    }
    summaries[part] = mine;
  });
  ErrorSummary summary;
  for (const ErrorSummary& part : summaries) summary.merge(part);
  return errors_of(problem, output, summary,
                   [&](std::int64_t index) { return compared(index, line_of(index / columns)[index % columns]); });
}

OutputErrors compare_lse(const AttentionProblem& problem, std::span<const double> reference,
                         std::span<const float> lse) {
  require_size(lse.size(), reference.size(), "lse");
  const auto compared = [&](std::int64_t row) {
    const double ref = reference[static_cast<std::size_t>(row)];
    return ComparedElement{lse[static_cast<std::size_t>(row)], ref, lse_bound(problem, ref)};
  };
  ErrorSummary summary;
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(lse.size()); ++row) {
    const ComparedElement element = compared(row);
    summary.add(row, element.value, element.reference, element.bound);
  }
  return finish("lse", 0, summary, compared,
                [&](std::int64_t row) { return locate_row(operand_shape(problem, Operand::o), row); });
}

OutputErrors compare_sinks(const ReferenceSinkGradient& reference, std::span<const float> d_sinks) {
  require_size(d_sinks.size(), reference.value.size(), "d_sinks");
  const auto compared = [&](std::int64_t head) {
    const auto at = static_cast<std::size_t>(head);
    return ComparedElement{d_sinks[at], reference.value[at], reference.bound[at]};
  };
  ErrorSummary summary;
  for (std::int64_t head = 0; head < static_cast<std::int64_t>(d_sinks.size()); ++head) {
    const ComparedElement element = compared(head);
    summary.add(head, element.value, element.reference, element.bound);
  }
  return finish("dsinks", 0, summary, compared, [](std::int64_t head) { return "head " + std::to_string(head); });
}

OutputErrors compare_bias(const AttentionProblem& problem, const ReferenceGradient& reference,
                          std::span<const std::byte> d_bias) {
  const OperandShape shape = operand_shape(problem, Operand::d_bias);
  require_size(d_bias.size(), reference.value.size() * static_cast<std::size_t>(size_of(shape.element)), "d_bias");
  const ComparedOutput output = compared_gradient(problem, "dbias", Operand::d_bias, reference.noise_squares);
  const auto value_of = [&](std::size_t at) {
    if (shape.element == ElementType::fp32) {
      float value = 0;
      std::memcpy(&value, d_bias.data() + sizeof(value) * at, sizeof(value));
      return static_cast<double>(value);
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, d_bias.data() + sizeof(bits) * at, sizeof(bits));
    return to_double(problem.dtype, bits);
  };
  const auto compared = [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    const double ref = reference.value[at];
    return ComparedElement{value_of(at), ref, output.bounds.of_element(ref, reference.weight[at])};
  };
  // One summary for each part, so that the sums do not depend on the number of threads.
  constexpr std::size_t kPart = 1 << 16;
  std::vector<ErrorSummary> summaries(ceil_div(reference.value.size(), kPart));
  parallel_for(summaries.size(), [&](std::size_t part) {
    for (std::size_t at = part * kPart; at < std::min(reference.value.size(), (part + 1) * kPart); ++at) {
      const auto index = static_cast<std::int64_t>(at);
      const ComparedElement one = compared(index);
      summaries[part].add(index, one.value, one.reference, one.bound);
    }
  });
  ErrorSummary summary;
  for (const ErrorSummary& part : summaries) summary.merge(part);
  return errors_of(problem, output, summary, compared);
}

bool ForwardErrors::within() const {
  for (const OutputErrors& output : outputs) {
    if (!output.within) return false;
  }
  return !outputs.empty();
}

ForwardErrors compare_forward(const AttentionProblem& problem, const ReferenceForward& reference,
                              std::span<const std::uint16_t> o, std::span<const float> lse) {
  ForwardErrors errors;
  errors.outputs.push_back(compare_tensor(problem, {compared_o(problem), reference.o, reference.weight, o}));
  if (!lse.empty()) errors.outputs.push_back(compare_lse(problem, reference.lse, lse));
  return errors;
}

}  // namespace attune
