// The random bytes that dropout compares with its threshold, on standard output for as long as somebody reads them:
// `dropout_stream rows|columns|heads|offsets|seeds [SEED]`. What changes from byte to byte is what the word says.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "generator/problem/attention_problem.h"
#include "runtime/oracle/dropout_mask.h"
#include "runtime/oracle/term_values.h"

namespace {

using attune::AttentionProblem;
using attune::DropoutMask;

constexpr std::int64_t kLength = 4096, kManyHeads = 65536;

// Two 64-bit numbers that a caller may have: the low numbers count.
DropoutMask mask_of(std::int64_t seed, std::int64_t offset, std::int64_t heads) {
  AttentionProblem problem = attune::make_problem(attune::DataType::bf16, 1, heads, kLength, 64);
  problem.dropout = 0.5f;
  attune::TermValues terms;
  terms.set(attune::Operand::dropout_state, std::vector<std::int64_t>{seed, offset});
  return DropoutMask(problem, terms);
}

class Stream {
 public:
  void write(std::uint32_t number) {
    bytes_.push_back(static_cast<std::uint8_t>(number));
    if (bytes_.size() < kBlock) return;
    if (std::fwrite(bytes_.data(), 1, bytes_.size(), stdout) != bytes_.size()) std::exit(0);  // nobody reads on
    bytes_.clear();
  }

 private:
  static constexpr std::size_t kBlock = 1 << 16;
  std::vector<std::uint8_t> bytes_;
};

// Each call's mask of one head, row by row or column by column.
void write_pairs(std::int64_t seed, bool by_rows, Stream& stream) {
  for (std::int64_t offset = 0;; ++offset) {
    const DropoutMask mask = mask_of(seed, offset, 1);
    for (std::int64_t a = 0; a < kLength; ++a)
      for (std::int64_t b = 0; b < kLength; ++b)
        stream.write((by_rows ? mask.drawn(0, a, b) : mask.drawn(0, b, a)).byte);
  }
}

void write_heads(std::int64_t seed, Stream& stream) {
  for (std::int64_t offset = 0;; ++offset) {
    const DropoutMask mask = mask_of(seed, offset, kManyHeads);
    for (std::int64_t pair = 0; pair < 256; ++pair)
      for (std::int64_t head = 0; head < kManyHeads; ++head) stream.write(mask.drawn(head, pair / 16, pair % 16).byte);
  }
}

// One number after the other, of the offset or of the seed: for some pairs of one tile, and then for the next ones.
void write_states(std::int64_t seed, bool of_offsets, Stream& stream) {
  for (std::int64_t tile = 0;; ++tile) {
    for (std::int64_t i = 0; i < 1 << 22; ++i) {
      const DropoutMask mask = of_offsets ? mask_of(seed, i, 1) : mask_of(seed + i, 0, 1);
      for (std::int64_t pair = 0; pair < 4; ++pair) stream.write(mask.drawn(0, 5 * pair, 16 * tile + 3 * pair).byte);
    }
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string_view what = count > 1 ? words[1] : "";
  const std::int64_t seed = count > 2 ? std::strtoll(words[2], nullptr, 10) : 1;
  Stream stream;
  if (what == "rows" || what == "columns") write_pairs(seed, what == "rows", stream);
  if (what == "heads") write_heads(seed, stream);
  if (what == "offsets" || what == "seeds") write_states(seed, what == "offsets", stream);
  std::fputs("usage: dropout_stream rows|columns|heads|offsets|seeds [SEED]\n", stderr);
  return 2;
}
