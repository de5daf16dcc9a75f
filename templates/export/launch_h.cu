/* ${title}
   ${licence}

   ${problem}
   ${config}
   ${gpu}

   README.md says how to build and call this. C and C++ take this header. */
#ifndef ${name}_launch_h
#define ${name}_launch_h

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A side of the mask that hides nothing has this offset, or its negative. */
#define ${name}_open ((int64_t)1 << 40)

/* One call. ${name}_problem() fills it but for the pointers.

   A tensor lies in device memory. Element (b, h, i, c) is b * stride_batch + h * stride_head + i * stride_row + c elements behind the pointer: of
   batch entry b, head h, row i, column c. There are ${head_dim} columns of ${dtype}, which follow each other. ${alignment_note} */
typedef struct ${name}_call {
  int64_t batch;    /* ${batch_note} */
  int64_t heads_q;  /* of q, o and their gradients */
  int64_t heads_kv; /* of k, v and their gradients: a divisor of heads_q; query head h reads head h / (heads_q / heads_kv) */
  int64_t seq_q;    /* rows of q, o and their gradients */
  int64_t seq_kv;   /* rows of k, v and their gradients */
  float softmax_scale; /* multiplies the scores q k^T: positive */
//% if softcap
  float softcap;       /* caps what that gives, x: softcap * tanh(x / softcap); positive */
//% end
//% if dropout
  float dropout;       /* the probability with which elements of P are dropped; positive and less than 1 */
  uint64_t dropout_seed;   /* what is dropped follows from these two, the batch entry (or sequence), the query head, the query and the key alone. Backward */
  uint64_t dropout_offset; /* takes those of forward. With a dropout_state its seed counts, and this offset is added to its own */
//% end
//% if hides_first_keys
  int64_t first_offset; /* query i sees the keys j with i + first_offset <= j ... */
  int64_t mask_offset;  /* ... and j <= i + mask_offset */
//% end
//% if is_causal
  int64_t mask_offset; /* query i sees the keys j <= i + mask_offset; seq_kv - seq_q lets the last query see the last key */
//% end

//% if longest_sequence
  int64_t max_seq_q;  /* rows of tensors of pairs: the queries that a sequence has at most. What it has more does not count */
  int64_t max_seq_kv; /* their columns: the same of its keys */
//% end
//% if pairs
  /* A tensor of pairs has a column for each key. It repeats along a dimension whose stride is 0. It may start at any element and have any strides; copies
     are faster where it starts, and each of its rows, at a multiple of 16 bytes. */
//% end
//% for header_tensors
  ${header_tensors.type}${header_tensors.name}; /* ${header_tensors.note} */
  int64_t ${header_tensors.strides};
//% end
//% if used_lengths
//% if packed_sequences
  /* Sequence b is rows cu_seqlens_q[b] of q up to, and without, cu_seqlens_q[b + 1], and rows cu_seqlens_kv[b] to cu_seqlens_kv[b + 1] of k and v; of them
     the first seqused_q[b] and seqused_kv[b] count. The first one begins at row 0. What is behind those that count, or behind the last sequence, reaches no
     result: there O and all gradients are 0, and LSE is that of a row without keys. ${diagonals_words} */
//% else
  /* Sequence b is the first seqused_q[b] rows of q and seqused_kv[b] rows of k and v in batch entry b; what lies behind reaches no result. There O and all
     gradients are 0, and LSE is that of a row without keys. ${diagonals_words} */
//% end
//% end
//% for header_rows
  ${header_rows.type}${header_rows.name}; /* ${header_rows.note} */
//% end

  void* workspace; /* device memory that starts at a multiple of 256 bytes; nothing else may use it until the call has ended on the stream */
  size_t workspace_bytes; /* at least ${name}_workspace_bytes() */
} ${name}_call;

/* The sizes, scale and mask of the problem that this was exported for, and strides of packed tensors. All pointers are null. */
void ${name}_problem(${name}_call* call);

/* The strides of tensors of the call's sizes that are packed as (${layout_words}). */
void ${name}_pack(${name}_call* call);

/* The bytes of workspace that a call of these sizes needs; 0 if it needs none, or if the sizes are refused. */
size_t ${name}_workspace_bytes(const ${name}_call* call);

/* ${formula}
   Asynchronous on the stream: it enqueues ${launch_words} and returns. Allocates nothing, keeps nothing, may be called from several threads and
   while the stream is being captured into a graph. Returns cudaSuccess, or an error that ${name}_message() explains; then nothing was enqueued,
   or only a part of the launches. */
cudaError_t ${name}(const ${name}_call* call, cudaStream_t stream);

/* What was wrong with this thread's last call; "" if nothing was. */
const char* ${name}_message(void);

/* Only with -D${name}_from_cubin, where the kernels are kernel.cubin's and kernel.cu is not compiled: loads them from the bytes of that file,
   which may be freed afterwards. Once in a process, before the first call. */
cudaError_t ${name}_load(const void* cubin);

#ifdef __cplusplus
}
#endif

#endif
