#include "tuner/cli/problem_options.h"

#include <fmt/core.h>

#include <cmath>
#include <vector>

#include "generator/error.h"
#include "generator/problem/window.h"
#include "tuner/cli/suggestion.h"

namespace attune::cli {
namespace {

const std::vector<std::string> kDtypes = {"bf16", "fp16"}, kLayouts = {"bshd", "bhsd"},
                               kPasses = {"forward", "backward"},
                               kMasks = {"none", "causal", "causal-top-left", "window="};

DataType parse_dtype(const std::string& text) {
  if (text == "bf16") return DataType::bf16;
  if (text == "fp16") return DataType::fp16;
  refuse(fmt::format("--dtype {}: expected bf16 or fp16{}", text, did_you_mean(text, kDtypes)));
}

Layout parse_layout(const std::string& text) {
  if (text == "bshd") return Layout::bshd;
  if (text == "bhsd") return Layout::bhsd;
  refuse(fmt::format("--layout {}: expected bshd (batch, seq, head, dim) or bhsd (batch, head, seq, dim){}", text,
                     did_you_mean(text, kLayouts)));
}

constexpr const char* kOnlyForward =
    "this command's files hold the tensors of forward problems only; check, bench and tune make those of a backward "
    "problem themselves";

void must_agree(const char* flag, const std::optional<std::int64_t>& given, std::int64_t found, const char* where) {
  if (given && *given != found) {
    refuse(fmt::format("{} {} does not agree with the input file: {} is {}; leave the flag out, or give the right file",
                       flag, *given, where, found));
  }
}

}  // namespace

void ProblemOptions::add_to(CommandLine& verb, Passes passes, Sizes sizes) {
  passes_ = passes;
  const char* group = "Problem";
  const auto needed = [&](const std::string& what) {
    return sizes == Sizes::needed ? what + " (required, unless the whole problem is named otherwise)" : what;
  };
  verb.add_option("--problem", text_, "the whole problem as text: \"forward bf16 b4 hq16 sq4096 d128 causal\"")
      .group(group);
  verb.add_option("--pass", pass_, passes == Passes::all ? "forward (default) or backward" : "forward (default)")
      .group(group)
      .suggest(passes == Passes::all ? kPasses : std::vector<std::string>{"forward"});
  verb.add_option("--dtype", dtype_, "bf16 (default) or fp16").group(group).suggest(kDtypes);
  verb.add_option("--batch", batch_, "batch entries (default 1)").group(group);
  verb.add_option("--heads", heads_, "query heads (default 1)").group(group);
  verb.add_option("--kv-heads", kv_heads_, "key/value heads, a divisor of --heads (default: --heads)").group(group);
  verb.add_option("--seq", seq_, needed("queries")).group(group);
  verb.add_option("--kv-seq", kv_seq_, "keys (default: --seq)").group(group);
  verb.add_option("--head-dim", head_dim_, needed("multiple of 8, at most 256")).group(group);
  verb.add_option(
          "--mask", mask_,
          "none (default), causal (the last query sees all keys), causal-top-left (query i sees keys 0..i), "
          "causal@OFFSET, or window=LEFT,RIGHT (so many keys on both sides of the diagonal that ends at the last "
          "key, 'open' for all; with --causal none on the right), window=LEFT,RIGHT@OFFSET")
      .group(group)
      .suggest(kMasks);
  verb.add_flag("--causal", causal_, "short for --mask causal").group(group);
  if (passes == Passes::all) {
    verb.add_flag("--deterministic", deterministic_, "backward: the same inputs give the same bits of every gradient")
        .group(group);
  }
  verb.add_option("--scale", scale_, "multiplies the scores (default 1/sqrt(head_dim))").group(group);
  verb.add_option("--layout", layout_, "of packed tensors: bshd (default) or bhsd").group(group).suggest(kLayouts);
  verb.add_option("--seed", seed_, "of random inputs (default 1)").group(group);
}

bool ProblemOptions::any_given() const {
  return !text_.empty() || !pass_.empty() || !dtype_.empty() || !mask_.empty() || !layout_.empty() || batch_ ||
         heads_ || kv_heads_ || seq_ || kv_seq_ || head_dim_ || scale_ || causal_ || deterministic_;
}

void ProblemOptions::refuse_conflicts() const {
  if (!text_.empty()) {
    const std::pair<bool, const char*> others[] = {
        {!pass_.empty(), "--pass"},
        {!dtype_.empty(), "--dtype"},
        {batch_.has_value(), "--batch"},
        {heads_.has_value(), "--heads"},
        {kv_heads_.has_value(), "--kv-heads"},
        {seq_.has_value(), "--seq"},
        {kv_seq_.has_value(), "--kv-seq"},
        {head_dim_.has_value(), "--head-dim"},
        {!mask_.empty(), "--mask"},
        {causal_, "--causal"},
        {deterministic_, "--deterministic"},
        {scale_.has_value(), "--scale"},
        {!layout_.empty(), "--layout"},
    };
    for (const auto& [given, flag] : others) {
      if (given)
        refuse(fmt::format("--problem already names the whole problem: leave out {}, or put it into the text", flag));
    }
  }
  if (causal_ && !mask_.empty() && mask_ != "causal" && !mask_.starts_with(kWindowWord)) {
    refuse(fmt::format("--causal is short for --mask causal and contradicts --mask {}: give one of them", mask_));
  }
  const bool is_backward = pass_ == "backward";
  if (!pass_.empty() && pass_ != "forward" && !is_backward)
    refuse(fmt::format("--pass {}: expected forward or backward{}", pass_, did_you_mean(pass_, kPasses)));
  if (is_backward && passes_ == Passes::forward) refuse(fmt::format("--pass backward: {}", kOnlyForward));
}

void ProblemOptions::apply_mask_and_scale(AttentionProblem& problem) const {
  if (causal_) apply_mask_word("causal", &problem);
  const std::string mask = causal_ && mask_ == "causal" ? "" : mask_;
  if (!mask.empty() && mask != "none") {
    const bool set = apply_mask_word(mask, &problem);
    if (!set && mask.find('@') != std::string::npos)
      refuse(fmt::format("--mask {}: the offset after '@' must be a whole number", mask));
    if (!set) refuse(fmt::format("--mask {}: expected one of: {}{}", mask, kMaskWords, did_you_mean(mask, kMasks)));
  }
  if (scale_) {
    problem.softmax_scale = static_cast<float>(*scale_);
    if (!std::isfinite(problem.softmax_scale) || problem.softmax_scale <= 0) {
      refuse(fmt::format("--scale {}: must be positive and finite as a float; leave it out for 1/sqrt(head_dim)",
                         *scale_));
    }
  } else if (problem.head_dim > 0) {
    problem.softmax_scale = default_softmax_scale(problem.head_dim);
  }
}

AttentionProblem ProblemOptions::problem() const {
  refuse_conflicts();
  AttentionProblem problem;
  if (!text_.empty()) {
    problem = parse_problem(text_);
    if (problem.pass == Pass::backward && passes_ == Passes::forward)
      refuse(fmt::format("--problem \"{}\": {}", text_, kOnlyForward));
  } else {
    if (!seq_) refuse("the problem needs --seq (queries), or the whole problem as --problem TEXT");
    if (!head_dim_) refuse("the problem needs --head-dim, or the whole problem as --problem TEXT");
    if (!dtype_.empty()) problem.dtype = parse_dtype(dtype_);
    if (pass_ == "backward") problem.pass = Pass::backward;
    problem.deterministic = deterministic_;
    problem.layout = layout();
    problem.batch = batch_.value_or(1);
    problem.heads_q = heads_.value_or(1);
    problem.heads_kv = kv_heads_.value_or(problem.heads_q);
    problem.seq_q = *seq_;
    problem.seq_kv = kv_seq_.value_or(*seq_);
    problem.head_dim = *head_dim_;
    // The sizes first: the mask's offset is a difference of lengths, and the default scale a function of the head
    // dimension.
    validate(problem);
    apply_mask_and_scale(problem);
  }
  validate(problem);
  return problem;
}

bool ProblemOptions::names_mask() const {
  if (causal_ || (!mask_.empty() && mask_ != "none")) return true;
  const std::string words = " " + text_;
  return words.find(" causal") != std::string::npos || words.find(fmt::format(" {}", kWindowWord)) != std::string::npos;
}

Layout ProblemOptions::layout() const {
  if (!text_.empty()) return parse_problem(text_).layout;
  return layout_.empty() ? Layout::bshd : parse_layout(layout_);
}

AttentionProblem ProblemOptions::problem_of(const AttentionProblem& tensors) const {
  refuse_conflicts();
  AttentionProblem found = tensors;
  if (!text_.empty()) {
    const AttentionProblem named = parse_problem(text_);
    copy_mask(named, &found);
    found.softmax_scale = named.softmax_scale;
    found.alignment = named.alignment;
    if (!(found == named)) {
      refuse(fmt::format("--problem \"{}\" does not agree with the input file, whose tensors are \"{}\"",
                         canonical_text(named), canonical_text(found)));
    }
    validate(found);
    return found;
  }
  if (!dtype_.empty() && parse_dtype(dtype_) != found.dtype) {
    refuse(fmt::format("--dtype {} does not agree with the input file, whose tensors are {}", dtype_,
                       to_string(found.dtype)));
  }
  must_agree("--batch", batch_, found.batch, "the batch of q");
  must_agree("--heads", heads_, found.heads_q, "the number of heads of q");
  must_agree("--kv-heads", kv_heads_, found.heads_kv, "the number of heads of k");
  must_agree("--seq", seq_, found.seq_q, "the length of q");
  must_agree("--kv-seq", kv_seq_, found.seq_kv, "the length of k");
  must_agree("--head-dim", head_dim_, found.head_dim, "the last dimension of q");
  validate(found);
  apply_mask_and_scale(found);
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
