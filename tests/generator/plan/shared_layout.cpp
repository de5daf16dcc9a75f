#include "generator/plan/shared_layout.h"

#include <string>

#include "generator/error.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("shared memory: buffers one behind the other, aligned, with a picture", "[nogpu]") {
  SharedLayout layout;
  layout.add({"kQOffset", "Q", {3, 20}, 2, "   later O"});
  layout.add({"kKOffset", "K", {2, 4, 8}, 2}, 1024);
  layout.add_alias("kTicketOffset", "kKOffset");
  layout.add({"kBarrierOffset", "barriers", {}, 12}, 8);
  CHECK(layout.offset("kQOffset") == 0);
  CHECK(layout.offset("kKOffset") == 1024);
  CHECK(layout.offset("kTicketOffset") == 1024);
  CHECK(layout.offset("kBarrierOffset") == 1024 + 128);
  CHECK(layout.bytes() == 1024 + 128 + 12);
  CHECK_THROWS_AS(layout.offset("kNothing"), Error);

  TemplateBindings bindings;
  layout.bind(&bindings);
  std::string shown, constants;
  for (const auto& line : bindings.lists.at("shared_buffers"))
    shown += line.at("offset") + " " + line.at("picture") + "\n";
  for (const auto& line : bindings.lists.at("shared_offsets"))
    constants += line.at("name") + "=" + line.at("offset") + " ";
  CHECK(shown == "     0 Q  [3][20]   later O\n  1024 K  [2][4][8]\n  1152 barriers\n  1164 end\n");
  CHECK(constants == "kQOffset=0 kKOffset=1024 kTicketOffset=1024 kBarrierOffset=1152 ");
}

TEST_CASE("shared memory has room for so many buffers", "[nogpu]") {
  SharedLayout layout;
  for (std::size_t i = 0; i < SharedLayout::kMost; ++i) layout.add({"kOffset", "buffer", {}, 4});
  CHECK_THROWS_AS(layout.add({"kOffset", "one too many", {}, 4}), Error);
}
