#ifndef ATTUNE_H
#define ATTUNE_H

/* Attune's C interface: attention on raw device pointers.
 *
 *   attune_problem problem = {sizeof problem};
 *   problem.dtype = ATTUNE_BF16;
 *   problem.batch = 2;
 *   problem.heads_q = problem.heads_kv = 16;
 *   problem.seq_q = problem.seq_kv = 4096;
 *   problem.head_dim = 128;
 *   problem.mask = ATTUNE_MASK_CAUSAL;
 *   attune_operand operands[] = {{ATTUNE_Q, 0, q}, {ATTUNE_K, 0, k}, {ATTUNE_V, 0, v}, {ATTUNE_O, 0, o}};
 *   size_t bytes;
 *   attune_workspace_bytes(&problem, &bytes);           // that start at a multiple of 256
 *   if (attune_forward(&problem, operands, 4, workspace, bytes, stream) != ATTUNE_OK) puts(attune_last_error());
 *
 * Backward takes the same problem and operands (O and LSE as forward wrote them) and the gradients, in one list:
 *
 *   problem.pass = ATTUNE_BACKWARD;                     // whose workspace is asked for
 *   attune_workspace_bytes(&problem, &bytes);
 *   attune_backward(&problem, operands, count, workspace, bytes, stream);
 *
 * Every function returns a status and leaves a sentence for attune_last_error(). Nothing throws or ends the process;
 * what the library says beside its answers goes to attune_set_log_callback()'s callback. All functions may be called
 * from any thread, also in a forked child; but where the parent had started CUDA, what needs a GPU is refused with
 * ATTUNE_ERROR_NO_DEVICE and what to do, for CUDA does not work in such a child. A field that is 0 has its default.
 *
 * A problem begins with its size, which says how many fields the caller's header has. A program that was compiled with
 * an older header goes on working with a newer library: fields that it lacks have their defaults. The other way round
 * the call is refused with ATTUNE_ERROR_UNSUPPORTED, and the library must be updated: a library reads no byte beyond
 * the fields that it knows, and so cannot tell whether a newer one asks for something. */

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define ATTUNE_API
#else
#define ATTUNE_API __attribute__((visibility("default")))
#endif

/* The version of this header; attune_version() tells the library's. The number grows with each version and serves
 * comparisons: #if ATTUNE_VERSION_NUMBER >= 10203 asks for 1.2.3 or later. */
#define ATTUNE_VERSION_MAJOR 0
#define ATTUNE_VERSION_MINOR 1
#define ATTUNE_VERSION_PATCH 0
#define ATTUNE_VERSION_NUMBER (ATTUNE_VERSION_MAJOR * 10000 + ATTUNE_VERSION_MINOR * 100 + ATTUNE_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attune_status {
  ATTUNE_OK = 0,
  ATTUNE_ERROR_INVALID_ARGUMENT = -1,  /* the caller's input */
  ATTUNE_ERROR_UNSUPPORTED = -2,       /* a valid request that this build or device cannot serve */
  ATTUNE_ERROR_INFEASIBLE_CONFIG = -3, /* a config that does not fit the problem or the device */
  ATTUNE_ERROR_NO_DEVICE = -4,         /* no GPU, or no such device */
  ATTUNE_ERROR_NVRTC_UNAVAILABLE = -5, /* NVRTC is missing, or newer than the driver allows */
  ATTUNE_ERROR_COMPILE_FAILED = -6,
  ATTUNE_ERROR_DRIVER = -7, /* a CUDA driver call failed */
  ATTUNE_ERROR_IO = -8,
  ATTUNE_ERROR_DATABASE = -9,
  ATTUNE_ERROR_EMULATOR = -10,
  ATTUNE_ERROR_TEMPLATE = -11,
  ATTUNE_ERROR_INTERNAL = -12 /* a fault of Attune, or no memory left on the host */
} attune_status;

enum { ATTUNE_FP16 = 0, ATTUNE_BF16 = 1 };
enum { ATTUNE_FORWARD = 0, ATTUNE_BACKWARD = 1 };
enum { ATTUNE_LAYOUT_BSHD = 0, ATTUNE_LAYOUT_BHSD = 1 };
enum {
  ATTUNE_MASK_NONE = 0,
  ATTUNE_MASK_CAUSAL = 1,          /* query i attends to key j iff j <= i + seq_kv - seq_q: aligned bottom right */
  ATTUNE_MASK_CAUSAL_TOP_LEFT = 2, /* iff j <= i */
  ATTUNE_MASK_CAUSAL_OFFSET = 3,   /* iff j <= i + mask_offset */
  ATTUNE_MASK_WINDOW = 4           /* iff i - window_left <= j - (seq_kv - seq_q) <= i + window_right */
};

/* The dimensions of a tensor with an element for each pair of a query and a key, (batch, heads_q, seq_q, seq_kv): that
 * of keys, which it always has, and the sum of those of others that it has. It repeats along the rest. */
enum { ATTUNE_PAIRS = 1, ATTUNE_PAIRS_BATCH = 2, ATTUNE_PAIRS_HEADS = 4, ATTUNE_PAIRS_QUERIES = 8 };

/* O = softmax(softmax_scale * Q K^T + mask) V,   LSE = ln(sum(exp(softmax_scale * Q K^T + mask)))
 * Backward, of a loss whose gradients with respect to O and LSE are dO and dLSE:
 *   P = exp(softmax_scale * Q K^T + mask - LSE)   dS = P o (dO V^T - rowsum(dO o O) + dLSE)
 *   dV = P^T dO   dQ = softmax_scale * dS K   dK = softmax_scale * dS^T Q
 * With a softcap, softcap * tanh(softmax_scale * Q K^T / softcap) in place of softmax_scale * Q K^T.
 * With ALiBi, a score loses slope(b, h) * |i + seq_kv - seq_q - j| after the softcap and before the mask, of query i
 * and key j; with used lengths by the lengths of its sequence. With a bias it gains the bias's element of the pair
 * there; -inf hides the key. A query whose elements are all the least finite number of fp32 or bf16, so that they leave
 * nothing of its scores, has the mean of its values, and no gradient. With an attention mask a query attends to those
 * keys of the mask's for which its element is not 0. With sinks, exp(sink) of a query's head counts in the
 * sum of exponentials, neither scaled nor capped nor masked, and has no value: a query that sees no key has O = 0 and
 * LSE = sink. Its gradient is -sum(exp(sink - LSE) * (rowsum(dO o O) - dLSE)) over the batch and the queries of its
 * head. With used lengths, sequence b is the first seqused_q[b] queries and seqused_kv[b] keys of its batch entry. What
 * lies behind is read into no result, whatever it holds: queries there see nothing and nobody sees keys there. The
 * diagonals of ATTUNE_MASK_CAUSAL and ATTUNE_MASK_WINDOW end at the last query and the last key of each sequence; those
 * of ATTUNE_MASK_CAUSAL_TOP_LEFT and ATTUNE_MASK_CAUSAL_OFFSET are the same in all. Packed sequences are so, too:
 * sequence b is the rows cu_seqlens_q[b] up to, and without, cu_seqlens_q[b + 1], and keys likewise, of which the first
 * ones count, where used lengths are given. What lies in other sequences is read into no result of one. Rows behind the
 * last sequence are its rows and do not count; those before the first one, which begins at row 0, are not written. LSE
 * is (heads_q, seq_q).
 * With dropout, elements of P are dropped with that probability: forward multiplies V by P o keep / share in place of
 * P, where keep is 1 or 0 for each pair and share is 1 - dropout; LSE does not know of it. Backward has dV = (P o
 * keep)^T dO / share, and keep o dO V^T / share in place of dO V^T. What is dropped follows from the seed, the offset,
 * the batch entry (or sequence), the query head, the query and the key of their sequence alone, so that backward drops
 * what forward has dropped if it is given the same seed and offset; the same numbers drop the same elements in every
 * later version (docs/dropout.md). Query head h reads key/value head h / (heads_q / heads_kv). */
typedef struct attune_problem {
  uint32_t struct_size; /* sizeof(attune_problem) */
  int32_t dtype;        /* of Q, K, V and O, and of their gradients */
  int64_t batch;
  int64_t heads_q;
  int64_t heads_kv; /* divides heads_q; 0: heads_q */
  int64_t seq_q;
  int64_t seq_kv;   /* 0: seq_q */
  int32_t head_dim; /* a multiple of 8 from 8 to 256 */
  int32_t mask;
  int64_t mask_offset; /* for ATTUNE_MASK_CAUSAL_OFFSET */
  float softmax_scale; /* positive; 0: 1/sqrt(head_dim). A double below 7.1e-46 becomes 0 on its way into this field */
  int32_t layout;      /* order of contiguous tensors: for choosing a config only, strides tell where elements are */
  int32_t device; /* 0: the GPU of the calling thread's current CUDA context (the first, if it has none), which must be
                     that GPU's primary context; n: ordinal n - 1, by its primary context */
  int32_t alignment; /* bytes that every row of Q, K, V, O and of their gradients starts at a multiple of: 16 (0: 16),
                        or 2. attune_forward and attune_backward find it from the tensors; attune_workspace_bytes,
                        attune_describe and attune_prepare go by this field */
  int32_t pass;      /* what attune_workspace_bytes, attune_describe and attune_prepare are asked about; the functions
                        that launch know theirs */
  int32_t deterministic; /* 1: backward gives the same bits each time it is given the same inputs (forward always does);
                            0: it may add in any order, which can be faster */
  int64_t
      window_left; /* for ATTUNE_MASK_WINDOW: keys before the diagonal that is aligned bottom right; negative: all */
  int64_t window_right; /* keys behind it; negative: all. A causal window has 0 */
  int32_t invariant;    /* 1: the bits of a row of O and LSE, dQ, dK and dV are the same alone and in a batch, with any
                           number of heads, and, of a query, in a chunk and in the whole sequence; which can be slower */
  float softcap;        /* positive: scaled scores x are capped before the mask, softcap * tanh(x / softcap); 0: not */
  int32_t sink;         /* 1: with ATTUNE_SINKS; 0: without */
  int32_t used_lengths; /* 1: with ATTUNE_SEQUSED_Q and ATTUNE_SEQUSED_KV; 0: without */
  int32_t alibi;        /* 1: with ATTUNE_ALIBI_SLOPES; 0: without */
  int32_t bias;         /* with ATTUNE_BIAS, which has these dimensions: ATTUNE_PAIRS and others; 0: without */
  int32_t bias_fp32;    /* 1: the bias is fp32; 0: it is of `dtype` */
  int32_t attention_mask; /* with ATTUNE_ATTENTION_MASK, as `bias` */
  int32_t bias_gradient;  /* 1: backward writes ATTUNE_D_BIAS; 0: it does not. Forward does not look at it */
  int32_t packed; /* 1: the sequences, `batch` of them, lie one behind the other in tensors of one batch entry, of seq_q
                     and seq_kv rows: with ATTUNE_CU_SEQLENS_Q and ATTUNE_CU_SEQLENS_KV; 0: without */
  int64_t max_seq_q;  /* of packed sequences with a bias or an attention mask, whose rows are the queries of a sequence:
                         how many it has, 0: seq_q. What a sequence has more does not count */
  int64_t max_seq_kv; /* the same of its keys */
  float dropout;      /* the probability with which elements of P are dropped, at least 0 and less than 1; 0: none */
  int32_t reserved;   /* 0 */
  uint64_t dropout_seed;   /* what dropout draws from, where ATTUNE_DROPOUT_STATE is not given; only the functions that
                              launch read both */
  uint64_t dropout_offset; /* counted from that of ATTUNE_DROPOUT_STATE, where it is given */
} attune_problem;

/* (batch, heads, seq, head_dim) in device memory. Strides are in elements and may have any sign and size; the last
 * dimension is contiguous. */
typedef struct attune_tensor {
  void* data;
  int64_t stride_batch;
  int64_t stride_head;
  int64_t stride_row;
} attune_tensor;

/* The tensors of calls. O and LSE are written by forward and read by backward; LSE is fp32 (batch, heads_q, seq_q),
 * contiguous, natural logarithm, and forward does not write it where its data is null. Gradients of a loss have the
 * shape and dtype of what they are the gradient of, and strides of their own. Backward reads dO and dLSE, which is
 * contiguous as LSE is (null: the loss does not depend on LSE), and writes every element of dQ, dK and dV: 0 where a
 * query sees nothing or nobody sees a key. Problems with sinks read them: fp32 (heads_q), contiguous; backward writes
 * their gradient, which is as they are. Its bits are the same for the same inputs, always. Problems with used lengths
 * may read these: int32 (batch), contiguous; a null pointer stands for all rows, a number that is none of 0 to all rows
 * for the nearest of these. Problems with packed sequences read where these begin: int32 (batch + 1), contiguous, which
 * do not fall; any number counts as the nearest row. The host never reads them, so that a graph may be replayed with
 * others. Problems with ALiBi
 * read slopes: fp32 (batch, heads_q) with strides of the batch and the head, of which the first is 0 where all batch
 * entries share them. Slopes have no gradient. Problems with a bias or an attention mask read it: elements of dtype or
 * fp32, or one byte each, those of keys contiguous, with strides of the batch, the head and the row (of queries), of
 * which those are not read along which it repeats. Of packed sequences the batch has an element for each sequence, and
 * rows and elements are its queries and keys, of each sequence the first ones. Backward writes the bias's gradient
 * where the problem asks for it, of its shape and type, summed over what it repeats along; its bits are the same for
 * the same inputs, always. Problems with dropout may read a state: two int64, a seed and an offset (null: those of the
 * problem). The host never reads it, so that a graph may be replayed with another one. */
enum {
  ATTUNE_Q = 0,
  ATTUNE_K = 1,
  ATTUNE_V = 2,
  ATTUNE_O = 3,
  ATTUNE_LSE = 4,
  ATTUNE_D_Q = 5,
  ATTUNE_D_K = 6,
  ATTUNE_D_V = 7,
  ATTUNE_D_O = 8,
  ATTUNE_D_LSE = 9,
  ATTUNE_SINKS = 10,
  ATTUNE_D_SINKS = 11,
  ATTUNE_SEQUSED_Q = 12,
  ATTUNE_SEQUSED_KV = 13,
  ATTUNE_ALIBI_SLOPES = 14,
  ATTUNE_BIAS = 15,
  ATTUNE_ATTENTION_MASK = 16,
  ATTUNE_D_BIAS = 17,
  ATTUNE_CU_SEQLENS_Q = 18,
  ATTUNE_CU_SEQLENS_KV = 19,
  ATTUNE_DROPOUT_STATE = 20
};

/* A tensor of a call, and which it is. A call takes a list of these in any order, and no name twice. One that is left
 * out is as one whose data is null; what a call has no use for is not looked at. What has one number for each row (LSE
 * and its gradient) for each head (sinks and theirs) or for each sequence has no
 * strides. */
typedef struct attune_operand {
  int32_t name;     /* ATTUNE_Q, ... */
  int32_t reserved; /* 0 */
  attune_tensor tensor;
} attune_operand;

/* "0.1.0" */
ATTUNE_API const char* attune_version(void);

/* What went wrong in the calling thread's last call that failed; valid until its next call. Never null. */
ATTUNE_API const char* attune_last_error(void);

typedef enum attune_log_level {
  ATTUNE_LOG_DEBUG = 0,  /* what was looked at and decided, for people who work on Attune */
  ATTUNE_LOG_INFO = 1,   /* what a person may want to know once: a tuned config that was passed over */
  ATTUNE_LOG_WARNING = 2 /* something of the user's is not in order, and what to do: a damaged database, a cache folder
                            that others may write to */
} attune_log_level;

/* Receives one message: a whole sentence or several, UTF-8, without a newline at its end, valid until the callback
 * returns. `level` is an attune_log_level. Called by whichever thread has something to say, by several at once, and in
 * the middle of a call of this library, which waits: a callback may call attune_set_log_callback(), attune_version()
 * and attune_last_error(), and no function that prepares, launches or describes. It must not throw or leave by longjmp.
 */
typedef void (*attune_log_callback)(int32_t level, const char* message, void* user);

/* Sends messages of `least_level` and above to `callback`, with `user`, in the whole process, in place of what was set
 * before. Null restores the beginning: standard error, from the level that $ATTUNE_LOG names (debug, info, warning or
 * off; warning if it is not set); that never fails, and least_level is not read. When the function returns, the
 * callback before it is no longer running and never runs again, so that what its `user` points to may go; only a call
 * from inside a callback does not wait for those under way. Hold no lock that the callback takes. */
ATTUNE_API attune_status attune_set_log_callback(attune_log_callback callback, void* user, int32_t least_level);

/* Attention, asynchronous on `stream` (a CUstream or cudaStream_t; null: the default stream). The first call of a kind
 * of problem picks a config and compiles, later ones only launch. `workspace` holds attune_workspace_bytes() bytes of
 * device memory and starts at a multiple of 256 bytes, as what cudaMalloc returns does. */
ATTUNE_API attune_status attune_forward(const attune_problem* problem, const attune_operand* operands, size_t count,
                                        void* workspace, size_t workspace_bytes, void* stream);

/* dQ, dK and dV, otherwise as attune_forward. Allocates nothing. */
ATTUNE_API attune_status attune_backward(const attune_problem* problem, const attune_operand* operands, size_t count,
                                         void* workspace, size_t workspace_bytes, void* stream);

/* What problem->pass needs at most for a problem of this kind, launched in whatever way, whatever config is picked or
 * given: the same at each call. Forward: a few bytes and, where rows of queries are few, room for the fp32 results of
 * parts of their keys, whatever the length of the keys up to 2^17; longer rows take up to 36 MB more. Backward: dQ in
 * fp32 and a few bytes of each query; dK and dV in fp32, too, where heads share keys, where more than 2^17 queries see
 * a key, or where keys are few. */
ATTUNE_API attune_status attune_workspace_bytes(const attune_problem* problem, size_t* bytes);

/* Why no kernel serves a problem on its device, in a sentence that says what to do, for programs that would call
 * something else then; an empty text if one does. Asks for problem->pass and problem->alignment; compiles nothing. An
 * error is something that keeps the question from being answered: a struct that cannot be read, no GPU.
 * Writes as attune_describe() does. */
ATTUNE_API attune_status attune_unsupported(const attune_problem* problem, char* text, size_t capacity, size_t* bytes);

/* What attune_forward or, by problem->pass, attune_backward would launch, in four lines: config, where it came from
 * ("pack", "exact", "nearest shape", "nearest device", "default"), what that was tuned for or, of a default, what it
 * was preferred to (may be empty), and how it is stale if it is, the command that would tune it for this problem (empty
 * if that was done and is not stale). Compiles.
 * Writes at most `capacity` bytes, terminating 0 included, and to *bytes (if not null) how many the whole text needs.
 */
ATTUNE_API attune_status attune_describe(const attune_problem* problem, char* text, size_t capacity, size_t* bytes);

/* The compiled kernels of one pass for problems of one kind. */
typedef struct attune_prepared attune_prepared;

/* Compiles ahead of the first call: with `config` (such as "sm80 q128 kv64 w4 st2") that one, with null the picked one.
 * A config that does not fit, or needs more than attune_workspace_bytes(), is ATTUNE_ERROR_INFEASIBLE_CONFIG. Needed
 * before a stream is captured into a graph. Threads that prepare different kernels compile side by side. */
ATTUNE_API attune_status attune_prepare(const attune_problem* problem, const char* config, attune_prepared** prepared);

/* Launches it, prepared for ATTUNE_FORWARD, on a problem that differs from the prepared one at most in batch, heads,
 * lengths, scale, offset and layout. A mask that hides nothing is no mask: what was prepared for ATTUNE_MASK_CAUSAL at
 * one query that is aligned bottom right runs no causal problem of several queries. */
ATTUNE_API attune_status attune_launch(const attune_prepared* prepared, const attune_problem* problem,
                                       const attune_operand* operands, size_t count, void* workspace,
                                       size_t workspace_bytes, void* stream);

/* The same, prepared for ATTUNE_BACKWARD. */
ATTUNE_API attune_status attune_launch_backward(const attune_prepared* prepared, const attune_problem* problem,
                                                const attune_operand* operands, size_t count, void* workspace,
                                                size_t workspace_bytes, void* stream);

/* No launch of it may be under way. Null is allowed. */
ATTUNE_API void attune_release(attune_prepared* prepared);

/* Serves calls of this process from a pack that `attune pack` made, on every GPU of the model that it is for: its
 * kernels need no NVRTC and no cache folder, and its picks go before those of the tuning databases. Needs no GPU. Call
 * it before the first call: what is prepared already stays. Several packs may be loaded, also from several threads; the
 * first one that has a problem answers, those of $ATTUNE_PACK before all others, and the same pack twice counts once.
 * They stay loaded until the process ends, and no file of them is read again.
 *
 * A file that is missing, damaged, no pack, or made by another version is refused with what to do, and so is any later
 * call where $ATTUNE_PACK names one. Calls on a GPU that no loaded pack is for are refused with
 * ATTUNE_ERROR_UNSUPPORTED. What no pack has is picked from the databases and compiled by NVRTC, unless
 * $ATTUNE_FROZEN is 1: then it is ATTUNE_ERROR_UNSUPPORTED, and the message names the problem. */
ATTUNE_API attune_status attune_load_pack(const char* path);

/* What there is on this machine for calls, for a person who asks why one fails or is slow: lines of a name, a tab, and
 * what was found, or "none: " and why. The names are those of the GPUs ("cuda:0", or "GPU" where there is none),
 * "driver", "NVRTC", "presets" (tuned results that were shipped), "database" (those of this user) and "cache" (of
 * compiled kernels); there may be others later. Takes milliseconds, and changes nothing. Writes at most `capacity`
 * bytes, terminating 0 included, and to *bytes (if not null) how many the whole text needs. */
ATTUNE_API attune_status attune_machine(char* text, size_t capacity, size_t* bytes);

/* 32 hexadecimal digits that are equal on processes that pick equally on such a device: compare them between ranks once
 * the packs are loaded. docs/packs.md lists what goes in. `device` is as attune_problem has it. Reads the tuning
 * databases, which takes milliseconds. Writes at most `capacity` bytes, terminating 0 included, and to *bytes (if not
 * null) how many the whole text needs: 33. */
ATTUNE_API attune_status attune_digest(int32_t device, char* text, size_t capacity, size_t* bytes);

#ifdef __cplusplus
}
#endif

#endif
