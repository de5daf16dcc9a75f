// Element i of every copy, the bits of the host's random_normal():
//
//   p = (2 (mix(seed, i) >> 12) + 1) 2^-53      element = Φ^-1(p), rounded to nearest even
//
// Each operation rounds to double by itself, in the order of the host's code. A tile is ${elements_per_tile} elements; a CTA takes every
// kCtas-th of them.

//% include primitives/mma_sync
//% include oracle/mix_bits

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kThreads = ${threads}, kCtas = ${max_ctas}, kElements = ${elements_per_tile};

// a[0] + a[1] x + a[2] x^2 + ...
template <i32 kCount>
__device__ __forceinline__ double polynomial(const double (&a)[kCount], double x) {
  double sum = 0;
#pragma unroll
  for (i32 i = kCount - 1; i >= 0; --i) sum = add_rn_f64(mul_rn_f64(sum, x), a[i]);
  return sum;
}

// ln x for normal positive x: x = m 2^e with m in [1/sqrt 2, sqrt 2), ln m = 2 artanh((m - 1) / (m + 1)).
__device__ __forceinline__ double natural_logarithm(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  const u64 bits = bits_of_f64(x);
  i32 exponent = static_cast<i32>(bits >> 52) - 1023;
  double m = f64_of_bits((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.41421356) {
    m *= 0.5;
    exponent += 1;
  }
  const double s = div_rn_f64(m - 1, m + 1), s2 = mul_rn_f64(s, s);
  double series = 0;
#pragma unroll
  for (i32 odd = 23; odd >= 1; odd -= 2) series = add_rn_f64(mul_rn_f64(series, s2), 1.0 / odd);
  return add_rn_f64(mul_rn_f64(exponent, kLn2), mul_rn_f64(2 * s, series));
}

// Wichura, Algorithm AS 241 (PPND7), Applied Statistics 37 (1988).
__device__ __forceinline__ double normal_quantile(double p) {
  constexpr double kCentral = 0.425, kTail = 5.0;
  const double q = p - 0.5;
  if (-kCentral <= q && q <= kCentral) {
    const double a[] = {3.3871327179, 50.434271938, 159.29113202, 59.109374720};
    const double b[] = {1.0, 17.895169469, 78.757757664, 67.187563600};
    const double r = add_rn_f64(kCentral * kCentral, -mul_rn_f64(q, q));
    return div_rn_f64(mul_rn_f64(q, polynomial(a, r)), polynomial(b, r));
  }
  const double r = sqrt_rn_f64(-natural_logarithm(q < 0 ? p : 1 - p));
  double x;
  if (r <= kTail) {
    const double c[] = {1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103};
    const double d[] = {1.0, 0.73700164250, 0.12021132975};
    x = div_rn_f64(polynomial(c, r - 1.6), polynomial(d, r - 1.6));
  } else {
    const double e[] = {6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997};
    const double f[] = {1.0, 0.24197894225, 0.012258202635};
    x = div_rn_f64(polynomial(e, r - kTail), polynomial(f, r - kTail));
  }
  return q < 0 ? -x : x;
}

// To nearest even, of numbers that are far from ${dtype}'s largest.
__device__ __forceinline__ u16 round_to_element(double x) {
  constexpr i32 kMantissaBits = ${mantissa_bits}, kBias = ${exponent_bias};
  const u64 bits = bits_of_f64(x);
  const i32 exponent = static_cast<i32>(bits >> 52 & 0x7ff) - 1023;
  const i32 field = exponent < 1 - kBias ? 0 : exponent + kBias - 1;  // the hidden bit, and a carry, add to it
  const i32 below = 1 - kBias - exponent;                             // subnormal numbers have bits less
  const i32 dropped = 52 - kMantissaBits + (below < 0 ? 0 : below);
  const u64 mantissa = (bits & 0xfffffffffffffu) | 0x10000000000000u;
  const u64 sign = bits >> 48 & 0x8000;
  if (dropped > 53) return static_cast<u16>(sign);  // less than half of the smallest number
  u64 whole = mantissa >> dropped;
  const u64 rest = mantissa & ((u64{1} << dropped) - 1), half = u64{1} << (dropped - 1);
  if (rest > half || (rest == half && whole % 2 == 1)) ++whole;
  return static_cast<u16>(sign | (whole + (static_cast<u64>(field) << kMantissaBits)));
}

__device__ __forceinline__ u16 random_element(u64 seed, i64 index) {
  const u64 bits = mix_bits(seed * 0xd1342543de82ef95u + (static_cast<u64>(index) + 1) * kGoldenRatio);
  return round_to_element(normal_quantile(mul_rn_f64(static_cast<double>((bits >> 12) * 2 + 1), 0x1p-53)));
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  for (i64 first = static_cast<i64>(block_index()) * kElements; first < args.element_count; first += static_cast<i64>(kCtas) * kElements) {
    const i64 end = first + kElements < args.element_count ? first + kElements : args.element_count;
    for (i64 i = first + thread_index(); i < end; i += kThreads) {
      const u16 element = random_element(args.seed, i);
      for (i64 copy = 0; copy < args.copies; ++copy) st_global_b16(args.elements + copy * args.copy_stride + i, element);
    }
  }
}
//% include primitives/entry/${target}
