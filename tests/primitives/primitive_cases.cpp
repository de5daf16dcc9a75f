#include "tests/primitives/primitive_cases.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>

#include "tests/primitives/case_parts.h"
#include "tests/primitives/data_movement_cases.h"
#include "tests/primitives/number_formats.h"

namespace attune::tests {
namespace {

void add_prelude(std::vector<PrimitiveCase>& cases) {
  PrimitiveCase indices{"indices",
                        {R"(
const u32 i = block_index() * 96 + thread;
st_global_v4_b32(out_bytes(args, 16 * i), Vec4{thread_index(), lane_index(), warp_index(), block_index()});
)",
                         96, 0, 3},
                        {},
                        3 * 96 * 16,
                        {}};
  std::vector<std::uint32_t> expected;
  for (std::uint32_t block = 0; block < 3; ++block) {
    for (std::uint32_t thread = 0; thread < 96; ++thread)
      expected.insert(expected.end(), {thread, thread % 32, thread / 32, block});
  }
  indices.complaint = exactly(expected);
  cases.push_back(indices);

  cases.push_back({"constants",
                   {R"(
if (thread == 0) {
  out_f32(args, 0, negative_infinity());
  out_u32(args, 1, kAllLanes);
  st_global_f64(out_bytes(args, 8), negative_infinity_f64());
}
)"},
                   {},
                   16,
                   exactly<std::uint32_t>({0xff800000u, 0xffffffffu, 0u, 0xfff00000u})});
}

void add_ldmatrix(std::vector<PrimitiveCase>& cases) {
  const std::vector<std::uint16_t> words = random_words(4 * 64, 3);
  for (const int count : {4, 2}) {
    for (const bool transpose : {false, true}) {
      std::vector<std::uint16_t> expected;
      // Rows lie in shared memory in a permuted order, so that each lane's address matters.
      for (int lane = 0; lane < 32; ++lane) {
        for (int matrix = 0; matrix < count; ++matrix) {
          for (int e = 0; e < 2; ++e) {
            const int row = transpose ? 2 * (lane % 4) + e : lane / 4,
                      column = transpose ? lane / 4 : 2 * (lane % 4) + e;
            expected.push_back(words[(8 * matrix + row) * 8 + column]);
          }
        }
      }
      const std::string n = std::to_string(count), name = "ldmatrix_x" + n + (transpose ? "_trans" : "");
      cases.push_back({name,
                       {R"(
const u32 shared = shared_base();
const u32 row = shared + 16 * ((5 * thread + 3) % 32);
st_shared_v4_b32(row, Vec4{in_u32(args, 4 * thread), in_u32(args, 4 * thread + 1), in_u32(args, 4 * thread + 2), in_u32(args, 4 * thread + 3)});
bar_warp_sync();
u32 r[)" + n + R"(];
)" + name + R"((r, row);
for (u32 i = 0; i < )" + n + "; ++i) out_u32(args, " +
                            n + " * thread + i, r[i]);\n",
                        32, 512},
                       bytes_of(words),
                       static_cast<std::size_t>(128 * count),
                       exactly(expected)});
    }
  }
}

// A (16 x k), B (k x 8), C (16 x 8) in row-major order go in; fragments are gathered by the formulas of the PTX manual.
void add_mma(std::vector<PrimitiveCase>& cases) {
  enum class Values { integers, reals, wide };
  std::mt19937 random(4);
  for (const bool bf16 : {true, false}) {
    for (const int k : {16, 8}) {
      for (const Values values : {Values::integers, Values::reals, Values::wide}) {
        std::normal_distribution<double> normal;
        const auto sample = [&]() -> double {
          if (values == Values::integers) return static_cast<int>(random() % 17) - 8;
          const double x = normal(random);
          return values == Values::reals ? x
                                         : std::ldexp(x, static_cast<int>(random() % 16) - 14);  // subnormal in fp16
        };
        std::vector<std::uint16_t> ab;
        for (int i = 0; i < (16 + 8) * k; ++i) ab.push_back(bf16 ? encode_bf16(sample()) : encode_f16(sample()));
        std::vector<float> c;
        for (int i = 0; i < 128; ++i)
          c.push_back(values == Values::integers ? static_cast<int>(random() % 2001) - 1000 : normal(random));
        const auto decode_one = [&](std::uint16_t x) { return bf16 ? decode_bf16(x) : decode_f16(x); };
        std::vector<float> expected;
        for (int m = 0; m < 16; ++m) {
          for (int n = 0; n < 8; ++n) {
            double sum = c[m * 8 + n];
            for (int i = 0; i < k; ++i) sum += decode_one(ab[m * k + i]) * decode_one(ab[16 * k + i * 8 + n]);
            expected.push_back(static_cast<float>(sum));
          }
        }
        Bytes input = bytes_of(ab);
        const Bytes c_bytes = bytes_of(c);
        input.insert(input.end(), c_bytes.begin(), c_bytes.end());
        const std::string name = "mma_m16n8k" + std::to_string(k) + "_f32_" + (bf16 ? "bf16" : "f16");
        const std::string sizes = "constexpr u32 K = " + std::to_string(k) + ";\n";
        std::string body = sizes + R"(
const u32 row = thread / 4, column = thread % 4 * 2;
const char* b_rows = in_bytes(args, 2 * 16 * K);
u32 a[K / 4], b[K / 8];
for (u32 i = 0; i < K / 4; ++i) a[i] = in_u32(args, ((row + i % 2 * 8) * K + column + i / 2 * 8) / 2);
for (u32 i = 0; i < K / 8; ++i)
  b[i] = ld_global_b16(b_rows + 2 * ((column + 8 * i) * 8 + row)) | static_cast<u32>(ld_global_b16(b_rows + 2 * ((column + 8 * i + 1) * 8 + row))) << 16;
float d[4];
for (u32 i = 0; i < 4; ++i) d[i] = in_f32(args, 12 * K + (row + i / 2 * 8) * 8 + column + i % 2);
)";
        body += name + (k == 16 ? "(d, a, b[0], b[1]);\n" : "(d, a, b[0]);\n");
        body += "for (u32 i = 0; i < 4; ++i) out_f32(args, (row + i / 2 * 8) * 8 + column + i % 2, d[i]);\n";
        const char* kinds[] = {"integers", "reals", "reals of many sizes"};
        cases.push_back({name + ", " + kinds[static_cast<int>(values)],
                         {body},
                         input,
                         512,
                         values == Values::integers ? exactly(expected) : nearly(expected, 1e-6, 4e-6)});
      }
    }
  }
}

void add_lanes(std::vector<PrimitiveCase>& cases) {
  std::vector<float> in, expected;
  for (int i = 0; i < 64; ++i) in.push_back(static_cast<float>(i) * 1.25f - 7);
  for (const int mask : {1, 2, 4, 8, 16}) {
    for (int i = 0; i < 64; ++i) expected.push_back(in[i ^ mask]);
  }
  cases.push_back({"shfl_sync_bfly_f32",
                   {R"(
const float x = in_f32(args, thread);
out_f32(args, thread, shfl_sync_bfly_f32<1>(x));
out_f32(args, 64 + thread, shfl_sync_bfly_f32<2>(x));
out_f32(args, 128 + thread, shfl_sync_bfly_f32<4>(x));
out_f32(args, 192 + thread, shfl_sync_bfly_f32<8>(x));
out_f32(args, 256 + thread, shfl_sync_bfly_f32<16>(x));
)",
                    64},
                   bytes_of(in),
                   5 * 256,
                   exactly(expected)});
  std::vector<std::uint32_t> exchanged;
  for (std::uint32_t i = 0; i < 64; ++i) exchanged.push_back(0xffffff00u + (i ^ 2));  // NaNs, as numbers
  cases.push_back({"shfl_sync_bfly_b32",
                   {"out_u32(args, thread, shfl_sync_bfly_b32<2>(0xffffff00u + thread));\n", 64},
                   {},
                   256,
                   exactly(exchanged)});
  std::vector<std::uint32_t> united(64);  // a bit of each lane of warp 0, and of warp 1 those of its thread indices
  for (int i = 0; i < 64; ++i) united[static_cast<std::size_t>(i)] = i < 32 ? 0xffffffffu : 0x3fu;
  cases.push_back({"redux_sync_or_b32",
                   {"out_u32(args, thread, redux_sync_or_b32(thread < 32 ? 1u << thread : thread));\n", 64},
                   {},
                   256,
                   exactly(united)});
  std::vector<std::uint32_t> highest(64);  // each bit alone, then with all below it
  for (int i = 0; i < 64; ++i) highest[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(i % 32);
  cases.push_back(
      {"bfind_b32",
       {"out_u32(args, thread, bfind_b32(thread < 32 ? 1u << thread : 0xffffffffu >> (63 - thread)));\n", 64},
       {},
       256,
       exactly(highest)});
  {  // bytes of both, copied, and what their highest bits are
    const std::uint32_t a = 0x8091'02ffu, b = 0x7f00'80aau;
    const std::uint32_t selectors[] = {0x3210, 0x7654, 0xaa88, 0xbb99, 0xfedc, 0x0842};
    std::vector<std::uint32_t> selected;
    for (const std::uint32_t selector : selectors) {
      std::uint32_t word = 0;
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t nibble = selector >> (4 * i) & 15, place = nibble & 7;
        const std::uint32_t byte = (place < 4 ? a >> (8 * place) : b >> (8 * (place - 4))) & 255;
        word |= (nibble < 8 ? byte : byte < 128 ? 0u : 255u) << (8 * i);
      }
      selected.push_back(word);
    }
    std::vector<std::uint32_t> in(std::begin(selectors), std::end(selectors));
    cases.push_back(elementwise<std::uint32_t, std::uint32_t>(
        "prmt_b32", "out_u32(args, i, prmt_b32(0x809102ffu, 0x7f0080aau, in_u32(args, i)));", in, in.size(),
        exactly(selected)));
  }
  {  // elements of an 8x8 matrix, numbered by rows: 100 row + column, and of a second warp 1000 more
    std::vector<std::uint32_t> turned;
    for (std::uint32_t i = 0; i < 64; ++i) {
      const std::uint32_t lane = i % 32, row = lane / 4, column = lane % 4 * 2, more = i / 32 * 1000;
      turned.push_back((100 * (column + 1) + row + more) << 16 | (100 * column + row + more));
    }
    cases.push_back({"movmatrix_trans",
                     {R"(
const u32 low = 100 * (thread % 32 / 4) + thread % 4 * 2 + thread / 32 * 1000;
out_u32(args, thread, movmatrix_trans((low + 1) << 16 | low));
)",
                      64},
                     {},
                     256,
                     exactly(turned)});
  }
  {
    const std::vector<std::uint64_t> words = {0x0123456789abcdef, 0xfedcba9876543210, 1};
    cases.push_back({"ld_global_b64",
                     {"if (thread < 3) st_global_b64(out_bytes(args, 8 * thread), ld_global_b64(reinterpret_cast<const "
                      "u64*>(in_bytes(args, 8 * thread))));\n",
                      32},
                     bytes_of(words),
                     24,
                     exactly(words)});
  }
  // Warp 0: lane 17 alone says yes; warp 1: nobody; warp 2: everybody.
  std::vector<std::uint32_t> votes(96);
  for (int i = 0; i < 96; ++i) votes[i] = i < 32 || i >= 64;
  cases.push_back({"vote_sync_any",
                   {"out_u32(args, thread, vote_sync_any(thread == 17 || thread >= 64));\n", 96},
                   {},
                   384,
                   exactly(votes)});
}

void add_math(std::vector<PrimitiveCase>& cases) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  {  // fma: the product is not rounded
    std::vector<float> in, expected;
    for (int i = 0; i < 512; ++i) {
      const float a = normal(random), b = normal(random), c = i % 2 ? -a * b : normal(random);
      in.insert(in.end(), {a, b, c});
      expected.push_back(std::fmaf(a, b, c));
    }
    cases.push_back(elementwise<float, float>(
        "fma_rn_f32",
        "out_f32(args, i, fma_rn_f32(in_f32(args, 3 * i), in_f32(args, 3 * i + 1), in_f32(args, 3 * i + 2)));", in, 512,
        exactly(expected)));
    expected.clear();
    for (std::size_t i = 0; i < in.size(); i += 3)
      expected.push_back(std::clamp(std::fmaf(in[i], in[i + 1], in[i + 2]), 0.0f, 1.0f));
    in.insert(in.end(), {-kInfinity, kInfinity, 1, kInfinity, kInfinity, 0, kNaN, 1, 0});
    expected.insert(expected.end(), {0, 1, 0});
    cases.push_back(elementwise<float, float>(
        "fma_rn_sat_f32",
        "out_f32(args, i, fma_rn_sat_f32(in_f32(args, 3 * i), in_f32(args, 3 * i + 1), in_f32(args, 3 * i + 2)));", in,
        515, exactly(expected)));
    std::vector<double> in64, expected64;
    for (int i = 0; i < 128; ++i) {
      const double a = normal(random) / 3.0, b = normal(random) / 7.0, c = i % 2 ? -a * b : normal(random);
      in64.insert(in64.end(), {a, b, c});
      expected64.push_back(std::fma(a, b, c));
    }
    cases.push_back(elementwise<double, double>("fma_rn_f64",
                                                "st_global_f64(out_bytes(args, 8 * i), fma_rn_f64(in_f64(args, 3 * i), "
                                                "in_f64(args, 3 * i + 1), in_f64(args, 3 * i + 2)));",
                                                in64, 128, exactly(expected64)));
  }
  {  // max: a NaN loses
    const std::vector<float> values = {0.0f, -0.0f, 1, -1, kInfinity, -kInfinity, kNaN, 3e38f, 1e-40f, -1e-40f};
    std::vector<float> in, expected;
    std::vector<double> in64, expected64;
    for (const float a : values) {
      for (const float b : values) {
        in.insert(in.end(), {a, b});
        float larger = std::isnan(a) ? b : std::isnan(b) ? a : a < b ? b : a;
        if (a == 0 && b == 0) larger = std::signbit(a) && std::signbit(b) ? -0.0f : 0.0f;
        expected.push_back(larger);
        if (a == 0 && b == 0) continue;  // which zero max_f64 gives is not used
        in64.insert(in64.end(), {a, b});
        expected64.push_back(larger);
      }
    }
    cases.push_back(
        elementwise<float, float>("max_f32", "out_f32(args, i, max_f32(in_f32(args, 2 * i), in_f32(args, 2 * i + 1)));",
                                  in, expected.size(), exactly(expected)));
    cases.push_back(elementwise<double, double>(
        "max_f64", "st_global_f64(out_bytes(args, 8 * i), max_f64(in_f64(args, 2 * i), in_f64(args, 2 * i + 1)));",
        in64, expected64.size(), exactly(expected64)));
  }
  {
    const std::vector<float> in = {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 2.5f, -2.5f, 1e-40f, -1e-40f, -3e38f};
    std::vector<float> expected;
    for (const float x : in) expected.push_back(std::fabs(x));
    cases.push_back(elementwise<float, float>("abs_f32", "out_f32(args, i, abs_f32(in_f32(args, i)));", in, in.size(),
                                              exactly(expected)));
  }
  {
    std::vector<float> in = {0.0f,    -0.0f, kInfinity, -kInfinity, kNaN, 1,      -1,   127,  128,
                             127.99f, -126,  -126.5f,   -127,       -150, 1e-40f, 1000, -1e9f};
    for (int i = 0; i < 500; ++i) in.push_back(20 * normal(random));
    std::vector<float> expected;
    for (const float x : in) {
      const double y = std::exp2(static_cast<double>(x));
      expected.push_back(y < std::numeric_limits<float>::min() ? 0.0f : static_cast<float>(y));
    }
    cases.push_back(elementwise<float, float>("ex2_approx_ftz_f32",
                                              "out_f32(args, i, ex2_approx_ftz_f32(in_f32(args, i)));", in, in.size(),
                                              nearly(expected, 0x1p-21)));
  }
  {
    std::vector<float> in = {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 1, -1, 9, -9, 1e-3f, -1e-6f, 3e38f};
    for (int i = 0; i < 500; ++i) in.push_back(2 * normal(random));
    std::vector<float> expected;
    for (const float x : in) expected.push_back(static_cast<float>(std::tanh(static_cast<double>(x))));
    // PTX promises 2^-11; errors of capped scores are bounded by what an H100 shows, 1.1e-5.
    cases.push_back(elementwise<float, float>("tanh_approx_f32", "out_f32(args, i, tanh_approx_f32(in_f32(args, i)));",
                                              in, in.size(), nearly(expected, 0x1p-16)));
  }
  {
    std::vector<float> in = {0.0f, -0.0f, kInfinity, -kInfinity, kNaN,  1,       -1,
                             2,    0.5f,  1e-40f,    1e-37f,     3e38f, 1.0001f, 0.9999f};
    for (int i = 0; i < 500; ++i) in.push_back(std::exp(10 * normal(random)));
    std::vector<float> expected;
    for (const float x : in)
      expected.push_back(std::fabs(x) < 1e-38f ? -kInfinity : static_cast<float>(std::log2(static_cast<double>(x))));
    cases.push_back(elementwise<float, float>(
        "lg2_approx_ftz_f32", "out_f32(args, i, lg2_approx_ftz_f32(in_f32(args, i)));", in, in.size(),
        [check = nearly(expected, 0x1p-21, 0x1p-21), expected](const Bytes& output) {
          // lg2(1) = 0 may come out as a tiny number on either side.
          std::vector<float> actual = values_of<float>(output);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            if (expected[i] == 0 && std::fabs(actual[i]) <= 0x1p-21f) actual[i] = 0;
          }
          return check(bytes_of(actual));
        }));
  }
  {
    std::vector<float> in = {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 1, -1, 3, 1e-40f, -1e-40f, 2e38f, 1e-37f};
    for (int i = 0; i < 500; ++i) in.push_back(std::exp(10 * normal(random)));
    std::vector<float> expected;
    for (const float x : in) {
      const float flushed = std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
      const double y = 1.0 / flushed;
      expected.push_back(std::fabs(y) < std::numeric_limits<float>::min() ? static_cast<float>(std::copysign(0.0, y))
                                                                          : static_cast<float>(y));
    }
    cases.push_back(elementwise<float, float>("rcp_approx_ftz_f32",
                                              "out_f32(args, i, rcp_approx_ftz_f32(in_f32(args, i)));", in, in.size(),
                                              nearly(expected, 0x1p-22)));
  }
  {  // conversions: special values, ties, the edges of the subnormal range, and a spread of bit patterns
    std::vector<float> in = {0.0f,        -0.0f,       kInfinity,    -kInfinity,    kNaN,     65504,    65519.996f,
                             65520,       -65520,      1e30f,        3.4e38f,       0x1p-24f, 0x1p-25f, 0x1.000002p-25f,
                             0x1.8p-24f,  0x1p-14f,    0x1.ffcp-15f, 0x1.ffep-15f,  1e-45f,   1e-40f,   0x1p-126f,
                             1.00390625f, 1.01171875f, 1 + 0x1p-11f, 1 + 0x1.8p-10f};
    while (in.size() < 4096) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      in.push_back(in.size() % 2 && !std::isnan(x) ? x
                                                   : std::ldexp(normal(random), static_cast<int>(random() % 40) - 24));
    }
    std::vector<std::uint32_t> bf16, f16;
    for (std::size_t i = 0; i < in.size(); i += 2) {
      bf16.push_back(static_cast<std::uint32_t>(encode_bf16(in[i])) << 16 | encode_bf16(in[i + 1]));
      f16.push_back(static_cast<std::uint32_t>(encode_f16(in[i])) << 16 | encode_f16(in[i + 1]));
    }
    for (const bool is_bf16 : {true, false}) {
      const std::string name = is_bf16 ? "cvt_rn_bf16x2_f32" : "cvt_rn_f16x2_f32";
      cases.push_back(elementwise<float, std::uint32_t>(
          name, "out_u32(args, i, " + name + "(in_f32(args, 2 * i), in_f32(args, 2 * i + 1)));", in, 2048,
          exactly(is_bf16 ? bf16 : f16)));
    }
  }
  {  // every number of both formats
    std::vector<std::uint16_t> in(65536);
    std::vector<double> bf16, f16;
    for (std::uint32_t i = 0; i < 65536; ++i) {
      in[i] = static_cast<std::uint16_t>(i);
      bf16.push_back(decode_bf16(in[i]));
      f16.push_back(decode_f16(in[i]));
    }
    for (const bool is_bf16 : {true, false}) {
      const std::string name = is_bf16 ? "cvt_f64_bf16" : "cvt_f64_f16";
      cases.push_back(elementwise<std::uint16_t, double>(
          name, "st_global_f64(out_bytes(args, 8 * i), " + name + "(ld_global_b16(in_bytes(args, 2 * i))));", in, 65536,
          exactly(is_bf16 ? bf16 : f16)));
    }
  }
  {
    std::vector<double> in = {0.0, -745.0, -HUGE_VAL, 1.0, 700.0}, exponentials, logarithms, positive, tangents;
    for (int i = 0; i < 200; ++i) in.push_back(30.0 * normal(random));
    for (const double x : in) {
      exponentials.push_back(std::exp(x));
      tangents.push_back(std::tanh(x));
      positive.push_back(std::exp(x / 2));
      logarithms.push_back(std::log(positive.back()));
    }
    cases.push_back(elementwise<double, double>("exp_f64",
                                                "st_global_f64(out_bytes(args, 8 * i), exp_f64(in_f64(args, i)));", in,
                                                in.size(), nearly(exponentials, 1e-14, 1e-323)));
    cases.push_back(elementwise<double, double>("tanh_f64",
                                                "st_global_f64(out_bytes(args, 8 * i), tanh_f64(in_f64(args, i)));", in,
                                                in.size(), nearly(tangents, 1e-14, 1e-323)));
    cases.push_back(elementwise<double, double>("log_f64",
                                                "st_global_f64(out_bytes(args, 8 * i), log_f64(in_f64(args, i)));",
                                                positive, positive.size(), nearly(logarithms, 1e-14)));
  }
}

}  // namespace

const std::vector<PrimitiveCase>& primitive_cases() {
  static const std::vector<PrimitiveCase> cases = [] {
    std::vector<PrimitiveCase> made;
    add_prelude(made);
    add_data_movement_cases(made);
    add_ldmatrix(made);
    add_mma(made);
    add_lanes(made);
    add_math(made);
    return made;
  }();
  return cases;
}

}  // namespace attune::tests
