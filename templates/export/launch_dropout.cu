// What kernels compute with, by its name, of dropout.
// Random bytes are compared with those of the threshold, 256 times the probability rounded down, four at once: their lower seven bits by a subtraction, what
// decides then where the upper bits differ by a mask. A share of the draws, in 2^-32, has the next threshold.
inline std::int64_t dropout_threshold(const Call& call) { return static_cast<std::int64_t>(256.0 * call.dropout); }
inline std::int64_t dropout_bytes_of(const Launch&, const Call& call) { return (dropout_threshold(call) & 0x7f) * 0x01010101; }
inline std::int64_t dropout_join_of(const Launch&, const Call& call) { return dropout_threshold(call) < 0x80 ? -1 : 0; }
inline std::int64_t dropout_part_of(const Launch&, const Call& call) {
  const double part = 256.0 * call.dropout - static_cast<double>(dropout_threshold(call));
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(part * 4294967296.0));
}
inline float dropout_of(const Launch&, const Call& call) { return call.dropout; }
// What is kept counts so many times as much.
inline float dropout_scale_of(const Launch&, const Call& call) { return static_cast<float>(1 / (1 - static_cast<double>(call.dropout))); }
