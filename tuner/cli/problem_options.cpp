#include "tuner/cli/problem_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "generator/error.h"
#include "generator/problem/window.h"
#include "tuner/cli/suggestion.h"

namespace attune::cli {
namespace {

const std::vector<std::string> kMasks = {"none", "causal", "causal-top-left", "window="};

std::vector<std::string> suggestions(const ProblemField& field) {
  if (field.form == ProblemFieldForm::mask) return kMasks;
  // The default first.
  std::vector<std::string> names(field.names.begin(), field.names.end());
  const auto standard = static_cast<std::ptrdiff_t>(field.standard({}));
  if (!names.empty()) std::rotate(names.begin(), names.begin() + standard, names.begin() + standard + 1);
  return names;
}

constexpr const char* kOnlyForward =
    "this command's files hold the tensors of forward problems only; check, bench and tune make those of a backward "
    "problem themselves";

}  // namespace

std::string with_dashes(const ProblemField& field) { return fmt::format("--{}", field.flag); }

std::int64_t ProblemOptions::Flag::value() const {
  if (field->form == ProblemFieldForm::real) {
    const auto rounded = static_cast<float>(real.value());
    const bool may_be_none = field->standard({}) == real_bits(0);  // which nothing but 0 itself asks for
    if (!std::isfinite(rounded) || (rounded <= 0 && !(may_be_none && *real == 0))) {
      refuse(fmt::format("{} {}: must be {}positive and finite as a float; leave it out for its default",
                         with_dashes(*field), *real, may_be_none ? "0 or " : ""));
    }
    return real_bits(rounded);
  }
  if (field->form == ProblemFieldForm::name) {
    const auto found = std::find(field->names.begin(), field->names.end(), text);
    if (found == field->names.end()) {
      const std::vector<std::string> names = suggestions(*field);
      refuse(fmt::format("{} {}: expected {}{}", with_dashes(*field), text, fmt::join(names, " or "),
                         did_you_mean(text, names)));
    }
    return found - field->names.begin();
  }
  return field->form == ProblemFieldForm::flag ? is_set : number.value();
}

void ProblemOptions::add_to(CommandLine& verb, Passes passes, Sizes sizes) {
  passes_ = passes;
  const char* group = "Problem";
  verb.add_option("--problem", text_, "the whole problem as text: \"forward bf16 b4 hq16 sq4096 d128 causal\"")
      .group(group);
  flags_.reserve(problem_fields().size());  // the command line keeps references
  for (const ProblemField& field : problem_fields()) {
    if (field.flag.empty() || (field.backward_only && passes == Passes::forward)) continue;
    Flag& flag = flags_.emplace_back();
    flag.field = &field;
    const bool only_forward = field.key == "pass" && passes == Passes::forward;
    const bool needed = field.needed && sizes == Sizes::needed;
    const std::string help =
        only_forward             ? "forward (default)"
        : field.key == "lengths" ? fmt::format(
                                       "{}. Or those of packed sequences, which stand for --packed, --batch "
                                       "and --seq, too: {}",
                                       field.help, kLengthsForms)
        : needed ? fmt::format("{} (required, unless the whole problem is named otherwise)", field.help)
                 : std::string(field.help);
    switch (field.form) {
      case ProblemFieldForm::number:
        verb.add_option(with_dashes(field), flag.number, help).group(group);
        break;
      case ProblemFieldForm::real:
        verb.add_option(with_dashes(field), flag.real, help).group(group);
        break;
      case ProblemFieldForm::name:
      case ProblemFieldForm::mask:
        verb.add_option(with_dashes(field), flag.text, help)
            .group(group)
            .suggest(only_forward ? std::vector<std::string>{"forward"} : suggestions(field));
        break;
      case ProblemFieldForm::flag:
        verb.add_flag(with_dashes(field), flag.is_set, help).group(group);
        break;
    }
    if (field.key == "lengths") {
      verb.add_option("--kv-lengths", kv_lengths_,
                      "keys of each packed sequence, where they are others than its queries")
          .group(group);
    }
    if (field.form == ProblemFieldForm::mask)
      verb.add_flag("--causal", causal_, "short for --mask causal").group(group);
  }
  verb.add_option("--seed", seed_, "of random inputs (default 1)").group(group);
}

void ProblemOptions::add_used_lengths_to(CommandLine& verb) {
  const char* group = "Problem";
  verb.add_option(
          "--used-lengths", used_,
          "rows of each sequence that count, as 77,0,130: its first queries and keys (--lengths used, whose lengths "
          "are random otherwise). With a mask that names its offset, or top left, the diagonals stay")
      .group(group);
  verb.add_option("--used-kv-lengths", used_kv_, "keys of each sequence, where they are others than its queries")
      .group(group);
}

namespace {

// What the tensors of a call do not tell: the mask, numbers such as the scale, features.
bool is_of_call(const ProblemField& field) {
  return field.form == ProblemFieldForm::mask || field.form == ProblemFieldForm::real ||
         field.feature_weight.has_value();
}

}  // namespace

// One that this verb does not have was not given.
const ProblemOptions::Flag& ProblemOptions::flag(std::string_view key) const {
  static const Flag none;
  const auto found =
      std::find_if(flags_.begin(), flags_.end(), [&](const Flag& each) { return each.field->key == key; });
  return found == flags_.end() ? none : *found;
}

bool ProblemOptions::any_given() const {
  return !text_.empty() || causal_ || !kv_lengths_.empty() ||
         std::any_of(flags_.begin(), flags_.end(),
                     [](const Flag& each) { return each.is_given() || each.names_sequences(); });
}

void ProblemOptions::refuse_conflicts() const {
  const auto refuse_beside_text = [&](bool given, const std::string& flag) {
    if (given && !text_.empty())
      refuse(fmt::format("--problem already names the whole problem: leave out {}, or put it into the text", flag));
  };
  for (const Flag& each : flags_) refuse_beside_text(each.is_given(), with_dashes(*each.field));
  refuse_beside_text(causal_, "--causal");
  const std::string& mask = flag("mask").text;
  if (causal_ && !mask.empty() && mask != "causal" && !mask.starts_with(kWindowWord)) {
    refuse(fmt::format("--causal is short for --mask causal and contradicts --mask {}: give one of them", mask));
  }
  const Flag& pass = flag("pass");
  if (pass.is_given() && static_cast<Pass>(pass.value()) == Pass::backward && passes_ == Passes::forward)
    refuse(fmt::format("--pass backward: {}", kOnlyForward));
}

void ProblemOptions::apply_what_is_of_call(const std::optional<NamedSequences>& sequences,
                                           AttentionProblem& problem) const {
  if (causal_) apply_mask_word("causal", &problem);
  const std::string& named = flag("mask").text;
  const std::string mask = causal_ && named == "causal" ? "" : named;
  if (!mask.empty() && mask != "none") {
    const bool set = apply_mask_word(mask, &problem);
    if (!set && mask.find('@') != std::string::npos)
      refuse(fmt::format("--mask {}: the offset after '@' must be a whole number", mask));
    if (!set) refuse(fmt::format("--mask {}: expected one of: {}{}", mask, kMaskWords, did_you_mean(mask, kMasks)));
  }
  for (const Flag& each : flags_) {
    if (is_of_call(*each.field) && each.field->form != ProblemFieldForm::mask) {
      const std::optional<std::int64_t> of_lengths = sequences ? sequences->value_of(each.field->key) : std::nullopt;
      each.field->set(problem, each.is_given() ? each.value() : of_lengths.value_or(each.field->standard(problem)));
    }
  }
}

// Lengths are used ones. A mask that was named by its offset is the same for all sequences.
void ProblemOptions::apply_used_lengths(AttentionProblem& problem) const {
  const std::string& mask = flag("mask").text;
  const bool stays = mask == "causal-top-left" || mask.find('@') != std::string::npos;
  if (!used_.empty() || !used_kv_.empty()) {
    if (!problem.has_used_lengths()) problem.lengths = Lengths::used;
  }
  if (problem.lengths == Lengths::used && stays) problem.lengths = Lengths::used_top_left;
  problem = simplest_mask(problem);
}

namespace {

std::vector<std::int32_t> lengths_of(const std::string& flag, const std::string& text, std::int64_t most) {
  std::vector<std::int32_t> lengths;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t length = 0;
    const char *from = text.data() + begin, *to = text.data() + end;
    const auto [stopped, error] = std::from_chars(from, to, length);
    if (error != std::errc() || stopped != to || length < 0 || length > most) {
      refuse(fmt::format("{} {}: '{}' is no number of rows from 0 to {}; write for example {} 5,0,2", flag, text,
                         std::string(from, to), most, flag));
    }
    lengths.push_back(static_cast<std::int32_t>(length));
    begin = end + 1;
  }
  return lengths;
}

std::vector<std::int32_t> lengths_of_batch(const std::string& flag, const std::string& text, std::int64_t batch,
                                           std::int64_t most) {
  std::vector<std::int32_t> lengths = lengths_of(flag, text, most);
  if (static_cast<std::int64_t>(lengths.size()) != batch) {
    refuse(fmt::format("{} {}: {} lengths, but the batch has {} entries; give one for each", flag, text, lengths.size(),
                       batch));
  }
  return lengths;
}

std::vector<std::int32_t> begins_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> begins = {0};
  for (const std::int64_t length : lengths) begins.push_back(begins.back() + static_cast<std::int32_t>(length));
  return begins;
}

}  // namespace

std::optional<NamedSequences> ProblemOptions::sequences() const {
  const auto named = [](const char* of, const std::string& text) {
    try {
      return parse_lengths(text);
    } catch (const Error& error) {
      refuse(fmt::format("{} {}", of, error.what()));
    }
  };
  const Flag& lengths = flag("lengths");
  if (!lengths.names_sequences() && !kv_lengths_.empty())
    refuse(fmt::format("--kv-lengths {}: say the queries of each sequence, too, as --lengths", kv_lengths_));
  if (!lengths.names_sequences()) return std::nullopt;
  NamedSequences sequences;
  sequences.queries = named("--lengths", lengths.text);
  sequences.keys = kv_lengths_.empty() ? sequences.queries : named("--kv-lengths", kv_lengths_);
  sequences.with_pairs = flag("bias").is_given() || flag("attention_mask").is_given();
  return sequences;
}

TermValues ProblemOptions::terms(const AttentionProblem& problem) const {
  TermValues terms;
  const std::optional<NamedSequences> packed = sequences();
  if (packed) {  // all rows of each, unless others are said
    const std::vector<std::int64_t>&queries = packed->queries.lengths, &keys = packed->keys.lengths;
    terms.set(Operand::cu_seqlens_q, begins_of(queries));
    terms.set(Operand::cu_seqlens_kv, begins_of(keys));
    terms.set(Operand::seqused_q, std::vector<std::int32_t>(queries.begin(), queries.end()));
    terms.set(Operand::seqused_kv, std::vector<std::int32_t>(keys.begin(), keys.end()));
  }
  if (used_.empty() && used_kv_.empty()) return terms;
  if (!used_.empty())
    terms.set(Operand::seqused_q, lengths_of_batch("--used-lengths", used_, problem.batch, problem.seq_q));
  else if (!packed)
    terms.set(Operand::seqused_q, std::vector<std::int32_t>(static_cast<std::size_t>(problem.batch),
                                                            static_cast<std::int32_t>(problem.seq_q)));
  const bool of_keys = !used_kv_.empty();
  terms.set(Operand::seqused_kv, lengths_of_batch(of_keys ? "--used-kv-lengths" : "--used-lengths",
                                                  of_keys ? used_kv_ : used_, problem.batch, problem.seq_kv));
  return terms;
}

void ProblemOptions::require_sequences(const NamedSequences& sequences, const AttentionProblem& problem) const {
  for (const auto& [of, named, rows] :
       {std::tuple("--lengths", &sequences.queries, problem.seq_q),
        std::tuple(kv_lengths_.empty() ? "--lengths" : "--kv-lengths", &sequences.keys, problem.seq_kv)}) {
    const auto count = static_cast<std::int64_t>(named->lengths.size());
    if (problem.packed && count == problem.batch && named->rows() == rows) continue;
    refuse(fmt::format("{}: {} sequences of {} rows together, but the problem is \"{}\"; let both say the same", of,
                       count, named->rows(), canonical_text(problem)));
  }
}

AttentionProblem ProblemOptions::problem() const {
  refuse_conflicts();
  const std::optional<NamedSequences> packed = sequences();
  AttentionProblem problem;
  if (!text_.empty()) {
    problem = parse_problem(text_);
    if (problem.pass == Pass::backward && passes_ == Passes::forward)
      refuse(fmt::format("--problem \"{}\": {}", text_, kOnlyForward));
  } else {
    for (const Flag& each : flags_) {
      const ProblemField& field = *each.field;
      if (is_of_call(field)) continue;
      const std::optional<std::int64_t> of_lengths = packed ? packed->value_of(field.key) : std::nullopt;
      if (field.needed && !each.is_given() && !of_lengths) {
        refuse(fmt::format("the problem needs {} ({}), or the whole problem as --problem TEXT", with_dashes(field),
                           field.help));
      }
      const std::int64_t value = each.is_given() ? each.value() : of_lengths.value_or(field.standard(problem));
      field.set(problem, value);
      if (field.get(problem) != value) refuse(fmt::format("{} {}: the number is too large", with_dashes(field), value));
    }
    // The sizes first: the mask's offset is a difference of lengths, and the default scale a function of the head
    // dimension.
    validate(problem);
    apply_what_is_of_call(packed, problem);
  }
  apply_used_lengths(problem);
  validate(problem);
  if (packed) require_sequences(*packed, problem);
  return problem;
}

bool ProblemOptions::names_mask() const {
  const std::string& mask = flag("mask").text;
  if (causal_ || (!mask.empty() && mask != "none")) return true;
  const std::string words = " " + text_;
  return words.find(" causal") != std::string::npos || words.find(fmt::format(" {}", kWindowWord)) != std::string::npos;
}

Layout ProblemOptions::layout() const {
  if (!text_.empty()) return parse_problem(text_).layout;
  const Flag& layout = flag("layout");
  return layout.is_given() ? static_cast<Layout>(layout.value()) : Layout::bshd;
}

AttentionProblem ProblemOptions::problem_of(const AttentionProblem& tensors) const {
  refuse_conflicts();
  if (sequences()) {
    refuse(
        "the input file's cu_seqlens_q and cu_seqlens_kv say where sequences begin: leave --lengths and --kv-lengths "
        "out, and say --packed");
  }
  AttentionProblem found = tensors;
  const auto disagrees = [&](const std::string& what) {
    refuse(
        fmt::format("{} does not agree with the input file, whose tensors are \"{}\"; leave it out, or give the right "
                    "file",
                    what, canonical_text(tensors)));
  };
  if (!text_.empty()) {
    const AttentionProblem named = parse_problem(text_);
    copy_mask(named, &found);
    for (const ProblemField& field : problem_fields()) {
      if (is_of_call(field) && field.form != ProblemFieldForm::mask) field.set(found, field.get(named));
    }
    found.alignment = named.alignment;
    if (named.packed) found.batch = named.batch;  // which the file's cu_seqlens_q is held to
    if (!(found == named)) disagrees(fmt::format("--problem \"{}\"", canonical_text(named)));
    apply_used_lengths(found);
    validate(found);
    return found;
  }
  for (const Flag& each : flags_) {
    const ProblemField& field = *each.field;
    if (each.is_given() && !is_of_call(field) && each.value() != field.get(found))
      disagrees(fmt::format("{} {}", with_dashes(field), each.number ? std::to_string(*each.number) : each.text));
  }
  validate(found);
  apply_what_is_of_call(std::nullopt, found);
  apply_used_lengths(found);
  validate(found);
  return found;
}

std::size_t element_count(const AttentionProblem& problem, Operand operand) {
  constexpr std::size_t kMost = std::size_t{1} << 45;
  const OperandShape shape = operand_shape(problem, operand);
  const std::int64_t factors[] = {shape.batch, shape.heads, shape.rows, shape.columns};
  std::size_t count = 1;
  for (const std::int64_t factor : factors) {
    const auto size = static_cast<std::size_t>(factor);
    if (size > kMost / count) {
      refuse(fmt::format("\"{}\" is too large: tensor {} would have more than 2^45 elements", canonical_text(problem),
                         to_string(operand)));
    }
    count *= size;
  }
  return count;
}

}  // namespace attune::cli
