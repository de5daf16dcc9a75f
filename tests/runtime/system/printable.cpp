#include "runtime/system/printable.h"

#include <string>

#include "tests/catch.h"

using attune::printable;
using attune::printable_line;

TEST_CASE("printable text: nothing of it is obeyed by a terminal, all else stays", "[nogpu]") {
  CHECK(printable("") == "");
  CHECK(printable("NVIDIA H200 \\x1b, 80 % \xc2\xb5s \xe2\x80\x94 \xf0\x9f\x98\x80\n\tnext") ==
        "NVIDIA H200 \\x1b, 80 % \xc2\xb5s \xe2\x80\x94 \xf0\x9f\x98\x80\n\tnext");
  CHECK(printable("\x1b[2J\x1b]0;title\x07"
                  "H200\r\x7f") == "\\x1b[2J\\x1b]0;title\\x07H200\\x0d\\u007f");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\u009b31m");  // CSI as one C1 control
  for (const char* bidi : {"\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x80\x8f", "\xd8\x9c"}) {
    INFO(printable(bidi));
    CHECK(printable(bidi).starts_with("\\u"));
  }
  // No UTF-8: a lone byte, a cut sequence, an overlong one, a surrogate, beyond Unicode.
  CHECK(printable("\x9b"
                  "31m") == "\\x9b31m");
  CHECK(printable("\xe2\x80") == "\\xe2\\x80");
  CHECK(printable("\xc0\x9b") == "\\xc0\\x9b");
  CHECK(printable("\xe0\x80\x9b") == "\\xe0\\x80\\x9b");
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
}

TEST_CASE("a printable line: nothing in it begins another one", "[nogpu]") {
  CHECK(printable_line("") == "");
  CHECK(printable_line("H200\nusable   by this version\t\r") == "H200\\x0ausable   by this version\\x09\\x0d");
  CHECK(printable_line("\xc2\xb5s \\n") == "\xc2\xb5s \\n");
}

TEST_CASE("printable text: of every two bytes nothing below a space comes through, and twice is once", "[nogpu]") {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      const std::string shown = printable(text);
      for (const char c : shown) {
        const auto byte = static_cast<unsigned char>(c);
        REQUIRE((byte >= 0x20 || byte == '\n' || byte == '\t'));
        REQUIRE(byte != 0x7f);
      }
      REQUIRE(printable(shown) == shown);
    }
  }
}
