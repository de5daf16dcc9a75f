#include "tests/primitives/data_movement_cases.h"

#include "tests/primitives/case_parts.h"
#include "tests/primitives/number_formats.h"

namespace attune::tests {
namespace {

void add_memory(std::vector<PrimitiveCase>& cases) {
  const std::vector<std::uint16_t> words = random_words(256, 1);
  {
    std::vector<std::uint16_t> reversed(words.rbegin(), words.rend());
    cases.push_back({"ld_global_b16 st_global_b16",
                     {R"(
for (u32 i = thread; i < 256; i += 64) st_global_b16(out_bytes(args, 2 * i), ld_global_b16(in_bytes(args, 2 * (255 - i))));
)",
                      64},
                     bytes_of(words),
                     512,
                     exactly(reversed)});
  }
  {
    // Each byte, the last one first, as a number of 32 bits.
    std::vector<std::uint32_t> numbers;
    const std::vector<std::uint8_t> bytes = bytes_of(words);
    for (std::size_t i = bytes.size(); i-- > 0;) numbers.push_back(bytes[i]);
    cases.push_back({"ld_global_u8 st_global_b32",
                     {R"(
for (u32 i = thread; i < 512; i += 64) st_global_b32(out_bytes(args, 4 * i), ld_global_u8(in_bytes(args, 511 - i)));
)",
                      64},
                     bytes,
                     2048,
                     exactly(numbers)});
  }
  {
    std::vector<double> doubles;
    for (int i = 0; i < 32; ++i) doubles.push_back(std::ldexp(1.0 + i, 40 * i - 600));
    cases.push_back({"st_global_f64",
                     {"st_global_f64(out_bytes(args, 8 * thread), in_f64(args, thread));\n"},
                     bytes_of(doubles),
                     256,
                     exactly(doubles)});
    const std::vector<float> floats = {0.0f, -0.0f, 1.5f, kInfinity, -kInfinity, 1e-40f, 3e38f, -7.0f};
    cases.push_back({"st_global_f32",
                     {"if (thread < 8) st_global_f32(out_bytes(args, 4 * thread), in_f32(args, thread));\n"},
                     bytes_of(floats),
                     32,
                     exactly(floats)});
    cases.push_back({"ld_global_f32",
                     {"if (thread < 8) st_global_f32(out_bytes(args, 4 * thread), "
                      "ld_global_f32(static_cast<const float*>(args.in) + thread));\n"},
                     bytes_of(floats),
                     32,
                     exactly(floats)});
  }
  {
    const std::vector<std::int32_t> numbers = {0, -1, 2147483647, -2147483647 - 1, 77, 5, -300, 8};
    cases.push_back({"ld_global_i32",
                     {"if (thread < 8) st_global_b32(out_bytes(args, 4 * thread), "
                      "static_cast<u32>(ld_global_i32(static_cast<const i32*>(args.in) + thread)));\n"},
                     bytes_of(numbers),
                     32,
                     exactly(numbers)});
  }
  cases.push_back({"st_global_b32 ld_shared_b32",
                   {R"(
st_shared_b32(shared_base() + 4 * thread, in_u32(args, thread));
bar_sync();
st_global_b32(out_bytes(args, 4 * thread), ld_shared_b32(shared_base() + 4 * (127 - thread)));
)",
                    128, 512},
                   bytes_of(words),
                   512,
                   [&] {
                     const std::vector<std::uint32_t> singles = values_of<std::uint32_t>(bytes_of(words));
                     return exactly(std::vector<std::uint32_t>(singles.rbegin(), singles.rend()));
                   }()});
  // Written by one thread, read by another of another warp.
  cases.push_back({"st_shared_b32 ld_shared_v4_b32 bar_sync",
                   {R"(
const u32 shared = shared_base();
st_shared_b32(shared + 4 * thread, in_u32(args, thread));
bar_sync();
if (thread < 32) st_global_v4_b32(out_bytes(args, 16 * thread), ld_shared_v4_b32(shared + 16 * (31 - thread)));
)",
                    128, 512},
                   bytes_of(words),
                   512,
                   [&] {
                     std::vector<std::uint16_t> expected;
                     for (int i = 31; i >= 0; --i)
                       expected.insert(expected.end(), words.begin() + 8 * i, words.begin() + 8 * i + 8);
                     return exactly(expected);
                   }()});
  cases.push_back({"st_shared_v4_b32",
                   {R"(
const u32 shared = shared_base();
st_shared_v4_b32(shared + 16 * (31 - thread), Vec4{in_u32(args, 4 * thread), in_u32(args, 4 * thread + 1), in_u32(args, 4 * thread + 2),
                                                   in_u32(args, 4 * thread + 3)});
bar_sync();
st_global_v4_b32(out_bytes(args, 16 * (31 - thread)), ld_shared_v4_b32(shared + 16 * thread));
)",
                    32, 512},
                   bytes_of(words),
                   512,
                   [&] {
                     // Twice reversed: to thread t's place comes what thread 31 - (31 - t) ... wrote at 31 - t.
                     return exactly(words);
                   }()});
  {
    std::vector<double> doubles, rotated;
    for (int i = 0; i < 64; ++i) doubles.push_back(1.0 / (i + 3));
    for (int i = 0; i < 64; ++i) rotated.push_back(doubles[(i + 33) % 64]);
    cases.push_back({"st_shared_f64 ld_shared_f64",
                     {R"(
const u32 shared = shared_base();
st_shared_f64(shared + 8 * thread, in_f64(args, thread));
bar_sync();
st_global_f64(out_bytes(args, 8 * thread), ld_shared_f64(shared + 8 * ((thread + 33) % 64)));
)",
                      64, 512},
                     bytes_of(doubles),
                     512,
                     exactly(rotated)});
  }
  {
    std::vector<std::uint32_t> expected;
    for (std::uint32_t thread = 0; thread < 64; ++thread) {
      const std::uint32_t from = thread / 32 * 32 + (thread + 7) % 32;
      expected.push_back(1000 + from + 2000 * (3 + from));
    }
    // The second write may not overtake the first read.
    cases.push_back({"bar_warp_sync",
                     {R"(
const u32 mine = shared_base() + 16 * thread, other = shared_base() + 16 * (thread / 32 * 32 + (thread + 7) % 32);
st_shared_b32(mine, 1000 + thread);
bar_warp_sync();
const u32 first = ld_shared_v4_b32(other).x;
bar_warp_sync();
st_shared_b32(mine, 2000 * (3 + thread));
bar_warp_sync();
out_u32(args, thread, first + ld_shared_v4_b32(other).x);
)",
                      64, 1024},
                     {},
                     256,
                     exactly(expected)});
  }
}

void add_async(std::vector<PrimitiveCase>& cases) {
  const std::vector<std::uint16_t> words = random_words(32 * 8 * 3, 2);
  std::vector<std::uint16_t> expected;
  for (std::size_t i = 0; i < 32 * 3; ++i) {
    for (std::size_t e = 0; e < 8; ++e) expected.push_back(i % 5 == 0 ? 0 : words[8 * i + e]);
  }
  // Three groups; every fifth chunk is not read but filled with zeros. The first wait lets two groups stay under way.
  cases.push_back({"cp_async_cg_16 cp_async_commit_group cp_async_wait_group",
                   {R"(
const u32 shared = shared_base();
for (u32 group = 0; group < 3; ++group) {
  const u32 chunk = 32 * group + thread;
  cp_async_cg_16(shared + 16 * chunk, in_bytes(args, 16 * chunk), chunk % 5 == 0 ? 0 : 16);
  cp_async_commit_group();
}
cp_async_wait_group<2>();
st_global_v4_b32(out_bytes(args, 16 * thread), ld_shared_v4_b32(shared + 16 * thread));
cp_async_wait_group<0>();
bar_sync();
const u32 other = thread ^ 1;
for (u32 group = 1; group < 3; ++group)
  st_global_v4_b32(out_bytes(args, 16 * (32 * group + other)), ld_shared_v4_b32(shared + 16 * (32 * group + other)));
)",
                    32, 32 * 16 * 3},
                   bytes_of(words),
                   words.size() * 2,
                   exactly(expected)});
}

void add_wide(std::vector<PrimitiveCase>& cases) {
  const std::vector<std::uint16_t> words = random_words(256, 2);
  cases.push_back({"ld_global_v4_b32",
                   {"st_global_v4_b32(out_bytes(args, 16 * thread), ld_global_v4_b32(in_bytes(args, 16 * thread)));\n"},
                   bytes_of(words),
                   512,
                   exactly(words)});
  const std::vector<std::uint64_t> wide = values_of<std::uint64_t>(bytes_of(words));
  cases.push_back({"st_shared_b64 ld_shared_b64 st_global_b64 bits_of_f64 f64_of_bits",
                   {R"(
st_shared_b64(shared_base() + 8 * thread, bits_of_f64(in_f64(args, thread)));
bar_sync();
const u64 other = ld_shared_b64(shared_base() + 8 * (63 - thread));
st_global_b64(out_bytes(args, 8 * thread), bits_of_f64(f64_of_bits(other)));
)",
                    64, 512},
                   bytes_of(words),
                   512,
                   exactly(std::vector<std::uint64_t>(wide.rbegin(), wide.rend()))});

  std::mt19937 random(6);
  std::normal_distribution<double> normal;
  std::vector<double> in, sums, products, quotients, roots, differences;
  for (int i = 0; i < 256; ++i) {
    const double a = normal(random), b = normal(random);
    in.insert(in.end(), {a, b});
    sums.push_back(a + b);
    products.push_back(a * b);
    quotients.push_back(a / b);
    roots.push_back(std::sqrt(std::fabs(a)));
    differences.push_back(0);
  }
  const auto add = [&](const std::string& name, const std::string& value, const std::vector<double>& expected) {
    cases.push_back(elementwise<double, double>(
        name,
        "const double a = ld_global_f64(in_bytes(args, 16 * i)), b = ld_global_f64(in_bytes(args, 16 * i + 8)); "
        "st_global_f64(out_bytes(args, 8 * i), " +
            value + ");",
        in, expected.size(), exactly(expected)));
  };
  add("ld_global_f64 add_rn_f64", "add_rn_f64(a, b)", sums);
  add("mul_rn_f64", "mul_rn_f64(a, b)", products);
  add("div_rn_f64", "div_rn_f64(a, b)", quotients);
  add("sqrt_rn_f64", "sqrt_rn_f64(a < 0 ? -a : a)", roots);
  // A contraction would leave the rounding error of the product.
  add("mul_rn_f64 add_rn_f64", "add_rn_f64(mul_rn_f64(a, b), -mul_rn_f64(b, a))", differences);
}

void add_sums(std::vector<PrimitiveCase>& cases) {
  std::vector<float> floats, reversed;
  for (int i = 0; i < 128; ++i) floats.push_back(static_cast<float>(i) - 40.5f);
  for (std::size_t i = 0; i < 128; ++i) reversed.push_back(floats[(31 - i / 4) * 4 + i % 4]);
  cases.push_back({"ld_global_v4_f32 ld_shared_v4_f32",
                   {R"(
const Vec4F32 x = ld_global_v4_f32(static_cast<const float*>(args.in) + 4 * thread);
st_global_f32(out_bytes(args, 16 * thread), x.x + x.w);
st_global_f32(out_bytes(args, 16 * thread + 4), x.y - x.z);
for (u32 i = 0; i < 4; ++i) st_shared_b32(shared_base() + 16 * thread + 4 * i, in_u32(args, 4 * thread + i));
bar_sync();
const Vec4F32 y = ld_shared_v4_f32(shared_base() + 16 * (31 - thread));
st_global_f32(out_bytes(args, 16 * thread + 8), y.x + y.w);
st_global_f32(out_bytes(args, 16 * thread + 12), y.y - y.z);
)",
                    32, 512},
                   bytes_of(floats),
                   512,
                   [&] {
                     std::vector<float> expected;
                     for (std::size_t i = 0; i < 32; ++i) {
                       for (const auto* from : {&floats, &reversed}) {
                         const float* four = from->data() + 4 * i;
                         expected.insert(expected.end(), {four[0] + four[3], four[1] - four[2]});
                       }
                     }
                     return exactly(expected);
                   }()});
  cases.push_back(
      {"opaque_i32",
       {"out_u32(args, thread, static_cast<u32>(opaque_i32(static_cast<i32>(in_u32(args, thread))) + 1));\n"},
       bytes_of(std::vector<std::uint32_t>(32, 41)),
       128,
       exactly(std::vector<std::uint32_t>(32, 42))});
  // Small integers: their sums are exact, whatever the order.
  cases.push_back({"red_global_add_f32",
                   {R"(
if (thread < 4) st_global_f32(out_bytes(args, 4 * thread), 0.5f);
bar_sync();
red_global_add_f32(reinterpret_cast<float*>(out_bytes(args, 4 * (thread % 4))), in_f32(args, thread));
)",
                    64},
                   bytes_of(std::vector<float>(floats.begin(), floats.begin() + 64)),
                   16,
                   [&] {
                     std::vector<float> sums(4, 0.5f);
                     for (std::size_t i = 0; i < 64; ++i) sums[i % 4] += floats[i];
                     return exactly(sums);
                   }()});
  // 2^30 + 1 - 2^30 is 0 in this order and 1 in others; the CTA of the first number clears the sum.
  const std::vector<float> terms = {0.0f, 0x1p30f, 1.0f, -0x1p30f, 5.0f, 0x1p30f, 3.0f, -0x1p30f};
  std::vector<float> numbers_and_terms(4, 0.0f);
  numbers_and_terms.insert(numbers_and_terms.end(), terms.begin(), terms.end());
  PrimitiveCase turns{"atom_relaxed_gpu_global_add_u32 wait_acquire_gpu_global_u32 st_release_gpu_global_u32",
                      {R"(
u32* numbers = static_cast<u32*>(const_cast<void*>(args.in));
if (thread == 0) {
  const u32 mine = atom_relaxed_gpu_global_add_u32(numbers, 1);
  wait_acquire_gpu_global_u32(numbers + 1, mine);
  if (mine == 0) st_global_f32(out_bytes(args, 0), 0.0f);
  red_global_add_f32(reinterpret_cast<float*>(out_bytes(args, 0)), in_f32(args, 4 + mine));
  st_release_gpu_global_u32(numbers + 1, mine + 1);
}
)"},
                      bytes_of(numbers_and_terms),
                      4,
                      exactly(std::vector<float>{0.0f})};
  turns.kernel.grid = 8;
  cases.push_back(turns);
}

// What a thread has written itself is what it reads, also where it has read before.
void add_pair(std::vector<PrimitiveCase>& cases) {
  const std::vector<std::uint16_t> words = random_words(128, 3);
  const std::vector<std::uint32_t> in = values_of<std::uint32_t>(bytes_of(words));
  std::vector<std::uint32_t> swapped;
  for (std::size_t i = 0; i < in.size(); i += 2) swapped.insert(swapped.end(), {in[i + 1], in[i]});
  cases.push_back({"st_global_v2_f32 ld_weak_global_f32 ld_weak_global_v2_f32",
                   {R"(
float* out = reinterpret_cast<float*>(out_bytes(args, 8 * thread));
const Vec2F32 read = ld_weak_global_v2_f32(reinterpret_cast<const float*>(in_bytes(args, 8 * thread)));
st_global_v2_f32(out, read);
const float first = ld_weak_global_f32(out);
st_global_v2_f32(out, Vec2F32{ld_weak_global_f32(out + 1), first});
const Vec2F32 again = ld_weak_global_v2_f32(out);
st_global_v2_f32(out, again);
)"},
                   bytes_of(words),
                   256,
                   exactly(swapped)});
}

}  // namespace

void add_data_movement_cases(std::vector<PrimitiveCase>& cases) {
  add_memory(cases);
  add_async(cases);
  add_wide(cases);
  add_sums(cases);
  add_pair(cases);
}

}  // namespace attune::tests
