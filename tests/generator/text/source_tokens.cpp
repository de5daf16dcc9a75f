#include "generator/text/source_tokens.h"

#include <string>
#include <vector>

#include "generator/generate.h"
#include "generator/plan/source_hash.h"
#include "tests/catch.h"

using namespace attune;

namespace {

// One line, its tokens parted by a blank; "refused" of a source without exact tokens.
std::string tokens_of(const std::string& source) {
  const auto tokens = source_tokens(source);
  if (!tokens) return "refused";
  std::string line = *tokens;
  for (char& c : line) c = c == '\n' ? '|' : c;
  return line;
}

}  // namespace

TEST_CASE("the tokens of a source are those of its compiler", "[nogpu]") {
  CHECK(tokens_of("").empty());
  CHECK(tokens_of("int  x;\n\n\ty = 3 ;") == "int|x|;|y|=|3|;|");
  CHECK(tokens_of("a/**/b // c\nd /* e\n f */ g") == "a|b|d|g|");
  CHECK(tokens_of("a / b /= c") == "a|/|b|/=|c|");
  CHECK(tokens_of("a //\\\nb\nc") == "a|c|");  // the comment goes on
  CHECK(tokens_of("lo\\\nng \\\n= \"a\\\nb\";") == "long|=|\"ab\"|;|");

  // The longest token, whatever stands between.
  CHECK(tokens_of("a+++++b") == "a|++|++|+|b|");
  CHECK(tokens_of("a+ ++b") == "a|+|++|b|");
  CHECK(tokens_of("x<<=y>>=z<=>w->*p.*q...r::s") == "x|<<=|y|>>=|z|<=>|w|->*|p|.*|q|...|r|::|s|");
  CHECK(tokens_of("f<<<1, 2>>>()") == "f|<<<|1|,|2|>>>|(|)|");
  CHECK(tokens_of("vector<vector<int>>") == "vector|<|vector|<|int|>>|");
  CHECK(tokens_of("vector<vector<int> >") == "vector|<|vector|<|int|>|>|");
  CHECK(tokens_of("f<::g> <:1:> <::>") == "f|<|::|g|>|<:|1|:>|<:|:>|");

  CHECK(tokens_of("0x1p-25 1e+5f .5 1'000'000 5.f 0b1 3.x e-1") == "0x1p-25|1e+5f|.5|1'000'000|5.f|0b1|3.x|e|-|1|");
  CHECK(tokens_of("a.b x.5") == "a|.|b|x|.5|");
  CHECK(tokens_of("O = Q·Kᵀ") == "O|=|Q·Kᵀ|");
}

TEST_CASE("literals stand as they are written", "[nogpu]") {
  CHECK(tokens_of(R"(asm volatile("mma.sync  // no comment\n" : "+f"(x));)") ==
        R"x(asm|volatile|(|"mma.sync  // no comment\n"|:|"+f"|(|x|)|)|;|)x");
  CHECK(tokens_of(R"("a\"b" 'c' '\'' '"' "/*" "'")") == R"("a\"b"|'c'|'\''|'"'|"/*"|"'"|)");
  CHECK(tokens_of(R"(u8"a" L'b' U"c" u"d" u8x"e")") == R"(u8"a"|L'b'|U"c"|u"d"|u8x|"e"|)");
  CHECK(tokens_of(R"("a" "b" "a"_km "a" _km)") == R"("a"|"b"|"a"_km|"a"|_km|)");
  CHECK(tokens_of(R"("a\\" b)") == R"("a\\"|b|)");
}

TEST_CASE("a directive keeps where its blanks are, and where it ends", "[nogpu]") {
  CHECK(tokens_of("#pragma   unroll 4 // all\nfor") == "#|pragma| |unroll| |4||for|");
  CHECK(tokens_of("  #\tpragma unroll\nfor") == "#| |pragma| |unroll||for|");
  CHECK(tokens_of("#pragma unroll for") != tokens_of("#pragma unroll\nfor"));
  CHECK(tokens_of("#define f(x) x\n") == "#|define| |f|(|x|)| |x||");
  CHECK(tokens_of("#define f (x) x\n") == "#|define| |f| |(|x|)| |x||");
  CHECK(tokens_of("#define f \\\n 1\nx") == "#|define| |f| |1||x|");
  CHECK(tokens_of("/* a\n b */ #if 1 /* c\n d */ + 1\n#endif") == "#|if| |1| |+| |1||#|endif||");
  CHECK(tokens_of("a # b") == "a|#|b|");
  CHECK(tokens_of("#define f(a, b) a##b\n") == "#|define| |f|(|a|,| |b|)| |a|##|b||");
}

TEST_CASE("a source whose meaning hangs on more than its tokens has none", "[nogpu]") {
  for (const char* source : {
           "#include <cuda.h>\n",
           "# include \"a.h\"\n",
           "#line 5\n",
           "#if __has_include(<a>)\n#endif\n",
           "int x = __LINE__;",
           "assert(x);",
           "#define text(x) #x\n",
           "%:define text(x) %:x\n",
           "auto s = R\"(a  b)\";",
           "auto s = u8R\"x(a)x\";",
           "\"open\n\"",
           "'a",
           "\"open",
           "x /* open",
           "a \\ b",
           "a \\ \nb",
           "a \\\r\nb",
           "\\u00e4",
       }) {
    INFO(source);
    CHECK(tokens_of(source) == "refused");
  }
  CHECK(tokens_of("#define included 1\nint assert_, my__LINE__;") ==
        "#|define| |included| |1||int|assert_|,|my__LINE__|;|");
}

TEST_CASE("every kernel has tokens, whatever its comments and blanks", "[nogpu]") {
  struct Case {
    const char *problem, *config;
  };
  constexpr Case kCases[] = {
      {"sq1024 d64", "sm80 q128 kv64 w4 st2"},
      {"sq1024 d64 causal", "sm90 q128 kv64 st2"},
      {"backward hq8 hkv2 sq1024 d64 causal", "sm80 q64 kv64 w4 st2 query-warps2 dq=atomic kv-grad-per-query-head"},
      {"backward sq1024 d128", "sm90 q64 kv128 st2 dq=atomic"},
  };
  for (const Case& of : kCases) {
    for (const KernelTarget target : {KernelTarget::cuda, KernelTarget::emulator}) {
      const KernelPlan plan = generate(parse_problem(of.problem), parse_config(of.config), find_device("h200"),
                                       TemplateSet::embedded(), target);
      for (const KernelLaunch& launch : plan.launches) {
        INFO(launch.entry << " " << to_string(target));
        const auto tokens = source_tokens(launch.source);
        REQUIRE(tokens);
        CHECK(launch.source_hash == hash_of_text(*tokens));
        CHECK(hash_of_source(launch.source) == launch.source_hash);
        // Another form of the same program: no comments, other blanks.
        std::string other = "// another head\n";
        bool directive = false;
        for (std::size_t at = 0; at < tokens->size();) {
          const std::size_t end = tokens->find('\n', at);
          const std::string token = tokens->substr(at, end - at);
          if (token == "#") {
            other += "\n#";
            directive = true;
          } else if (token.empty()) {
            other += " // why\n";
            directive = false;
          } else {
            other += token == " " ? "   " : directive ? token : token + " /* x */\n  ";
          }
          at = end + 1;
        }
        CHECK(other != launch.source);
        CHECK(source_tokens(other) == tokens);
        CHECK(hash_of_source(other) == launch.source_hash);
        // Any token more is another program.
        CHECK(hash_of_source(other + ";") != launch.source_hash);
      }
    }
  }
}
