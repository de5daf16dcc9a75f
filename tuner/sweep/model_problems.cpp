#include "tuner/sweep/model_problems.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/error.h"
#include "runtime/system/json_text.h"
#include "tuner/database/input_file.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr std::int64_t kStandardTokens = 4096, kStandardDecoding = 32;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 31, kMostBatch = std::int64_t{1} << 31;

// Models whose tokens attend to those behind them, too.
constexpr std::array<std::string_view, 12> kEncoders = {"albert",  "bert",     "camembert",  "distilbert",
                                                        "electra", "eurobert", "modernbert", "mpnet",
                                                        "roberta", "siglip",   "vit",        "xlm-roberta"};
// Models with layers of both kinds whose configurations name one window and no kinds.
constexpr std::array<std::string_view, 4> kAlternating = {"cohere2", "gemma2", "gemma3_text", "gpt_oss"};

template <std::size_t kCount>
bool contains(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Fields of a configuration, some of which have other names in older models.
class Configuration {
 public:
  Configuration(const json& fields, std::string name) : fields_(fields), name_(std::move(name)) {}

  using Names = std::initializer_list<const char*>;

  std::optional<double> number(Names names) const {
    const json* value = find(names);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) refuse_field(names, *value, "a number");
    return value->get<double>();
  }
  std::optional<std::int64_t> count(Names names) const {
    const json* value = find(names);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || value->get<std::int64_t>() < 1 || value->get<std::int64_t>() > kMostTokens)
      refuse_field(names, *value, "a whole number of at least 1");
    return value->get<std::int64_t>();
  }
  std::int64_t needed(Names names) const {
    const std::optional<std::int64_t> found = count(names);
    if (!found) {
      refuse(
          fmt::format("{}: there is no {}: it must be the configuration of a model of Transformers with attention, "
                      "its config.json",
                      name_, *names.begin()));
    }
    return *found;
  }
  bool flag(Names names, bool otherwise = false) const {
    const json* value = find(names);
    return value == nullptr ? otherwise : value->is_boolean() && value->get<bool>();
  }
  std::string text(Names names) const {
    const json* value = find(names);
    return value != nullptr && value->is_string() ? value->get<std::string>() : "";
  }
  std::vector<std::string> texts(Names names) const {
    std::vector<std::string> found;
    if (const json* value = find(names); value != nullptr && value->is_array()) {
      for (const json& each : *value) found.push_back(each.is_string() ? each.get<std::string>() : each.dump());
    }
    return found;
  }
  // Those of a part, or these.
  Configuration within(Names names) const {
    const json* value = find(names);
    return value != nullptr && value->is_object() ? Configuration(*value, name_) : *this;
  }
  bool has(Names names) const { return find(names) != nullptr; }

 private:
  const json* find(Names names) const {
    for (const char* name : names) {
      const auto at = fields_.find(name);
      if (at != fields_.end() && !at->is_null()) return &*at;
    }
    return nullptr;
  }
  [[noreturn]] void refuse_field(Names names, const json& value, const char* expected) const {
    refuse(fmt::format("{}, field {}: {} is not {}", name_, *names.begin(), value.dump(), expected));
  }

  const json& fields_;
  std::string name_;
};

// What one GPU has of a kind of layers.
struct Heads {
  std::int64_t queries = 0, keys = 0, width = 0;
};

Heads heads_of(const Configuration& model, const std::string& name, const ModelUse& use) {
  Heads heads;
  heads.queries = model.needed({"num_attention_heads", "n_head", "n_heads", "num_heads"});
  const bool one_key_head = model.flag({"multi_query"}) && !model.flag({"new_decoder_architecture"});
  heads.keys =
      one_key_head ? 1 : model.count({"num_key_value_heads", "num_kv_heads", "n_head_kv"}).value_or(heads.queries);
  if (heads.queries % heads.keys != 0)
    refuse(fmt::format("{}: {} query heads are no multiple of {} key heads", name, heads.queries, heads.keys));
  const std::optional<std::int64_t> width = model.count({"head_dim", "kv_channels"});
  if (width) {
    heads.width = *width;
  } else {
    const std::int64_t hidden = model.needed({"hidden_size", "n_embd", "d_model", "dim"});
    if (hidden % heads.queries != 0)
      refuse(fmt::format("{}: hidden_size {} is no multiple of {} heads, and there is no head_dim", name, hidden,
                         heads.queries));
    heads.width = hidden / heads.queries;
  }
  const std::int64_t parts = use.tensor_parallel;
  if (heads.queries % parts != 0 || (heads.keys % parts != 0 && parts % heads.keys != 0)) {
    refuse(
        fmt::format("{}: {} query heads and {} key heads cannot be shared by {} GPUs; name another --tensor-parallel",
                    name, heads.queries, heads.keys, parts));
  }
  heads.queries /= parts;
  heads.keys = std::max<std::int64_t>(1, heads.keys / parts);
  return heads;
}

// The kinds of a model's layers: windows in keys, 0 for all keys.
struct Kinds {
  std::vector<std::int64_t> windows;
  std::vector<std::string> left_out;

  void add(std::int64_t window) {
    if (std::find(windows.begin(), windows.end(), window) == windows.end()) windows.push_back(window);
  }
  void leave_out(const std::string& what) {
    if (std::find(left_out.begin(), left_out.end(), what) == left_out.end()) left_out.push_back(what);
  }
};

Kinds kinds_of(const Configuration& model) {
  Kinds kinds;
  std::int64_t window = model.count({"sliding_window", "sliding_window_size"}).value_or(0);
  if (!model.flag({"use_sliding_window"}, true)) window = 0;
  if (model.has({"kv_lora_rank"})) {
    kinds.leave_out("latent attention, whose queries and keys are wider than its values, is no problem of Attune's");
    return kinds;
  }
  const std::vector<std::string> types = model.texts({"layer_types", "layers_block_type"});
  for (const std::string& type : types) {
    if (type == "full_attention" || type == "attention" || type == "global") {
      kinds.add(0);
    } else if (type == "sliding_attention" || type == "local") {
      kinds.add(window);
    } else if (type.find("attention") != std::string::npos && type.find("linear") == std::string::npos) {
      kinds.leave_out(fmt::format("layers of {} are no problem of Attune's", type));
    }
  }
  if (!types.empty()) return kinds;
  if (model.has({"attention_chunk_size"})) kinds.leave_out("layers of chunked attention are no problem of Attune's");
  kinds.add(window);
  const bool both = contains(kAlternating, model.text({"model_type"})) || model.has({"sliding_window_pattern"}) ||
                    model.count({"max_window_layers"}).value_or(0) > 1;
  if (both) kinds.add(0);
  return kinds;
}

class Problems {
 public:
  Problems(const Configuration& model, std::string name, const ModelUse& use)
      : name_(std::move(name)), use_(use), heads_(heads_of(model, name_, use)), kinds_(kinds_of(model)) {
    const std::string type = model.text({"model_type"});
    encoder_ = contains(kEncoders, type);
    const Configuration attention = model.within({"attn_config"});
    if (const double cap = model.number({"attn_logit_softcapping"}).value_or(0); cap > 0)
      terms_ += fmt::format(" softcap{}", cap);
    if (model.flag({"alibi"}) || attention.flag({"alibi"}) || type == "bloom") terms_ += " alibi";
    if (type == "gpt_oss") terms_ += " sink";
    dropout_ = attention.number({"attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"}).value_or(0);
    const std::string element = model.text({"dtype", "torch_dtype"});
    dtype_ =
        element.find("float16") != std::string::npos && element.find("bfloat16") == std::string::npos ? "fp16" : "bf16";
    if (use_.training.empty() && use_.prefill.empty() && use_.decoding.empty()) {
      const std::int64_t most = model.count({"max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"})
                                    .value_or(kStandardTokens),
                         tokens = std::min(kStandardTokens, most);
      use_.training = {{1, tokens}};
      use_.prefill = {{1, tokens}};
      if (!encoder_) use_.decoding = {{kStandardDecoding, tokens}};
    }
  }

  ModelProblems found() {
    left_out_ = kinds_.left_out;
    for (const std::int64_t window : kinds_.windows) {
      for (const ModelCall& call : use_.training) {
        const std::string dropout = dropout_ > 0 ? fmt::format(" dropout{}", dropout_) : "";
        for (const char* pass : {"forward", "backward"}) add(pass, "training", call, call.tokens, window, dropout);
      }
      for (const ModelCall& call : use_.prefill) add("forward", "prefill", call, call.tokens, window, "");
      for (const ModelCall& call : use_.decoding) add("forward", "decoding", call, 1, window, "");
    }
    if (problems_.empty()) {
      refuse(fmt::format("{}: no attention of this model is a problem of Attune's: {}", name_,
                         fmt::join(left_out_, "; ")));
    }
    return {problems_.take(), std::move(left_out_)};
  }

 private:
  void add(const char* pass, const char* what, const ModelCall& call, std::int64_t queries, std::int64_t window,
           const std::string& dropout) {
    const bool slides = window > 0 && window < call.tokens;
    std::string mask;
    if (slides) {  // a token counts among its window's
      mask = encoder_ ? fmt::format(" window={},{}", window / 2, window / 2) : fmt::format(" window={},0", window - 1);
    } else if (!encoder_ && queries > 1) {
      mask = " causal";
    }
    const std::string text =
        fmt::format("{} {} b{} hq{} hkv{} sq{} skv{} d{}{}{}{}", pass, dtype_, call.batch, heads_.queries, heads_.keys,
                    queries, call.tokens, heads_.width, mask, terms_, dropout);
    const std::string named = fmt::format("{} {}x{}{}", what, call.batch, call.tokens, slides ? ", sliding" : "");
    try {
      const AttentionProblem problem = parse_problem(text);
      validate(problem);
      problems_.add(problem, named);
    } catch (const Error& error) {
      if (left_out_.empty() || left_out_.back() != error.what()) left_out_.emplace_back(error.what());
    }
  }

  std::string name_;
  ModelUse use_;
  Heads heads_;
  Kinds kinds_;
  bool encoder_ = false;
  std::string terms_, dtype_;
  double dropout_ = 0;
  ProblemList problems_;
  std::vector<std::string> left_out_;
};

}  // namespace

std::vector<ModelCall> parse_model_calls(std::string_view text) {
  std::vector<ModelCall> calls;
  const auto number = [&](std::string_view digits, std::int64_t most) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < 1 || value >= most)
      refuse(fmt::format("'{}' is not BATCHxTOKENS, such as 1x8192, or several with commas in between", text));
    return value;
  };
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view call = text.substr(at, comma - at);
    const std::size_t by = std::min(call.find('x'), call.size());
    const std::string_view tokens = by < call.size() ? call.substr(by + 1) : std::string_view();
    calls.push_back({number(call.substr(0, by), kMostBatch), number(tokens, kMostTokens)});
    at = comma + 1;
  }
  return calls;
}

ModelProblems parse_model_problems(std::string_view text, const std::string& name, const ModelUse& use) {
  const json document = parse_json(text, name);
  if (!document.is_object())
    refuse(fmt::format("{}: must be an object, the configuration of a model, not {}", name, document.type_name()));
  // Models of several kinds of input have their language model's in a part.
  const Configuration model = Configuration(document, name).within({"text_config", "llm_config"});
  return Problems(model, name, use).found();
}

ModelProblems read_model_problems(const std::filesystem::path& path, const ModelUse& use) {
  return parse_model_problems(read_input_file(path), path.filename().string(), use);
}

}  // namespace attune
