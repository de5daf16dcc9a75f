#include "generator/export/exported_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "generator/error.h"
#include "generator/export/launcher_text.h"
#include "generator/plan/launch_rules.h"
#include "generator/problem/element_type.h"
#include "generator/problem/mask_geometry.h"
#include "generator/text/attention_bindings.h"
#include "generator/text/renderer.h"

namespace attune {
namespace {

using Item = std::map<std::string, std::string>;

struct Template {
  const char* file;
  const char* name;
};
constexpr Template kTemplates[] = {{"kernel.cu", "export/kernel"},          {"launch.h", "export/launch_h"},
                                   {"launch.cpp", "export/launch_cpp"},     {"test.cu", "export/test"},
                                   {"CMakeLists.txt", "export/cmakelists"}, {"README.md", "export/readme"}};

std::string text_of(bool value) { return value ? "true" : "false"; }

std::string float_text(float value) {
  const std::string digits = fmt::format("{}", value);
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0f" : digits + "f";
}

// Keywords with an underscore, of C and C++. What ends in _t is kept for types by POSIX.
constexpr std::string_view kKeywords[] = {
    "and_eq", "co_await",     "co_return",   "co_yield",      "const_cast",   "not_eq",        "or_eq",
    "xor_eq", "dynamic_cast", "static_cast", "static_assert", "thread_local", "typeof_unqual", "reinterpret_cast"};

// A name in C of which no name with something behind it is reserved.
void require_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  constexpr std::size_t kLongest = 64;
  if (!name.empty() && name.size() <= kLongest && std::all_of(name.begin(), name.end(), fits) &&
      (name[0] < '0' || name[0] > '9') && name[0] != '_' && name.find("__") == std::string::npos &&
      name.find('_') != std::string::npos) {
    if (!name.ends_with("_t") && std::find(std::begin(kKeywords), std::end(kKeywords), name) == std::end(kKeywords))
      return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("name '{}': is a word of C, C++ or of the system's headers; take another, such as "
                            "my_attention",
                            name));
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("name '{}': must be a name in C with an underscore inside, such as my_attention: at most {} "
                          "letters, digits and single underscores, a letter first",
                          name, kLongest));
}

// Numbers of sequences: how many rows each has, or where they begin.
bool is_of_batch(Operand operand) {
  return facts_of(operand).of == OperandOf::used_lengths || facts_of(operand).of == OperandOf::packed;
}
// The type of numbers that are no rows, in C.
const char* element_of(Operand operand) {
  const ElementType element = operand_shape({}, operand).element;
  return element == ElementType::int64 ? "int64_t" : element == ElementType::int32 ? "int32_t" : "float";
}
// A number for each query head, or for each of a batch entry.
bool is_of_heads(Operand operand) {
  AttentionProblem longer;
  longer.seq_q = 2;
  return rows_are_queries(operand) && operand_shape(longer, operand).rows == 1;
}
template <typename Operands>
bool among(const Operands& operands, Operand operand) {
  return std::find(operands.begin(), operands.end(), operand) != operands.end();
}

// Code for one architecture, which has no PTX for later ones: "sm_90a".
bool is_of_one_architecture(const KernelPlan& plan) { return plan.launches.front().arch.back() == 'a'; }

class Exporter {
 public:
  Exporter(const KernelPlan& plan, const DeviceSpec& device, const ExportOptions& options, const TemplateSet& templates)
      : plan_(plan), problem_(plan.problem), device_(device), options_(options), templates_(templates) {
    for (const OperandList& operands : {inputs_of(problem_), outputs_of(problem_)}) {
      for (const Operand operand : operands)
        (is_of_pairs(operand) ? pairs_ : has_whole_rows(operand) ? tensors_ : rows_).push_back(operand);
    }
    bind_names();
    bind_problem();
    bind_sizes();
    bind_tensors();
    bind_pairs();
    bind_workspace();
    for (std::size_t i = 0; i < plan.launches.size(); ++i) bind_launch(i);
    bind_page();
  }

  std::vector<ExportedFile> files() const {
    std::vector<ExportedFile> files;
    std::set<std::string> used;
    for (const Template& each : kTemplates)
      files.push_back({each.file, render(templates_, each.name, bindings_of(each.name, &used)).text});
    const auto require_use = [&](const std::string& name) {
      if (!used.contains(name))
        throw Error(ErrorCode::template_error, fmt::format("no file of an export uses '{}'", name));
    };
    for (const auto& [name, value] : all_.values) require_use(name);
    for (const auto& [name, value] : all_.conditions) require_use(name);
    for (const auto& [name, value] : all_.lists) require_use(name);
    return files;
  }

 private:
  // What one of the templates names: each names but a part of what is bound.
  TemplateBindings bindings_of(const std::string& name, std::set<std::string>* used) const {
    const std::string* found = templates_.find(name);
    if (found == nullptr) throw Error(ErrorCode::template_error, fmt::format("there is no template '{}'", name));
    const std::string text = *found + "\n";
    const auto names = [&](const std::string& what) { return text.find(what) != std::string::npos; };
    TemplateBindings bindings;
    for (const auto& entry : all_.values)
      if (names("${" + entry.first + "}")) bindings.values.insert(entry);
    for (const auto& entry : all_.conditions)
      if (names("//% if " + entry.first + "\n") || names("//% if !" + entry.first + "\n"))
        bindings.conditions.insert(entry);
    for (const auto& entry : all_.lists)
      if (names("//% for " + entry.first + "\n")) bindings.lists.insert(entry);
    for (const auto& entry : bindings.values) used->insert(entry.first);
    for (const auto& entry : bindings.conditions) used->insert(entry.first);
    for (const auto& entry : bindings.lists) used->insert(entry.first);
    return bindings;
  }

  void set(const std::string& name, const std::string& value) { all_.set(name, value); }
  void set(const std::string& name, std::int64_t value) { all_.set(name, value); }

  void bind_names() {
    set("name", options_.name);
    set("title", fmt::format("Generated by Attune {}", options_.version));
    set("licence", "SPDX-License-Identifier: Apache-2.0");
    set("problem", canonical_text(problem_));
    set("config", canonical_text(plan_.config));
    set("gpu", fmt::format("{} ({})", device_.name, arch()));
    set("arch", arch());
    const bool only = is_of_one_architecture(plan_);
    set("nvcc_flags", nvcc_architecture_flags(plan_));
    set("cmake_architecture", arch().substr(arch().find('_') + 1) + (only ? "-real" : ""));
    const std::string capability = fmt::format("{}.{}", device_.compute_major, device_.compute_minor);
    set("compute_major", device_.compute_major);
    set("compute_minor", device_.compute_minor);
    set("architecture_only", text_of(only));
    set("runs_on", only ? fmt::format("GPUs of compute capability {} alone", capability)
                        : fmt::format("GPUs of compute capability {} and newer", capability));
    set("cubin_runs_on", only ? fmt::format("GPUs of compute capability {} alone", capability)
                              : fmt::format("GPUs of compute capability {} and later ones below {}.0", capability,
                                            device_.compute_major + 1));
    all_.conditions["cubin"] = !options_.compiler.empty();
    set("compiler", options_.compiler);
  }

  void bind_problem() {
    const bool forward = problem_.pass == Pass::forward;
    const ElementFacts& element = facts_of(problem_.dtype);
    const bool first = hides_first_keys(problem_.mask), hides = hides_pairs(problem_.mask);
    all_.conditions["forward"] = forward;
    all_.conditions["backward"] = !forward;
    all_.conditions["hides_first_keys"] = first;
    all_.conditions["hides_pairs"] = hides;
    all_.conditions["is_causal"] = hides && !first;
    set("dtype", std::string(element.name));
    set("element", std::string(element.cuda));
    set("head_dim", problem_.head_dim);
    set("element_bytes", element.bytes);
    set("tensor_map_type", std::string(element.tensor_map));
    set("alignment", problem_.alignment);
    set("alignment_note",
        problem_.alignment == launch_rules::kRowAlignment
            ? fmt::format("Pointers are multiples of {} bytes; strides are multiples of {} elements, none negative.",
                          launch_rules::kRowAlignment, launch_rules::kRowAlignment / element.bytes)
            : fmt::format("Pointers are multiples of {} bytes; strides may be any, negative ones too.", element.bytes));
    set("gap", problem_.alignment == launch_rules::kRowAlignment ? launch_rules::kRowAlignment / element.bytes : 3);
    set("is_bhsd", text_of(problem_.layout == Layout::bhsd));
    set("layout_words", problem_.layout == Layout::bhsd ? "batch, head, row, column" : "batch, row, head, column");
    set("mask_words", !hides ? "none" : first ? "a window" : "causal");
    set("first_diagonal", first ? "asked.first_offset" : "-kOpenDiagonal");
    set("last_diagonal", hides ? "asked.mask_offset" : "kOpenDiagonal");
    set("first_of_call", first ? "call.first_offset" : fmt::format("-{}_open", options_.name));
    set("last_of_call", hides ? "call.mask_offset" : fmt::format("{}_open", options_.name));
    set("open_right", first ? "asked.mask_offset != kOpenDiagonal && " : "");
    set("formula", forward ? forward_formula() : backward_formula());
    set("relative_bound", fmt::format("{}", forward ? element.output_bound : element.gradient_bound));
  }

  std::string forward_formula() const {
    const bool capped = problem_.softcap != 0;
    const std::string scores = std::string(capped ? "S" : "softmax_scale Q K^T") +
                               (problem_.alibi ? " - alibi_slope |i + seq_kv - seq_q - j|" : "") +
                               (problem_.bias != PairTensor::none ? " + bias" : "") + " + mask";
    const std::string cap = capped ? "S = softcap tanh(softmax_scale Q K^T / softcap),   " : "";
    const std::string dropped = problem_.dropout != 0 ? " o keep / share" : "";
    if (!problem_.sink) {
      return fmt::format("{0}O = {2}softmax({1}){3} V,   LSE = ln(sum(exp({1})))", cap, scores,
                         dropped.empty() ? "" : "(", dropped.empty() ? "" : dropped + ")");
    }
    return fmt::format("{0}LSE = ln(exp(sink) + sum(exp({1}))),   O = {2}exp({1} - LSE){3} V", cap, scores,
                       dropped.empty() ? "" : "(", dropped.empty() ? "" : dropped + ")");
  }

  std::string backward_formula() const {
    std::vector<std::string> gradients = {"dQ", "dK", "dV"}, inputs = {"Q", "K", "V"};
    if (problem_.sink) {
      gradients.push_back("the gradient of the sinks");
      inputs.push_back("the sinks");
    }
    if (problem_.bias_gradient) gradients.push_back("the gradient of the bias");
    if (problem_.bias != PairTensor::none) inputs.push_back("the bias");
    if (problem_.attention_mask != PairTensor::none) inputs.push_back("the attention mask");
    const std::string last = gradients.back();
    gradients.pop_back();
    return fmt::format("{} and {}{}, from dO (and dLSE), {} and the forward's O and LSE", fmt::join(gradients, ", "),
                       last, last == "dV" ? " of attention" : "", fmt::join(inputs, ", "));
  }

  // The sizes of the problem, and those that the kernels take: what infeasibility() says of sizes, as numbers.
  void bind_sizes() {
    const KernelConfig& config = plan_.config;
    const std::int64_t group = config.pack_gqa ? problem_.heads_q / problem_.heads_kv : 0;
    const std::int64_t rows = config.even_tiles ? config.block_q * config.cluster : 1;
    const std::int64_t keys = config.even_tiles ? config.block_kv : 1;
    set("packed_group", group);
    set("row_multiple", rows);
    set("key_multiple", keys);
    set("needs_groups", text_of(config.kv_grad_per_query_head));
    set("length_step", std::lcm(rows, keys));
    set("group_words", group != 0 ? fmt::format(", query heads for each key/value head ({}),", group) : "");
    set("group_condition", group != 0                      ? fmt::format("; {} for each key/value head", group)
                           : config.kv_grad_per_query_head ? "; more than `heads_kv`"
                                                           : "");
    set("query_condition", rows == 1    ? ""
                           : group != 0 ? fmt::format("; times {} a multiple of {}", group, rows)
                                        : fmt::format("; a multiple of {}", rows));
    set("key_condition", keys == 1 ? "" : fmt::format("; a multiple of {}", keys));
    set("batch", problem_.batch);
    set("heads_q", problem_.heads_q);
    set("heads_kv", problem_.heads_kv);
    set("seq_q", problem_.seq_q);
    set("seq_kv", problem_.seq_kv);
    set("softmax_scale", float_text(problem_.softmax_scale));
    all_.conditions["softcap"] = problem_.softcap != 0;
    set("softcap_value", float_text(problem_.softcap));
    set("asked_softcap", problem_.softcap != 0 ? "asked.softcap" : "0");
    set("cap_of_call", problem_.softcap != 0 ? ", call.softcap" : "");
    all_.conditions["dropout"] = problem_.dropout != 0;
    set("dropout_value", float_text(problem_.dropout));
    set("dropout_of_call", problem_.dropout != 0
                               ? ", call.dropout, in_memory ? 0x123456789abcdefull : 77ull, in_memory "
                                 "? (0x42ull << 32) + 5 : 5ull"
                               : "");
    all_.conditions["sets_call"] = problem_.dropout != 0 || problem_.has_pair_tensors();
    all_.conditions["alibi"] = problem_.alibi;
    set("slopes_of_call", problem_.alibi ? ", call.alibi_slopes" : "");
    all_.conditions["sink"] = problem_.sink;
    all_.conditions["sink_gradient"] = problem_.sink && problem_.pass == Pass::backward;
    set("sinks_of_call", problem_.sink ? ", call.sinks" : "");
    const bool used = problem_.has_used_lengths();
    all_.conditions["used_lengths"] = used;
    all_.conditions["packed_sequences"] = problem_.packed;
    set("is_packed", text_of(problem_.packed));
    set("lengths_of_call", problem_.packed
                               ? ", call.seqused_q, call.seqused_kv, call.cu_seqlens_q, call.cu_seqlens_kv, "
                                 "static_cast<int>(call.batch)"
                           : used ? ", call.seqused_q, call.seqused_kv"
                                  : "");
    set("tensor_batch", problem_.packed ? "1" : "call.batch");
    set("batch_note",
        problem_.packed ? "sequences, which lie one behind the other in tensors of one batch entry" : "batch entries");
    set("diagonals_move", text_of(problem_.lengths == Lengths::used));
    set("diagonals_words", !hides_pairs(problem_.mask) ? ""
                           : problem_.lengths == Lengths::used
                               ? "The mask is that of sequences of all rows, and moves with the ends of shorter ones."
                               : "The mask is the same for all sequences.");
    if (hides_first_keys(problem_.mask)) {
      set("first_offset", problem_.first_offset);
    } else {
      set("first_offset", 0);
    }
    set("mask_offset", problem_.mask_offset);
  }

  bool is_output(Operand operand) const { return among(outputs_of(problem_), operand); }
  bool may_be_null(Operand operand) const {
    return operand == Operand::d_lse || (operand == Operand::lse && is_output(operand)) ||
           facts_of(operand).of == OperandOf::used_lengths || facts_of(operand).of == OperandOf::dropout;
  }

  std::string note_of(Operand operand) const {
    if (is_of_pairs(operand)) {
      const char* const written = plan_.config.fused_dbias ? "written; the bias may not repeat"
                                                           : "written: what the bias is repeated for is summed";
      return fmt::format("(batch, heads_q, {}, {}), {}, {}", to_string(pair_queries_of(problem_)),
                         to_string(pair_keys_of(problem_)), facts_of(operand_shape(problem_, operand).element).name,
                         operand == Operand::d_bias ? written : "read");
    }
    if (facts_of(operand).of == OperandOf::dropout)
      return "(2), int64, read; a seed and an offset; may be null: those of the call";
    const bool queries = rows_are_queries(operand);
    if (facts_of(operand).of == OperandOf::packed) {
      return fmt::format("(batch + 1), int32, read; the {} where each sequence begins, and where the last one ends",
                         operand == Operand::cu_seqlens_q ? "query" : "key");
    }
    if (is_of_batch(operand)) return "(batch), int32, read; may be null: all rows";
    if (is_of_heads(operand)) {
      return fmt::format("{}, fp32, {}", has_strides(operand) ? "(batch, heads_q)" : "(heads_q)",
                         is_output(operand) ? "written" : "read");
    }
    std::string shape = fmt::format("({}, {}, {}", problem_.packed ? "1" : "batch", queries ? "heads_q" : "heads_kv",
                                    queries ? "seq_q" : "seq_kv");
    shape += has_whole_rows(operand) ? fmt::format(", {})", problem_.head_dim) : "), fp32, packed";
    const char* null =
        operand == Operand::d_lse ? "; may be null: the loss does not depend on LSE" : "; may be null: not written";
    return fmt::format("{}, {}{}", shape, is_output(operand) ? "written" : "read", may_be_null(operand) ? null : "");
  }

  void bind_tensors() {
    auto& lists = all_.lists;
    for (const char* list : {"header_tensors", "header_rows", "checked_tensors", "checked_rows", "packed",
                             "readme_tensors", "example", "test_tensors", "written"})
      lists[list];
    std::vector<std::string> unstrided;
    for (const std::vector<Operand>* operands : {&tensors_, &rows_}) {
      for (const Operand operand : *operands) {
        const std::string name(identifier(operand));
        const bool strided = has_strides(operand), has_rows = has_whole_rows(operand);
        const std::string type =
            fmt::format("{}{}* ", is_output(operand) ? "" : "const ", has_rows ? "void" : element_of(operand));
        std::map<std::string, std::string> header = {{"name", name}, {"type", type}, {"note", note_of(operand)}};
        if (strided)
          header["strides"] = fmt::format("{0}_stride_batch, {0}_stride_head{1}", name,
                                          has_rows ? fmt::format(", {}_stride_row", name) : "");
        lists[strided ? "header_tensors" : "header_rows"].push_back(std::move(header));
        lists["readme_tensors"].push_back(
            {{"name", name}, {"type", type.substr(0, type.size() - 1)}, {"note", note_of(operand)}});
        lists["example"].push_back({{"line", fmt::format("call.{} = {};   // device memory{}", name, name,
                                                         may_be_null(operand) ? ", or a null pointer" : "")}});
        const auto pack = [&](const char* dimension, const std::string& value) {
          lists["packed"].push_back({{"stride", fmt::format("{}_stride_{}", name, dimension)}, {"value", value}});
        };
        if (!strided) unstrided.push_back(fmt::format("`{}`", name));
        if (strided && !has_rows) {
          pack("batch", "call->heads_q");
          pack("head", "1");
        }
        if (!has_rows) {
          lists["checked_rows"].push_back({{"name", name}, {"may_be_null", text_of(may_be_null(operand))}});
          continue;
        }
        lists["checked_tensors"].push_back({{"name", name}, {"extents", extents_of(operand)}});
        lists["test_tensors"].push_back(
            {{"name", name}, {"make", rows_are_queries(operand) ? "of_queries" : "of_keys"}});
        if (is_output(operand))
          lists["written"].push_back({{"name", name}, {"ordered", text_of(among(plan_.ordered_outputs, operand))}});
        const std::string heads = rows_are_queries(operand) ? "heads_q" : "heads_kv",
                          rows = rows_are_queries(operand) ? "seq_q" : "seq_kv";
        const bool by_head = problem_.layout == Layout::bhsd;
        pack("batch", fmt::format("call->{} * call->{} * kHeadDim", heads, rows));
        pack("head", by_head ? fmt::format("call->{} * kHeadDim", rows) : "kHeadDim");
        pack("row", by_head ? "kHeadDim" : fmt::format("call->{} * kHeadDim", heads));
      }
    }
    set("unstrided", fmt::format("{}", fmt::join(unstrided, " and ")));
  }

  // Tensors of pairs: their strides say which dimensions they have.
  void bind_pairs() {
    auto& lists = all_.lists;
    for (const char* list : {"pair_forms", "checked_pairs", "test_pairs"}) lists[list];
    const bool biased = problem_.bias != PairTensor::none, masked = problem_.attention_mask != PairTensor::none;
    all_.conditions["pairs"] = biased || masked;
    all_.conditions["longest_sequence"] = problem_.has_longest_sequence();
    set("pair_queries", to_string(pair_queries_of(problem_)));
    set("pair_keys", to_string(pair_keys_of(problem_)));
    set("max_seq_q", problem_.pair_queries());
    set("max_seq_kv", problem_.pair_keys());
    all_.conditions["bias"] = biased;
    all_.conditions["bias_gradient"] = problem_.bias_gradient;
    all_.conditions["fused_dbias"] = plan_.config.fused_dbias;
    all_.conditions["attention_mask"] = masked;
    all_.conditions["pair_maps"] = false;
    set("bias_element", std::string(problem_.bias_fp32 ? "float" : facts_of(problem_.dtype).cuda));
    set("bias_of_call",
        biased ? ", {call.bias, call.bias_stride_batch, call.bias_stride_head, call.bias_stride_row}" : "");
    set("mask_of_call", masked ? ", {call.attention_mask, call.attention_mask_stride_batch, "
                                 "call.attention_mask_stride_head, call.attention_mask_stride_row}"
                               : "");
    set("pairs_note", biased || masked ? " Tensors of pairs have a column for each key, repeat along dimensions whose "
                                         "stride is 0, and take any pointers and strides."
                                       : "");
    for (const Operand operand : pairs_) {
      const std::string name(identifier(operand));
      const ElementFacts& element = facts_of(operand_shape(problem_, operand).element);
      const std::string type = is_output(operand) ? "void* " : "const void* ";
      lists["header_tensors"].push_back(
          {{"name", name},
           {"type", type},
           {"note", note_of(operand)},
           {"strides", fmt::format("{0}_stride_batch, {0}_stride_head, {0}_stride_row", name)}});
      lists["readme_tensors"].push_back(
          {{"name", name}, {"type", type.substr(0, type.size() - 1)}, {"note", note_of(operand)}});
      lists["example"].push_back({{"line", fmt::format("call.{} = {};   // device memory", name, name)}});
      lists["checked_pairs"].push_back({{"name", name}, {"bytes", std::to_string(element.bytes)}});
      lists["test_pairs"].push_back({{"name", name}, {"bytes", std::to_string(element.bytes)}});
      if (!is_output(operand)) lists["pair_forms"].push_back({{"name", name}});
      const PairDimensions has =
          dimensions_of(operand == Operand::attention_mask ? problem_.attention_mask : problem_.bias);
      const std::string columns = "call->" + to_string(pair_keys_of(problem_));
      const std::string rows =
          has.queries ? fmt::format("call->{} * {}", to_string(pair_queries_of(problem_)), columns) : columns;
      const auto pack = [&](const char* dimension, bool exists, const std::string& value) {
        lists["packed"].push_back(
            {{"stride", fmt::format("{}_stride_{}", name, dimension)}, {"value", exists ? value : "0"}});
      };
      pack("batch", has.batch, has.heads ? "call->heads_q * " + rows : rows);
      pack("head", has.heads, rows);
      pack("row", has.queries, columns);
    }
  }

  static std::string note_of(const launch_rules::Buffer& rules) {
    if (rules.rows == launch_rules::kOnce) return fmt::format("{} bytes", rules.bytes);
    return fmt::format("{} bytes for each {} {}", rules.bytes, rules.rows, rules.of_keys ? "keys" : "queries");
  }
  static std::string split_text(const launch_rules::Split& split) {
    return fmt::format("{{{}, {}, {}, {}, {}, {}}}", split.parts, split.slots, split.tile_queries, split.tile_heads,
                       split.least_keys, split.most_rows);
  }

  void bind_workspace() {
    set("fixed_bytes", static_cast<std::int64_t>(plan_.workspace_bytes));
    set("fixed_zeroed", text_of(plan_.workspace_zeroed));
    set("part_count", static_cast<std::int64_t>(plan_.buffers.size()));
    set("workspace_bytes", static_cast<std::int64_t>(plan_.workspace_bytes_of(problem_)));
    set("zeroed_bytes", static_cast<std::int64_t>(plan_.zeroed_bytes_of(problem_)));
    auto& parts = all_.lists["parts"];
    auto& shown = all_.lists["readme_parts"];
    if (plan_.workspace_bytes != 0) {
      shown.push_back({{"name", std::string(kTileCounter.name)},
                       {"offset", std::to_string(kTileCounterOffset)},
                       {"bytes", std::to_string(plan_.workspace_bytes)},
                       {"zeroed", plan_.workspace_zeroed ? "yes" : "no"}});
    }
    for (const WorkspaceBuffer& buffer : plan_.buffers) {
      if (buffer.of_scores)
        throw Error(ErrorCode::unsupported, "a plan that stores all scores is to be read and is not exported");
      if (buffer.copied)
        throw Error(ErrorCode::unsupported,
                    "a plan that copies tensors of pairs is not exported; take its config without copied-pairs");
      const launch_rules::Buffer rules = launch_rules::buffer_of(buffer);
      const std::string name(buffer.buffer.name);
      parts.push_back({{"name", name},
                       {"buffer", fmt::format("{{{}, {}, {}, {}, {}}}", rules.bytes, rules.rows, text_of(rules.of_keys),
                                              split_text(rules.split), rules.keys)},
                       {"zeroed", text_of(buffer.zeroed)},
                       {"note", note_of(rules)}});
      shown.push_back({{"name", name},
                       {"offset", std::to_string(plan_.buffer_offset(buffer.buffer, problem_))},
                       {"bytes", std::to_string(buffer.bytes_of(problem_))},
                       {"zeroed", buffer.zeroed ? "yes" : "no"}});
    }
    all_.conditions["has_parts"] = !shown.empty();
  }

  // The text of a launch with its entry renamed, so that two exports link into one program.
  std::string renamed_source(const KernelLaunch& launch) const {
    const std::string before = " " + launch.entry + "(";
    const std::size_t at = launch.source.find(before);
    if (at == std::string::npos || launch.source.find(before, at + 1) != std::string::npos)
      throw Error(ErrorCode::internal, fmt::format("kernel {} is not declared once in its source", launch.entry));
    std::string source = launch.source;
    source.replace(at + 1, launch.entry.size(), exported_entry(launch, options_.name));
    while (!source.empty() && source.back() == '\n') source.pop_back();
    return source;
  }

  static std::string scope_of(const KernelLaunch& launch) {
    constexpr std::string_view kBegin = "\nnamespace ";
    const std::size_t begin = launch.source.find(kBegin);
    if (begin == std::string::npos)
      throw Error(ErrorCode::internal, fmt::format("kernel {} is in no namespace", launch.entry));
    const std::size_t name = begin + kBegin.size();
    return launch.source.substr(name, launch.source.find(' ', name) - name);
  }

  void bind_launch(std::size_t index) {
    const KernelLaunch& launch = plan_.launches[index];
    if (launch.target != KernelTarget::cuda)
      throw Error(ErrorCode::unsupported, "a plan of the emulator's kernels is not exported");
    const std::string number = std::to_string(index), entry = exported_entry(launch, options_.name);
    if (!entries_.insert(entry).second)
      throw Error(ErrorCode::internal, fmt::format("two kernels are named {}", entry));
    const launch_rules::Launch rules = launch_rules::launch_of(launch, problem_);
    constexpr const char* kRows[] = {"queries", "keys", "all", "of_batch", "following", "pairs"};

    std::vector<std::string> fields, offsets, values;
    for (std::size_t i = 0; i < launch.arguments.fields.size(); ++i) {
      const KernelArgument& field = launch.arguments.fields[i];
      const std::string name = to_string(field);
      fields.push_back(declaration_of(field));
      offsets.push_back(fmt::format("offsetof(Arguments{}, {}) == {}", number, name, launch.arguments.offsets[i]));
      values.push_back(value_of(field, plan_, launch));
    }
    auto& lists = all_.lists;
    lists["kernels"].push_back(
        {{"number", number}, {"source", renamed_source(launch)}, {"scope", scope_of(launch)}, {"entry", entry}});
    lists["structs"].push_back(
        {{"number", number},
         {"entry", entry},
         {"fields", fmt::format("{}", fmt::join(fields, "\n"))},
         {"bytes", std::to_string(launch.arguments.bytes)},
         {"offsets", fmt::format("static_assert({});", fmt::join(offsets, " &&\n              "))}});
    lists["calls"].push_back({{"number", number}, {"values", fmt::format("{}", fmt::join(values, "\n"))}});
    lists["launches"].push_back(
        {{"entry", entry},
         {"rules",
          fmt::format("{{Rows::{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}", kRows[static_cast<int>(rules.rows)],
                      rules.rows_per_tile, rules.heads_per_tile, text_of(rules.kv_grad_per_query_head), rules.cluster,
                      rules.max_ctas, rules.section_bytes, rules.section_tiles, rules.head_dim, rules.element_bytes,
                      split_text(rules.split))},
         {"threads", std::to_string(launch.threads)},
         {"shared_bytes", std::to_string(launch.shared_bytes)},
         {"programmatic", text_of(launch.programmatic_launch)}});
    lists["readme_launches"].push_back({{"entry", entry},
                                        {"grid", std::to_string(launch.grid_x(problem_))},
                                        {"threads", std::to_string(launch.threads)},
                                        {"shared", fmt::format("{} bytes", launch.shared_bytes)},
                                        {"cluster", std::to_string(launch.cluster)}});
    all_.conditions["tensor_maps"] = all_.conditions["tensor_maps"] || !launch.tensor_maps.empty();
    for (const TensorMapSpec& spec : launch.tensor_maps)
      all_.conditions["pair_maps"] = all_.conditions["pair_maps"] || is_of_pairs(spec.operand);
  }

  void bind_page() {
    const std::size_t count = plan_.launches.size();
    set("launch_words", count == 1 ? "one launch" : fmt::format("{} launches", count));
    std::vector<std::string> ordered, others;
    for (const Operand operand : outputs_of(problem_)) {
      auto& names = among(plan_.ordered_outputs, operand) ? ordered : others;
      names.push_back(fmt::format("`{}`", identifier(operand)));
    }
    std::string note = "Every element of the outputs is written";
    note += problem_.pass == Pass::forward ? "; a query that sees no key has O = 0 and LSE = " +
                                                 std::string(problem_.sink ? "its sink" : "-infinity") + ". "
                                           : ", with 0 where a query sees no key or no query sees a key. ";
    if (!ordered.empty())
      note += fmt::format("The same inputs give the same bits of {} in each call. ", fmt::join(ordered, ", "));
    if (!others.empty())
      note +=
          fmt::format("Sums of {} are added in an order that differs from call to call, and so do their last bits. ",
                      fmt::join(others, ", "));
    note.pop_back();
    set("results_note", note);
  }

  const std::string& arch() const { return plan_.launches.front().arch; }

  const KernelPlan& plan_;
  const AttentionProblem& problem_;
  const DeviceSpec& device_;
  const ExportOptions& options_;
  const TemplateSet& templates_;
  TemplateBindings all_;
  std::vector<Operand> tensors_, rows_, pairs_;  // of the pass, inputs first
  std::set<std::string> entries_;
};

}  // namespace

std::string default_export_name(const KernelPlan& plan) {
  const AttentionProblem& problem = plan.problem;
  std::string name =
      fmt::format("attune_{}_{}_d{}", to_string(problem.pass), to_string(problem.dtype), problem.head_dim);
  if (hides_pairs(problem.mask)) name += fmt::format("_{}", to_string(problem.mask));
  if (problem.deterministic) name += "_deterministic";
  if (problem.softcap != 0) name += "_softcap";
  if (problem.alibi) name += "_alibi";
  if (problem.bias != PairTensor::none) name += problem.bias_gradient ? "_bias_gradient" : "_bias";
  if (problem.attention_mask != PairTensor::none) name += "_mask";
  if (problem.sink) name += "_sink";
  if (problem.dropout != 0) name += "_dropout";
  if (problem.has_used_lengths()) name += problem.packed ? "_packed" : "_used";
  return name;
}

std::string exported_entry(const KernelLaunch& launch, const std::string& name) {
  constexpr std::string_view kPrefix = "attune_";
  const std::string_view entry = launch.entry;
  return fmt::format("{}_{}", name, entry.starts_with(kPrefix) ? entry.substr(kPrefix.size()) : entry);
}

std::string nvcc_architecture_flags(const KernelPlan& plan) {
  const std::string& arch = plan.launches.front().arch;
  if (!is_of_one_architecture(plan)) return "-arch=" + arch;
  return fmt::format("-gencode arch=compute_{},code={}", arch.substr(arch.find('_') + 1), arch);
}

std::vector<ExportedFile> export_plan(const KernelPlan& plan, const DeviceSpec& device, const ExportOptions& options,
                                      const TemplateSet& templates) {
  require_name(options.name);
  if (plan.launches.empty()) throw Error(ErrorCode::internal, "a plan without launches was given to be exported");
  return Exporter(plan, device, options, templates).files();
}

}  // namespace attune
