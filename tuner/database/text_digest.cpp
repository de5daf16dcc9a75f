#include "tuner/database/text_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>
#include <new>

namespace attune {

struct TextDigest::State {
  XXH3_state_t* hash = XXH3_createState();
  ~State() { XXH3_freeState(hash); }
};

TextDigest::TextDigest() : state_(std::make_unique<State>()) {
  if (state_->hash == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_->hash);
}

TextDigest::~TextDigest() = default;

TextDigest& TextDigest::add(std::string_view text) {
  const std::uint64_t bytes = text.size();
  XXH3_128bits_update(state_->hash, &bytes, sizeof(bytes));
  XXH3_128bits_update(state_->hash, text.data(), text.size());
  return *this;
}

TextDigest& TextDigest::add(long long number) { return add(fmt::format("{}", number)); }

std::string TextDigest::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash);
  return fmt::format("{:016x}{:016x}", static_cast<std::uint64_t>(hash.high64), static_cast<std::uint64_t>(hash.low64));
}

}  // namespace attune
