#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "runtime/oracle/parallel_for.h"
#include "runtime/oracle/reference_attention.h"

namespace attune {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLseAbsolute = 1e-5, kLseRelative = 1e-6;
constexpr std::int64_t kPartRows = 256;  // of a head, compared by one thread

struct Bounds {
  double relative;  // of the norm of the error to the norm of the reference
  double unit_roundoff;
  double smallest_step;  // half of the smallest subnormal number: what rounding costs where numbers are tiny
};
Bounds bounds_of(DataType dtype) {
  if (dtype == DataType::fp16) return {4e-4, 0x1p-11, 0x1p-25};
  return {3e-3, 0x1p-8, 0x1p-134};
}

// Collects the errors of one output, element by element.
class ErrorSummary {
 public:
  explicit ErrorSummary(std::string name, double relative_bound) {
    errors_.name = std::move(name);
    errors_.relative_bound = relative_bound;
  }

  void add(std::int64_t index, double value, double reference, double bound) {
    double error = std::abs(value - reference);
    if (value == reference) error = 0;  // infinities of the same sign
    if (std::isnan(error)) error = kInfinity;
    errors_.max_abs = std::max(errors_.max_abs, error);
    if (error > errors_.worst_ratio * bound) {
      errors_.worst_ratio = error / bound;
      errors_.worst_index = index;
      worst_value_ = value;
      worst_reference_ = reference;
      worst_bound_ = bound;
    }
    error_squares_ += error * error;
    if (std::isfinite(reference)) reference_squares_ += reference * reference;
  }

  // Takes up what another one collected further on.
  void merge(const ErrorSummary& later) {
    errors_.max_abs = std::max(errors_.max_abs, later.errors_.max_abs);
    if (later.errors_.worst_ratio > errors_.worst_ratio) {
      errors_.worst_ratio = later.errors_.worst_ratio;
      errors_.worst_index = later.errors_.worst_index;
      worst_value_ = later.worst_value_;
      worst_reference_ = later.worst_reference_;
      worst_bound_ = later.worst_bound_;
    }
    error_squares_ += later.error_squares_;
    reference_squares_ += later.reference_squares_;
  }

  // `locate` turns an index into words such as "batch 0, head 1, row 2, column 3".
  template <typename Locate>
  OutputErrors finish(const Locate& locate) {
    errors_.relative = error_squares_ == 0 ? 0 : std::sqrt(error_squares_ / reference_squares_);
    const bool relative_within = errors_.relative_bound == 0 || errors_.relative <= errors_.relative_bound;
    errors_.within = errors_.worst_ratio <= 1 && relative_within;
    std::ostringstream text;
    text.precision(9);
    if (errors_.worst_ratio > 1) {
      text << errors_.name << " at " << locate(errors_.worst_index) << " is " << worst_value_ << ", the reference is "
           << worst_reference_ << ": the error is " << errors_.worst_ratio << " times the bound of " << worst_bound_
           << " for this element";
    } else if (!relative_within) {
      text << errors_.name << " has a relative error of " << errors_.relative << ", the bound is "
           << errors_.relative_bound;
    }
    errors_.complaint = text.str();
    return std::move(errors_);
  }

 private:
  OutputErrors errors_;
  double error_squares_ = 0, reference_squares_ = 0;
  double worst_value_ = 0, worst_reference_ = 0, worst_bound_ = 0;
};

std::string locate_row(const AttentionProblem& problem, std::int64_t row) {
  const std::int64_t heads = problem.heads_q, rows = problem.seq_q;
  return "batch " + std::to_string(row / rows / heads) + ", head " + std::to_string(row / rows % heads) + ", row " +
         std::to_string(row % rows);
}

OutputErrors compare_o(const AttentionProblem& problem, const ReferenceForward& reference,
                       std::span<const std::uint16_t> o) {
  const Bounds bounds = bounds_of(problem.dtype);
  const TensorView view = packed_view(problem, Operand::o);
  const std::int64_t columns = problem.head_dim;
  // One summary for each part of a head, so that the sums do not depend on the number of threads.
  const std::int64_t rows = problem.seq_q, parts_of_head = (rows + kPartRows - 1) / kPartRows;
  const std::int64_t parts = problem.batch * problem.heads_q * parts_of_head;
  std::vector<ErrorSummary> summaries(static_cast<std::size_t>(parts), ErrorSummary("o", bounds.relative));
  parallel_for(static_cast<std::size_t>(parts), [&](std::size_t part) {
    const auto of_batch = static_cast<std::int64_t>(part) / parts_of_head;
    const std::int64_t batch = of_batch / problem.heads_q, head = of_batch % problem.heads_q;
    const std::int64_t first = static_cast<std::int64_t>(part) % parts_of_head * kPartRows;
    ErrorSummary mine("o", bounds.relative);
    std::int64_t index = (of_batch * rows + first) * columns;
    for (std::int64_t row = first; row < std::min(first + kPartRows, rows); ++row) {
      const std::uint16_t* line =
          o.data() + batch * view.stride_batch + head * view.stride_head + row * view.stride_row;
      for (std::int64_t column = 0; column < columns; ++column, ++index) {
        const double ref = reference.o[index];
        const double bound = 2 * bounds.unit_roundoff * reference.weight[index] + bounds.unit_roundoff * std::abs(ref) +
                             bounds.smallest_step;
        mine.add(index, to_double(problem.dtype, line[column]), ref, bound);
      }
    }
    summaries[part] = std::move(mine);
  });
  ErrorSummary summary("o", bounds.relative);
  for (const ErrorSummary& part : summaries) summary.merge(part);
  return summary.finish(
      [&](std::int64_t at) { return locate_row(problem, at / columns) + ", column " + std::to_string(at % columns); });
}

OutputErrors compare_lse(const AttentionProblem& problem, const ReferenceForward& reference,
                         std::span<const float> lse) {
  ErrorSummary summary("lse", 0);
  for (std::size_t row = 0; row < lse.size(); ++row) {
    const double ref = reference.lse[row];
    summary.add(static_cast<std::int64_t>(row), lse[row], ref,
                std::isfinite(ref) ? kLseAbsolute + kLseRelative * std::abs(ref) : kLseAbsolute);
  }
  return summary.finish([&](std::int64_t row) { return locate_row(problem, row); });
}

void require_size(std::size_t size, std::size_t wanted, const char* name) {
  if (size != wanted) {
    throw Error(ErrorCode::invalid_argument, std::string(name) + " holds " + std::to_string(size) +
                                                 " elements, the reference " + std::to_string(wanted));
  }
}

}  // namespace

bool ForwardErrors::within() const {
  for (const OutputErrors& output : outputs) {
    if (!output.within) return false;
  }
  return !outputs.empty();
}

ForwardErrors compare_forward(const AttentionProblem& problem, const ReferenceForward& reference,
                              std::span<const std::uint16_t> o, std::span<const float> lse) {
  require_size(o.size(), reference.o.size(), "o");
  if (!lse.empty()) require_size(lse.size(), reference.lse.size(), "lse");
  ForwardErrors errors;
  errors.outputs.push_back(compare_o(problem, reference, o));
  if (!lse.empty()) errors.outputs.push_back(compare_lse(problem, reference, lse));
  return errors;
}

}  // namespace attune
