// Real tensors through `run`, and `check`, against an oracle of the tests' own; and both must be able to fail.
#include <cmath>
#include <filesystem>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/cli/oracle.h"
#include "tests/cli/safetensors_file.h"
#include "tests/source_folder.h"
#include "tests/temporary_folder.h"

using namespace attune::testing;

namespace {

struct RunCase {
  bool bf16, bhsd, causal;
  int batch, heads_q, heads_kv, seq_q, seq_kv, dim;
};

std::string shape_flags(const RunCase& c) {
  return std::string("--dtype ") + (c.bf16 ? "bf16" : "fp16") + " --layout " + (c.bhsd ? "bhsd" : "bshd") +
         " --batch " + std::to_string(c.batch) + " --heads " + std::to_string(c.heads_q) + " --kv-heads " +
         std::to_string(c.heads_kv) + " --seq " + std::to_string(c.seq_q) + " --kv-seq " + std::to_string(c.seq_kv) +
         " --head-dim " + std::to_string(c.dim);
}

void run_and_compare(const RunCase& c, const std::string& device) {
  const TemporaryFolder folder;
  std::vector<std::string> make = words("input " + shape_flags(c));
  make.insert(make.end(), {"--output", folder.file("qkv.safetensors")});
  REQUIRE(run_attune(make).status == 0);
  std::vector<std::string> run = words(std::string("run --check --json --layout ") + (c.bhsd ? "bhsd " : "bshd ") +
                                       device + (c.causal ? " --causal" : ""));
  run.insert(run.end(), {"--input", folder.file("qkv.safetensors"), "--output", folder.file("o.safetensors")});
  const CommandResult result = run_attune(run);
  INFO(result.err << result.out);
  REQUIRE(result.status == 0);
  CHECK(result.json().at("status") == "ok");
  CHECK(result.json().at("origin") == "default");
  CHECK(result.json().at("outputs").at("o").at("within") == true);

  const ParsedFile in(read_file(folder.file("qkv.safetensors"))), out(read_file(folder.file("o.safetensors")));
  CHECK(out.shape("o") == in.shape("q"));
  CHECK(out.shape("lse") == std::vector<std::uint64_t>{static_cast<std::uint64_t>(c.batch),
                                                       static_cast<std::uint64_t>(c.heads_q),
                                                       static_cast<std::uint64_t>(c.seq_q)});
  CHECK(out.header.at("lse").at("dtype") == "F32");
  const auto q = in.values<std::uint16_t>("q"), k = in.values<std::uint16_t>("k"), v = in.values<std::uint16_t>("v"),
             o = out.values<std::uint16_t>("o");
  const auto lse = out.values<float>("lse");
  const auto index = [&](int heads, int seq, int b, int h, int row, int d) {
    return c.bhsd ? ((b * heads + h) * seq + row) * c.dim + d : ((b * seq + row) * heads + h) * c.dim + d;
  };
  const auto q_at = [&](int b, int h, int row, int d) {
    return value_of(c.bf16, q[index(c.heads_q, c.seq_q, b, h, row, d)]);
  };
  const auto k_at = [&](int b, int h, int row, int d) {
    return value_of(c.bf16, k[index(c.heads_kv, c.seq_kv, b, h, row, d)]);
  };
  const auto v_at = [&](int b, int h, int row, int d) {
    return value_of(c.bf16, v[index(c.heads_kv, c.seq_kv, b, h, row, d)]);
  };
  const Reference reference = plain_attention(c.batch, c.heads_q, c.heads_kv, c.seq_q, c.seq_kv, c.dim, c.causal,
                                              1 / std::sqrt(c.dim), q_at, k_at, v_at);
  double difference = 0, norm = 0;
  std::size_t at = 0;
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads_q; ++h) {
      for (int row = 0; row < c.seq_q; ++row) {
        for (int d = 0; d < c.dim; ++d, ++at) {
          const double x = value_of(c.bf16, o[index(c.heads_q, c.seq_q, b, h, row, d)]);
          difference += (x - reference.o[at]) * (x - reference.o[at]);
          norm += reference.o[at] * reference.o[at];
        }
      }
    }
  }
  CHECK(std::sqrt(difference / norm) <= (c.bf16 ? 3e-3 : 4e-4));
  REQUIRE(lse.size() == reference.lse.size());
  double worst = 0;
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (std::isinf(reference.lse[i])) {
      CHECK(static_cast<double>(lse[i]) == reference.lse[i]);
    } else {
      worst = std::max(worst, std::abs(lse[i] - reference.lse[i]) - 1e-6 * std::abs(reference.lse[i]));
    }
  }
  CHECK(worst <= 1e-5);
}

constexpr RunCase kCases[] = {
    {true, false, true, 2, 6, 2, 50, 70, 64},
    {false, true, true, 1, 4, 4, 70, 33, 40},
    {true, true, false, 1, 2, 1, 17, 129, 128},
};

}  // namespace

TEST_CASE("run: a file in, a file out, as the textbook has it", "[emulator]") {
  const RunCase c = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  DYNAMIC_SECTION(shape_flags(c)) { run_and_compare(c, "--device emulator --target a100"); }
}

TEST_CASE("run on the GPU", "[gpu]") {
  const RunCase c = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  DYNAMIC_SECTION(shape_flags(c)) { run_and_compare(c, "--device cuda:0"); }
}

TEST_CASE("check: JSON with status, config, origin and the errors of each output", "[emulator]") {
  const std::string options = GENERATE("", " --async lazy", " --schedule random --emulator-seed 7 --async lazy");
  const CommandResult result =
      run_attune(words("check --dtype fp16 --heads 2 --seq 40 --kv-seq 65 --head-dim 72 --causal --device emulator "
                       "--target h200 --json" +
                       options));
  INFO(result.err);
  REQUIRE(result.status == 0);
  const nlohmann::json document = result.json();
  CHECK(document.at("status") == "ok");
  CHECK(document.at("origin") == "default");
  CHECK_FALSE(document.at("config").get<std::string>().empty());
  CHECK_THAT(document.at("device").get<std::string>(), ContainsSubstring("emulator"));
  for (const std::string output : {"o", "lse"}) {
    CHECK(document.at("outputs").at(output).at("relative").get<double>() > 0);
    CHECK(document.at("outputs").at(output).at("relative").get<double>() < 1e-3);
    CHECK(document.at("outputs").at(output).at("max_abs").get<double>() > 0);
  }
}

TEST_CASE("check of a backward problem compares the three gradients", "[emulator]") {
  const CommandResult result = run_attune(words(
      "check --pass backward --heads 4 --kv-heads 2 --seq 40 --kv-seq 65 --head-dim 72 --causal --device emulator "
      "--target h200 --json"));
  INFO(result.err);
  REQUIRE(result.status == 0);
  const nlohmann::json document = result.json();
  CHECK(document.at("status") == "ok");
  CHECK(document.at("problem") == "backward bf16 b1 hq4 hkv2 sq40 skv65 d72 causal");
  CHECK(document.at("origin") == "default");
  CHECK_THAT(document.at("tune_command").get<std::string>(), ContainsSubstring("backward"));
  for (const std::string output : {"dq", "dk", "dv"}) {
    CHECK(document.at("outputs").at(output).at("within") == true);
    CHECK(document.at("outputs").at(output).at("relative").get<double>() > 0);
  }
}

TEST_CASE("check with a given config says so, in text too", "[emulator]") {
  std::vector<std::string> arguments = words("check --seq 33 --head-dim 64 --device emulator --target a100 --config");
  arguments.push_back("sm80 q64 kv32 w4 st1 qsmem");
  const CommandResult result = run_attune(arguments);
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK_THAT(result.out, ContainsSubstring("sm80 q64 kv32 w4 st1 qsmem"));
  CHECK_THAT(result.out, ContainsSubstring("given"));
  CHECK_THAT(result.out, ContainsSubstring("relative"));
}

TEST_CASE("without a GPU and without --device the emulator runs, and it says so", "[emulator]") {
  const CommandResult result = run_attune(words("check --seq 16 --head-dim 64"), kNoGpu);
  CHECK(result.status == 0);
  CHECK_THAT(result.err, ContainsSubstring("no GPU here"));
  CHECK_THAT(result.err, ContainsSubstring("emulator"));
}

TEST_CASE("check on the GPU", "[gpu]") {
  const CommandResult result =
      run_attune(words("check --batch 2 --heads 8 --kv-heads 2 --seq 1000 --kv-seq 1500 --head-dim 128 --causal "
                       "--device cuda:0 --json"));
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK(result.json().at("status") == "ok");
}

TEST_CASE("check and run --check fail a kernel that computes something else", "[emulator]") {
  const TemporaryFolder folder;
  const std::string templates = folder.file("templates");
  std::filesystem::copy(attune::testing::source_folder() / "templates", templates,
                        std::filesystem::copy_options::recursive);
  const std::string step = templates + "/mma_sync/online_softmax.cu";
  std::string text = read_file(step);
  const std::string right = "kLn2 = 0.693147";
  REQUIRE(text.find(right) != std::string::npos);
  write_file(step, text.replace(text.find(right), right.size(), "kLn2 = 0.693347"));

  const std::map<std::string, std::string> environment = {{"ATTUNE_TEMPLATE_DIR", templates}};
  const CommandResult check =
      run_attune(words("check --seq 40 --head-dim 64 --device emulator --target a100 --json"), environment);
  INFO(check.err);
  CHECK(check.status == 1);
  CHECK(check.json().at("status") == "wrong_result");
  CHECK(check.json().at("outputs").at("lse").at("within") == false);
  CHECK(check.json().at("outputs").at("o").at("within") == true);

  REQUIRE(run_attune({"input", "--seq", "40", "--head-dim", "64", "--output", folder.file("qkv.safetensors")}).status ==
          0);
  const std::vector<std::string> run = {"run",
                                        "--input",
                                        folder.file("qkv.safetensors"),
                                        "--output",
                                        folder.file("o.safetensors"),
                                        "--device",
                                        "emulator",
                                        "--target",
                                        "a100",
                                        "--check"};
  const CommandResult wrong = run_attune(run, environment);
  CHECK(wrong.status == 1);
  CHECK_THAT(wrong.out, ContainsSubstring("NOT WITHIN"));
  CHECK(run_attune(run).status == 0);
}

TEST_CASE("check names the rule that a kernel breaks on the emulator", "[emulator]") {
  const TemporaryFolder folder;
  const std::string templates = folder.file("templates");
  std::filesystem::copy(attune::testing::source_folder() / "templates", templates,
                        std::filesystem::copy_options::recursive);
  const std::string ring = templates + "/mma_sync/kv_ring.cu";
  std::string text = read_file(ring);
  // Without waiting for its copies, a CTA reads what has not arrived.
  std::size_t removed = 0;
  for (std::size_t at = text.find("cp_async_wait"); at != std::string::npos; at = text.find("cp_async_wait", at)) {
    const std::size_t end = text.find(';', at);
    text.replace(at, end - at, "");
    ++removed;
  }
  REQUIRE(removed > 0);
  write_file(ring, text);
  const CommandResult check =
      run_attune(words("check --seq 200 --head-dim 64 --device emulator --target a100 --async lazy --json"),
                 {{"ATTUNE_TEMPLATE_DIR", templates}});
  INFO(check.err << check.out);
  CHECK(check.status == 1);
  CHECK_FALSE(check.json().at("reason").get<std::string>().empty());
}

TEST_CASE("slopes are checked, written and read", "[nogpu]") {
  const std::string shape = " --batch 2 --heads 4 --seq 40 --head-dim 64 --alibi";
  for (const char* flags : {"--causal", "--pass backward --softcap 5 --kv-seq 70", "--sink --lengths used"}) {
    const CommandResult result =
        run_attune(words("check " + std::string(flags) + shape + " --device emulator --target h200 --json"));
    INFO(result.err << result.out);
    REQUIRE(result.status == 0);
    CHECK_THAT(result.json().at("problem").get<std::string>(), ContainsSubstring(" alibi"));
  }
  const TemporaryFolder folder;
  std::vector<std::string> make = words("input" + shape);
  make.insert(make.end(), {"--output", folder.file("i.safetensors")});
  REQUIRE(run_attune(make).status == 0);
  const auto run = [&](const std::string& flags, const char* input) {
    std::vector<std::string> words_of_run = words("run --check --json --device emulator --target h200 " + flags);
    words_of_run.insert(words_of_run.end(), {"--input", folder.file(input), "--output", folder.file("o.safetensors")});
    return run_attune(words_of_run);
  };
  const CommandResult result = run("--causal --alibi", "i.safetensors");
  INFO(result.err << result.out);
  CHECK(result.status == 0);
  make = words("input --batch 2 --heads 4 --seq 40 --head-dim 64");
  make.insert(make.end(), {"--output", folder.file("p.safetensors")});
  REQUIRE(run_attune(make).status == 0);
  const CommandResult without = run("--alibi", "p.safetensors");
  CHECK(without.status == 2);
  CHECK_THAT(without.err, ContainsSubstring("has no tensor 'alibi_slopes'"));
}

TEST_CASE("dropout is checked, and its state written and read", "[nogpu]") {
  const std::string shape = " --batch 2 --heads 4 --seq 40 --head-dim 64 --dropout 0.3";
  for (const char* flags :
       {"--causal", "--pass backward --softcap 5 --kv-seq 70", "--sink --lengths used", "--causal --algorithm fa1"}) {
    const CommandResult result =
        run_attune(words("check " + std::string(flags) + shape + " --device emulator --target h200 --json"));
    INFO(result.err << result.out);
    REQUIRE(result.status == 0);
    CHECK_THAT(result.json().at("problem").get<std::string>(), ContainsSubstring(" dropout0.3"));
  }
  const TemporaryFolder folder;
  const auto make = [&](const std::string& flags, const char* file) {
    std::vector<std::string> all = words("input" + flags);
    all.insert(all.end(), {"--output", folder.file(file)});
    REQUIRE(run_attune(all).status == 0);
  };
  make(shape, "i.safetensors");
  make(" --batch 2 --heads 4 --seq 40 --head-dim 64", "p.safetensors");
  const auto run = [&](const std::string& flags, const char* input) {
    std::vector<std::string> all = words("run --check --json --device emulator --target h200 " + flags);
    all.insert(all.end(), {"--input", folder.file(input), "--output", folder.file("o.safetensors")});
    return run_attune(all);
  };
  const CommandResult result = run("--causal --dropout 0.3", "i.safetensors");
  INFO(result.err << result.out);
  CHECK(result.status == 0);
  const CommandResult without = run("--dropout 0.3", "p.safetensors");
  CHECK(without.status == 2);
  CHECK_THAT(without.err, ContainsSubstring("has no tensor 'dropout_state'"));
}

TEST_CASE("tensors of pairs are checked, written and read", "[nogpu]") {
  const std::string shape = " --batch 2 --heads 4 --seq 40 --kv-seq 57 --head-dim 64 ";
  for (const char* flags : {"--causal --bias 1hqk", "--pass backward --softcap 5 --bias bhqk --bias-fp32",
                            "--attention-mask b11k --sink", "--pass backward --attention-mask bhqk --bias 11qk"}) {
    const CommandResult result =
        run_attune(words("check " + std::string(flags) + shape + "--device emulator --target h200 --json"));
    INFO(result.err << result.out);
    CHECK(result.status == 0);
  }
  CHECK_THAT(run_attune(words("check --bias hqk" + shape + "--device emulator --target h200")).err,
             ContainsSubstring("--bias hqk: expected "));
  CHECK_THAT(run_attune(words("check --bias-fp32" + shape + "--device emulator --target h200")).err,
             ContainsSubstring("bias-fp32 without a bias"));
  const TemporaryFolder folder;
  const std::string terms = "--bias 1hqk --bias-fp32 --attention-mask b11k ";
  std::vector<std::string> make = words("input " + terms + shape);
  make.insert(make.end(), {"--output", folder.file("i.safetensors")});
  REQUIRE(run_attune(make).status == 0);
  const auto run = [&](const std::string& flags) {
    std::vector<std::string> words_of_run = words("run --check --json --device emulator --target h200 " + flags);
    words_of_run.insert(words_of_run.end(),
                        {"--input", folder.file("i.safetensors"), "--output", folder.file("o.safetensors")});
    return run_attune(words_of_run);
  };
  const CommandResult result = run(terms);
  INFO(result.err << result.out);
  CHECK(result.status == 0);
  const CommandResult other = run("--bias bhqk --bias-fp32");
  CHECK(other.status == 2);
  CHECK_THAT(other.err,
             ContainsSubstring("tensor 'bias' has shape [1, 4, 40, 57]: expected one number for each query and "
                               "key of each batch entry and query head, with 1 where it repeats, [2, 4, 40, 57]"));
  CHECK_THAT(run("--bias 1hqk").err, ContainsSubstring("tensor 'bias' is F32: expected BF16"));
}

TEST_CASE("packed sequences are given, checked, written and read", "[nogpu]") {
  const std::string shape = " --heads 2 --head-dim 64 --device emulator --target h200 --json";
  for (const auto& [flags, problem] :
       {std::pair(std::string_view("--lengths 7,0,30 --causal"), "b3 hq2 sq37 d64 causal packed"),
        std::pair(std::string_view("--lengths 7,0,30 --kv-lengths 1,2,90"), "b3 hq2 sq37 skv93 d64 packed"),
        std::pair(std::string_view("--lengths 7,0,30 --used-lengths 5,0,30 --used-kv-lengths 7,0,2"),
                  "b3 hq2 sq37 d64 packed"),
        std::pair(std::string_view("--lengths one-long:3x4-20 --used-kv-lengths 3,20,4"),
                  "b3 hq2 sq28 d64 packed lengths=one-long"),
        std::pair(std::string_view("--packed --batch 3 --seq 40"), "b3 hq2 sq40 d64 packed"),
        std::pair(std::string_view("--lengths 7,0,30 --bias 1hqk"),
                  "b3 hq2 sq37 d64 bias=1hqk packed max-sq30 max-skv30"),
        std::pair(std::string_view("--lengths 7,0,30 --kv-lengths 1,2,90 --attention-mask b1qk --max-seq 9"),
                  "b3 hq2 sq37 skv93 d64 attention-mask=b1qk packed max-sq9 max-skv90"),
        std::pair(std::string_view("--packed --batch 3 --seq 40 --bias bhqk"), "b3 hq2 sq40 d64 bias=bhqk packed"),
        std::pair(std::string_view("--pass backward --lengths 7,0,30 --sink"), "b3 hq2 sq37 d64 sink packed"),
        std::pair(std::string_view("--pass backward --lengths loguniform:3x8-40"), "b3 hq2 sq59 d64 packed"),
        std::pair(std::string_view("--problem forward~fp16~b2~hq2~sq9~d64~packed --lengths 4,5"),
                  "b2 hq2 sq9 d64 packed")}) {
    const std::string of_shape = flags.starts_with("--problem") ? " --device emulator --target h200 --json" : shape;
    std::vector<std::string> all = words("check " + std::string(flags) + of_shape);
    for (std::string& word : all) std::replace(word.begin(), word.end(), '~', ' ');
    const CommandResult result = run_attune(all);
    INFO(result.err << result.out);
    REQUIRE(result.status == 0);
    CHECK_THAT(result.json().at("problem").get<std::string>(), Catch::Matchers::EndsWith(problem));
  }
  for (const auto& [flags, sentence] :
       {std::pair("--lengths 7,6 --seq 20", "2 sequences of 13 rows together, but the problem is"),
        std::pair("--lengths 7,6 --batch 3", "2 sequences of 13 rows together, but the problem is"),
        std::pair("--lengths 7,6 --kv-lengths 7,6,1", "--kv-lengths: 3 sequences of 14 rows together"),
        std::pair("--lengths 7,6 --used-lengths 7", "1 lengths, but the batch has 2 entries"),
        std::pair("--lengths 7,x", "'x' is no number of rows"),
        std::pair("--lengths 7,6 --max-seq 7", "only packed sequences with a bias or an attention mask have it"),
        std::pair("--lengths usd --seq 7", "expected whole or used or used-top-left; did you mean used?"),
        std::pair("--kv-lengths 7,6 --seq 13", "say the queries of each sequence, too, as --lengths"),
        std::pair("--length-distribution equal --seq 8", "lengths=equal without packed"),
        std::pair("--packed --batch 3 --seq 40 --pass backward --invariant",
                  "packed sequences of an invariant problem")}) {
    const CommandResult result = run_attune(words("check " + std::string(flags) + shape));
    CHECK(result.status != 0);
    CHECK_THAT(result.err, ContainsSubstring(sentence));
  }

  const TemporaryFolder folder;
  std::vector<std::string> make = words("input --lengths 7,0,30 --heads 2 --head-dim 64");
  make.insert(make.end(), {"--output", folder.file("i.safetensors")});
  REQUIRE(run_attune(make).status == 0);
  const auto run_with = [&](const std::string& flags) {
    std::vector<std::string> run = words("run --check --json --device emulator --target h200 " + flags);
    run.insert(run.end(), {"--input", folder.file("i.safetensors"), "--output", folder.file("o.safetensors")});
    return run_attune(run);
  };
  const CommandResult read = run_with("--causal --packed");
  INFO(read.err << read.out);
  CHECK(read.status == 0);
  const CommandResult other = run_with("--packed --batch 2");
  CHECK(other.status == 2);
  CHECK_THAT(other.err, ContainsSubstring("--batch 2 does not agree with the input file"));
  std::vector<std::string> biased = words("input --lengths 7,0,30 --heads 2 --head-dim 64 --bias b1qk --max-seq 20");
  biased.insert(biased.end(), {"--output", folder.file("i.safetensors")});
  REQUIRE(run_attune(biased).status == 0);
  const CommandResult of_file = run_with("--causal --packed --bias b1qk");
  INFO(of_file.err << of_file.out);
  REQUIRE(of_file.status == 0);
  CHECK_THAT(of_file.json().at("problem").get<std::string>(), Catch::Matchers::EndsWith("packed max-sq20 max-skv30"));
  CHECK_THAT(run_with("--packed --bias b1qk --max-seq 20").err,
             ContainsSubstring("tensor 'bias' has shape [3, 1, 20, 30]: expected one number for each query and key"));
  const CommandResult named = run_with("--lengths 7,0,30");
  CHECK(named.status == 2);
  CHECK_THAT(named.err, ContainsSubstring("the input file's cu_seqlens_q and cu_seqlens_kv say where sequences begin"));
}

TEST_CASE("lengths of sequences are given, checked, written and read", "[nogpu]") {
  const std::string shape =
      " --batch 3 --heads 2 --seq 40 --kv-seq 70 --head-dim 64 --device emulator --target h200 --json";
  for (const char* flags : {"--causal --used-lengths 40,0,13 --used-kv-lengths 70,5,0", "--used-lengths 1,2,3",
                            "--pass backward --mask window=9,4 --used-kv-lengths 70,64,1 --sink"}) {
    const CommandResult result = run_attune(words("check " + std::string(flags) + shape));
    INFO(result.err << result.out);
    REQUIRE(result.status == 0);
    CHECK_THAT(result.json().at("problem").get<std::string>(), Catch::Matchers::EndsWith("used"));
  }
  const CommandResult stays = run_attune(words("check --mask causal-top-left --used-lengths 30,0,13" + shape));
  REQUIRE(stays.status == 0);
  CHECK_THAT(stays.json().at("problem").get<std::string>(), Catch::Matchers::EndsWith("used-top-left"));

  const std::pair<const char*, const char*> mistakes[] = {
      {"--used-lengths 1,2", "2 lengths, but the batch has 3 entries"},
      {"--used-lengths 1,2,41", "'41' is no number of rows from 0 to 40"},
      {"--used-lengths 1,,3", "'' is no number of rows"},
      {"--used-lengths 1,-2,3", "'-2' is no number of rows"},
      {"--used-kv-lengths 70,71,0", "'71' is no number of rows from 0 to 70"}};
  for (const auto& [flags, sentence] : mistakes) {
    const CommandResult result = run_attune(words("check " + std::string(flags) + shape));
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring(sentence));
  }

  const TemporaryFolder folder;
  for (const char* lengths : {"", " --used-lengths 5,40,0"}) {
    std::vector<std::string> make =
        words("input --batch 3 --heads 2 --seq 40 --head-dim 64 --lengths used" + std::string(lengths));
    make.insert(make.end(), {"--output", folder.file("i.safetensors")});
    REQUIRE(run_attune(make).status == 0);
    std::vector<std::string> run = words("run --check --json --causal --lengths used --device emulator --target h200");
    run.insert(run.end(), {"--input", folder.file("i.safetensors"), "--output", folder.file("o.safetensors")});
    const CommandResult result = run_attune(run);
    INFO(result.err << result.out);
    CHECK(result.status == 0);
  }
  std::vector<std::string> plain = words("input --batch 3 --heads 2 --seq 40 --head-dim 64");
  plain.insert(plain.end(), {"--output", folder.file("p.safetensors")});
  REQUIRE(run_attune(plain).status == 0);
  std::vector<std::string> run = words("run --lengths used --device emulator --target h200");
  run.insert(run.end(), {"--input", folder.file("p.safetensors"), "--output", folder.file("o.safetensors")});
  const CommandResult without = run_attune(run);
  CHECK(without.status == 2);
  CHECK_THAT(without.err, ContainsSubstring("seqused_q"));
}
