#ifndef ATTUNE_PEER_LIBRARY_H
#define ATTUNE_PEER_LIBRARY_H

/* What a library exports so that compare_with_torch.py times it beside Attune:
 *
 *   python3 compare_with_torch.py --peer-library fa3=/path/libfa3.so
 *
 * NAME=PATH: the functions of the library at PATH begin with NAME_, here fa3_args_size, fa3_plan and so on. Nothing
 * else is asked of it; a hundred lines of C++ around a library's own launch functions will do. For each problem there
 * is one peer_call, whose fields are filled in before the function that is said to read them; a field that a library
 * does not need it leaves alone. All pointers are to device memory. All functions return 0, or anything else if the
 * library does not serve the problem: the table then shows a dash. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Strides are in elements: of the batch, the row, the head. The last dimension is contiguous. */
typedef struct peer_call {
  /* The problem, filled in before NAME_plan. */
  void *q, *k, *v, *o; /* o is written by NAME_fwd, read by NAME_bwd */
  float* lse;          /* (batch, heads_q, seq_q), contiguous, natural logarithm: the same */
  int64_t q_strides[3], k_strides[3], v_strides[3], o_strides[3];
  int64_t batch, heads_q, heads_kv, seq_q, seq_kv, head_dim;
  int64_t is_fp16;   /* else bf16 */
  int64_t is_causal; /* aligned bottom right: query i sees key j iff j <= i + seq_kv - seq_q */
  double softmax_scale;
  double softcap; /* scores are softcap * tanh(softmax_scale * q k^T / softcap); 0: they are not capped */

  /* Scratch of NAME_fwd: 4 counters that are 0 before the first call; where `splits` is above 1, splits * batch *
   * heads_q * seq_q * head_dim and splits * batch * heads_q * seq_q floats. */
  int32_t* counters;
  float *o_partials, *lse_partials;

  /* NAME_plan's answer: into how many parts it splits the keys (at most 1: none), and whether it packs the query heads
   * that share a key/value head into one tile. The second is only recorded. */
  int64_t splits, packs_heads;

  /* Backward, filled in before NAME_bwd: gradients and scratch of as many elements as NAME_bwd_sizes says. */
  void *d_o, *d_q, *d_k, *d_v;
  int64_t d_o_strides[3], d_q_strides[3], d_k_strides[3], d_v_strides[3];
  float *dq_sums, *dk_sums, *dv_sums, *delta, *lse_log2;
  int32_t* dq_counters;

  int64_t sm_count; /* of the device; filled in before NAME_plan */
} peer_call;

/* sizeof(peer_call), by which a library that was built with another header is refused. */
int NAME_args_size(void);

/* Fills in `splits` and `packs_heads`. */
int NAME_plan(peer_call* call);

/* O and LSE, asynchronous on `stream`, a cudaStream_t. */
int NAME_fwd(peer_call* call, void* stream);

/* For --pass backward: elements of lse_log2 and delta each (elements[0]), of dq_sums (1), of dk_sums and dv_sums each
 * (2) and of dq_counters (3). Any may be 0. The scratch is not cleared. */
int NAME_bwd_sizes(peer_call* call, int64_t elements[4]);

/* dQ, dK and dV, asynchronous on `stream`, from dO, O and LSE. */
int NAME_bwd(peer_call* call, void* stream);

#ifdef __cplusplus
}
#endif

#endif
