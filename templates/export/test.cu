// ${title}
// ${licence}
//
// Checks ${name}() against naive kernels in fp32, on random data: the problem that it was exported for (a long one with shorter lengths), more
// tiles than a GPU holds at once, lengths that are no round numbers, and tensors with gaps and another order of dimensions. Prints a line for each
// tensor of each case; the exit status is 0 if all are ok, 1 if one is wrong, 2 if nothing could be checked.
//
//   usage: test [--full]      --full: also the whole problem, which may take long
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "launch.h"

namespace {

using Element = ${element};
constexpr int kHeadDim = ${head_dim}, kThreads = 128, kMostColumns = 256;
constexpr double kRelativeBound = ${relative_bound};  // of the norm of a tensor's error, to the tensor's norm
constexpr double kRowFactor = 20;     // the same of each row may be so many times as large
//% if forward
constexpr double kLseBound = 2e-4;
//% end
//% if sink_gradient
constexpr double kSinkBound = 1e-4;   // of an error, to the sum of its terms' sizes
//% end
constexpr std::int64_t kLengthStep = ${length_step};  // lengths must be multiples of it

#define CHECK_CUDA(call) check_cuda((call), #call, __LINE__)
void check_cuda(cudaError_t error, const char* call, int line) {
  if (error == cudaSuccess) return;
  std::printf("test.cu:%d: %s: %s\n", line, call, cudaGetErrorString(error));
  std::exit(2);
}

struct View {
  void* data;
  std::int64_t batch, head, row;  // strides
};
template <typename T>
__device__ T& at(const View& view, std::int64_t b, std::int64_t h, std::int64_t i, int c) {
  return static_cast<T*>(view.data)[b * view.batch + h * view.head + i * view.row + c];
}

//% if pairs
// A tensor of pairs: its strides, 0 of dimensions along which it repeats.
struct PairView {
  const void* data;
  long long batch, head, row;
  template <typename T>
  __device__ T at(int b, int h, int i, int j) const {
    return static_cast<const T*>(data)[b * batch + h * head + i * row + j];
  }
};

//% end
struct Problem {
  int batch, heads_q, heads_kv, seq_q, seq_kv;
  float scale;
  long long first, last;  // query i sees the keys j with first <= j - i <= last
//% if softcap
  float cap;
//% end
//% if dropout
  float dropout;
  unsigned long long seed, offset;
//% end
//% if alibi
  const float* slopes;  // of each batch entry and query head
//% end
//% if sink
  const float* sinks;  // of each query head: a score without a value
//% end
//% if used_lengths
  const int *seqused_q, *seqused_kv;  // rows of each sequence, of those that are stored
//% end
//% if packed_sequences
  const int *cu_seqlens_q, *cu_seqlens_kv;  // where each sequence begins
  int sequences;
//% end
//% if bias
  PairView bias;
//% end
//% if attention_mask
  PairView attention_mask;
//% end
};
//% if used_lengths
// A query and a key as rows of a sequence, and how many rows of it count.
struct Pair {
  int sequence, query, key, queries, keys;
};
//% if packed_sequences
// The sequence among whose rows a row is; the last one's are all behind it.
__device__ int sequence_of(const int* begins, int sequences, int row) {
  int b = 0;
  while (b + 1 < sequences && begins[b + 1] <= row) ++b;
  return b;
}
// The pair within the query's sequence, in which the key may not be.
__device__ Pair pair_of(const Problem& p, int, int i, int j) {
  const int b = sequence_of(p.cu_seqlens_q, p.sequences, i);
  return {b, i - p.cu_seqlens_q[b], j - p.cu_seqlens_kv[b], p.seqused_q[b], p.seqused_kv[b]};
}
//% else
__device__ Pair pair_of(const Problem& p, int b, int i, int j) { return {b, i, j, p.seqused_q[b], p.seqused_kv[b]}; }
//% end
//% end
//% if softcap
__device__ float score_of(const Problem& p, float product) { return p.cap * tanhf(p.scale * product / p.cap); }
//% else
__device__ float score_of(const Problem& p, float product) { return p.scale * product; }
//% end
//% if alibi
//% if used_lengths
__device__ float of_alibi(const Problem& p, int b, int h, int i, int j) {
  const Pair pair = pair_of(p, b, i, j);
  return -p.slopes[pair.sequence * p.heads_q + h] * fabsf(static_cast<float>(pair.query + pair.keys - pair.queries - pair.key));
}
//% else
__device__ float of_alibi(const Problem& p, int b, int h, int i, int j) {
  return -p.slopes[b * p.heads_q + h] * fabsf(static_cast<float>(i + p.seq_kv - p.seq_q - j));
}
//% end
//% else
__device__ float of_alibi(const Problem&, int, int, int, int) { return 0; }
//% end
//% if bias
//% if packed_sequences
__device__ float of_bias(const Problem& p, int b, int h, int i, int j) {
  const Pair pair = pair_of(p, b, i, j);
  return static_cast<float>(p.bias.at<${bias_element}>(pair.sequence, h, pair.query, pair.key));
}
//% else
__device__ float of_bias(const Problem& p, int b, int h, int i, int j) { return static_cast<float>(p.bias.at<${bias_element}>(b, h, i, j)); }
//% end
//% else
__device__ float of_bias(const Problem&, int, int, int, int) { return 0; }
//% end
// What is added to a score.
__device__ float added(const Problem& p, int b, int h, int i, int j) { return of_alibi(p, b, h, i, j) + of_bias(p, b, h, i, j); }
//% if attention_mask
//% if packed_sequences
__device__ bool attends(const Problem& p, int b, int h, int i, int j) {
  const Pair pair = pair_of(p, b, i, j);
  return p.attention_mask.at<unsigned char>(pair.sequence, h, pair.query, pair.key) != 0;
}
//% else
__device__ bool attends(const Problem& p, int b, int h, int i, int j) { return p.attention_mask.at<unsigned char>(b, h, i, j) != 0; }
//% end
//% else
__device__ bool attends(const Problem&, int, int, int, int) { return true; }
//% end
//% if used_lengths
__device__ bool sees(const Problem& p, int b, int h, int i, int j) {
  const Pair pair = pair_of(p, b, i, j);
  constexpr bool kMoves = ${diagonals_move};  // the mask with the ends of the sequence
  const int distance = kMoves ? (pair.key + p.seq_kv - pair.keys) - (pair.query + p.seq_q - pair.queries) : pair.key - pair.query;
  const bool count = pair.query < pair.queries && pair.key >= 0 && pair.key < pair.keys;
  return count && distance >= p.first && distance <= p.last && attends(p, b, h, i, j);
}
//% else
__device__ bool sees(const Problem& p, int b, int h, int i, int j) { return j - i >= p.first && j - i <= p.last && attends(p, b, h, i, j); }
//% end

//% if dropout
__device__ uint2 philox(uint2 counter, unsigned key, int rounds) {
  for (; rounds > 0; --rounds, key += 0x9e3779b9u) {
    const unsigned high = __umulhi(counter.x, 0xd256d193u);
    counter = {high ^ key ^ counter.y, counter.x * 0xd256d193u};
  }
  return counter;
}
// What an element of P counts: 0, or one over the share that is kept. n: the head, counted through all batch entries or sequences.
__device__ float kept_share(const Problem& p, int n, int i, int j) {
  const unsigned seed = static_cast<unsigned>(p.seed);
  uint2 head = philox({static_cast<unsigned>(p.offset), static_cast<unsigned>(p.offset >> 32)}, static_cast<unsigned>(p.seed >> 32), 10);
  head = philox({head.x ^ static_cast<unsigned>(n), head.y}, seed, 10);
  const uint2 counter = {head.x ^ static_cast<unsigned>(i / 16 * 32 + i % 8 * 4 + j % 8 / 2), head.y ^ static_cast<unsigned>(j / 16)};
  const uint2 drawn = philox(counter, seed, 7);
  const unsigned byte = (j % 16 < 8 ? drawn.x : drawn.y) >> (j % 2 * 16 + i % 16 / 8 * 8) & 255u;
  // A part of the draws has the next threshold, so that the probability is exact.
  const float threshold = floorf(256 * p.dropout), part = (256 * p.dropout - threshold) * 4294967296.0f;
  const bool next = philox(counter, seed, 6).y < static_cast<unsigned>(part);
  return byte < threshold + (next ? 1 : 0) ? 0 : 1 / (1 - p.dropout);
}
//% if used_lengths
__device__ float kept(const Problem& p, int b, int h, int i, int j) {
  const Pair pair = pair_of(p, b, i, j);
  return kept_share(p, pair.sequence * p.heads_q + h, pair.query, pair.key);
}
//% else
__device__ float kept(const Problem& p, int b, int h, int i, int j) { return kept_share(p, b * p.heads_q + h, i, j); }
//% end
//% else
__device__ float kept(const Problem&, int, int, int, int) { return 1; }
//% end

__device__ std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
__device__ float normal(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = mix(seed * 0x9e3779b97f4a7c15ull + index);
  const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f, v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

// A CTA for each row.
__global__ void fill_normal(View view, int heads, int rows, std::uint64_t seed) {
  const int i = blockIdx.x % rows, h = blockIdx.x / rows % heads, b = blockIdx.x / rows / heads;
  for (int c = threadIdx.x; c < kHeadDim; c += kThreads)
    at<Element>(view, b, h, i, c) = Element(normal(seed, static_cast<std::uint64_t>(blockIdx.x) * kMostColumns + c));
}

//% if used_lengths
// Makes rows NaN that are behind those of a sequence that count, a CTA for each row. Sequences that lie apart begin nowhere.
__global__ void spoil(View view, int heads, int rows, const int* used, const int* begins, int sequences) {
  const int i = blockIdx.x % rows, h = blockIdx.x / rows % heads, b = blockIdx.x / rows / heads;
//% if packed_sequences
  const int sequence = sequence_of(begins, sequences, i);
  const bool counts = i - begins[sequence] < used[sequence];
//% else
  const bool counts = i < used[b];
//% end
  for (int c = threadIdx.x; !counts && c < kHeadDim; c += kThreads) at<Element>(view, b, h, i, c) = Element(NAN);
}

//% end
__device__ float dot(const float* row, const View& view, int b, int h, int i) {
  float sum = 0;
  for (int c = 0; c < kHeadDim; ++c) sum += row[c] * static_cast<float>(at<Element>(view, b, h, i, c));
  return sum;
}

//% if alibi
// As models have them, for each batch entry others.
__global__ void fill_slopes(float* slopes, int heads) {
  const int h = blockIdx.x % heads, b = blockIdx.x / heads;
  if (threadIdx.x == 0) slopes[blockIdx.x] = exp2f(-8.0f * (h + 1) / heads) * (1 + 0.25f * (b % 3));
}

//% end
//% if sink
// Near what rows' LSE is, so that they take a good part of the sums.
__global__ void fill_sinks(float* sinks, float near, std::uint64_t seed) {
  if (threadIdx.x == 0) sinks[blockIdx.x] = near + normal(seed, blockIdx.x);
}

//% end
//% if bias
// A CTA for each row of keys.
__global__ void fill_bias(void* bias, int keys, long long row_stride, std::uint64_t seed) {
  for (int j = threadIdx.x; j < keys; j += kThreads)
    static_cast<${bias_element}*>(bias)[blockIdx.x * row_stride + j] = ${bias_element}(normal(seed, static_cast<std::uint64_t>(blockIdx.x) * keys + j));
}

//% end
//% if attention_mask
// Four documents, in which some pairs are hidden besides; a CTA for each row of keys.
__global__ void fill_mask(void* mask, int queries, int keys, long long row_stride, std::uint64_t seed) {
  const int i = blockIdx.x % queries;
  for (int j = threadIdx.x; j < keys; j += kThreads) {
    const bool same = queries == 1 || 4ll * i / queries == 4ll * j / keys;
    static_cast<unsigned char*>(mask)[blockIdx.x * row_stride + j] = same && (mix(seed + blockIdx.x * 0x9e3779b97f4a7c15ull + j) & 7) != 0;
  }
}

//% end
// O and LSE of one query a CTA, by blocks of kThreads keys.
__global__ void naive_forward(Problem p, View q, View k, View v, float* o, float* lse) {
  const int i = blockIdx.x % p.seq_q, h = blockIdx.x / p.seq_q % p.heads_q, b = blockIdx.x / p.seq_q / p.heads_q;
  const int h_kv = h / (p.heads_q / p.heads_kv), t = threadIdx.x;
  __shared__ float query[kMostColumns], scores[kThreads];
  for (int c = t; c < kHeadDim; c += kThreads) query[c] = static_cast<float>(at<Element>(q, b, h, i, c));
//% if sink
  float highest = p.sinks[h], sum = 1, acc[kMostColumns / kThreads] = {};
//% else
  float highest = -INFINITY, sum = 0, acc[kMostColumns / kThreads] = {};
//% end
  for (int first = 0; first < p.seq_kv; first += kThreads) {
    __syncthreads();
    const int j = first + t;
    scores[t] = j < p.seq_kv && sees(p, b, h, i, j) ? score_of(p, dot(query, k, b, h_kv, j)) + added(p, b, h, i, j) : -INFINITY;
    __syncthreads();
    float most = highest;
    for (int n = 0; n < kThreads; ++n) most = fmaxf(most, scores[n]);
    if (most == -INFINITY) continue;
    const float rescale = expf(highest - most);
    highest = most;
    sum *= rescale;
    for (float& each : acc) each *= rescale;
    for (int n = 0; n < kThreads && first + n < p.seq_kv; ++n) {
      float weight = expf(scores[n] - highest);
      sum += weight;
      if (weight == 0) continue;
      weight *= kept(p, b, h, i, first + n);
      for (int c = t; c < kHeadDim; c += kThreads)
        acc[c / kThreads] += weight * static_cast<float>(at<Element>(v, b, h_kv, first + n, c));
    }
  }
  for (int c = t; c < kHeadDim; c += kThreads)
    o[static_cast<std::int64_t>(blockIdx.x) * kHeadDim + c] = sum > 0 ? acc[c / kThreads] / sum : 0;
  if (t == 0) lse[blockIdx.x] = sum > 0 ? highest + logf(sum) : -INFINITY;
}
//% if backward

__global__ void fill_rows(float* rows, std::uint64_t seed) {
  if (threadIdx.x == 0) rows[blockIdx.x] = normal(seed, blockIdx.x);
}
__global__ void round_rows(const float* from, View to, int heads, int rows) {
  const int i = blockIdx.x % rows, h = blockIdx.x / rows % heads, b = blockIdx.x / rows / heads;
  for (int c = threadIdx.x; c < kHeadDim; c += kThreads)
    at<Element>(to, b, h, i, c) = Element(from[static_cast<std::int64_t>(blockIdx.x) * kHeadDim + c]);
}

// delta = rowsum(dO o O) - dLSE, a CTA for each query.
__global__ void naive_delta(Problem p, View o, View d_o, const float* d_lse, float* delta) {
  const int i = blockIdx.x % p.seq_q, h = blockIdx.x / p.seq_q % p.heads_q, b = blockIdx.x / p.seq_q / p.heads_q;
  if (threadIdx.x != 0) return;
//% if used_lengths
  const Pair pair = pair_of(p, b, i, 0);
  if (pair.query >= pair.queries) {
    delta[blockIdx.x] = 0;
    return;
  }
//% end
  float sum = 0;
  for (int c = 0; c < kHeadDim; ++c)
    sum += static_cast<float>(at<Element>(o, b, h, i, c)) * static_cast<float>(at<Element>(d_o, b, h, i, c));
  delta[blockIdx.x] = sum - (d_lse != nullptr ? d_lse[blockIdx.x] : 0);
}

//% if softcap
// The derivative of a score by p.scale * product.
__device__ float slope_of(const Problem& p, float product) {
  const float cosine = coshf(p.scale * product / p.cap);
  return 1 / (cosine * cosine);
}
//% else
__device__ float slope_of(const Problem&, float) { return 1; }
//% end
__device__ float probability(const Problem& p, int b, int h, int i, int j, float product, float lse) {
  return sees(p, b, h, i, j) && lse != -INFINITY ? expf(score_of(p, product) + added(p, b, h, i, j) - lse) : 0;
}

// dQ of one query a CTA.
__global__ void naive_dq(Problem p, View q, View k, View v, View d_o, const float* lse, const float* delta, float* d_q) {
  const int i = blockIdx.x % p.seq_q, h = blockIdx.x / p.seq_q % p.heads_q, b = blockIdx.x / p.seq_q / p.heads_q;
  const int h_kv = h / (p.heads_q / p.heads_kv), t = threadIdx.x;
  __shared__ float query[kMostColumns], gradient[kMostColumns], d_s[kThreads];
  for (int c = t; c < kHeadDim; c += kThreads) {
    query[c] = static_cast<float>(at<Element>(q, b, h, i, c));
    gradient[c] = static_cast<float>(at<Element>(d_o, b, h, i, c));
  }
  float acc[kMostColumns / kThreads] = {};
  for (int first = 0; first < p.seq_kv; first += kThreads) {
    __syncthreads();
    const int j = first + t;
    d_s[t] = 0;
    if (j < p.seq_kv && sees(p, b, h, i, j)) {
      const float product = dot(query, k, b, h_kv, j);
      d_s[t] = probability(p, b, h, i, j, product, lse[blockIdx.x]) * slope_of(p, product) *
               (kept(p, b, h, i, j) * dot(gradient, v, b, h_kv, j) - delta[blockIdx.x]);
    }
    __syncthreads();
    for (int n = 0; n < kThreads && first + n < p.seq_kv; ++n) {
      if (d_s[n] == 0) continue;
      for (int c = t; c < kHeadDim; c += kThreads)
        acc[c / kThreads] += d_s[n] * static_cast<float>(at<Element>(k, b, h_kv, first + n, c));
    }
  }
  for (int c = t; c < kHeadDim; c += kThreads) d_q[static_cast<std::int64_t>(blockIdx.x) * kHeadDim + c] = p.scale * acc[c / kThreads];
}

// dK and dV of one key a CTA.
__global__ void naive_dkdv(Problem p, View q, View k, View v, View d_o, const float* lse, const float* delta, float* d_k, float* d_v) {
  const int j = blockIdx.x % p.seq_kv, h_kv = blockIdx.x / p.seq_kv % p.heads_kv, b = blockIdx.x / p.seq_kv / p.heads_kv;
  const int group = p.heads_q / p.heads_kv, t = threadIdx.x;
  __shared__ float key[kMostColumns], value[kMostColumns], probabilities[kThreads], d_s[kThreads];
  for (int c = t; c < kHeadDim; c += kThreads) {
    key[c] = static_cast<float>(at<Element>(k, b, h_kv, j, c));
    value[c] = static_cast<float>(at<Element>(v, b, h_kv, j, c));
  }
  float acc_k[kMostColumns / kThreads] = {}, acc_v[kMostColumns / kThreads] = {};
  for (int h = h_kv * group; h < (h_kv + 1) * group; ++h) {
    const std::int64_t rows = (static_cast<std::int64_t>(b) * p.heads_q + h) * p.seq_q;
    for (int first = 0; first < p.seq_q; first += kThreads) {
      __syncthreads();
      const int i = first + t;
      probabilities[t] = d_s[t] = 0;
      if (i < p.seq_q && sees(p, b, h, i, j)) {
        const float product = dot(key, q, b, h, i);
        probabilities[t] = probability(p, b, h, i, j, product, lse[rows + i]);
        const float share = kept(p, b, h, i, j);
        d_s[t] = probabilities[t] * slope_of(p, product) * (share * dot(value, d_o, b, h, i) - delta[rows + i]);
        probabilities[t] *= share;
      }
      __syncthreads();
      for (int n = 0; n < kThreads && first + n < p.seq_q; ++n) {
        if (probabilities[n] == 0 && d_s[n] == 0) continue;
        for (int c = t; c < kHeadDim; c += kThreads) {
          acc_k[c / kThreads] += d_s[n] * static_cast<float>(at<Element>(q, b, h, first + n, c));
          acc_v[c / kThreads] += probabilities[n] * static_cast<float>(at<Element>(d_o, b, h, first + n, c));
        }
      }
    }
  }
  for (int c = t; c < kHeadDim; c += kThreads) {
    d_k[static_cast<std::int64_t>(blockIdx.x) * kHeadDim + c] = p.scale * acc_k[c / kThreads];
    d_v[static_cast<std::int64_t>(blockIdx.x) * kHeadDim + c] = acc_v[c / kThreads];
  }
}
//% if bias_gradient

// The gradient of the bias, a CTA for each of its rows: sums over the batch entries, heads and queries along which it repeats.
__global__ void naive_dbias(Problem p, int keys, int rows, int heads, View q, View k, View v, View d_o, const float* lse, const float* delta, float* d_bias) {
  const int row = blockIdx.x % rows, head = blockIdx.x / rows % heads, batch = blockIdx.x / rows / heads;
  const int group = p.heads_q / p.heads_kv;
  for (int key = threadIdx.x; key < keys; key += kThreads) {
    float sum = 0;
//% if packed_sequences
    for (int sequence = p.bias.batch == 0 ? 0 : batch; sequence < (p.bias.batch == 0 ? p.sequences : batch + 1); ++sequence)
      for (int h = p.bias.head == 0 ? 0 : head; h < (p.bias.head == 0 ? p.heads_q : head + 1); ++h)
        for (int position = p.bias.row == 0 ? 0 : row; position < (p.bias.row == 0 ? p.seqused_q[sequence] : row + 1); ++position) {
          const int b = 0, i = p.cu_seqlens_q[sequence] + position, j = p.cu_seqlens_kv[sequence] + key;
          if (position >= p.seqused_q[sequence] || key >= p.seqused_kv[sequence] || !sees(p, b, h, i, j)) continue;
//% else
    for (int b = p.bias.batch == 0 ? 0 : batch; b < (p.bias.batch == 0 ? p.batch : batch + 1); ++b)
      for (int h = p.bias.head == 0 ? 0 : head; h < (p.bias.head == 0 ? p.heads_q : head + 1); ++h)
        for (int i = p.bias.row == 0 ? 0 : row; i < (p.bias.row == 0 ? p.seq_q : row + 1); ++i) {
          const int j = key;
          if (!sees(p, b, h, i, j)) continue;
//% end
          float product = 0, change = 0;
          for (int c = 0; c < kHeadDim; ++c) {
            product += static_cast<float>(at<Element>(q, b, h, i, c)) * static_cast<float>(at<Element>(k, b, h / group, j, c));
            change += static_cast<float>(at<Element>(d_o, b, h, i, c)) * static_cast<float>(at<Element>(v, b, h / group, j, c));
          }
          const std::int64_t of_row = (static_cast<std::int64_t>(b) * p.heads_q + h) * p.seq_q + i;
          sum += probability(p, b, h, i, j, product, lse[of_row]) * (kept(p, b, h, i, j) * change - delta[of_row]);
        }
    d_bias[static_cast<std::int64_t>(blockIdx.x) * keys + key] = sum;
  }
}
//% end
//% if sink

// The gradient of a head's sink, and the sum of its terms' sizes, which its error is relative to; a thread for each head.
__global__ void naive_dsinks(Problem p, const float* lse, const float* delta, float* d_sinks, float* sizes) {
  if (threadIdx.x != 0) return;
  double sum = 0, size = 0;
  for (int b = 0; b < p.batch; ++b)
    for (int i = 0; i < p.seq_q; ++i) {
      const std::int64_t row = (static_cast<std::int64_t>(b) * p.heads_q + blockIdx.x) * p.seq_q + i;
      const double term = exp(static_cast<double>(p.sinks[blockIdx.x]) - lse[row]) * delta[row];
      sum -= term;
      size += fabs(term);
    }
  d_sinks[blockIdx.x] = static_cast<float>(sum);
  sizes[blockIdx.x] = static_cast<float>(size);
}
//% end
//% end

// Device memory that frees itself, filled with bits that are NaN.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    CHECK_CUDA(cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)));
    CHECK_CUDA(cudaMemset(data_, 0xff, bytes));
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  template <typename T>
  std::vector<T> copy() const {
    std::vector<T> values(bytes_ / sizeof(T));
    CHECK_CUDA(cudaMemcpy(values.data(), data_, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

enum class Order { as_exported, other_with_gaps };

// A tensor (batch, head, row, column), its memory and what is to be there.
struct Tensor {
  int batch, heads, rows;
  std::int64_t stride_batch, stride_head, stride_row, start;
  std::size_t elements;
  Memory memory;

  static Tensor* make(int batch, int heads, int rows, Order order) {
    const bool exported_by_head = ${is_bhsd}, by_head = exported_by_head != (order == Order::other_with_gaps);
    const int gap = order == Order::other_with_gaps ? ${gap} : 0;
    const std::int64_t inner = kHeadDim + gap;
    const std::int64_t of_row = by_head ? inner : heads * inner, of_head = by_head ? rows * inner : inner;
    const std::int64_t of_batch = static_cast<std::int64_t>(heads) * rows * inner + gap;
    const std::size_t elements = static_cast<std::size_t>(batch * of_batch + gap);
    return new Tensor{batch, heads, rows, of_batch, of_head, of_row, gap, elements, Memory(elements * sizeof(Element))};
  }
  Element* pointer() const { return static_cast<Element*>(memory.data()) + start; }
  View view() const { return {pointer(), stride_batch, stride_head, stride_row}; }
  int all_rows() const { return batch * heads * rows; }
  void fill(std::uint64_t seed) const { fill_normal<<<all_rows(), kThreads>>>(view(), heads, rows, seed); }
};

bool all_ok = true;

void print_line(const char* name, const std::string& what, bool ok, const std::string& text) {
  all_ok = all_ok && ok;
  std::printf("%-5s  %-28s  %-4s  %s\n", ok ? "ok" : "wrong", what.c_str(), name, text.c_str());
}

// Whether a tensor is what the naive kernels say, and what lies between its rows is untouched.
void compare(const char* name, const std::string& what, const Tensor& tensor, const Memory& reference) {
  const std::vector<Element> found = tensor.memory.copy<Element>();
  const std::vector<float> expected = reference.copy<float>();
  std::vector<char> own(found.size(), 0);
  double error = 0, norm = 0;
  std::int64_t index = 0, not_finite = 0;
  std::vector<double> row_errors, row_norms;
  for (int b = 0; b < tensor.batch; ++b)
    for (int h = 0; h < tensor.heads; ++h)
      for (int i = 0; i < tensor.rows; ++i) {
        double row_error = 0, row_norm = 0;
        for (int c = 0; c < kHeadDim; ++c, ++index) {
          const std::size_t place = static_cast<std::size_t>(tensor.start + b * tensor.stride_batch + h * tensor.stride_head + i * tensor.stride_row + c);
          own[place] = 1;
          const double value = static_cast<float>(found[place]), difference = value - expected[static_cast<std::size_t>(index)];
          if (!std::isfinite(value)) ++not_finite;
          row_error += difference * difference;
          row_norm += static_cast<double>(expected[static_cast<std::size_t>(index)]) * expected[static_cast<std::size_t>(index)];
        }
        error += row_error;
        norm += row_norm;
        row_errors.push_back(row_error);
        row_norms.push_back(row_norm);
      }
  std::int64_t touched = 0;
  for (std::size_t place = 0; place < found.size(); ++place) {
    std::uint16_t bits;
    std::memcpy(&bits, &found[place], sizeof(bits));
    touched += !own[place] && bits != 0xffff;
  }
  const double typical = norm / static_cast<double>(row_norms.size());
  double worst = 0;
  for (std::size_t row = 0; row < row_errors.size(); ++row)
    worst = std::max(worst, std::sqrt(row_errors[row] / std::max(std::max(row_norms[row], typical), 1e-30)));
  const double relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  const bool ok = not_finite == 0 && touched == 0 && relative <= kRelativeBound && worst <= kRowFactor * kRelativeBound;
  char text[200];
  std::snprintf(text, sizeof(text), "error %.2e of at most %.2e, worst row %.2e, %lld not finite, %lld written beside it", relative, kRelativeBound,
                worst, static_cast<long long>(not_finite), static_cast<long long>(touched));
  print_line(name, what, ok, text);
}

//% if pairs
// Memory of a tensor of pairs: its rows, and strides in elements.
struct Pairs {
  int batch, heads, rows;  // 1 along which it repeats
  std::int64_t row_stride;
  Memory memory;

  // keys: between rows, of those that a call has.
  Pairs(const ${name}_call& call, bool of_batch, bool of_heads, bool of_rows, std::int64_t keys, int bytes)
      : batch(of_batch ? static_cast<int>(call.batch) : 1),
        heads(of_heads ? static_cast<int>(call.heads_q) : 1),
        rows(of_rows ? static_cast<int>(call.${pair_queries}) : 1),
        row_stride(keys),
        memory(static_cast<std::size_t>(all_rows()) * static_cast<std::size_t>(keys * bytes)) {}
  std::int64_t all_rows() const { return static_cast<std::int64_t>(batch) * heads * rows; }
  PairView view(bool of_batch, bool of_heads, bool of_rows) const {
    return {memory.data(), of_batch ? heads * rows * row_stride : 0, of_heads ? rows * row_stride : 0, of_rows ? row_stride : 0};
  }
};

//% end
//% if bias_gradient
void compare_bias(const std::string& what, const Pairs& found, std::int64_t keys, const Memory& reference) {
  const std::vector<${bias_element}> values = found.memory.copy<${bias_element}>();
  const std::vector<float> expected = reference.copy<float>();
  double error = 0, norm = 0;
  std::int64_t not_finite = 0;
  for (std::int64_t row = 0; row < found.all_rows(); ++row)
    for (std::int64_t j = 0; j < keys; ++j) {
      const double value = static_cast<float>(values[static_cast<std::size_t>(row * found.row_stride + j)]), other = expected[static_cast<std::size_t>(row * keys + j)];
      if (!std::isfinite(value)) ++not_finite;
      error += (value - other) * (value - other);
      norm += other * other;
    }
  const double relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  char text[120];
  std::snprintf(text, sizeof(text), "error %.2e of at most %.2e, %lld not finite", relative, kRelativeBound, static_cast<long long>(not_finite));
  print_line("dbias", what, not_finite == 0 && relative <= kRelativeBound, text);
}

//% end
//% if forward
void compare_lse(const std::string& what, const Memory& found_rows, const Memory& reference) {
  const std::vector<float> found = found_rows.copy<float>(), expected = reference.copy<float>();
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;  // also where both are -infinity
    const double difference = std::fabs(static_cast<double>(found[i]) - expected[i]);
    worst = std::isfinite(difference) ? std::max(worst, difference) : INFINITY;
  }
  char text[100];
  std::snprintf(text, sizeof(text), "error %.2e of at most %.2e", worst, kLseBound);
  print_line("lse", what, worst <= kLseBound, text);
}

//% end
//% if sink_gradient
void compare_sinks(const std::string& what, const Memory& found_heads, const Memory& reference, const Memory& sizes) {
  const std::vector<float> found = found_heads.copy<float>(), expected = reference.copy<float>(), size = sizes.copy<float>();
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = std::fabs(static_cast<double>(found[i]) - expected[i]) / std::max(static_cast<double>(size[i]), 1e-30);
    worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
  }
  char text[100];
  std::snprintf(text, sizeof(text), "error %.2e of at most %.2e of its terms", worst, kSinkBound);
  print_line("dsink", what, worst <= kSinkBound, text);
}

//% end
std::int64_t rounded(std::int64_t length) { return std::max<std::int64_t>(kLengthStep, length / kLengthStep * kLengthStep); }

// The mask of a call of other lengths: it keeps its distance from the diagonal that ends at the last key.
void move_mask(const ${name}_call& exported, ${name}_call* call) {
  (void)exported;
  (void)call;
//% if hides_pairs
  const std::int64_t by = (call->seq_kv - call->seq_q) - (exported.seq_kv - exported.seq_q);
  if (call->mask_offset < ${name}_open) call->mask_offset += by;
//% end
//% if hides_first_keys
  call->first_offset += by;
//% end
}

void check(const std::string& what, ${name}_call call, Order order) {
//% if dropout
  // Where tensors are packed a seed and an offset in device memory, else numbers of the call.
  const Memory state(2 * sizeof(std::int64_t));
  const std::int64_t seed_and_offset[] = {0x123456789abcdefll, 0x42ll << 32};
  CHECK_CUDA(cudaMemcpy(state.data(), seed_and_offset, sizeof(seed_and_offset), cudaMemcpyHostToDevice));
  const bool in_memory = order == Order::as_exported;
  call.dropout_state = in_memory ? static_cast<const std::int64_t*>(state.data()) : nullptr;
  call.dropout_seed = 77;
  call.dropout_offset = 5;
//% end
//% if alibi
  const Memory slopes(static_cast<std::size_t>(call.batch * call.heads_q) * sizeof(float));
  fill_slopes<<<static_cast<int>(call.batch * call.heads_q), kThreads>>>(slopes.floats(), static_cast<int>(call.heads_q));
  call.alibi_slopes = slopes.floats();
  call.alibi_slopes_stride_batch = call.heads_q;
  call.alibi_slopes_stride_head = 1;
//% end
//% if sink
  const Memory sinks(static_cast<std::size_t>(call.heads_q) * sizeof(float));
  fill_sinks<<<static_cast<int>(call.heads_q), kThreads>>>(sinks.floats(), logf(static_cast<float>(call.seq_kv)), 6);
  call.sinks = sinks.floats();
//% end
//% if used_lengths
  const auto on_device = [](const Memory& memory, const std::vector<int>& numbers) {
    CHECK_CUDA(cudaMemcpy(memory.data(), numbers.data(), numbers.size() * sizeof(int), cudaMemcpyHostToDevice));
    return static_cast<const int*>(memory.data());
  };
//% if packed_sequences
  // Some sequences have no rows, every other one uses all of its rows, and the last rows are in none.
  const auto begins = [&](std::int64_t rows) {
    std::vector<int> of;
    for (std::int64_t b = 0; b <= call.batch; ++b) of.push_back(static_cast<int>(rows * (b - (b % 4 == 3)) / (call.batch + 1)));
    return of;
  };
  const auto lengths = [&](std::int64_t rows, std::int64_t most) {
    const std::vector<int> of = begins(rows);
    std::vector<int> used;
    for (std::size_t b = 0; b + 1 < of.size(); ++b)
      used.push_back(std::min(static_cast<int>(most), b % 2 == 1 ? of[b + 1] - of[b] : (3 * (of[b + 1] - of[b]) + 3) / 4));
    return used;
  };
  const std::size_t begin_bytes = static_cast<std::size_t>(call.batch + 1) * sizeof(int);
  const Memory begins_q(begin_bytes), begins_kv(begin_bytes);
  call.cu_seqlens_q = on_device(begins_q, begins(call.seq_q));
  call.cu_seqlens_kv = on_device(begins_kv, begins(call.seq_kv));
  const int *const first_queries = call.cu_seqlens_q, *const first_keys = call.cu_seqlens_kv;
//% else
  const auto lengths = [&](std::int64_t rows, std::int64_t) {
    std::vector<int> used;
    for (std::int64_t b = 0; b < call.batch; ++b) used.push_back(static_cast<int>(b % 4 == 3 ? 0 : b % 4 == 2 ? rows : (rows * (2 + b % 4) + 3) / 4));
    return used;
  };
  const int *const first_queries = nullptr, *const first_keys = nullptr;
//% end
  const int sequences = static_cast<int>(call.batch);
  const Memory used_q(static_cast<std::size_t>(call.batch) * sizeof(int)), used_kv(static_cast<std::size_t>(call.batch) * sizeof(int));
  call.seqused_q = on_device(used_q, lengths(call.seq_q, call.${pair_queries}));
  call.seqused_kv = on_device(used_kv, lengths(call.seq_kv, call.${pair_keys}));
//% end
//% for test_pairs
  // Rows with a gap start where no tensor map can have them.
  const bool ${test_pairs.name}_of_batch = call.${test_pairs.name}_stride_batch != 0, ${test_pairs.name}_of_heads = call.${test_pairs.name}_stride_head != 0, ${test_pairs.name}_of_rows = call.${test_pairs.name}_stride_row != 0;
  const Pairs ${test_pairs.name}(call, ${test_pairs.name}_of_batch, ${test_pairs.name}_of_heads, ${test_pairs.name}_of_rows, call.${pair_keys} + (order == Order::other_with_gaps ? 3 : 0), ${test_pairs.bytes});
  const PairView ${test_pairs.name}_view = ${test_pairs.name}.view(${test_pairs.name}_of_batch, ${test_pairs.name}_of_heads, ${test_pairs.name}_of_rows);
  call.${test_pairs.name} = ${test_pairs.name}.memory.data();
  call.${test_pairs.name}_stride_batch = ${test_pairs.name}_view.batch;
  call.${test_pairs.name}_stride_head = ${test_pairs.name}_view.head;
  call.${test_pairs.name}_stride_row = ${test_pairs.name}_view.row;
//% end
//% if bias
  fill_bias<<<static_cast<int>(bias.all_rows()), kThreads>>>(bias.memory.data(), static_cast<int>(call.${pair_keys}), bias.row_stride, 7);
//% end
//% if attention_mask
  fill_mask<<<static_cast<int>(attention_mask.all_rows()), kThreads>>>(attention_mask.memory.data(), attention_mask.rows, static_cast<int>(call.${pair_keys}), attention_mask.row_stride, 8);
//% end
  const Problem problem = {static_cast<int>(${tensor_batch}), static_cast<int>(call.heads_q), static_cast<int>(call.heads_kv), static_cast<int>(call.seq_q),
                           static_cast<int>(call.seq_kv), call.softmax_scale, ${first_of_call}, ${last_of_call}${cap_of_call}${dropout_of_call}${slopes_of_call}${sinks_of_call}${lengths_of_call}${bias_of_call}${mask_of_call}};
  const auto of_queries = [&] { return Tensor::make(problem.batch, problem.heads_q, problem.seq_q, order); };
  const auto of_keys = [&] { return Tensor::make(problem.batch, problem.heads_kv, problem.seq_kv, order); };
//% for test_tensors
  const Tensor* ${test_tensors.name} = ${test_tensors.make}();
  call.${test_tensors.name} = ${test_tensors.name}->pointer();
  call.${test_tensors.name}_stride_batch = ${test_tensors.name}->stride_batch;
  call.${test_tensors.name}_stride_head = ${test_tensors.name}->stride_head;
  call.${test_tensors.name}_stride_row = ${test_tensors.name}->stride_row;
//% end
  const std::size_t queries = static_cast<std::size_t>(q->all_rows()), row_bytes = kHeadDim * sizeof(float);
  const int query_rows = q->all_rows();
  q->fill(1);
  k->fill(2);
  v->fill(3);
//% if used_lengths
  spoil<<<query_rows, kThreads>>>(q->view(), problem.heads_q, problem.seq_q, call.seqused_q, first_queries, sequences);
  for (const Tensor* tensor : {k, v}) spoil<<<tensor->all_rows(), kThreads>>>(tensor->view(), problem.heads_kv, problem.seq_kv, call.seqused_kv, first_keys, sequences);
//% end
  const Memory reference_o(queries * row_bytes), reference_lse(queries * sizeof(float));
  naive_forward<<<query_rows, kThreads>>>(problem, q->view(), k->view(), v->view(), reference_o.floats(), reference_lse.floats());
//% if forward
  const Memory lse(queries * sizeof(float));
  call.lse = lse.floats();
//% else
  round_rows<<<query_rows, kThreads>>>(reference_o.floats(), o->view(), problem.heads_q, problem.seq_q);
  d_o->fill(4);
//% if used_lengths
  spoil<<<query_rows, kThreads>>>(d_o->view(), problem.heads_q, problem.seq_q, call.seqused_q, first_queries, sequences);
//% end
  const Memory d_lse(queries * sizeof(float)), delta(queries * sizeof(float));
  fill_rows<<<query_rows, kThreads>>>(d_lse.floats(), 5);
  call.lse = reference_lse.floats();
  call.d_lse = order == Order::other_with_gaps ? d_lse.floats() : nullptr;
  const std::size_t keys = static_cast<std::size_t>(k->all_rows());
  const Memory reference_dq(queries * row_bytes), reference_dk(keys * row_bytes), reference_dv(keys * row_bytes);
  naive_delta<<<query_rows, kThreads>>>(problem, o->view(), d_o->view(), call.d_lse, delta.floats());
  naive_dq<<<query_rows, kThreads>>>(problem, q->view(), k->view(), v->view(), d_o->view(), call.lse, delta.floats(), reference_dq.floats());
  naive_dkdv<<<k->all_rows(), kThreads>>>(problem, q->view(), k->view(), v->view(), d_o->view(), call.lse, delta.floats(), reference_dk.floats(),
                                          reference_dv.floats());
//% if bias_gradient
  const Memory reference_dbias(static_cast<std::size_t>(bias.all_rows() * call.${pair_keys}) * sizeof(float));
  naive_dbias<<<static_cast<int>(bias.all_rows()), kThreads>>>(problem, static_cast<int>(call.${pair_keys}), bias.rows, bias.heads, q->view(), k->view(), v->view(), d_o->view(), call.lse,
                                                               delta.floats(), reference_dbias.floats());
//% end
//% if sink
  const Memory d_sinks(static_cast<std::size_t>(problem.heads_q) * sizeof(float));
  const Memory reference_dsinks(static_cast<std::size_t>(problem.heads_q) * sizeof(float)), sink_sizes(static_cast<std::size_t>(problem.heads_q) * sizeof(float));
  naive_dsinks<<<problem.heads_q, kThreads>>>(problem, call.lse, delta.floats(), reference_dsinks.floats(), sink_sizes.floats());
  call.d_sinks = d_sinks.floats();
//% end
//% end
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());

  const Memory workspace(${name}_workspace_bytes(&call));
  call.workspace = workspace.data();
  call.workspace_bytes = ${name}_workspace_bytes(&call);
  const cudaError_t error = ${name}(&call, nullptr);
  if (error != cudaSuccess) {
    std::printf("wrong  %s: %s\n", what.c_str(), ${name}_message());
    std::exit(error == cudaErrorNoKernelImageForDevice ? 2 : 1);
  }
  CHECK_CUDA(cudaDeviceSynchronize());
//% if forward
  compare("o", what, *o, reference_o);
  compare_lse(what, lse, reference_lse);
//% else
  compare("dq", what, *d_q, reference_dq);
  compare("dk", what, *d_k, reference_dk);
  compare("dv", what, *d_v, reference_dv);
//% if bias_gradient
  compare_bias(what, d_bias, call.${pair_keys}, reference_dbias);
//% end
//% if sink
  compare_sinks(what, d_sinks, reference_dsinks, sink_sizes);
//% end
//% end
  // A workspace that is not new, and a call that is wrong.
  if (order == Order::as_exported) {
//% for written
    const std::vector<std::uint16_t> first_${written.name} = ${written.name}->memory.copy<std::uint16_t>();
//% end
    CHECK_CUDA(cudaMemset(workspace.data(), 0xff, call.workspace_bytes));
    CHECK_CUDA(${name}(&call, nullptr));
    CHECK_CUDA(cudaDeviceSynchronize());
//% for written
    if (${written.ordered}) print_line("${written.name}", what, first_${written.name} == ${written.name}->memory.copy<std::uint16_t>(), "the same bits in a second call");
//% end
    call.q = nullptr;
    print_line("", what, ${name}(&call, nullptr) == cudaErrorInvalidValue && std::strstr(${name}_message(), "q is null") != nullptr, "a null pointer is refused");
  }
//% for test_tensors
  delete ${test_tensors.name};
//% end
}

}  // namespace

int main(int argc, char** argv) {
  const bool full = argc > 1 && std::strcmp(argv[1], "--full") == 0;
  if (argc > 2 || (argc > 1 && !full)) {
    std::printf("usage: test [--full]\n");
    return 2;
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no GPU: nothing was checked\n");
    return 2;
  }
#ifdef ${name}_from_cubin
  std::FILE* file = std::fopen("kernel.cubin", "rb");
  std::vector<char> cubin;
  if (file != nullptr) {
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) cubin.push_back(static_cast<char>(c));
    std::fclose(file);
  }
  if (cubin.empty()) {
    std::printf("kernel.cubin is not in this folder: nothing was checked\n");
    return 2;
  }
  if (${name}_load(cubin.data()) != cudaSuccess) {
    std::printf("wrong  %s\n", ${name}_message());
    return 1;
  }
#endif
  ${name}_call exported;
  ${name}_problem(&exported);
  const std::int64_t group = exported.heads_q / exported.heads_kv;
  const auto sized = [&](std::int64_t batch, std::int64_t heads_kv, std::int64_t seq_q, std::int64_t seq_kv) {
    ${name}_call call = exported;
    call.batch = batch;
    call.heads_kv = heads_kv;
    call.heads_q = heads_kv * group;
    call.seq_q = seq_q;
    call.seq_kv = seq_kv;
//% if longest_sequence
    call.max_seq_q = std::min(call.max_seq_q, seq_q);
    call.max_seq_kv = std::min(call.max_seq_kv, seq_kv);
//% end
    move_mask(exported, &call);
    ${name}_pack(&call);
    return call;
  };

  // The exported problem, within some milliseconds of the naive kernels.
  constexpr std::int64_t kMostPairs = std::int64_t{1} << 26;
  std::int64_t batch = std::min<std::int64_t>(exported.batch, 2), heads = std::min<std::int64_t>(exported.heads_kv, 2);
  std::int64_t seq_q = exported.seq_q, seq_kv = exported.seq_kv;
  while (batch * heads * group * seq_q * seq_kv > kMostPairs && std::max(seq_q, seq_kv) > 2 * kLengthStep)
    (seq_q > seq_kv ? seq_q : seq_kv) = rounded(std::max(seq_q, seq_kv) / 2);
  check("exported, " + std::to_string(seq_q) + " x " + std::to_string(seq_kv), sized(batch, heads, seq_q, seq_kv), Order::as_exported);

  // Many short tiles: more than a GPU holds CTAs at once.
  const std::int64_t short_q = std::min(seq_q, rounded(512)), short_kv = std::min(seq_kv, rounded(512));
  check("many tiles", sized(std::max<std::int64_t>(1, 128 / group), 2, short_q, short_kv), Order::as_exported);

  // Lengths that fill no tile, where the kernels take such; some queries see no key where the mask says so.
  const bool any_length = kLengthStep == 1;
  check(any_length ? "ragged, gaps" : "gaps", sized(2, 3, any_length ? 333 : rounded(768), any_length ? 209 : rounded(256)), Order::other_with_gaps);
  check(any_length ? "ragged, more keys" : "more keys", sized(1, 2, any_length ? 77 : rounded(256), any_length ? 1111 : rounded(1024)),
        Order::as_exported);
  if (full) check("exported, whole", exported, Order::as_exported);
  std::printf("%s\n", all_ok ? "ok" : "WRONG");
  return all_ok ? 0 : 1;
}
