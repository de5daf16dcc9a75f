// How finely dropout tells probabilities apart: an element is dropped where a random number of so many bits is below the threshold.
struct DropoutRule {
  int bits;  // 8 or 16
  std::int64_t threshold;
};

// Eight bits cost half as much. They are enough where they give both p and 1 - p within a fiftieth of itself.
inline DropoutRule dropout_rule(float p) {
  constexpr double kCoarse = 256, kFine = 65536, kApart = 0.02;
  const double asked = p, coarse = static_cast<double>(static_cast<std::int64_t>(asked * kCoarse + 0.5)), apart = std::max(coarse / kCoarse - asked, asked - coarse / kCoarse);
  if (coarse < kCoarse && apart <= kApart * std::min(asked, 1 - asked)) return {8, static_cast<std::int64_t>(coarse)};
  return {16, std::min(static_cast<std::int64_t>(asked * kFine + 0.5), static_cast<std::int64_t>(kFine) - 1)};
}

// The probability with which an element is dropped.
inline double dropped_share(const DropoutRule& rule) { return static_cast<double>(rule.threshold) / static_cast<double>(1 << rule.bits); }
