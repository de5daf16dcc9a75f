// What kernels compute with, by its name, of dropout.
// Random bytes are compared with those of the threshold, four at once: their lower seven bits by a subtraction, what decides then where the upper bits differ by
// a mask. Of sixteen bits the upper byte comes first, then the lower one.
inline std::int64_t lower_bits_of_bytes(std::int64_t byte) { return (byte & 0x7f) * 0x01010101; }
inline std::int64_t join_of_bytes(std::int64_t byte) { return byte < 0x80 ? -1 : 0; }
inline std::int64_t upper_byte(const DropoutRule& rule) { return rule.threshold >> (rule.bits - 8); }
inline std::int64_t dropout_bytes_of(const Launch&, const Call& call) { return lower_bits_of_bytes(upper_byte(dropout_rule(call.dropout))); }
inline std::int64_t dropout_join_of(const Launch&, const Call& call) { return join_of_bytes(upper_byte(dropout_rule(call.dropout))); }
inline std::int64_t dropout_low_bytes_of(const Launch&, const Call& call) { return lower_bits_of_bytes(dropout_rule(call.dropout).threshold & 0xff); }
inline std::int64_t dropout_low_join_of(const Launch&, const Call& call) { return join_of_bytes(dropout_rule(call.dropout).threshold & 0xff); }
// What is kept counts so many times as much.
inline float dropout_scale_of(const Launch&, const Call& call) { return static_cast<float>(1 / (1 - dropped_share(dropout_rule(call.dropout)))); }
