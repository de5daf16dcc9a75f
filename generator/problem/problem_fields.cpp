#include "generator/problem/problem_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <utility>

#include "generator/error.h"
#include "generator/mix_bits.h"
#include "generator/problem/element_type.h"
#include "generator/problem/mask_words.h"

namespace attune {
namespace {

using Problem = AttentionProblem;
using Value = std::int64_t;

constexpr std::string_view kPassNames[] = {"forward", "backward"};
constexpr std::string_view kDtypeNames[] = {facts_of(DataType::fp16).name, facts_of(DataType::bf16).name};
constexpr std::string_view kMaskNames[] = {"none", "causal", "window"};
constexpr std::string_view kLayoutNames[] = {"bshd", "bhsd"};
constexpr std::string_view kPairTensorNames[] = {"none", "111k", "11qk", "1h1k", "1hqk",
                                                 "b11k", "b1qk", "bh1k", "bhqk"};
constexpr std::string_view kLengthsNames[] = {"whole", "used", "used-top-left"};

// A text's numbers may be any: validate(), not a conversion, judges them.
int narrowed(Value value) { return static_cast<int>(std::clamp<Value>(value, -(1 << 30), 1 << 30)); }

// Stands in the kernel class and in the dispatch class for a term's values but the standard one: 1 as a float.
constexpr Value kSomeTerm = 0x3f800000;

PairTensor pair_tensor_of(Value value) {
  return value == kSomeTerm ? PairTensor::bhqk : static_cast<PairTensor>(value);
}

template <Value kValue>
Value always_standard(const Problem&) {
  return kValue;
}

constexpr std::array kFields = {
    ProblemField{.word = "",
                 .key = "pass",
                 .flag = "pass",
                 .called = "pass",
                 .form = ProblemFieldForm::name,
                 .role = FieldRole::kernel,
                 .get = [](const Problem& p) { return static_cast<Value>(p.pass); },
                 .set = [](Problem& p, Value value) { p.pass = static_cast<Pass>(value); },
                 .standard = always_standard<static_cast<Value>(Pass::forward)>,
                 .help = "forward (default) or backward",
                 .names = kPassNames,
                 .always = true},
    ProblemField{.word = "",
                 .key = "dtype",
                 .flag = "dtype",
                 .called = "dtype",
                 .form = ProblemFieldForm::name,
                 .role = FieldRole::kernel,
                 .get = [](const Problem& p) { return static_cast<Value>(p.dtype); },
                 .set = [](Problem& p, Value value) { p.dtype = static_cast<DataType>(value); },
                 .standard = always_standard<static_cast<Value>(DataType::bf16)>,
                 .help = "bf16 (default) or fp16",
                 .names = kDtypeNames,
                 .always = true},
    ProblemField{.word = "b",
                 .key = "batch",
                 .flag = "batch",
                 .called = "batch",
                 .form = ProblemFieldForm::number,
                 .role = FieldRole::size,
                 .get = [](const Problem& p) { return p.batch; },
                 .set = [](Problem& p, Value value) { p.batch = value; },
                 .standard = always_standard<1>,
                 .help = "batch entries (default 1)",
                 .always = true},
    ProblemField{.word = "hq",
                 .key = "heads_q",
                 .flag = "heads",
                 .called = "query heads",
                 .form = ProblemFieldForm::number,
                 .role = FieldRole::size,
                 .get = [](const Problem& p) { return p.heads_q; },
                 .set = [](Problem& p, Value value) { p.heads_q = value; },
                 .standard = always_standard<1>,
                 .help = "query heads (default 1)",
                 .always = true},
    ProblemField{.word = "hkv",
                 .key = "heads_kv",
                 .flag = "kv-heads",
                 .called = "key heads",
                 .form = ProblemFieldForm::number,
                 .role = FieldRole::size,
                 .get = [](const Problem& p) { return p.heads_kv; },
                 .set = [](Problem& p, Value value) { p.heads_kv = value; },
                 .standard = [](const Problem& p) { return p.heads_q; },
                 .help = "key/value heads, a divisor of --heads (default: --heads)"},
    ProblemField{.word = "sq",
                 .key = "seq_q",
                 .flag = "seq",
                 .called = "query length",
                 .form = ProblemFieldForm::number,
                 .role = FieldRole::size,
                 .get = [](const Problem& p) { return p.seq_q; },
                 .set = [](Problem& p, Value value) { p.seq_q = value; },
                 .standard = always_standard<1>,
                 .help = "queries",
                 .always = true,
                 .needed = true},
    ProblemField{.word = "skv",
                 .key = "seq_kv",
                 .flag = "kv-seq",
                 .called = "key length",
                 .form = ProblemFieldForm::number,
                 .role = FieldRole::size,
                 .get = [](const Problem& p) { return p.seq_kv; },
                 .set = [](Problem& p, Value value) { p.seq_kv = value; },
                 .standard = [](const Problem& p) { return p.seq_q; },
                 .help = "keys (default: --seq)"},
    ProblemField{.word = "d",
                 .key = "head_dim",
                 .flag = "head-dim",
                 .called = "head dim",
                 .form = ProblemFieldForm::number,
                 .role = FieldRole::kernel,
                 .get = [](const Problem& p) { return Value{p.head_dim}; },
                 .set = [](Problem& p, Value value) { p.head_dim = narrowed(value); },
                 .standard = always_standard<64>,
                 .help = "multiple of 8, at most 256",
                 .always = true,
                 .needed = true},
    ProblemField{.word = "",
                 .key = "mask",
                 .flag = "mask",
                 .called = "mask",
                 .form = ProblemFieldForm::mask,
                 .role = FieldRole::kernel,
                 .get = [](const Problem& p) { return static_cast<Value>(p.mask); },
                 .set = [](Problem& p, Value value) { p.mask = static_cast<MaskKind>(value); },
                 .standard = always_standard<static_cast<Value>(MaskKind::none)>,
                 .help = "none (default), causal (the last query sees all keys), causal-top-left (query i sees keys "
                         "0..i), causal@OFFSET, or window=LEFT,RIGHT (so many keys on both sides of the diagonal that "
                         "ends at the last key, 'open' for all; with --causal none on the right), "
                         "window=LEFT,RIGHT@OFFSET",
                 .names = kMaskNames},
    ProblemField{.word = "scale",
                 .key = "scale",
                 .flag = "scale",
                 .called = "scale",
                 .form = ProblemFieldForm::real,
                 .role = FieldRole::argument,
                 .get = [](const Problem& p) { return real_bits(p.softmax_scale); },
                 .set = [](Problem& p, Value value) { p.softmax_scale = real_value(value); },
                 .standard = [](const Problem& p) { return real_bits(default_softmax_scale(p.head_dim)); },
                 .help = "multiplies the scores (default 1/sqrt(head_dim))"},
    ProblemField{.word = "softcap",
                 .key = "softcap",
                 .flag = "softcap",
                 .called = "softcap",
                 .form = ProblemFieldForm::real,
                 .role = FieldRole::term,
                 .get = [](const Problem& p) { return real_bits(p.softcap); },
                 .set = [](Problem& p, Value value) { p.softcap = real_value(value); },
                 .standard = always_standard<0>,
                 .help = "caps scaled scores x: softcap*tanh(x/softcap) (default: none)",
                 .feature_weight = 1},
    // An addition for each score.
    ProblemField{.word = "alibi",
                 .key = "alibi",
                 .flag = "alibi",
                 .called = "ALiBi",
                 .form = ProblemFieldForm::flag,
                 .role = FieldRole::term,
                 .get = [](const Problem& p) { return Value{p.alibi}; },
                 .set = [](Problem& p, Value value) { p.alibi = value != 0; },
                 .standard = always_standard<0>,
                 .help = "scores fall with the distance from the diagonal that ends at the last key, by a slope of "
                         "each batch entry and query head",
                 .feature_weight = 0.5},
    // A load and an addition for each score. Which dimensions there are is in strides.
    ProblemField{.word = "bias",
                 .key = "bias",
                 .flag = "bias",
                 .called = "bias",
                 .form = ProblemFieldForm::name,
                 .role = FieldRole::term,
                 .get = [](const Problem& p) { return static_cast<Value>(p.bias); },
                 .set = [](Problem& p, Value value) { p.bias = pair_tensor_of(value); },
                 .standard = always_standard<static_cast<Value>(PairTensor::none)>,
                 .help = "added to scores: bhqk, of an element for each pair, with 1 for each of batch, heads and "
                         "queries along which it repeats, such as 1hqk or b11k (default: none)",
                 .names = kPairTensorNames,
                 .feature_weight = 1},
    ProblemField{.word = "bias-fp32",
                 .key = "bias_fp32",
                 .flag = "bias-fp32",
                 .called = "type of the bias",
                 .form = ProblemFieldForm::flag,
                 .role = FieldRole::kernel,
                 .get = [](const Problem& p) { return Value{p.bias_fp32}; },
                 .set = [](Problem& p, Value value) { p.bias_fp32 = value != 0; },
                 .standard = always_standard<0>,
                 .help = "the bias is fp32 (default: as --dtype)",
                 .feature_weight = 0.25},
    // A launch more.
    ProblemField{.word = "bias-gradient",
                 .key = "bias_gradient",
                 .flag = "bias-gradient",
                 .called = "gradient of the bias",
                 .form = ProblemFieldForm::flag,
                 .role = FieldRole::kernel,
                 .get = [](const Problem& p) { return Value{p.bias_gradient}; },
                 .set = [](Problem& p, Value value) { p.bias_gradient = value != 0; },
                 .standard = always_standard<0>,
                 .help = "backward: the bias's gradient, too",
                 .backward_only = true,
                 .feature_weight = 1},
    ProblemField{.word = "attention-mask",
                 .key = "attention_mask",
                 .flag = "attention-mask",
                 .called = "attention mask",
                 .form = ProblemFieldForm::name,
                 .role = FieldRole::term,
                 .get = [](const Problem& p) { return static_cast<Value>(p.attention_mask); },
                 .set = [](Problem& p, Value value) { p.attention_mask = pair_tensor_of(value); },
                 .standard = always_standard<static_cast<Value>(PairTensor::none)>,
                 .help = "a tensor of booleans, true where a query attends to a key: bhqk, with 1 for each of batch, "
                         "heads and queries along which it repeats (default: none)",
                 .names = kPairTensorNames,
                 .feature_weight = 1},
    // Ends of rows differ, and the main loops do not.
    ProblemField{.word = "sink",
                 .key = "sink",
                 .flag = "sink",
                 .called = "sinks",
                 .form = ProblemFieldForm::flag,
                 .role = FieldRole::term,
                 .get = [](const Problem& p) { return Value{p.sink}; },
                 .set = [](Problem& p, Value value) { p.sink = value != 0; },
                 .standard = always_standard<0>,
                 .help = "a logit of each query head counts in the sums of its rows, and has no value",
                 .feature_weight = 0.25},
    // Random numbers for each element, which cost about half as much as all else.
    ProblemField{.word = "dropout",
                 .key = "dropout",
                 .flag = "dropout",
                 .called = "dropout",
                 .form = ProblemFieldForm::real,
                 .role = FieldRole::term,
                 .get = [](const Problem& p) { return real_bits(p.dropout); },
                 .set = [](Problem& p, Value value) { p.dropout = real_value(value); },
                 .standard = always_standard<0>,
                 .help = "drops elements of the softmax with this probability (default: none)",
                 .feature_weight = 1},
    // Tiles and masks end where the device's memory says. How diagonals move is an argument.
    ProblemField{
        .word = "",
        .key = "lengths",
        .flag = "lengths",
        .called = "lengths",
        .form = ProblemFieldForm::name,
        .role = FieldRole::term,
        .get = [](const Problem& p) { return static_cast<Value>(p.lengths); },
        .set = [](Problem& p,
                  Value value) { p.lengths = value == kSomeTerm ? Lengths::used : static_cast<Lengths>(value); },
        .standard = [](const Problem& p) { return static_cast<Value>(p.packed ? Lengths::used : Lengths::whole); },
        .help = "rows of the sequences: whole (default), or used, the first ones of each, as many as a call "
                "says for it; the mask's diagonals move with its ends, or stay: used-top-left",
        .names = kLengthsNames,
        .feature_weight = 1},
    // Where rows begin is in the device's memory, too.
    ProblemField{.word = "packed",
                 .key = "packed",
                 .flag = "packed",
                 .called = "packed sequences",
                 .form = ProblemFieldForm::flag,
                 .role = FieldRole::term,
                 .get = [](const Problem& p) { return Value{p.packed}; },
                 .set = [](Problem& p, Value value) { p.packed = value != 0; },
                 .standard = always_standard<0>,
                 .help = "the sequences, as many as batch says, lie one behind the other in tensors of all queries and "
                         "of all keys, and a call says where each begins",
                 .feature_weight = 1},
    // What is timed.
    ProblemField{.word = "lengths",
                 .key = "distribution",
                 .flag = "length-distribution",
                 .called = "distribution of lengths",
                 .form = ProblemFieldForm::name,
                 .role = FieldRole::pick,
                 .get = [](const Problem& p) { return static_cast<Value>(p.distribution); },
                 .set = [](Problem& p, Value value) { p.distribution = static_cast<LengthDistribution>(value); },
                 .standard = always_standard<static_cast<Value>(LengthDistribution::log_uniform)>,
                 .help = "of packed sequences, with which they are timed: loguniform (default), the longest 64 times "
                         "the shortest; equal; or one-long, one with half of all rows",
                 .names = kLengthDistributionNames,
                 .feature_weight = 0.25},
    // The extents of planes of tensors of pairs.
    ProblemField{.word = "max-sq",
                 .key = "max_seq_q",
                 .flag = "max-seq",
                 .called = "most queries of a sequence",
                 .form = ProblemFieldForm::number,
                 .role = FieldRole::size,
                 .get = [](const Problem& p) { return p.max_seq_q; },
                 .set = [](Problem& p, Value value) { p.max_seq_q = value; },
                 .standard = always_standard<0>,
                 .help = "of packed sequences with a bias or an attention mask, which have so many rows (default: all)",
                 .feature_weight = 0.125},
    ProblemField{.word = "max-skv",
                 .key = "max_seq_kv",
                 .flag = "max-kv-seq",
                 .called = "most keys of a sequence",
                 .form = ProblemFieldForm::number,
                 .role = FieldRole::size,
                 .get = [](const Problem& p) { return p.max_seq_kv; },
                 .set = [](Problem& p, Value value) { p.max_seq_kv = value; },
                 .standard = always_standard<0>,
                 .help = "the same of keys, for which these have so many columns (default: all)",
                 .feature_weight = 0.125},
    ProblemField{.word = "",
                 .key = "layout",
                 .flag = "layout",
                 .called = "layout",
                 .form = ProblemFieldForm::name,
                 .role = FieldRole::label,
                 .get = [](const Problem& p) { return static_cast<Value>(p.layout); },
                 .set = [](Problem& p, Value value) { p.layout = static_cast<Layout>(value); },
                 .standard = always_standard<static_cast<Value>(Layout::bshd)>,
                 .help = "of packed tensors: bshd (default) or bhsd",
                 .names = kLayoutNames},
    // Found from the tensors of a call: no flag.
    ProblemField{.word = "align",
                 .key = "alignment",
                 .flag = "",
                 .called = "alignment",
                 .form = ProblemFieldForm::number,
                 .role = FieldRole::kernel,
                 .get = [](const Problem& p) { return Value{p.alignment}; },
                 .set = [](Problem& p, Value value) { p.alignment = narrowed(value); },
                 .standard = always_standard<16>,
                 .help = "bytes that rows start at a multiple of: 16 (default), or 2"},
    // The fastest way to dQ is another one.
    ProblemField{.word = "deterministic",
                 .key = "deterministic",
                 .flag = "deterministic",
                 .called = "determinism",
                 .form = ProblemFieldForm::flag,
                 .role = FieldRole::pick,
                 .get = [](const Problem& p) { return Value{p.deterministic}; },
                 .set = [](Problem& p, Value value) { p.deterministic = value != 0; },
                 .standard = always_standard<0>,
                 .help = "backward: the same inputs give the same bits of every gradient",
                 .backward_only = true,
                 .feature_weight = 0.5},
    // How rows are summed, and what is tuned for others does not fit.
    ProblemField{.word = "invariant",
                 .key = "invariant",
                 .flag = "invariant",
                 .called = "invariance",
                 .form = ProblemFieldForm::flag,
                 .role = FieldRole::kernel,
                 .get = [](const Problem& p) { return Value{p.invariant}; },
                 .set = [](Problem& p, Value value) { p.invariant = value != 0; },
                 .standard = always_standard<0>,
                 .help = "the bits of a row are the same alone and in a batch, in a chunk and in the whole sequence",
                 .feature_weight = 4},
};

// What every call of a kernel needs of a field, as constants that the compiler sees through.
struct FieldAccess {
  FieldRole role;
  decltype(ProblemField::get) get;
  decltype(ProblemField::set) set;
  decltype(ProblemField::standard) standard;
  decltype(ProblemField::of_class) of_class;

  // Asked only of a term that has another value than the standard one.
  Value class_of(const Problem& problem) const { return of_class == nullptr ? kSomeTerm : of_class(get(problem)); }
};
template <std::size_t kIndex>
constexpr FieldAccess access_to(std::integral_constant<std::size_t, kIndex>) {
  return {kFields[kIndex].role, kFields[kIndex].get, kFields[kIndex].set, kFields[kIndex].standard,
          kFields[kIndex].of_class};
}

template <typename Visit>
void for_each_field(const Visit& visit) {
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (visit(std::integral_constant<std::size_t, kIndex>()), ...);
  }
  (std::make_index_sequence<kFields.size()>());
}

// Odd, and without relations that sizes of problems could have: SplitMix64 of the field's number.
constexpr std::uint64_t hash_factor(std::uint64_t number) { return mix_bits((number + 1) * kGoldenRatio) | 1; }

std::string shortest_text(float value) {
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), end);
}

void add_word(const std::string& word, std::string* text) {
  if (!word.empty()) text->append(text->empty() ? "" : " ").append(word);
}

}  // namespace

float real_value(std::int64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }
// -0 equals 0.
std::int64_t real_bits(float value) { return std::bit_cast<std::uint32_t>(value == 0 ? 0.0f : value); }

std::string ProblemField::word_of(std::string_view name) const {
  return word.empty() ? std::string(name) : fmt::format("{}={}", word, name);
}

std::string ProblemField::text(const AttentionProblem& problem) const {
  switch (form) {
    case ProblemFieldForm::number:
      return fmt::format("{}{}", word, get(problem));
    case ProblemFieldForm::real:
      return fmt::format("{}{}", word, shortest_text(real_value(get(problem))));
    case ProblemFieldForm::name:
      return word_of(names[static_cast<std::size_t>(get(problem))]);
    case ProblemFieldForm::flag:
      return std::string(word);
    case ProblemFieldForm::mask:
      return mask_words(problem);
  }
  return {};
}

std::string_view to_string(ProblemFieldForm form) {
  constexpr std::string_view kNames[] = {"number", "real", "name", "flag", "mask"};
  return kNames[static_cast<std::size_t>(form)];
}

std::string_view to_string(FieldRole role) {
  constexpr std::string_view kNames[] = {"kernel", "size", "pick", "term", "argument", "label"};
  return kNames[static_cast<std::size_t>(role)];
}

std::span<const ProblemField> problem_fields() { return kFields; }

const ProblemField& problem_field(std::string_view key) {
  for (const ProblemField& field : kFields) {
    if (field.key == key) return field;
  }
  throw Error(ErrorCode::internal, fmt::format("a problem has no field {}", key));
}

std::string feature_words(const AttentionProblem& problem) {
  std::string words;
  for (const ProblemField& field : kFields) {
    if (field.feature_weight && !field.is_standard(problem)) add_word(field.text(problem), &words);
  }
  return words;
}

double feature_distance(const AttentionProblem& problem, std::string_view words_of_other) {
  const AttentionProblem other = words_of_other.empty() ? AttentionProblem() : parse_problem(words_of_other);
  double apart = 0;
  for (const ProblemField& field : kFields) {
    const bool differs = field.role == FieldRole::term ? field.is_standard(problem) != field.is_standard(other)
                                                       : field.get(problem) != field.get(other);
    if (field.feature_weight && differs) apart += *field.feature_weight;
  }
  return apart;
}

AttentionProblem kernel_fields(const AttentionProblem& problem) {
  AttentionProblem fields;
  for_each_field([&](auto index) {
    constexpr FieldAccess kField = access_to(index);
    if constexpr (kField.role == FieldRole::kernel) kField.set(fields, kField.get(problem));
    if constexpr (kField.role == FieldRole::term) {
      if (kField.get(problem) != kField.standard(problem)) kField.set(fields, kField.class_of(problem));
    }
  });
  return fields;
}

void reset_arguments(AttentionProblem* problem) {
  for_each_field([&](auto index) {
    constexpr FieldAccess kField = access_to(index);
    if constexpr (kField.role == FieldRole::argument) kField.set(*problem, kField.standard(*problem));
    if constexpr (kField.role == FieldRole::term) {
      if (kField.get(*problem) != kField.standard(*problem)) kField.set(*problem, kField.class_of(*problem));
    }
  });
}

std::string kernel_class_words(const AttentionProblem& problem) {
  std::string words;
  for (const ProblemField& field : kFields) {
    if (field.role == FieldRole::term && !field.is_standard(problem)) {
      add_word(field.class_words != nullptr           ? field.class_words(problem)
               : field.form == ProblemFieldForm::name ? field.text(kernel_fields(problem))
                                                      : std::string(field.word),
               &words);
    }
    if (field.role != FieldRole::kernel || (!field.always && field.is_standard(problem))) continue;
    const bool is_mask = field.form == ProblemFieldForm::mask;
    add_word(is_mask ? std::string(to_string(problem.mask)) : field.text(problem), &words);
  }
  return words;
}

std::string_view to_string(DataType dtype) { return facts_of(dtype).name; }
std::string_view to_string(Pass pass) { return kPassNames[static_cast<std::size_t>(pass)]; }
std::string_view to_string(Layout layout) { return kLayoutNames[static_cast<std::size_t>(layout)]; }
std::string_view to_string(MaskKind mask) { return kMaskNames[static_cast<std::size_t>(mask)]; }

// Multilinear, with a factor for each field: the products do not wait for each other.
std::size_t AttentionProblemHash::operator()(const AttentionProblem& problem) const noexcept {
  std::uint64_t hash = 0;
  for_each_field([&](auto index) {
    constexpr FieldAccess kField = access_to(index);
    constexpr std::uint64_t kFactor = hash_factor(index);
    hash += static_cast<std::uint64_t>(kField.get(problem)) * kFactor;
  });
  hash += static_cast<std::uint64_t>(problem.mask_offset) * hash_factor(kFields.size());
  hash += static_cast<std::uint64_t>(problem.first_offset) * hash_factor(kFields.size() + 1);
  hash = (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9u;
  return static_cast<std::size_t>(hash ^ hash >> 29);
}

}  // namespace attune
