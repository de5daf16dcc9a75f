// Problems of a model, from its configuration: those of layers that real models have.
#include "tuner/sweep/model_problems.h"

#include <string>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"

using namespace attune;

namespace model_problems_test {
namespace {

using Texts = std::vector<std::string>;

const ModelUse kTraining = {.training = {{1, 8192}}, .prefill = {}, .decoding = {}};
const ModelUse kDecoding = {.training = {}, .prefill = {}, .decoding = {{64, 4096}}};

ModelProblems found(const std::string& config, const ModelUse& use = {}) {
  return parse_model_problems(config, "config.json", use);
}

Texts texts(const ModelProblems& model) {
  Texts texts;
  for (const NamedProblem& named : model.problems) texts.push_back(canonical_text(named.problem));
  return texts;
}
Texts texts(const std::string& config, const ModelUse& use) { return texts(found(config, use)); }

Texts canonical(const Texts& problems) {
  Texts texts;
  for (const std::string& problem : problems) texts.push_back(canonical_text(parse_problem(problem)));
  return texts;
}

const std::string kLlama =
    R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16"})";

void refused(const std::string& config, const ModelUse& use, const std::string& words) {
  INFO(config);
  CHECK_THROWS_WITH(found(config, use), ContainsSubstring(words));
}

}  // namespace

TEST_CASE("a model without a word about its use has training, prefill and decoding", "[nogpu]") {
  const ModelProblems model = found(kLlama);
  CHECK(texts(model) ==
        canonical({"forward b1 hq32 hkv8 sq4096 d128 causal", "backward b1 hq32 hkv8 sq4096 d128 causal",
                   "forward b32 hq32 hkv8 sq1 skv4096 d128"}));
  CHECK(model.problems[0].name == "training 1x4096, prefill 1x4096");
  CHECK(model.problems[2].name == "decoding 32x4096");
  CHECK(model.left_out.empty());
}

TEST_CASE("heads are shared by GPUs, key heads until each has one", "[nogpu]") {
  ModelUse use = kDecoding;
  use.tensor_parallel = 4;
  CHECK(texts(kLlama, use) == canonical({"forward b64 hq8 hkv2 sq1 skv4096 d128"}));
  use.tensor_parallel = 16;
  CHECK(texts(kLlama, use) == canonical({"forward b64 hq2 hkv1 sq1 skv4096 d128"}));
  use.tensor_parallel = 3;
  refused(kLlama, use, "32 query heads and 8 key heads cannot be shared by 3 GPUs; name another --tensor-parallel");
  use.tensor_parallel = 12;
  refused(R"({"num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 64})", use, "cannot be shared by 12");
}

TEST_CASE("layers of two kinds, softcaps, sinks, ALiBi and dropout are in a model's problems", "[nogpu]") {
  // Gemma 2: one layer of two with a window, a cap, and heads wider than hidden_size says.
  CHECK(texts(R"({"model_type": "gemma2", "hidden_size": 3584, "num_attention_heads": 16, "num_key_value_heads": 8,
                  "head_dim": 256, "sliding_window": 4096, "attn_logit_softcapping": 50.0})",
              kTraining) == canonical({"forward b1 hq16 hkv8 sq8192 d256 window=4095,0 softcap50",
                                       "backward b1 hq16 hkv8 sq8192 d256 window=4095,0 softcap50",
                                       "forward b1 hq16 hkv8 sq8192 d256 causal softcap50",
                                       "backward b1 hq16 hkv8 sq8192 d256 causal softcap50"}));
  CHECK(texts(R"({"model_type": "gpt_oss", "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
                  "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})",
              kDecoding) == canonical({"forward b64 hq64 hkv8 sq1 skv4096 d64 window=127,0 sink",
                                       "forward b64 hq64 hkv8 sq1 skv4096 d64 sink"}));
  CHECK(texts(R"({"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_positions": 1024, "attn_pdrop": 0.1})",
              {.training = {{8, 1024}}, .prefill = {{2, 1000}}, .decoding = {}}) ==
        canonical({"forward b8 hq12 sq1024 d64 causal dropout0.1", "backward b8 hq12 sq1024 d64 causal dropout0.1",
                   "forward b2 hq12 sq1000 d64 causal"}));
  CHECK(texts(R"({"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "multi_query": true,
                  "alibi": true, "dtype": "float16"})",
              kDecoding) == canonical({"forward fp16 b64 hq71 hkv1 sq1 skv4096 d64 alibi"}));
  CHECK(texts(R"({"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12,
                  "max_position_embeddings": 512})",
              {}) == canonical({"forward b1 hq12 sq512 d64", "backward b1 hq12 sq512 d64"}));
}

TEST_CASE("windows that hide nothing, and those that are switched off, are none", "[nogpu]") {
  const std::string mistral = R"({"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32,
                                  "num_key_value_heads": 8, "sliding_window": 4096})";
  CHECK(texts(mistral, {.training = {}, .prefill = {{1, 4096}, {1, 8192}}, .decoding = {}}) ==
        canonical({"forward hq32 hkv8 sq4096 d128 causal", "forward hq32 hkv8 sq8192 d128 window=4095,0"}));
  CHECK(texts(R"({"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
                  "sliding_window": 32768, "use_sliding_window": false, "max_window_layers": 28})",
              {.training = {}, .prefill = {{1, 65536}}, .decoding = {}}) ==
        canonical({"forward hq28 hkv4 sq65536 d128 causal"}));
}

TEST_CASE("the language model counts of a model of several kinds of input", "[nogpu]") {
  CHECK(texts(R"({"model_type": "llava", "vision_config": {"num_attention_heads": 16, "hidden_size": 1024},
                  "text_config": {"hidden_size": 4096, "num_attention_heads": 32}})",
              kDecoding) == canonical({"forward b64 hq32 sq1 skv4096 d128"}));
}

TEST_CASE("what no problem says is left out by name, and refused where nothing is left", "[nogpu]") {
  const ModelProblems model = found(
      R"({"num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
          "layer_types": ["chunked_attention", "full_attention", "linear_attention"]})",
      kDecoding);
  CHECK(texts(model) == canonical({"forward b64 hq40 hkv8 sq1 skv4096 d128"}));
  REQUIRE(model.left_out == Texts{"layers of chunked_attention are no problem of Attune's"});

  refused(R"({"num_attention_heads": 16, "head_dim": 512})", kTraining,
          "no attention of this model is a problem of Attune's");
  refused(R"({"num_attention_heads": 16, "head_dim": 512})", kTraining, "head dim 512");
  refused(R"({"num_attention_heads": 128, "hidden_size": 7168, "kv_lora_rank": 512, "v_head_dim": 128})", kTraining,
          "latent attention");
  refused(R"([1])", kTraining, "must be an object, the configuration of a model, not array");
  refused(R"({"hidden_size": 64})", kTraining, "there is no num_attention_heads");
  refused(R"({"num_attention_heads": "many", "head_dim": 64})", kTraining,
          "config.json, field num_attention_heads: \"many\" is not a whole number of at least 1");
  refused(R"({"num_attention_heads": 12, "num_key_value_heads": 5, "head_dim": 64})", kTraining, "no multiple of 5");
  refused(R"({"num_attention_heads": 12, "hidden_size": 100})", kTraining,
          "hidden_size 100 is no multiple of 12 heads");
  refused(R"({"num_attention_heads": )", kTraining, "config.json");
}

TEST_CASE("calls of a model are batches and tokens", "[nogpu]") {
  CHECK(parse_model_calls("8x4096") == std::vector<ModelCall>{{8, 4096}});
  CHECK(parse_model_calls("1x1,64x131072") == std::vector<ModelCall>{{1, 1}, {64, 131072}});
  for (const char* wrong :
       {"", "8", "x", "8x", "x8", "0x8", "8x0", "8x4096,", ",8x1", "8x4096 ", "-1x8", "8x9999999999999"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(parse_model_calls(wrong), ContainsSubstring("is not BATCHxTOKENS"));
  }
}

}  // namespace model_problems_test
