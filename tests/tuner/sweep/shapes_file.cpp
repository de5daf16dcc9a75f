// Lists of problems: what is understood, and that every mistake is named with its place.
#include "tuner/sweep/shapes_file.h"

#include <algorithm>
#include <fstream>

#include "generator/error.h"
#include "runtime/call/problem_log.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"
#include "tests/tuner/test_files.h"

using namespace attune;

namespace {

std::vector<std::string> texts(const std::vector<NamedProblem>& problems) {
  std::vector<std::string> result;
  for (const NamedProblem& named : problems) result.push_back(canonical_text(named.problem));
  return result;
}

struct BadShapes {
  std::string text;
  std::vector<std::string> message;
};

template <typename Parse>
void require_refused(const BadShapes& bad, const Parse& parse) {
  INFO(bad.text);
  try {
    parse(bad.text);
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    for (const std::string& part : bad.message) CHECK_THAT(std::string(error.what()), ContainsSubstring(part));
  }
}

}  // namespace

TEST_CASE("problems from JSON: texts and objects, defaults as on the command line", "[nogpu]") {
  const auto problems = parse_shapes_json(R"([
      "forward fp16 b2 hq8 sq512 d64 causal",
      {"seq": 128, "head-dim": 72},
      {"batch": 4, "heads": 16, "kv_heads": 4, "seq": 1, "kv-seq": 4096, "head_dim": 128, "causal": true, "scale": 0.5,
       "layout": "bhsd", "dtype": "fp16", "pass": "forward"},
      {"seq": 100, "kv-seq": 300, "head-dim": 64, "mask": "causal-top-left"},
      {"seq": 100, "head-dim": 64, "mask": "causal@-3"},
      {"seq": 100, "head-dim": 64, "mask": "window=10,open"},
      {"seq": 100, "head-dim": 64, "causal": true, "mask": "window=10,open"},
      {"seq": 100, "head-dim": 64, "mask": "none", "causal": false, "scale": null},
      {"head-dim": 72, "seq": "128"},
      {"pass": "backward", "seq": 128, "head-dim": 72, "deterministic": true},
      {"pass": "backward", "seq": 128, "head-dim": 72, "deterministic": false}])",
                                          "list.json");
  CHECK(texts(problems) ==
        std::vector<std::string>{"forward fp16 b2 hq8 sq512 d64 causal", "forward bf16 b1 hq1 sq128 d72",
                                 "forward fp16 b4 hq16 hkv4 sq1 skv4096 d128 scale0.5 bhsd",
                                 "forward bf16 b1 hq1 sq100 skv300 d64 causal-top-left",
                                 "forward bf16 b1 hq1 sq100 d64 causal@-3",
                                 "forward bf16 b1 hq1 sq100 d64 window=10,open",
                                 "forward bf16 b1 hq1 sq100 d64 window=10,0", "forward bf16 b1 hq1 sq100 d64",
                                 "backward bf16 b1 hq1 sq128 d72 deterministic", "backward bf16 b1 hq1 sq128 d72"});
}

TEST_CASE("problems from CSV: header, empty cells, quotes, line ends", "[nogpu]") {
  const auto problems = parse_shapes_csv(
      "\xef\xbb\xbf"
      "heads,seq,head_dim,causal,kv-seq\r\n"
      "8, 512 ,64,true,\r\n"
      "\r\n"
      ",\"256\",128,,1024\r\n"
      "8,512,64,true,512",
      "list.csv");
  CHECK(texts(problems) ==
        std::vector<std::string>{"forward bf16 b1 hq8 sq512 d64 causal", "forward bf16 b1 hq1 sq256 skv1024 d128"});
  CHECK(texts(parse_shapes_csv("seq,head-dim,mask\n100,64,\"window=10,2\"\n", "list.csv")) ==
        std::vector<std::string>{"forward bf16 b1 hq1 sq100 d64 window=10,2"});
  CHECK(texts(parse_shapes_csv("lengths,kv-lengths,head-dim,causal,heads,batch,seq\n"
                               "\"7,0,30\",,64,true,2,,\n"
                               "equal:2x8,\"3,9\",64,,,2,16\n"
                               "used,,64,,,3,20\n",
                               "list.csv")) ==
        std::vector<std::string>{"forward bf16 b3 hq2 sq37 d64 causal packed",
                                 "forward bf16 b2 hq1 sq16 skv12 d64 packed lengths=equal",
                                 "forward bf16 b3 hq1 sq20 d64 used"});
  CHECK(texts(parse_shapes_csv("lengths,head-dim,bias,max-kv-seq\n"
                               "\"7,0,30\",64,1hqk,\n"
                               "\"7,0,30\",64,1hqk,32\n"
                               "\"7,0,30\",64,,\n",
                               "list.csv")) ==
        std::vector<std::string>{"forward bf16 b3 hq1 sq37 d64 bias=1hqk packed max-sq30 max-skv30",
                                 "forward bf16 b3 hq1 sq37 d64 bias=1hqk packed max-sq30 max-skv32",
                                 "forward bf16 b3 hq1 sq37 d64 packed"});
  for (const auto& [row, sentence] :
       {std::pair("\"7,x\",,64,", "field lengths: '7,x': 'x' is no number of rows"),
        std::pair("used,5,64,", "field kv-lengths: say the queries of each sequence, too"),
        std::pair("\"7,5\",5,64,", "field kv-lengths: 1 sequences, but lengths has 2"),
        std::pair("\"7,5\",,64,9", "field seq: '9', but the sequences of lengths say 12; leave it out")}) {
    CHECK_THROWS_WITH(parse_shapes_csv(std::string("lengths,kv-lengths,head-dim,seq\n") + row + "\n", "list.csv"),
                      ContainsSubstring(sentence));
  }
  CHECK(texts(parse_shapes_csv("problem\n\"forward fp16 b1 hq1 sq16 d64\"\n", "list.csv")) ==
        std::vector<std::string>{"forward fp16 b1 hq1 sq16 d64"});
}

TEST_CASE("lists name problems, beside any way to write one", "[nogpu]") {
  const std::vector<NamedProblem> expected = {{parse_problem("hq8 sq512 d64"), "prefill, small"},
                                              {parse_problem("sq256 d128"), ""},
                                              {parse_problem("sq1 skv4096 d64"), "decode #1, step"}};
  CHECK(parse_shapes_csv("name,heads,seq,kv-seq,head-dim,causal\n"
                         "\"prefill, small\",8,512,,64,\n"
                         ",,256,,128,\n"
                         "decode #1,1,1,4096,64,true\n"
                         "step,1,1,4096,64,false\n"
                         "decode #1,1,1,4096,64,\n",
                         "list.csv") == expected);
  CHECK(parse_shapes_json(R"([{"name": "prefill, small", "heads": 8, "seq": 512, "head-dim": 64},
                              "forward bf16 sq256 d128",
                              {"name": "decode #1", "problem": "forward bf16 sq1 skv4096 d64 causal"},
                              {"name": "step", "seq": 1, "kv-seq": 4096, "head-dim": 64},
                              {"name": null, "seq": 1, "kv-seq": 4096, "head-dim": 64}])",
                          "list.json") == expected);
  CHECK(parse_shapes_csv("problem,name\n\"forward bf16 sq256 d128\",\n", "list.csv") ==
        std::vector<NamedProblem>{{parse_problem("sq256 d128"), ""}});
}

TEST_CASE("lines of a CSV that begin with # are comments", "[nogpu]") {
  const auto problems = parse_shapes_csv(
      "# of the model, \"all layers\r\n"
      "\n"
      "name,seq,head-dim\n"
      "  # short ones\n"
      "\"# 1\",128,64\n"
      "#,512,64\n"
      "three,512,64\n"
      "# the end",
      "list.csv");
  CHECK(problems ==
        std::vector<NamedProblem>{{parse_problem("sq128 d64"), "# 1"}, {parse_problem("sq512 d64"), "three"}});
}

TEST_CASE("problems from a log of what was called", "[nogpu]") {
  const testing::TemporaryFolder folder;
  ProblemLog log(folder / "called.csv");
  const std::vector<std::string> called = {
      "forward fp16 b2 hq8 hkv2 sq100 skv300 d72 window=30,open@5 scale0.3 bhsd align2",
      "backward bf16 b1 hq8 sq512 d64 causal deterministic", "forward bf16 b1 hq1 sq2 d8 causal-top-left"};
  for (const std::string& text : called) log.note(parse_problem(text));
  std::vector<std::string> expected;
  for (const std::string& text : called) expected.push_back(canonical_text(parse_problem(text)));
  CHECK(texts(read_shapes(folder / "called.csv")) == expected);
}

TEST_CASE("a mistake in JSON is named by file, row and field", "[nogpu]") {
  const BadShapes bad = GENERATE(values<BadShapes>({
      {"", {"list.json is not JSON"}},
      {"[", {"list.json is not JSON"}},
      {"{}", {"list.json", "array", "object"}},
      {"[]", {"list.json holds no problem"}},
      {"[5]", {"list.json, row 1", "number"}},
      {R"(["forward bf16 sq16 d64", "sideways"])", {"list.json, row 2, field problem", "sideways"}},
      {R"([{"seq": 16, "head-dim": 64, "heds": 4}])", {"list.json, row 1", "'heds'", "kv-heads"}},
      {R"([{"seq": 16, "head-dim": 64, "heads": 1.5}])", {"row 1, field heads", "'1.5'", "whole number"}},
      {R"([{"seq": 16, "head-dim": 64, "heads": [1]}])", {"row 1, field heads", "array"}},
      {R"([{"seq": 16}])", {"row 1, field head-dim", "missing"}},
      {R"([{"head-dim": 64}])", {"row 1, field seq", "missing"}},
      {R"([{"seq": 16, "head-dim": 64}, {"seq": 16, "head-dim": 20}])", {"list.json, row 2", "head dim 20"}},
      {R"([{"seq": 16, "head-dim": 64, "dtype": "fp32"}])", {"field dtype", "'fp32'", "fp16, bf16"}},
      {R"([{"seq": 16, "head-dim": 64, "mask": "causal@x"}])", {"field mask", "'causal@x'"}},
      {R"([{"seq": 16, "head-dim": 64, "causal": 1}])", {"field causal", "'1'", "true"}},
      {R"([{"seq": 16, "head-dim": 64, "causal": true, "mask": "none"}])", {"field causal", "contradicts", "'none'"}},
      {R"([{"seq": 16, "head-dim": 64, "scale": "big"}])", {"field scale", "'big'"}},
      {R"([{"seq": 16, "head-dim": 64, "scale": -1}])", {"row 1", "scale"}},
      {R"([{"seq": 16, "head-dim": 64, "deterministic": true}])", {"row 1", "deterministic", "backward"}},
      {R"([{"pass": "backward", "seq": 16, "head-dim": 64, "deterministic": 1}])", {"field deterministic", "'1'"}},
      {R"([{"problem": "forward bf16 sq16 d64", "seq": 16}])", {"field seq", "whole problem"}},
      {R"([{"head_dim": 64, "head-dim": 64, "seq": 16}])", {"field head-dim", "twice"}},
      {R"([{"name": 5, "seq": 16, "head-dim": 64}])", {"row 1, field name", "5 is not a text"}},
      {R"([{"name": "a\u001bb", "seq": 16, "head-dim": 64}])", {"row 1, field name", "characters"}},
      {R"([{"name": "a\nb", "seq": 16, "head-dim": 64}])", {"row 1, field name", "characters"}},
  }));
  require_refused(bad, [](const std::string& text) { return parse_shapes_json(text, "list.json"); });
}

TEST_CASE("a mistake in CSV is named by file, row and field", "[nogpu]") {
  const BadShapes bad = GENERATE(values<BadShapes>({
      {"", {"list.csv holds no problem"}},
      {"seq,head-dim\n", {"list.csv holds no problem"}},
      {"seq,width\n16,64\n", {"list.csv, header", "'width'", "head-dim"}},
      {"seq,head-dim,seq\n16,64,16\n", {"header", "seq", "twice"}},
      {"seq,head-dim\n16,64\n\n16\n", {"list.csv, row 2", "1 cells", "2"}},
      {"seq,head-dim\n16,64\n12x,64\n", {"list.csv, row 2, field seq", "'12x'"}},
      {"seq,head-dim\n16,\n", {"row 1, field head-dim", "missing"}},
      {"seq,head-dim\n-16,64\n", {"list.csv, row 1", "-16"}},
      {"seq,head-dim\n\"16,64\n", {"row 1", "quotation mark"}},
      {"# nothing but a comment\n", {"list.csv holds no problem"}},
      {"seq,head-dim\n16,64\n# row 2 is next\n12x,64\n", {"list.csv, row 2, field seq", "'12x'"}},
      {"name,name,seq,head-dim\na,b,16,64\n", {"header", "name", "twice"}},
      {"name,seq,head-dim\n\"a\tb\",16,64\n", {"row 1, field name", "characters"}},
  }));
  require_refused(bad, [](const std::string& text) { return parse_shapes_csv(text, "list.csv"); });
}

TEST_CASE("a list is read by its ending; a missing file is named", "[nogpu]") {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "a.json") << R"(["forward bf16 b1 hq1 sq16 d64"])";
  std::ofstream(folder / "a.csv") << "seq,head-dim\n16,64\n";
  std::ofstream(folder / "a.txt") << "forward bf16 sq16 d64\n";
  CHECK(read_shapes(folder / "a.json") == read_shapes(folder / "a.csv"));
  CHECK_THROWS_WITH(read_shapes(folder / "a.txt"), ContainsSubstring("a.txt") && ContainsSubstring(".json or .csv"));
  CHECK_THROWS_WITH(read_shapes(folder / "b.csv"), ContainsSubstring("b.csv") && ContainsSubstring("cannot be read"));
  CHECK_THROWS_WITH(read_shapes(folder.path()), ContainsSubstring(".json or .csv"));
}
