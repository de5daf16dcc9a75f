// The kernels in tests/golden/ are what the templates render to: a change of a template shows as a change of CUDA in
// review. ATTUNE_UPDATE_GOLDEN=1 test_generator "golden*" writes them anew.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "generator/generate.h"
#include "generator/ladder/attention_algorithm.h"
#include "tests/catch.h"
#include "tests/source_folder.h"

using namespace attune;

namespace {
struct Golden {
  const char* file;
  const char* problem;
  const char* config;
  const char* device;
  std::size_t launch = 0;
  const char* algorithm = nullptr;  // instead of the config
};
constexpr Golden kGoldens[] = {
    {"forward_bf16_d64", "sq4096 d64", "sm80 q128 kv64 w4 st2", "a100"},
    {"forward_bf16_d128_causal", "sq4096 d128 causal",
     "sm80 q128 kv64 w4 st2 qsmem order=head-major-reversed rescale10", "h200"},
    {"forward_bf16_d128_even_tiles", "sq4096 d128", "sm80 q128 kv64 w8 st2 even-tiles", "a100"},
    {"forward_fp16_d64_single_stage", "fp16 sq4096 d64 causal", "sm80 q64 kv64 w4 st1 order=tile-major-reversed",
     "rtx4090"},
    {"forward_fp16_d72_unaligned", "fp16 sq1000 d72 align2", "sm80 q64 kv48 w4 st2", "a100"},
    {"forward_bf16_d256", "sq4096 d256", "sm80 q128 kv32 w8 st1 qsmem order=tile-major", "rtx4090"},
    {"forward_bf16_d8_three_stages", "sq100 d8 causal", "sm80 q16 kv16 w1 st3", "l4"},
    {"forward_sm90_bf16_d128_causal", "sq4096 d128 causal",
     "sm90 q192 kv80 st3 order=tile-major-reversed rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent "
     "ascending-keys",
     "h200"},
    {"forward_sm90_bf16_d256_cluster", "sq4096 d256 causal",
     "sm90 q128 kv80 st2 order=tile-major-reversed rescale10 overlap=within scheduler=dynamic-persistent vst1 cluster2",
     "h200"},
    {"forward_sm90_fp16_d72", "fp16 sq1000 d72", "sm90 q128 kv64 st2 qreg rescale10", "h100"},
    {"forward_bf16_d64_window", "sq4096 d64 window=512,100", "sm80 q128 kv64 w4 st2", "a100"},
    {"forward_sm90_bf16_d128_window", "sq4096 d128 window=1023,0",
     "sm90 q128 kv64 st2 rescale10 qst2 overlap=across scheduler=static-persistent", "h200"},
    {"forward_bf16_d64_parts", "sq100 skv1000 d64 causal", "sm80 q64 kv64 w4 st2 parts4", "a100"},
    {"forward_sm90_bf16_d128_parts", "hq32 hkv4 sq1 skv8192 d128",
     "sm90 q64 kv128 st2 rescale10 overlap=within pack-gqa parts=fill", "h200"},
    {"forward_bf16_d64_softcap", "sq4096 d64 causal softcap30", "sm80 q128 kv64 w4 st2", "a100"},
    {"forward_sm90_bf16_d128_softcap", "sq4096 d128 causal softcap30",
     "sm90 q128 kv128 st2 rescale10 qst2 overlap=within scheduler=static-persistent", "h200"},
    {"forward_bf16_d64_sink", "sq4096 d64 causal sink", "sm80 q128 kv64 w4 st2", "a100"},
    {"forward_sm90_bf16_d128_sink", "sq4096 d128 window=127,0 sink softcap30",
     "sm90 q128 kv128 st2 rescale10 qst2 overlap=within scheduler=static-persistent", "h200"},
    {"forward_bf16_d64_used", "b4 hq4 hkv2 sq512 d64 causal used", "sm80 q64 kv64 w4 st2", "a100"},
    {"forward_bf16_d64_alibi", "b4 hq4 sq512 d64 causal alibi", "sm80 q64 kv64 w4 st2", "a100"},
    {"forward_sm90_bf16_d128_alibi", "b4 hq4 sq4096 d128 causal alibi",
     "sm90 q128 kv128 st2 ordered overlap=within scheduler=dynamic-persistent rescale10", "h200"},
    {"forward_sm90_bf16_d128_used", "b4 hq4 sq4096 d128 causal used sink softcap30",
     "sm90 q128 kv128 st2 ordered overlap=within scheduler=dynamic-persistent", "h200"},
    {"forward_combine_bf16_d128_sink", "hq32 hkv4 sq1 skv8192 d128 sink",
     "sm90 q64 kv128 st2 rescale10 overlap=within pack-gqa parts=fill", "h200", 1},
    {"forward_bf16_d64_invariant", "sq4096 d64 causal invariant", "sm80 q64 kv64 w4 st2", "a100"},
    {"forward_sm90_bf16_d128_invariant", "sq4096 d128 causal invariant",
     "sm90 q128 kv128 st2 order=l2-sections-reversed qst2 ordered overlap=within scheduler=static-persistent", "h200"},
    {"forward_sm90_bf16_d128_invariant_parts", "hq32 hkv4 sq1 skv8192 d128 invariant",
     "sm90 q64 kv128 st2 parts=fixed overlap=within pack-gqa", "h200"},
    {"forward_add_parts_bf16_d128", "hq32 hkv4 sq1 skv8192 d128 invariant",
     "sm90 q64 kv128 st2 parts=fixed overlap=within pack-gqa", "h200", 1},
    {"forward_bf16_d128_packed", "b64 hq32 hkv8 sq1 skv4096 d128", "sm80 q16 kv32 w1 st2 rescale10 pack-gqa", "a100"},
    {"forward_combine_bf16_d128", "hq32 hkv4 sq1 skv8192 d128",
     "sm90 q64 kv128 st2 rescale10 overlap=within pack-gqa parts=fill", "h200", 1},
    {"backward_dkdv_bf16_d128_window", "backward sq4096 d128 window=1023,0",
     "sm80 q64 kv128 w8 st2 query-warps2 dq=atomic", "h200", 1},
    {"backward_delta_bf16_d72", "backward sq1000 d72", "sm80 q64 kv64 w4 st2", "a100", 0},
    {"backward_dkdv_bf16_d72_causal", "backward sq1000 d72 causal", "sm80 q64 kv64 w4 st2", "a100", 1},
    {"backward_dkdv_bf16_d128_atomic", "backward sq4096 d128", "sm80 q64 kv128 w8 st2 query-warps2 dq=atomic", "h200",
     1},
    {"backward_dkdv_fp16_d64_ordered", "backward fp16 sq4096 d64 causal", "sm80 q64 kv64 w4 st1 dq=ordered", "a100", 1},
    {"backward_dkdv_bf16_d64_kv_grad_per_query_head", "backward hq8 hkv2 sq1000 d64 causal",
     "sm80 q64 kv64 w4 st2 order=l2-sections kv-grad-per-query-head", "h200", 1},
    {"backward_convert_keys_fp16_d72", "backward fp16 hq6 hkv2 sq1000 d72",
     "sm80 q64 kv64 w4 st1 kv-grad-per-query-head", "a100", 3},
    {"backward_convert_fp16_d72", "backward fp16 sq1000 d72", "sm80 q64 kv64 w4 st1 dq=atomic", "a100", 2},
    {"backward_dq_fp16_d128_unaligned", "backward fp16 sq1000 d128 align2", "sm80 q64 kv64 w4 st1", "rtx4090", 2},
    {"backward_sm90_bf16_d128", "backward sq4096 d128", "sm90 q64 kv128 st3 overlap=within dq=atomic", "h200", 1},
    {"backward_sm90_fp16_d72_window", "backward fp16 hq8 hkv2 sq1000 d72 window=500,100",
     "sm90 q64 kv128 st2 ordered kv-grad-per-query-head dq=ordered dost1", "h200", 1},
    {"backward_sm90_bf16_d128_tickets", "backward b4 hq16 sq4096 d128 causal deterministic",
     "sm90 q64 kv128 st3 order=l2-sections ordered overlap=within dq=ordered ticket2 early8", "h200", 1},
    {"backward_sm90_bf16_d64_query_parts", "backward sq65536 skv256 d64 causal deterministic",
     "sm90 q128 kv128 st2 ordered overlap=within query-parts8 dq=ordered", "h200", 1},
    {"backward_sm90_bf16_d128_bulk_adds", "backward sq4096 d128",
     "sm90 q64 kv128 st3 ordered overlap=within dq=atomic dq-adds=bulk", "h200", 1},
    {"backward_sm90_bf16_d256_polled_loads", "backward sq4096 d256",
     "sm90 q64 kv64 st2 overlap=within dq=atomic polled-loads split-dkdv", "h200", 1},
    {"backward_sm90_bf16_d128_persistent", "backward b16 hq16 sq1024 d128 causal",
     "sm90 q64 kv128 st3 order=l2-sections ordered overlap=within scheduler=dynamic-persistent dq=atomic early8",
     "h200", 1},
    {"backward_sm90_bf16_d128_dq_by_softmax", "backward sq4096 d128",
     "sm90 q80 kv128 st2 ordered overlap=within dq=atomic dq-by=softmax dq-adds=bulk", "h200", 1},
    {"backward_convert_bf16_d128_transposed", "backward sq4096 d128",
     "sm90 q80 kv128 st2 ordered overlap=within dq=atomic dq-by=softmax dq-adds=bulk", "h200", 2},
    {"backward_delta_bf16_d128_columns", "backward sq4096 d128", "sm90 q64 kv128 st3 overlap=within dq=atomic", "h200",
     0},
    {"backward_dkdv_bf16_d64_softcap", "backward sq4096 d64 causal softcap30", "sm80 q64 kv64 w4 st2", "a100", 1},
    {"backward_dq_bf16_d64_softcap", "backward sq4096 d64 causal softcap30", "sm80 q64 kv64 w4 st2", "a100", 2},
    {"backward_sm90_bf16_d128_softcap", "backward sq4096 d128 causal softcap30",
     "sm90 q64 kv128 st2 ordered overlap=within dq=atomic dq-by=softmax early2", "h200", 1},
    {"backward_sm90_bf16_d256_softcap", "backward sq4096 d256 softcap30",
     "sm90 q64 kv64 st2 dq=atomic polled-loads split-dkdv dk-first", "h200", 1},
    {"forward_bf16_d64_bias", "b4 hq4 sq512 d64 causal bias=1hqk attention-mask=b11k", "sm80 q64 kv64 w4 st2", "a100",
     0},
    {"forward_sm90_fp16_d128_bias", "fp16 b4 hq4 sq4096 d128 bias=bhqk bias-fp32",
     "sm90 q128 kv128 st2 ordered overlap=within", "h200", 0},
    {"backward_sm90_bf16_d128_bias", "backward b4 hq4 sq4096 d128 bias=1hqk attention-mask=b11k",
     "sm90 q64 kv128 st2 ordered overlap=within dq=atomic early2", "h200", 1},
    {"forward_sm90_bf16_d128_pair_tiles", "b4 hq4 sq4096 d128 bias=1hqk attention-mask=b11k",
     "sm90 q128 kv112 st2 qst2 ordered overlap=within scheduler=dynamic-persistent pst1", "h200", 0},
    {"backward_sm90_bf16_d128_pair_tiles", "backward b4 hq4 sq4096 d128 bias=1hqk",
     "sm90 q64 kv128 st2 ordered overlap=within pst2 dq=atomic", "h200", 1},
    {"copy_bias", "b4 hq4 sq100 skv197 d64 bias=1hqk", "sm90 q128 kv64 st2 pst1 overlap=within copied-pairs", "h200"},
    {"visible_blocks_of_keys", "b4 hq4 sq4096 d128 causal attention-mask=b1qk",
     "sm90 q128 kv128 st2 pst1 overlap=within visible-blocks", "h200"},
    {"forward_sm90_bf16_d128_visible_blocks", "b4 hq4 sq4096 d128 causal attention-mask=b1qk",
     "sm90 q128 kv128 st2 pst1 overlap=within visible-blocks", "h200", 1},
    {"visible_blocks_of_queries", "backward b4 hq4 sq4096 d128 attention-mask=b1qk",
     "sm90 q64 kv128 st2 pst2 overlap=queued dq=atomic dq-by=softmax visible-blocks", "h200"},
    {"backward_sm90_bf16_d128_visible_blocks", "backward b4 hq4 sq4096 d128 attention-mask=b1qk",
     "sm90 q64 kv128 st2 pst2 overlap=queued dq=atomic dq-by=softmax visible-blocks", "h200", 2},
    {"backward_bias_fp16_d64", "fp16 backward b4 hq4 sq512 d64 causal bias=1hqk bias-gradient alibi softcap30",
     "sm80 q64 kv64 w4 st2", "a100", 3},
    {"backward_bias_sm90_bf16_d128",
     "backward b4 hq4 sq4096 d128 causal bias=1hqk bias-gradient attention-mask=b11k alibi",
     "sm90 q64 kv128 st2 ordered overlap=within dq=atomic", "h200", 3},
    {"backward_sm90_bf16_d128_fused_dbias", "backward b4 hq4 sq4096 d128 bias=bhqk bias-gradient",
     "sm90 q64 kv128 st2 ordered overlap=within pst2 dq=atomic fused-dbias", "h200", 1},
    {"backward_sm90_bf16_d128_alibi", "backward b4 hq4 sq4096 d128 alibi",
     "sm90 q64 kv128 st2 ordered overlap=within dq=atomic dq-by=softmax early2", "h200", 1},
    {"backward_dkdv_bf16_d64_alibi", "backward b4 hq4 sq512 d64 causal alibi softcap30", "sm80 q64 kv64 w4 st2", "a100",
     1},
    {"backward_dq_bf16_d64_alibi", "backward b4 hq4 sq512 d64 causal alibi softcap30", "sm80 q64 kv64 w4 st2", "a100",
     2},
    {"backward_sm90_bf16_d128_used", "backward b4 hq4 sq4096 d128 causal used sink softcap30",
     "sm90 q64 kv128 st2 ordered overlap=within dq=atomic dq-by=softmax early2", "h200", 1},
    {"forward_bf16_d64_packed", "b4 hq8 hkv2 sq4096 d64 packed window=100,20 alibi", "sm80 q64 kv64 w4 st2 pack-gqa",
     "a100"},
    {"forward_sm90_bf16_d128_packed", "b4 hq4 sq4096 d128 causal packed",
     "sm90 q128 kv128 st2 overlap=within scheduler=dynamic-persistent", "h200"},
    {"backward_delta_bf16_d64_packed", "backward b4 hq4 sq4096 d64 causal packed", "sm80 q64 kv64 w4 st2", "a100"},
    {"backward_dkdv_bf16_d64_packed", "backward b4 hq8 hkv2 sq4096 d64 causal packed deterministic",
     "sm80 q64 kv64 w4 st2 dq=ordered kv-grad-per-query-head order=l2-sections", "a100", 1},
    {"backward_convert_bf16_d64_packed", "backward b4 hq4 sq4096 d64 causal packed", "sm80 q64 kv64 w4 st2 dq=atomic",
     "a100", 2},
    {"backward_sm90_bf16_d128_packed", "backward b4 hq4 sq4096 d128 causal packed sink",
     "sm90 q64 kv128 st2 ordered overlap=within dq=atomic early8", "h200", 1},
    {"backward_sinks_bf16_d128_packed", "backward b4 hq4 sq4096 d128 packed sink",
     "sm90 q64 kv128 st3 overlap=within dq=atomic", "h200", 3},
    {"backward_sinks_bf16_d64", "backward sq4096 d64 causal sink", "sm80 q64 kv64 w4 st2", "a100", 3},
    {"backward_sinks_bf16_d128_columns", "backward sq4096 d128 sink", "sm90 q64 kv128 st3 overlap=within dq=atomic",
     "h200", 3},
    {"forward_bf16_d64_dropout", "b4 hq4 sq4096 d64 causal dropout0.1", "sm80 q128 kv64 w4 st2", "a100"},
    {"forward_sm90_bf16_d128_dropout", "b4 hq4 sq4096 d128 causal dropout0.1",
     "sm90 q128 kv128 st2 ordered overlap=within scheduler=dynamic-persistent rescale10", "h200"},
    {"forward_sm90_fp16_d64_dropout", "fp16 b4 hq4 sq4096 d64 dropout0.01",
     "sm90 q192 kv96 st2 ordered overlap=within rescale10", "h200"},
    {"backward_dkdv_bf16_d64_dropout", "backward b4 hq4 sq4096 d64 causal dropout0.1", "sm80 q64 kv64 w4 st2", "a100",
     1},
    {"backward_dq_bf16_d64_dropout", "backward b4 hq4 sq4096 d64 causal dropout0.1", "sm80 q64 kv64 w4 st2", "a100", 2},
    {"backward_sm90_bf16_d128_dropout", "backward b4 hq4 sq4096 d128 causal dropout0.1 softcap30",
     "sm90 q64 kv128 st2 ordered overlap=within dq=atomic dq-by=softmax early2", "h200", 1},
    {"backward_sm90_bf16_d256_dropout", "backward b4 hq4 sq4096 d256 dropout0.01",
     "sm90 q64 kv64 st2 dq=atomic split-dkdv", "h200", 1},
    {"ladder_scores_bf16_d64_causal", "sq1000 d64 causal", nullptr, "a100", 0, "standard"},
    {"ladder_softmax_safe", "sq1000 d64", nullptr, "a100", 1, "standard"},
    {"ladder_softmax_online", "sq1000 d64", nullptr, "a100", 1, "online"},
    {"ladder_values_fp16_d72_unaligned", "fp16 sq1000 d72 align2", nullptr, "rtx4090", 2, "standard"},
    {"ladder_fa1_bf16_d128_causal", "sq1000 d128 causal", nullptr, "h200", 0, "fa1"},
    {"ladder_fa1_bf16_d128_dropout", "sq1000 d128 causal dropout0.1", nullptr, "h200", 0, "fa1"},
    {"reference_fp16_d40_causal", "fp16 sq100 d40 causal", nullptr, "a100"},
    {"reference_fp16_d40_softcap", "fp16 sq100 d40 causal softcap30", nullptr, "a100"},
    {"reference_fp16_d40_used", "fp16 b2 sq100 d40 causal used-top-left", nullptr, "a100"},
    {"reference_fp16_d40_packed", "fp16 b2 sq100 d40 causal packed", nullptr, "a100"},
    {"reference_fp16_d40_alibi", "fp16 b2 sq100 d40 causal alibi", nullptr, "a100"},
    {"reference_fp16_d40_sink", "fp16 sq100 d40 causal sink", nullptr, "a100"},
    {"reference_fp16_d40_dropout", "fp16 sq100 d40 causal dropout0.1", nullptr, "a100"},
};

std::filesystem::path folder() { return attune::testing::source_folder() / "tests" / "golden"; }

std::string rendered(const Golden& golden) {
  const AttentionProblem problem = parse_problem(golden.problem);
  const DeviceSpec& device = find_device(golden.device);
  const KernelPlan plan = golden.algorithm != nullptr ? generate(problem, parse_algorithm(golden.algorithm), device)
                          : golden.config != nullptr  ? generate(problem, parse_config(golden.config), device)
                                                      : generate_reference(problem, device);
  return plan.launches.at(golden.launch).source;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number of the first line that differs, from 1.
std::size_t first_difference(const std::string& a, const std::string& b) {
  std::istringstream a_stream(a), b_stream(b);
  std::string a_line, b_line;
  for (std::size_t line = 1;; ++line) {
    const bool a_good = static_cast<bool>(std::getline(a_stream, a_line));
    const bool b_good = static_cast<bool>(std::getline(b_stream, b_line));
    if (a_good != b_good || a_line != b_line || !a_good) return line;
  }
}
}  // namespace

TEST_CASE("golden renderings", "[nogpu]") {
  const char* update = std::getenv("ATTUNE_UPDATE_GOLDEN");
  for (const Golden& golden : kGoldens) {
    const std::filesystem::path path = folder() / (std::string(golden.file) + ".cu");
    const std::string source = rendered(golden);
    if (update != nullptr && std::string(update) == "1") std::ofstream(path, std::ios::binary) << source;
    const std::string expected = read(path);
    INFO(path.string()
         << " differs from what its template renders to, first in line " << first_difference(source, expected)
         << ". If the change is meant: ATTUNE_UPDATE_GOLDEN=1 test_generator 'golden*', and review the diff.");
    CHECK((source == expected));
  }
}

TEST_CASE("golden folder holds nothing else", "[nogpu]") {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() == ".cu") files.insert(entry.path().stem().string());
  }
  std::set<std::string> expected;
  for (const Golden& golden : kGoldens) expected.insert(golden.file);
  CHECK(files == expected);
}
