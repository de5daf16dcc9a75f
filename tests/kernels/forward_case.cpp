#include "tests/kernels/forward_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>

#include "generator/generate.h"
#include "generator/mix_bits.h"
#include "runtime/oracle/dropout_mask.h"
#include "tests/kernels/placed_pairs.h"
#include "tests/primitives/number_formats.h"

namespace attune::tests {
namespace {

constexpr std::uint16_t kPoison = 0x7fa5;             // NaN in both formats
constexpr std::uint32_t kPoisonSingle = 0x7fa5a5a5u;  // NaN
constexpr std::int64_t kMargin = 64;                  // elements before and after a tensor
constexpr double kMostRows = 192;                     // of a tile whose rows share what ALiBi adds

double decode_as(DataType dtype, std::uint16_t bits) {
  return dtype == DataType::bf16 ? decode_bf16(bits) : decode_f16(bits);
}
std::uint16_t encode_as(DataType dtype, double x) { return dtype == DataType::bf16 ? encode_bf16(x) : encode_f16(x); }

double unit_roundoff_of(DataType dtype) { return dtype == DataType::bf16 ? 0x1p-8 : 0x1p-11; }
// Half of the smallest subnormal number.
double smallest_step_of(DataType dtype) { return dtype == DataType::bf16 ? 0x1p-134 : 0x1p-25; }

enum class Role { q, k, v, o };

TensorImage make_image(const ForwardCase& test, Role role) {
  const AttentionProblem& problem = test.problem;
  const bool of_queries = role == Role::q || role == Role::o;
  const std::int64_t batch = problem.row_batch(), heads = of_queries ? problem.heads_q : problem.heads_kv;
  const std::int64_t rows = of_queries ? problem.seq_q : problem.seq_kv, dim = problem.head_dim;
  const bool aligned = problem.alignment >= 16;
  const bool gaps = test.placement != Placement::packed;
  const std::int64_t gap = gaps ? (aligned ? 8 : 3) : 0;

  TensorImage image;
  TensorView& strides = image.strides;
  const std::int64_t pitch = dim + gap;
  if (problem.layout == Layout::bshd) {
    strides.stride_head = pitch;
    strides.stride_row = heads * pitch + gap;
    strides.stride_batch = rows * strides.stride_row + 3 * gap;
  } else {
    strides.stride_row = pitch;
    strides.stride_head = rows * pitch + gap;
    strides.stride_batch = heads * strides.stride_head + 3 * gap;
  }
  std::int64_t extent = batch * strides.stride_batch;
  if (test.placement == Placement::reversed) {
    if (role == Role::v) strides.stride_batch = 0;
    image.origin += (rows - 1) * strides.stride_row;
    strides.stride_row = -strides.stride_row;
    if (role == Role::k) {
      image.origin += (heads - 1) * strides.stride_head;
      strides.stride_head = -strides.stride_head;
    }
  }
  // An element further, so that no row is aligned to more than asked for.
  const std::int64_t lead = kMargin + (aligned ? 8 : 1);
  image.origin += lead;
  extent += lead + kMargin;
  if (test.placement == Placement::padded) {
    if (rows == 1) strides.stride_row = 12345;
    if (heads == 1) strides.stride_head = -777;
    if (batch == 1) strides.stride_batch = 1;
  }

  image.memory.assign(static_cast<std::size_t>(extent), kPoison);
  image.used.assign(static_cast<std::size_t>(extent), false);
  std::mt19937 random(test.seed * 4 + static_cast<std::uint32_t>(role));
  const double mean = std::sqrt(std::fabs(test.shift) / dim);
  std::normal_distribution<double> normal(role == Role::q   ? mean
                                          : role == Role::k ? std::copysign(mean, test.shift)
                                                            : 0,
                                          role == Role::q ? test.q_deviation : 1);
  constexpr Operand kOperandOf[] = {Operand::q, Operand::k, Operand::v, Operand::o};
  std::vector<double> given;  // instead of random values
  if (test.data && role != Role::o)
    given = data_values(*test.data, problem, kOperandOf[static_cast<int>(role)], test.seed);
  std::size_t next = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t s = 0; s < rows; ++s) {
        const auto at = static_cast<std::size_t>(image.index(b, h, s));
        for (std::size_t d = 0; d < static_cast<std::size_t>(dim); ++d) {
          image.used[at + d] = true;
          if (role == Role::o) continue;
          const double loudness = role == Role::k && s == test.loud_key ? test.loudness : 1;
          const double value = test.data ? given[next++] : loudness * normal(random);
          image.memory[at + d] = encode_as(problem.dtype, role == Role::v ? std::ldexp(value, test.v_exponent) : value);
        }
      }
    }
  }
  return image;
}

template <typename T>
DeviceBuffer upload(const std::shared_ptr<Device>& device, const std::vector<T>& values) {
  DeviceBuffer buffer(device, values.size() * sizeof(T));
  device->copy_to_device(buffer.pointer(), values.data(), buffer.bytes());
  return buffer;
}

template <typename T>
std::vector<T> download(const std::shared_ptr<Device>& device, const DeviceBuffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  device->copy_from_device(values.data(), buffer.pointer(), buffer.bytes());
  return values;
}

TensorView view_of(const DeviceBuffer& buffer, const TensorImage& image) {
  TensorView view = image.strides;
  view.data = reinterpret_cast<const void*>(buffer.pointer() + 2 * static_cast<std::uint64_t>(image.origin));
  return view;
}

template <typename T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

std::string place(std::int64_t b, std::int64_t h, std::int64_t s) {
  return "(b " + std::to_string(b) + ", h " + std::to_string(h) + ", row " + std::to_string(s) + ")";
}

std::string compared(double actual, double expected, double bound) {
  std::ostringstream text;
  text.precision(9);
  text << " is " << actual << ", expected " << expected << " within " << bound;
  return text.str();
}

std::string output_complaint(const ForwardCase& test, const ForwardData& data, const Expected& expected,
                             const ForwardResult& result) {
  const AttentionProblem& problem = test.problem;
  const bool bf16 = problem.dtype == DataType::bf16;
  const double unit = unit_roundoff_of(problem.dtype);
  const double smallest_step = smallest_step_of(problem.dtype);
  // Where one key outweighs the others, the rounding of its P is the error of its row: 1.1 u at most, with the rounding
  // of O. Many rows average it, unless their scores are the same.
  const bool averages = problem.row_batch() * problem.heads_q * problem.seq_q >= 256 && !problem.has_used_lengths() &&
                        !(test.data && test.data->pattern == ScorePattern::dominant);
  const double relative_bound = averages ? (bf16 ? 3e-3 : 4e-4) : 1.1 * unit;
  double error_squares = 0, squares = 0;
  std::size_t i = 0;
  for (std::int64_t b = 0; b < problem.row_batch(); ++b) {
    for (std::int64_t h = 0; h < problem.heads_q; ++h) {
      for (std::int64_t s = 0; s < problem.seq_q; ++s) {
        const auto at = static_cast<std::size_t>(data.o.index(b, h, s));
        const bool exists = row_of(problem, data.terms, true, b, s).sequence >= 0;
        for (int d = 0; d < problem.head_dim; ++d, ++i) {
          const std::uint16_t bits = result.o[at + static_cast<std::size_t>(d)];
          if (!exists && bits != kPoison) return "O was written at " + place(b, h, s) + ", which is in no sequence";
          if (!exists) continue;
          if (bits == kPoison) return "O was not written at " + place(b, h, s) + " element " + std::to_string(d);
          const double actual = decode_as(problem.dtype, bits), wanted = expected.o[i];
          const double bound = 2 * unit * expected.weight[i] + unit * std::fabs(wanted) + smallest_step;
          if (!(std::fabs(actual - wanted) <= bound)) {
            return "O at " + place(b, h, s) + " element " + std::to_string(d) + compared(actual, wanted, bound);
          }
          error_squares += (actual - wanted) * (actual - wanted);
          squares += wanted * wanted;
        }
      }
    }
  }
  // Tiny elements, beside a sink, are rounded by steps.
  squares += static_cast<double>(i) * std::pow(smallest_step / relative_bound, 2);
  const double relative = std::sqrt(error_squares / squares);
  if (!(relative <= relative_bound)) return "O as a whole: relative error" + compared(relative, 0, relative_bound);
  return {};
}

std::string lse_complaint(const ForwardCase& test, const ForwardData& data, const Expected& expected,
                          const ForwardResult& result) {
  const AttentionProblem& problem = test.problem;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < result.lse.size(); ++i) {
    std::memcpy(&bits, &result.lse[i], 4);
    const bool guard = i < kLseGuard || i >= result.lse.size() - kLseGuard || !test.with_lse;
    if (guard && bits != kPoisonSingle) return "LSE was written outside its rows, at element " + std::to_string(i);
    if (guard) continue;
    const std::size_t row = i - kLseGuard;
    const auto query = static_cast<std::int64_t>(row) % problem.seq_q;
    if (problem.packed && row_of(problem, data.terms, true, 0, query).sequence < 0) {
      if (bits != kPoisonSingle) return "LSE was written at row " + std::to_string(query) + ", which is in no sequence";
      continue;
    }
    // A score is a sum in fp32, which tensor cores truncate: where wide terms cancel, its error is of their size.
    const double wanted = expected.lse[row];
    const double bound = std::isinf(wanted) ? 0 : 1e-5 + 1e-6 * std::fabs(wanted) + 0x1p-23 * expected.lse_weight[row];
    const double actual = result.lse[i];
    if (bits == kPoisonSingle) return "LSE was not written at element " + std::to_string(row);
    if (actual == wanted) continue;  // also -inf
    if (!(std::fabs(actual - wanted) <= bound)) {
      const auto rows = static_cast<std::size_t>(problem.seq_q);
      return "LSE of row " + std::to_string(row % rows) + " of head " + std::to_string(row / rows) +
             compared(actual, wanted, bound);
    }
  }
  return {};
}

// Where sequences begin: of some seeds behind rows that are in none, and before such; some have no rows, others one.
std::vector<std::int32_t> draw_begins(const AttentionProblem& problem, std::int64_t all, std::mt19937* random) {
  std::vector<std::int32_t> begins;
  std::int64_t row = (*random)() % 4 == 0 ? static_cast<std::int64_t>((*random)() % 5) : 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    begins.push_back(static_cast<std::int32_t>(std::min(row, all)));
    const std::int64_t mean = std::max<std::int64_t>(1, all / problem.batch);
    const std::uint32_t kind = (*random)() % 6;
    row += kind == 0   ? 0
           : kind == 1 ? 1
                       : static_cast<std::int64_t>((*random)() % static_cast<std::uint32_t>(2 * mean));
  }
  const bool rest = (*random)() % 3 != 0;
  begins.push_back(static_cast<std::int32_t>(rest ? all : std::min(row, all)));
  // Numbers of no row stand for the nearest one.
  if (begins.front() == 0 && (*random)() % 4 == 0) begins.front() = -3;
  if (begins.back() == all && (*random)() % 4 == 0) begins.back() += 100;
  return begins;
}

void add_lengths(const AttentionProblem& problem, std::uint32_t seed, TermValues* terms) {
  std::mt19937 random(seed * 7919 + 1);
  const auto draw = [&](std::int64_t all) {
    const auto number = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(all + 1));
    switch (random() % 8) {
      case 0:
        return 0;
      case 1:
        return static_cast<std::int32_t>(all);
      case 2:
        return random() % 2 == 0 ? -number - 1 : static_cast<std::int32_t>(all) + 1 + number;
      default:
        return number;
    }
  };
  if (problem.packed) {
    std::mt19937 random_begins(seed * 7919 + 2);
    const std::vector<std::int32_t> of_queries = draw_begins(problem, problem.seq_q, &random_begins);
    const bool same = problem.seq_q == problem.seq_kv && seed % 2 == 0;
    terms->set(Operand::cu_seqlens_q, of_queries);
    terms->set(Operand::cu_seqlens_kv, same ? of_queries : draw_begins(problem, problem.seq_kv, &random_begins));
  }
  const std::int64_t most_queries = problem.packed ? 2 * problem.seq_q / problem.batch : problem.seq_q,
                     most_keys = problem.packed ? 2 * problem.seq_kv / problem.batch : problem.seq_kv;
  std::vector<std::int32_t> queries, keys;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    queries.push_back(draw(most_queries));
    keys.push_back(draw(most_keys));
  }
  if (seed % 5 != 1) terms->set(Operand::seqused_q, queries);
  if (seed % 5 != 2) terms->set(Operand::seqused_kv, keys);
}

// The rows of a sequence, and how many of them count.
struct SequenceRows {
  std::int64_t begin = 0, end = 0, count = 0;
};
SequenceRows rows_of(const AttentionProblem& problem, const TermValues& terms, bool of_queries, std::int64_t sequence) {
  const std::int64_t all = of_queries ? problem.seq_q : problem.seq_kv;
  const auto lengths = terms.of<std::int32_t>(of_queries ? Operand::seqused_q : Operand::seqused_kv);
  if (!problem.packed) return {0, all, used_rows(lengths, sequence, all)};
  const auto begins = terms.of<std::int32_t>(of_queries ? Operand::cu_seqlens_q : Operand::cu_seqlens_kv);
  const auto row_at = [&](std::int64_t place) {
    return std::clamp<std::int64_t>(begins[static_cast<std::size_t>(place)], 0, all);
  };
  const std::int64_t begin = row_at(sequence), end = row_at(sequence + 1);
  std::int64_t most = std::max<std::int64_t>(0, end - begin);
  if (problem.has_longest_sequence()) most = std::min(most, of_queries ? problem.pair_queries() : problem.pair_keys());
  return {begin, end, used_rows(lengths, sequence, most)};
}
std::int64_t rows_that_count(const AttentionProblem& problem, const TermValues& terms, bool of_queries,
                             std::int64_t sequence) {
  return rows_of(problem, terms, of_queries, sequence).count;
}

// Whether a query attends to a key of the same sequence.
bool attends(const AttentionProblem& problem, const SequenceRow& of_query, const SequenceRow& of_key) {
  if (!of_query.counts() || !of_key.counts()) return false;
  std::int64_t query = of_query.position, key = of_key.position;
  // Counted from the ends, where the mask is the same for all sequences.
  if (problem.lengths == Lengths::used) {
    query += problem.seq_q - of_query.used;
    key += problem.seq_kv - of_key.used;
  }
  if (problem.mask == MaskKind::none) return true;
  if (problem.mask == MaskKind::window && key < query + problem.first_offset) return false;
  return key <= query + problem.mask_offset;
}

// Whether a result may depend on an element: whether some pair for which it stands is one of the mask's.
bool counts(const AttentionProblem& problem, const TermValues& terms, PairDimensions has, std::int64_t b,
            std::int64_t query, std::int64_t key) {
  for (std::int64_t batch = has.batch ? b : 0; batch < (has.batch ? b + 1 : problem.batch); ++batch) {
    const SequenceRow of_query = {batch, query, rows_that_count(problem, terms, true, batch)},
                      of_key = {batch, key, rows_that_count(problem, terms, false, batch)};
    if (has.queries ? attends(problem, of_query, of_key) : of_key.counts()) return true;
  }
  return false;
}

// A mask hides single pairs and, of some seeds, all of areas that are larger than blocks. Of biases: hidden keys, the
// least finite number among others and in whole rows (of fp16 it would leave a little of a score), and NaN where no
// pair counts.
void add_pair_tensors(const AttentionProblem& problem, std::uint32_t seed, TermValues* terms) {
  std::mt19937 random(seed * 6007 + 5);
  std::normal_distribution<double> normal(0, 1.5);
  const auto for_elements = [&](Operand operand, const auto& visit) {
    const OperandShape shape = operand_shape(problem, operand);
    for (std::int64_t b = 0; b < shape.batch; ++b)
      for (std::int64_t h = 0; h < shape.heads; ++h)
        for (std::int64_t i = 0; i < shape.rows; ++i)
          for (std::int64_t j = 0; j < shape.columns; ++j) visit(b, h, i, j);
  };
  if (problem.bias != PairTensor::none) {
    const bool narrow = !problem.bias_fp32 && problem.dtype == DataType::fp16;
    const double least = problem.bias_fp32 ? std::numeric_limits<float>::lowest() : narrow ? -2000 : -0x1.fep127;
    std::vector<double> values;
    for_elements(Operand::bias, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      const std::uint32_t kind = random() % 16;
      double value = kind < 2 ? -HUGE_VAL : kind == 2 ? least : normal(random);
      if ((i + h) % 23 == 11) value = least;
      if (!counts(problem, *terms, dimensions_of(problem.bias), b, i, j)) value = std::nan("");
      values.push_back(value);
    });
    if (problem.bias_fp32) {
      terms->set(Operand::bias, std::vector<float>(values.begin(), values.end()));
    } else {
      std::vector<std::uint16_t> bits;
      for (const double value : values) bits.push_back(std::isnan(value) ? kPoison : encode_as(problem.dtype, value));
      terms->set(Operand::bias, bits);
    }
  }
  if (problem.attention_mask != PairTensor::none) {
    std::vector<std::uint8_t> values;
    for_elements(Operand::attention_mask, [&](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j) {
      const bool area = seed % 2 == 1 && (i / 96 + j / 112) % 3 == 1;
      values.push_back((i + h) % 17 == 3 || area || random() % 4 == 0 ? 0 : 1);
    });
    terms->set(Operand::attention_mask, values);
  }
}

double element_of(const AttentionProblem& problem, const TermValues& terms, Operand operand, std::int64_t b,
                  std::int64_t h, std::int64_t i, std::int64_t j) {
  const OperandShape shape = operand_shape(problem, operand);
  const auto at = static_cast<std::size_t>(
      (((b % shape.batch) * shape.heads + h % shape.heads) * shape.rows + i % shape.rows) * shape.columns + j);
  if (shape.element == ElementType::boolean) return terms.of<std::uint8_t>(operand)[at];
  return shape.element == ElementType::fp32 ? terms.of<float>(operand)[at]
                                            : decode_as(problem.dtype, terms.of<std::uint16_t>(operand)[at]);
}

}  // namespace

TermValues make_terms(const AttentionProblem& problem, std::uint32_t seed, std::optional<double> sinks_near) {
  TermValues terms;
  if (problem.sink) {
    const double near = sinks_near.value_or(std::log(static_cast<double>(problem.seq_kv)));
    std::vector<float> sinks;
    for (std::int64_t head = 0; head < problem.heads_q; ++head)
      sinks.push_back(static_cast<float>(near + 0.75 * static_cast<double>(head % 4) - 1));
    terms.set(Operand::sinks, sinks);
  }
  if (problem.alibi) {
    // Also heads that are as without, and one that looks far away first.
    constexpr float kSlopes[] = {0.5f, 0.03125f, 0, 1.75f, -0.0625f, 0.004f};
    std::vector<float> slopes;
    for (std::int64_t i = 0; i < problem.batch * problem.heads_q; ++i)
      slopes.push_back(kSlopes[(static_cast<std::size_t>(i) + seed) % std::size(kSlopes)]);
    terms.set(Operand::alibi_slopes, slopes);
  }
  if (problem.dropout != 0 && seed % 7 != 6) {  // else both are 0
    const auto number = [&](std::uint64_t which) {
      return static_cast<std::int64_t>(mix_bits((2 * std::uint64_t{seed} + which) * kGoldenRatio));
    };
    terms.set(Operand::dropout_state, std::vector{number(0), number(1)});
  }
  if (problem.has_used_lengths()) add_lengths(problem, seed, &terms);
  add_pair_tensors(problem, seed, &terms);
  return terms;
}

std::int64_t used_rows(std::span<const std::int32_t> lengths, std::int64_t b, std::int64_t all) {
  if (lengths.empty()) return all;
  const std::int64_t said = lengths[static_cast<std::size_t>(b)];
  return said < 0 ? 0 : said > all ? all : said;
}

SequenceRow row_of(const AttentionProblem& problem, const TermValues& terms, bool of_queries, std::int64_t b,
                   std::int64_t row) {
  if (!problem.packed) return {b, row, rows_that_count(problem, terms, of_queries, b)};
  for (std::int64_t sequence = 0; sequence < problem.batch; ++sequence) {
    const SequenceRows rows = rows_of(problem, terms, of_queries, sequence);
    const bool behind_last = sequence == problem.batch - 1 && row >= rows.end;
    if (rows.begin <= row && (row < rows.end || behind_last)) return {sequence, row - rows.begin, rows.count};
  }
  return {};
}

bool attends(const AttentionProblem& problem, const TermValues& terms, std::int64_t b, std::int64_t query,
             std::int64_t key) {
  const SequenceRow of_query = row_of(problem, terms, true, b, query), of_key = row_of(problem, terms, false, b, key);
  return of_query.sequence == of_key.sequence && attends(problem, of_query, of_key);
}

std::vector<double> unpacked(const AttentionProblem& problem, Operand operand, const TensorImage& image,
                             const std::vector<std::uint16_t>& memory) {
  const bool of_queries = operand == Operand::q || operand == Operand::o;
  const std::int64_t heads = of_queries ? problem.heads_q : problem.heads_kv;
  const std::int64_t rows = of_queries ? problem.seq_q : problem.seq_kv;
  std::vector<double> values;
  for (std::int64_t b = 0; b < problem.row_batch(); ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t s = 0; s < rows; ++s) {
        for (std::int64_t d = 0; d < problem.head_dim; ++d)
          values.push_back(decode_as(problem.dtype, memory[static_cast<std::size_t>(image.index(b, h, s) + d)]));
      }
    }
  }
  return values;
}

std::string to_string(const ForwardCase& test) {
  const char* placements[] = {"packed", "padded", "reversed"};
  std::ostringstream text;
  text << canonical_text(test.problem) << " | "
       << (test.algorithm   ? std::string(to_string(*test.algorithm))
           : test.looked_up ? "looked up"
                            : canonical_text(test.config))
       << " | " << placements[static_cast<int>(test.placement)] << (test.with_lse ? "" : " no-lse");
  if (test.data) {
    text << ' ' << to_string(*test.data);
  } else {
    text << " q*" << test.q_deviation;
  }
  if (test.shift != 0) text << " shift " << test.shift;
  if (test.sink) text << " sinks near " << *test.sink;
  if (test.v_exponent != 0) text << " v*2^" << test.v_exponent;
  if (test.loud_key >= 0) text << " key " << test.loud_key << " *" << test.loudness;
  return text.str();
}

ForwardData make_data(const ForwardCase& test) {
  ForwardData data = {make_image(test, Role::q), make_image(test, Role::k), make_image(test, Role::v),
                      make_image(test, Role::o), make_terms(test.problem, test.seed, test.sink)};
  // What lies in rows that do not count may be anything.
  const auto spoil = [&](TensorImage* image, bool of_queries) {
    const std::int64_t heads = of_queries ? test.problem.heads_q : test.problem.heads_kv,
                       rows = of_queries ? test.problem.seq_q : test.problem.seq_kv;
    for (std::int64_t b = 0; b < test.problem.row_batch(); ++b) {
      for (std::int64_t s = 0; s < rows; ++s) {
        if (row_of(test.problem, data.terms, of_queries, b, s).counts()) continue;
        for (std::int64_t h = 0; h < heads; ++h)
          std::fill_n(image->memory.begin() + image->index(b, h, s), test.problem.head_dim, kPoison);
      }
    }
  };
  spoil(&data.q, true);
  spoil(&data.k, false);
  // Where all batch entries have one V its rows count for some of them.
  if (test.placement != Placement::reversed || test.problem.packed) spoil(&data.v, false);
  return data;
}

Expected expected_forward(const ForwardCase& test, const ForwardData& data) {
  const AttentionProblem& problem = test.problem;
  const auto dim = static_cast<std::size_t>(problem.head_dim), keys = static_cast<std::size_t>(problem.seq_kv);
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  std::vector<double> table(65536);
  for (std::uint32_t bits = 0; bits < 65536; ++bits)
    table[bits] = decode_as(problem.dtype, static_cast<std::uint16_t>(bits));

  const DropoutMask dropout(problem, data.terms);
  Expected expected;
  // What rounding costs a small P, where the value of the largest one is smaller still.
  double smallest_p = smallest_step_of(problem.dtype) / unit_roundoff_of(problem.dtype);
  // Beside a sink that outweighs them all keys are small, and fp32 is flushed to zero.
  if (problem.sink) smallest_p = std::max(smallest_p, 0x1p-126 / (2 * unit_roundoff_of(problem.dtype)));
  // So they are beside keys that dropout drops; P is held up to 2^-10 below what the maximum says.
  if (problem.dropout != 0) smallest_p = std::max(smallest_p, 0x1p-116 / (2 * unit_roundoff_of(problem.dtype)));
  std::vector<double> k(keys * dim), v(keys * dim), q(dim), scores(keys), sizes(keys), o(dim), weight(dim);
  for (std::int64_t b = 0; b < problem.row_batch(); ++b) {
    for (std::int64_t h = 0; h < problem.heads_q; ++h) {
      for (std::size_t j = 0; j < keys; ++j) {
        const auto k_at = static_cast<std::size_t>(data.k.index(b, h / group, static_cast<std::int64_t>(j)));
        const auto v_at = static_cast<std::size_t>(data.v.index(b, h / group, static_cast<std::int64_t>(j)));
        for (std::size_t d = 0; d < dim; ++d) {
          k[j * dim + d] = table[data.k.memory[k_at + d]];
          v[j * dim + d] = table[data.v.memory[v_at + d]];
        }
      }
      for (std::int64_t i = 0; i < problem.seq_q; ++i) {
        const auto q_at = static_cast<std::size_t>(data.q.index(b, h, i));
        for (std::size_t d = 0; d < dim; ++d) q[d] = table[data.q.memory[q_at + d]];
        std::vector<std::size_t> visible;
        const double sink =
            problem.sink ? data.terms.of<float>(Operand::sinks)[static_cast<std::size_t>(h)] : -HUGE_VAL;
        double largest = sink;
        for (std::size_t j = 0; j < keys; ++j) {
          if (!attends(problem, data.terms, b, i, static_cast<std::int64_t>(j))) continue;
          const SequenceRow of_query = row_of(problem, data.terms, true, b, i),
                            of_key = row_of(problem, data.terms, false, b, static_cast<std::int64_t>(j));
          const auto of_pair = [&](Operand operand) {
            return element_of(problem, data.terms, operand, of_query.sequence, h, of_query.position, of_key.position);
          };
          const double bias = problem.bias == PairTensor::none ? 0 : of_pair(Operand::bias);
          if (bias == -HUGE_VAL) continue;
          if (problem.attention_mask != PairTensor::none && of_pair(Operand::attention_mask) == 0) continue;
          double dot = 0, size = 0;
          for (std::size_t d = 0; d < dim; ++d) {
            dot += q[d] * k[j * dim + d];
            size += std::fabs(q[d] * k[j * dim + d]);
          }
          const double scaled = problem.softmax_scale * dot, cap = problem.softcap;
          scores[j] = cap == 0 ? scaled : cap * std::tanh(scaled / cap);
          double alibi = 0, slope = 0;
          if (problem.alibi) {
            const std::int64_t to_end = of_query.used - of_query.position, key_to_end = of_key.used - of_key.position;
            slope = data.terms.of<float>(
                Operand::alibi_slopes)[static_cast<std::size_t>(of_query.sequence * problem.heads_q + h)];
            alibi = slope * std::fabs(static_cast<double>(to_end - key_to_end));
          }
          // The error of a capped score's tanh counts, too: 2^-16 of it (test_primitives), the bound's unit being
          // 2^-23.
          sizes[j] = std::fabs(problem.softmax_scale) * size + (cap == 0 ? 0 : 0x1p7 * std::fabs(scores[j]));
          // So does the error of what is added, which is rounded with the score.
          scores[j] += bias - alibi;
          sizes[j] += std::fabs(alibi) + std::fabs(bias);
          // Scores of a tile's rows are counted from one diagonal.
          sizes[j] += kMostRows * std::fabs(slope);
          largest = std::max(largest, scores[j]);
          visible.push_back(j);
        }
        std::fill(o.begin(), o.end(), 0);
        std::fill(weight.begin(), weight.end(), 0);
        double sum = std::isinf(sink) ? 0 : std::exp(sink - largest), lse_weight = 0;
        for (const std::size_t j : visible) {
          const double p = std::exp(scores[j] - largest);
          sum += p;
          lse_weight += p * sizes[j];
          const SequenceRow of_query = row_of(problem, data.terms, true, b, i),
                            of_key = row_of(problem, data.terms, false, b, static_cast<std::int64_t>(j));
          const double share = dropout.of(of_query.sequence * problem.heads_q + h, of_query.position, of_key.position);
          for (std::size_t d = 0; d < dim; ++d) {
            o[d] += share * p * v[j * dim + d];
            weight[d] += share * (p + smallest_p) * std::fabs(v[j * dim + d]);
          }
        }
        for (std::size_t d = 0; d < dim; ++d) {
          expected.o.push_back(!visible.empty() ? o[d] / sum : 0);
          expected.weight.push_back(!visible.empty() ? weight[d] / sum : 0);
        }
        expected.lse.push_back(!visible.empty() ? largest + std::log(sum) : sink);
        expected.lse_weight.push_back(!visible.empty() ? lse_weight / sum : 0);
      }
    }
  }
  return expected;
}

ForwardResult run_forward(AttentionRuntime& runtime, const ForwardCase& test, const ForwardData& data, Stream stream) {
  const std::shared_ptr<Device>& device = runtime.device();
  const auto lse_count = static_cast<std::size_t>(operand_shape(test.problem, Operand::lse).elements()) + 2 * kLseGuard;
  float poison = 0;
  std::memcpy(&poison, &kPoisonSingle, 4);
  const DeviceBuffer q = upload(device, data.q.memory), k = upload(device, data.k.memory),
                     v = upload(device, data.v.memory);
  const DeviceTerms terms(device, test.problem, data.terms);
  const PlacedPairs pairs(device, test.problem, data.terms, test.placement);
  const DeviceBuffer o = upload(device, data.o.memory), lse = upload(device, std::vector<float>(lse_count, poison));

  Tensors tensors;
  tensors[Operand::q] = view_of(q, data.q);
  tensors[Operand::k] = view_of(k, data.k);
  tensors[Operand::v] = view_of(v, data.v);
  tensors[Operand::o] = view_of(o, data.o);
  terms.add_to(&tensors);
  pairs.add_to(&tensors);
  if (test.with_lse) tensors[Operand::lse].data = reinterpret_cast<const float*>(lse.pointer()) + kLseGuard;
  const auto plan_of = [&](const auto& kernels) {
    return generate(test.problem, kernels, device->spec(), runtime_templates(), device->target());
  };
  std::shared_ptr<const PreparedAttention> prepared;
  if (!test.looked_up) prepared = runtime.prepare(test.algorithm ? plan_of(*test.algorithm) : plan_of(test.config));
  const DeviceBuffer workspace(device, prepared == nullptr ? runtime.workspace_bytes(test.problem)
                                                           : prepared->plan.workspace_bytes_of(test.problem));
  if (workspace.bytes() > 0) device->fill(workspace.pointer(), 0xff, workspace.bytes());  // NaN
  auto* const used = reinterpret_cast<void*>(workspace.pointer());
  if (prepared == nullptr) {
    runtime.forward(test.problem, tensors, used, workspace.bytes(), stream);
  } else {
    runtime.launch(*prepared, test.problem, tensors, used, workspace.bytes(), stream);
  }
  device->synchronize(stream);

  ForwardResult result;
  result.q = download<std::uint16_t>(device, q);
  result.k = download<std::uint16_t>(device, k);
  result.v = download<std::uint16_t>(device, v);
  result.o = download<std::uint16_t>(device, o);
  result.lse = download<float>(device, lse);
  result.terms_changed = !terms.holds(data.terms);
  return result;
}

std::string complaint(const ForwardCase& test, const ForwardData& data, const Expected& expected,
                      const ForwardResult& result) {
  if (result.terms_changed) return "what the terms read was overwritten";
  if (!equal_bits(result.q, data.q.memory)) return "Q was overwritten";
  if (!equal_bits(result.k, data.k.memory)) return "K was overwritten";
  if (!equal_bits(result.v, data.v.memory)) return "V was overwritten";
  for (std::size_t i = 0; i < result.o.size(); ++i) {
    if (!data.o.used[i] && result.o[i] != kPoison)
      return "memory between or beside the rows of O was overwritten, at element " + std::to_string(i);
  }
  const std::string about_lse = lse_complaint(test, data, expected, result);
  return about_lse.empty() ? output_complaint(test, data, expected, result) : about_lse;
}

bool same_bits(const ForwardResult& a, const ForwardResult& b) {
  return equal_bits(a.o, b.o) && equal_bits(a.lse, b.lse);
}

}  // namespace attune::tests
