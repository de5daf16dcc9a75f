#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace attune::testing {

/// Value of a 16-bit pattern of bf16 or IEEE half.
inline double value_of(bool bf16, std::uint16_t bits) {
  if (bf16) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                           : exponent == 31 ? (fraction ? std::nan("") : std::numeric_limits<double>::infinity())
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/// Attention as the textbook has it, on tensors addressed through at(batch, head, row, dim).
struct Reference {
  std::vector<double> o, lse;  ///< (batch, head, row, dim) and (batch, head, row)
};
template <typename Q, typename K, typename V>
Reference plain_attention(int batch, int heads_q, int heads_kv, int seq_q, int seq_kv, int dim, bool causal,
                          double scale, Q q, K k, V v) {
  Reference result;
  for (int b = 0; b < batch; ++b) {
    for (int h = 0; h < heads_q; ++h) {
      const int h_kv = h / (heads_q / heads_kv);
      for (int i = 0; i < seq_q; ++i) {
        std::vector<double> weight, o(dim, 0.0);
        double sum = 0;
        for (int j = 0; j < seq_kv; ++j) {
          double score = 0;
          for (int d = 0; d < dim; ++d) score += q(b, h, i, d) * k(b, h_kv, j, d);
          const bool seen = !causal || j <= i + seq_kv - seq_q;
          weight.push_back(seen ? std::exp(scale * score) : 0);
          sum += weight.back();
        }
        for (int j = 0; j < seq_kv; ++j) {
          for (int d = 0; d < dim; ++d) o[d] += weight[j] * v(b, h_kv, j, d);
        }
        for (int d = 0; d < dim; ++d) result.o.push_back(sum > 0 ? o[d] / sum : 0);
        result.lse.push_back(sum > 0 ? std::log(sum) : -std::numeric_limits<double>::infinity());
      }
    }
  }
  return result;
}

}  // namespace attune::testing
