#include "runtime/system/json_text.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "generator/error.h"
#include "tests/catch.h"

using namespace attune;
using nlohmann::json;

namespace {

std::string complaint_of(const std::string& text) {
  std::string in_order;
  try {
    parse_ordered_json(text, "f.json");
  } catch (const Error& error) {
    in_order = error.what();
  }
  try {
    parse_json(text, "f.json");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK(in_order == error.what());
    return error.what();
  }
  CHECK(in_order.empty());
  return "";
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("JSON is read as it stands", "[nogpu]") {
  const std::string text = R"( {"b": [1, -2, 3.5, 18446744073709551615, null, true], "a": {"": "é\u0007"}, "c": []} )";
  CHECK(parse_json(text, "f") == json::parse(text));
  CHECK(parse_ordered_json(text, "f") == nlohmann::ordered_json::parse(text));
  CHECK(parse_ordered_json(R"({"b": 1, "a": {"d": 2, "c": 3}})", "f").dump() == R"({"b":1,"a":{"d":2,"c":3}})");
  CHECK(parse_json("7", "f") == 7);
  CHECK(complaint_of(repeated("[", 64) + repeated("]", 64)).empty());
}

TEST_CASE("what is no JSON is named with line, column and pointer", "[nogpu]") {
  CHECK_THAT(complaint_of(""), ContainsSubstring("f.json is not JSON: line 1, column 0: "));
  CHECK_THAT(complaint_of("{\"rows\": [1,\n  {\"a\": nul}]}"),
             ContainsSubstring("f.json is not JSON: line 2, column 12, at /rows/1/a: "));
  CHECK_THAT(complaint_of("[1] x"), ContainsSubstring("f.json is not JSON: line 1, column 5: "));
  CHECK_THAT(complaint_of("[1,]"), ContainsSubstring("is not JSON: line 1, column 4, at /1: "));
  CHECK_THAT(complaint_of("[NaN]"), ContainsSubstring("is not JSON: line 1, column 2, at /0: "));
  CHECK_THAT(complaint_of("[Infinity]"), ContainsSubstring("is not JSON: "));
  CHECK_THAT(complaint_of("{\"a~/\": [-]}"), ContainsSubstring("at /a~0~1/0: "));
  CHECK_THAT(complaint_of(std::string("[\"\0\"]", 5)), ContainsSubstring("is not JSON: "));
  CHECK_THAT(complaint_of("[\"\xff\"]"), ContainsSubstring("UTF-8"));
}

TEST_CASE("numbers that do not fit, names twice and hostile depth are refused with their place", "[nogpu]") {
  CHECK(complaint_of("{\"rows\": [{\"median_us\": 7},\n {\"median_us\": 1e9999}]}") ==
        "f.json, line 2, column 21, at /rows/1/median_us: 1e9999 is not a number that fits");
  CHECK_THAT(complaint_of("[-1e400]"), ContainsSubstring("-1e400 is not a number that fits"));
  CHECK_THAT(complaint_of("[" + std::string(100'000, '9') + "]"), ContainsSubstring("at /0: 999"));
  CHECK(complaint_of("[" + std::string(100'000, '9') + "]").size() < 400);
  CHECK_THAT(complaint_of(R"({"a": {"b": 1, "b": 2}})"), ContainsSubstring("at /a/b: it names 'b' twice"));
  CHECK(complaint_of(R"([{"b": 1}, {"b": 2, "c": {"b": 3}}])").empty());
  for (const int depth : {65, 1'000'000}) {
    CHECK_THAT(complaint_of(repeated("[", depth)), ContainsSubstring("nested"));
    CHECK_THAT(complaint_of(repeated("{\"a\":", depth)), ContainsSubstring("more than 64 arrays and objects"));
  }
  CHECK_THROWS_WITH(parse_json("[1,2,3]", "f", {.depth = 64, .values = 3}),
                    ContainsSubstring("at /2: it holds more than 3 values"));
}

TEST_CASE("an object of very many names is read in a time that grows with it", "[nogpu]") {
  std::string text = "{\"a\": 0";
  for (int i = 0; i < 200'000; ++i) text += ",\"" + std::to_string(i) + "\": 1";
  CHECK(parse_ordered_json(text + "}", "f").size() == 200'001);
}

TEST_CASE("messages hold nothing that a terminal acts on, and stay short", "[nogpu]") {
  CHECK(shown(json("a\x1b[2J\"\\\xff\x7f\xc2\x9b")) == "\"a\\u001b[2J\"\\\\ufffd\\u007f\\u009b\"");
  CHECK(shown(json("plain 'text'")) == "\"plain 'text'\"");
  CHECK(shown(json("\x1b[0m")) == "\"\\u001b[0m\"");
  CHECK(shown(json(17)) == "17");
  CHECK(json_line(json{{"a", "\xff\x1b\xc2\x9b"}}) == "{\"a\":\"\\ufffd\\u001b\\u009b\"}");
  CHECK(shown(json{{"a", 1}}) == "an object");
  CHECK(shown(json(std::string(1000, 'x'))).size() < 100);
  for (const char* text : {"[\"\x1b]0;x\x07\"]", "{\"\x1b[2J\": 1}", "[\x1b]", "{\"a\x9b\": 1}"}) {
    const std::string complaint = complaint_of(text);
    INFO(complaint);
    CHECK_FALSE(complaint.empty());
    for (const char c : complaint) CHECK((c >= ' ' && c < '\x7f'));
  }
}

TEST_CASE("a value that is not as asked for is named with its pointer", "[nogpu]") {
  const json document =
      json::parse(R"({"rows": [{"n": 3, "x": 2.5, "t": "word", "big": 1e300, "neg": -1, "huge": 18446744073709551615,
                      "yes": true}]})");
  const JsonView row = JsonView(document, "f.json").at("rows").at(std::size_t{0});
  CHECK(row.at("n").whole<int>() == 3);
  CHECK(row.at("n").number() == 3);
  CHECK(row.at("huge").whole<std::uint64_t>() == std::uint64_t(-1));
  CHECK(row.at("neg").whole<std::int64_t>() == -1);
  CHECK(row.at("t").text() == "word");
  CHECK(row.at("yes").boolean());
  CHECK(row.has("x"));
  CHECK_FALSE(row.has("y"));
  CHECK_THROWS_WITH(row.at("y"), "f.json: /rows/0: the field \"y\" is missing");
  CHECK_THROWS_WITH(row.at("x").whole<int>(), ContainsSubstring("f.json: /rows/0/x: 2.5 is not a whole number"));
  for (const char* name : {"big", "huge", "t", "yes"}) {
    CHECK_THROWS_WITH(row.at(name).whole<int>(), ContainsSubstring(std::string("/rows/0/") + name));
  }
  CHECK_THROWS_WITH(row.at("neg").whole<std::size_t>(), ContainsSubstring("-1 is not a whole number from 0 to"));
  CHECK_THROWS_WITH(row.at("n").whole<int>(4, 5), ContainsSubstring("3 is not a whole number from 4 to 5"));
  CHECK_THROWS_WITH(row.at("t").number(), ContainsSubstring("\"word\" is not a number"));
  CHECK_THROWS_WITH(row.at("n").text(), ContainsSubstring("3 is not a text"));
  CHECK_THROWS_WITH(row.at("n").boolean(), ContainsSubstring("neither true nor false"));
  CHECK_THROWS_WITH(row.at("n").has("x"), ContainsSubstring("3 is not an object"));
  CHECK_THROWS_WITH(row.size(), ContainsSubstring("/rows/0: an object is not an array"));
  CHECK_THROWS_WITH(JsonView(document, "f.json").at("rows").at(std::size_t{7}),
                    ContainsSubstring("/rows: the element 7"));
}
