#include "generator/generate.h"

#include <algorithm>
#include <set>

#include "generator/config/config_space.h"
#include "generator/error.h"
#include "generator/families/family_word.h"
#include "generator/families/kernel_family.h"
#include "generator/plan/source_hash.h"
#include "generator/problem/dispatch_class.h"
#include "tests/catch.h"
#include "tests/generator/random_values.h"

using namespace attune;

namespace {
KernelPlan plan_of(const std::string& problem, const std::string& config, const char* device = "a100") {
  return generate(parse_problem(problem), parse_config(config), find_device(device));
}
std::string source_of(const std::string& problem, const std::string& config) {
  return plan_of(problem, config).launches.at(0).source;
}
}  // namespace

TEST_CASE("a forward plan", "[nogpu]") {
  const AttentionProblem problem = parse_problem("b2 hq6 hkv3 sq1000 skv700 d64 causal");
  const KernelConfig config = parse_config("sm80 q64 kv32 w4 st3");
  const KernelPlan plan = generate(problem, config, find_device("h200"));
  CHECK(plan.problem == problem);
  CHECK(plan.config == config);
  CHECK(plan.kernel_class == kernel_class(problem, config));
  CHECK(plan.flops == count_flops(problem));
  CHECK(plan.bytes == count_bytes(problem));
  CHECK(plan.workspace_bytes == 0);
  CHECK(plan.ordered_outputs == std::vector<Operand>{Operand::o, Operand::lse});
  REQUIRE(plan.launches.size() == 1);
  const KernelLaunch& launch = plan.launches[0];
  CHECK(launch.arch == "sm_90a");
  CHECK(launch.threads == 128);
  CHECK(launch.rows_per_tile == 64);
  CHECK(launch.grid_x(problem) == 16u * 12u);
  CHECK(launch.shared_bytes == 2u * 64 * 64 + 2u * 3 * 2 * 32 * 64);
  CHECK(launch.target == KernelTarget::cuda);
  CHECK_THAT(launch.source, ContainsSubstring(launch.entry));
  const auto lines = std::count(launch.source.begin(), launch.source.end(), '\n');
  CHECK(launch.lines.size() == static_cast<std::size_t>(lines));
  for (const TemplateLine& line : launch.lines) REQUIRE(TemplateSet::embedded().find(line.file) != nullptr);
}

TEST_CASE("generating twice gives the same bytes", "[nogpu]") {
  RandomValues random(6);
  int feasible = 0;
  for (int i = 0; i < 75000; ++i) {
    const AttentionProblem problem = random.problem();
    const KernelConfig config = random.config();
    const DeviceSpec& device = known_devices()[static_cast<std::size_t>(random.between(0, 10))];
    if (!infeasibility(problem, config, device).empty()) continue;
    ++feasible;
    const KernelPlan a = generate(problem, config, device), b = generate(problem, config, device);
    REQUIRE(a.launches.size() == b.launches.size());
    REQUIRE(a.launches[0].source == b.launches[0].source);
    REQUIRE(a.launches[0].arguments.offsets == b.launches[0].arguments.offsets);
    REQUIRE(a.workspace_bytes <= most_workspace_bytes(problem, device));
  }
  CHECK(feasible > 10);
}

TEST_CASE("no config needs more workspace than is told for all", "[nogpu]") {
  const AttentionProblem problem = parse_problem("b4 hq16 sq4096 d64 causal");
  const DeviceSpec& h200 = find_device("h200");
  const std::size_t most = most_workspace_bytes(problem, h200);
  const auto bytes_of = [&](const KernelConfig& config) {
    return generate(problem, config, h200).workspace_bytes_of(problem);
  };
  std::set<std::size_t> needed;
  const std::vector<Candidate> space = config_space(problem, h200);
  for (std::size_t i = 0; i < space.size(); i += 97) {
    if (space[i].feasible()) needed.insert(bytes_of(space[i].config));
  }
  CHECK(needed == std::set<std::size_t>{0, most});
}

TEST_CASE("no config of packed sequences needs more workspace than is told for all", "[nogpu]") {
  const DeviceSpec& h200 = find_device("h200");
  for (const char* text : {"backward b37 hq8 hkv2 sq4096 skv700 d64 causal packed sink",
                           "backward b300 hq2 sq301 d128 packed deterministic", "b9 hq8 hkv2 sq100 d64 packed"}) {
    const AttentionProblem problem = parse_problem(text);
    const std::size_t most = most_workspace_bytes(problem, h200);
    const std::vector<Candidate> space = config_space(problem, h200);
    int feasible = 0;
    for (std::size_t i = 0; i < space.size(); i += 23) {
      if (!space[i].feasible()) continue;
      INFO(text << " " << canonical_text(space[i].config));
      ++feasible;
      REQUIRE(generate(problem, space[i].config, h200).workspace_bytes_of(problem) <= most);
    }
    CHECK(feasible > 5);
  }
}

TEST_CASE("one source for a kernel class: lengths, heads, scale and offset are not in it", "[nogpu]") {
  const std::string config = "sm80 q64 kv64 w4 st2";
  const std::string source = source_of("b3 hq14 hkv7 sq7919 skv6841 d64 causal scale0.717171", config);
  for (const char* other : {"b1 hq1 sq2 d64 causal", "b999 hq8 hkv2 sq100 skv31337 d64 causal-top-left",
                            "sq1024 skv5 d64 causal@-77777 bhsd"}) {
    CHECK(source_of(other, config) == source);
  }
  for (const char* number : {"7919", "6841", "0.7171"}) CHECK(source.find(number) == std::string::npos);
}

TEST_CASE("another kernel class is another source", "[nogpu]") {
  const std::string config = "sm80 q64 kv64 w4 st2";
  std::set<std::string> sources;
  for (const char* problem : {"sq256 d64", "sq256 d64 fp16", "sq256 d72", "sq256 d64 causal", "sq256 d64 align2"}) {
    CHECK(sources.insert(source_of(problem, config)).second);
  }
  for (const char* other :
       {"sm80 q32 kv64 w2 st2", "sm80 q64 kv32 w4 st2", "sm80 q64 kv64 w2 st2", "sm80 q64 kv64 w4 st1",
        "sm80 q64 kv64 w4 st3", "sm80 q64 kv64 w4 st2 qsmem", "sm80 q64 kv64 w4 st2 order=tile-major",
        "sm80 q64 kv64 w4 st2 rescale10", "sm80 q64 kv64 w4 st2 even-tiles", "sm80 q64 kv64 w4 st2 cta3"}) {
    CHECK(sources.insert(source_of("sq256 d64", other)).second);
  }
}

TEST_CASE("a source stands alone", "[nogpu]") {
  for (const char* problem : {"sq256 d64", "sq256 d72 causal align2"}) {
    const std::string source = source_of(problem, "sm80 q64 kv64 w4 st1 qsmem");
    CHECK(source.find("#include") == std::string::npos);
    CHECK(source.find("${") == std::string::npos);
    CHECK(source.find("//%") == std::string::npos);
    CHECK(source.substr(0, source.find('\n')).starts_with("// attune forward bf16 d"));
    CHECK(source.substr(0, source.find('\n')).ends_with(" · source " + hash_of_source(source)));
  }
}

TEST_CASE("every template of the sm80 family renders for every partial that a config can choose", "[nogpu]") {
  for (const char* problem : {"sq256 d64", "sq256 d64 fp16 causal", "sq256 d8 align2", "sq256 d200 causal"}) {
    for (const char* config :
         {"sm80 q32 kv16 w2 st1", "sm80 q32 kv16 w2 st2 qsmem", "sm80 q32 kv16 w2 st4 order=tile-major",
          "sm80 q32 kv16 w2 st2 order=tile-major-reversed",
          "sm80 q32 kv16 w2 st2 order=head-major-reversed rescale3 even-tiles"}) {
      for (const KernelTarget target : {KernelTarget::cuda, KernelTarget::emulator}) {
        REQUIRE_NOTHROW(
            generate(parse_problem(problem), parse_config(config), find_device("l4"), TemplateSet::embedded(), target));
      }
    }
  }
}

TEST_CASE("what cannot be generated", "[nogpu]") {
  const auto error_of = [](const std::string& problem, const std::string& config) {
    try {
      plan_of(problem, config);
    } catch (const Error& error) {
      return std::make_pair(error.code(), std::string(error.what()));
    }
    return std::make_pair(ErrorCode::internal, std::string("no error"));
  };
  CHECK(error_of("sq100 d12", "sm80").first == ErrorCode::invalid_argument);
  const auto [code, message] = error_of("sq100 d128", "sm80 q128 kv256 w8 st4 cta2");
  CHECK(code == ErrorCode::infeasible_config);
  CHECK_THAT(message,
             ContainsSubstring("config 'sm80 q128 kv256 w8 st4 cta2' does not fit 'forward bf16 b1 hq1 sq100 d128'") &&
                 ContainsSubstring("shared memory") && ContainsSubstring("; registers"));
  CHECK_THROWS_AS(generate(parse_problem("sq100 d64"), KernelConfig(), find_device("a100"),
                           TemplateSet(std::map<std::string, std::string>{{"other", ""}})),
                  Error);
}

TEST_CASE("a template that a person has edited wrongly", "[nogpu]") {
  const auto error_of = [](const std::string& name, const std::string& text) {
    std::map<std::string, std::string> texts = TemplateSet::embedded().texts();
    texts[name] = text;
    try {
      generate(parse_problem("sq100 d64 causal"), KernelConfig(), find_device("a100"), TemplateSet(texts));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::template_error);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string mask = *TemplateSet::embedded().find("attention/mask_causal");
  CHECK_THAT(error_of("attention/mask_causal", "int x = ${block_qq};\n" + mask),
             ContainsSubstring(
                 "attention/mask_causal:1: the value 'block_qq' is not declared (included from kernels/forward_sm80:"));
  CHECK_THAT(error_of("attention/mask_causal", mask + "//% include attention/mask_diagonal\n"),
             ContainsSubstring("there is no template 'attention/mask_diagonal'"));
  CHECK_THAT(error_of("kernels/forward_sm80", "// nothing\n"), ContainsSubstring("is bound, but neither"));
}

TEST_CASE("the reference plan", "[nogpu]") {
  for (const char* text : {"b2 hq6 hkv3 sq100 skv70 d72 causal", "sq5 d256 fp16", "sq5 d8 align2"}) {
    const AttentionProblem problem = parse_problem(text);
    for (const KernelTarget target : {KernelTarget::cuda, KernelTarget::emulator}) {
      const KernelPlan plan = generate_reference(problem, find_device("a100"), TemplateSet::embedded(), target);
      REQUIRE(plan.launches.size() == 1);
      const KernelLaunch& launch = plan.launches[0];
      CHECK(launch.grid_x(problem) == static_cast<std::uint32_t>(problem.batch * problem.heads_q * problem.seq_q));
      CHECK(launch.threads == 128);
      CHECK(launch.arch == "sm_80");
      CHECK(launch.target == target);
      CHECK(launch.shared_bytes == sizeof(double) * (256u + static_cast<unsigned>(problem.head_dim)));
      CHECK(launch.arguments.bytes == 8u * 15 + 4u * 6);
      CHECK_THAT(launch.source, ContainsSubstring("attune_reference_forward"));
    }
  }
}

TEST_CASE("what no kernel serves is told with the reason, and what one serves is not", "[nogpu]") {
  const auto reason = [](const char* problem, const char* device) {
    return unsupported(parse_problem(problem), find_device(device));
  };
  for (const char* device : {"h200", "a100", "rtx4090"}) {
    CHECK(reason("sq100 d64 causal", device) == "");
    CHECK(reason("backward fp16 sq100 d256 align2 invariant", device) == "");
  }
  CHECK_THAT(reason("sq100 d60", "h200"), ContainsSubstring("head dim 60: must be a multiple of 8"));
  CHECK_THAT(reason("hq6 hkv4 sq100 d64", "h200"), ContainsSubstring("not divisible"));
  DeviceSpec old = find_device("a100");
  old.name = "an old one";
  old.compute_major = 7;
  old.compute_minor = 5;
  CHECK_THAT(unsupported(parse_problem("sq100 d64"), old),
             ContainsSubstring("no kernel serves 'forward bf16 b1 hq1 sq100 d64' on an old one"));
}

TEST_CASE("a family that does not compute a problem's term refuses it", "[nogpu]") {
  KernelFamily family = kernel_families().front();
  const Question question{parse_problem("sq100 d64 softcap30"), find_device("a100")};
  Reasons reasons;
  CHECK(serves(family, question, &reasons));
  family.terms = {};
  CHECK_FALSE(serves(family, question, &reasons));
  REQUIRE(reasons.size() == 1);
  CHECK(reasons.front() == "softcap30: kernels of forward_sm80 do not compute it");
}

TEST_CASE("whether scores are capped is the source, the cap an argument", "[nogpu]") {
  const char* const config = "sm90 q64 kv64 st2 overlap=within parts=fill";
  const auto plan_at = [&](const char* cap) {
    return plan_of(std::string("forward bf16 hq4 sq100 skv9000 d64 scale0.25 ") + cap, config, "h200");
  };
  const KernelPlan plain = plan_at(""), thirty = plan_at("softcap30"), two = plan_at("softcap2");
  CHECK(thirty.source_hash() == two.source_hash());
  CHECK(thirty.source_hash() != plain.source_hash());
  CHECK_THAT(thirty.kernel_class, ContainsSubstring(" softcap "));
  const auto value = [](const KernelPlan& plan, Scalar scalar, std::size_t launch) {
    return std::get<float>(value_of(scalar, plan.problem, plan.launches[launch]));
  };
  CHECK(value(two, Scalar::tanh_scale, 0) == 0.125f);
  CHECK(value(two, Scalar::softcap, 1) == 2.0f);
  CHECK(value(two, Scalar::softmax_scale_log2, 0) == 2 * 1.44269504088896340736f);
  CHECK(value(plain, Scalar::softmax_scale_log2, 0) == 0.25f * 1.44269504088896340736f);
  const KernelPlan gradients = plan_of("backward sq100 d64 scale0.25 softcap2", "sm80 q64 kv64 w4 st2", "a100");
  for (const std::size_t launch : {1, 2}) {  // of dK and dV, and of dQ
    CHECK(value(gradients, Scalar::tanh_scale, launch) == 0.125f);
    CHECK(value(gradients, Scalar::softmax_scale, launch) == 0.25f);
  }
  for (const char* bad : {"softcap-1", "softcap1e-44", "softcap3e38"})
    CHECK_THAT(unsupported(parse_problem(std::string("sq100 d64 ") + bad), find_device("h200")),
               ContainsSubstring("softcap"));
}

TEST_CASE("a plan without sources is the same plan otherwise", "[nogpu]") {
  for (const char* text :
       {"forward bf16 b2 hq8 hkv2 sq1000 skv3000 d128 causal", "forward fp16 hq4 sq1 skv9000 d64 sink",
        "backward bf16 b2 hq8 hkv2 sq1000 d64 causal", "backward fp16 hq2 sq300 d256 bias=1hqk bias-gradient"}) {
    INFO(text);
    const AttentionProblem problem = parse_problem(text);
    const DeviceSpec& device = find_device("h200");
    const KernelConfig config = default_config(problem, device);
    const KernelPlan whole = generate(problem, config, device),
                     bare = generate(problem, config, device, TemplateSet::none());
    CHECK(bare.kernel_class == whole.kernel_class);
    CHECK(bare.workspace_bytes_of(problem) == whole.workspace_bytes_of(problem));
    REQUIRE(bare.launches.size() == whole.launches.size());
    for (std::size_t i = 0; i < whole.launches.size(); ++i) {
      const KernelLaunch &with = whole.launches[i], &without = bare.launches[i];
      CHECK(without.source.empty());
      CHECK(without.lines.empty());
      CHECK_FALSE(with.source.empty());
      CHECK(without.entry == with.entry);
      CHECK(without.arch == with.arch);
      CHECK(without.grid_x(problem) == with.grid_x(problem));
      CHECK(without.threads == with.threads);
      CHECK(without.shared_bytes == with.shared_bytes);
      CHECK(without.arguments.bytes == with.arguments.bytes);
      CHECK(without.arguments.offsets == with.arguments.offsets);
      CHECK(without.tensor_maps.size() == with.tensor_maps.size());
    }
  }
}
