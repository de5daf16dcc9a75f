#pragma once

#include <compare>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace attune {

enum class Pass { forward, backward };
enum class DataType { fp16, bf16 };
/// none: every query attends to every key. causal: query i attends to key j iff j <= i + mask_offset. window: iff
/// i + first_offset <= j <= i + mask_offset.
enum class MaskKind { none, causal, window };
/// Order of the dimensions of packed tensors: (batch, seq, head, dim) or (batch, head, seq, dim).
enum class Layout { bshd, bhsd };
/// How many rows the sequences of a batch have: all that the tensors have, or as many of the first ones as a call says
/// for each, in the device's memory. Then the diagonals of the mask, which are named for sequences of all rows, move
/// with the ends of each (used: what is aligned bottom right is so in each sequence), or stay (used_top_left).
enum class Lengths { whole, used, used_top_left };
/// How the rows of packed sequences are shared out among them where a problem is timed and a call does not say it:
/// their logarithms lie evenly, the longest 64 times as long as the shortest; equally; or one has half of all rows. No
/// kernel knows it: it tells apart what configs were measured with.
enum class LengthDistribution { log_uniform, equal, one_long };
inline constexpr std::string_view kLengthDistributionNames[] = {"loguniform", "equal", "one-long"};
/// The distribution of a name; nothing for another word.
constexpr std::optional<LengthDistribution> length_distribution(std::string_view name) {
  for (int at = 0; at < static_cast<int>(std::size(kLengthDistributionNames)); ++at)
    if (kLengthDistributionNames[at] == name) return static_cast<LengthDistribution>(at);
  return std::nullopt;
}
/// A tensor with an element for each pair, (B, Hq, Sq, Skv), by the dimensions that it has: it repeats along the
/// others. It always has that of keys, in which elements follow each other.
enum class PairTensor { none, k, qk, hk, hqk, bk, bqk, bhk, bhqk };

struct PairDimensions {
  bool batch, heads, queries;
};
/// Those of a tensor of pairs, beside that of keys; none of PairTensor::none.
constexpr PairDimensions dimensions_of(PairTensor tensor) {
  const int bits = tensor == PairTensor::none ? 0 : static_cast<int>(tensor) - 1;
  return {(bits & 4) != 0, (bits & 2) != 0, (bits & 1) != 0};
}
constexpr PairTensor pair_tensor(PairDimensions has) {
  return static_cast<PairTensor>(1 + 4 * has.batch + 2 * has.heads + has.queries);
}

/// The question that a kernel answers. A plain value: comparable, hashable, with a canonical text form that
/// round-trips. It holds no tuning choice and no fact about a device.
///
///   O = softmax(scale * Q K^T + mask) V,   LSE = ln(sum(exp(scale * Q K^T + mask)))
///   With a softcap, softcap * tanh(scale * Q K^T / softcap) in place of scale * Q K^T.
///   With ALiBi, slope(b, h) * |i + Skv - Sq - j| less for query i and key j, before the mask and after the softcap.
///   With a bias, bias(b, h, i, j) more, there, too: -inf hides the key from the query.
///   With an attention mask, query i attends to key j of those that the mask leaves where attention_mask(b, h, i, j) is
///   true.
///   With sinks, a logit of each query head counts in the softmax's sum and nowhere else, as that of a key whose value
///   is 0: l = exp(sink) + sum(exp(...)), O = sum(exp(...) V) / l, LSE = ln(l). It is neither scaled nor capped nor
///   masked. Q: (B, Hq, Sq, D)   K, V: (B, Hkv, Skv, D)   O: (B, Hq, Sq, D)   LSE: (B, Hq, Sq) fp32
///   With dropout, O = (keep o softmax(...)) V / share: keep is 1 or 0 for each pair, as a seed and an offset say, and
///   share the probability of 1, 1 - dropout. LSE does not know of it.
/// Backward, from the gradients dO and (optionally) dLSE of a loss and the forward's O and LSE:
///   P = exp(scale * Q K^T - LSE)   delta = rowsum(dO o O) - dLSE   dS = P o (dO V^T - delta)
///   dV = P^T dO   dQ = scale * dS K   dK = scale * dS^T Q   with shape and dtype of V, Q, K
///   dbias = P o (dO V^T - delta), summed over the dimensions along which it repeats
///   dsink = -sum(exp(sink - LSE) * delta) over the batch and the queries of its head
///   With dropout, dV = (P o keep)^T dO / share, and keep o dO V^T / share stands in place of dO V^T.
/// A query whose keys are all hidden by a bias of the least finite number of fp32 or bf16, and not by -inf, has the
/// mean of their values as O, as in PyTorch: the number leaves nothing of a score. LSE holds nothing of their count
/// then, and such a query has no gradient. Query head h reads key/value head h / (Hq / Hkv). With used lengths, (B)
/// int32 each, sequence b is the first seqused_q[b] queries and seqused_kv[b] keys of its batch entry, all of them
/// where a call names none. What lies behind is read into no result, whatever it holds. Queries there see nothing, and
/// nobody sees keys there: O, dQ, dK and dV are 0, LSE is that of a row without keys. Packed sequences lie one behind
/// the other in tensors of one batch entry of seq_q and seq_kv rows: sequence b is the rows cu_seqlens_q[b] up to, and
/// without, cu_seqlens_q[b + 1], and the same of keys, (B + 1) int32 each. Rows behind the last sequence are its rows
/// and do not count; those before the first one, which begins at row 0, are not written. Their tensors of pairs are
/// (B, Hq, max_seq_q, max_seq_kv), by queries and keys of each sequence: what a sequence has more does not count.
struct AttentionProblem {
  Pass pass = Pass::forward;
  DataType dtype = DataType::bf16;  ///< of Q, K, V and O, and of their gradients
  std::int64_t batch = 1;
  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;
  std::int64_t seq_q = 1;
  std::int64_t seq_kv = 1;
  int head_dim = 64;
  MaskKind mask = MaskKind::none;
  /// Causal and window only (0 otherwise). Causal: seq_kv - seq_q aligns bottom right, 0 aligns top left. A window that
  /// is open to the right has kOpenDiagonal.
  std::int64_t mask_offset = 0;
  std::int64_t first_offset = 0;  ///< window only (0 otherwise); at most mask_offset
  float softmax_scale = 0.125f;   ///< multiplies the scores; positive and finite
  /// Positive: scaled scores x are capped, softcap * tanh(x / softcap), before the mask hides any. 0: they are not.
  float softcap = 0;
  /// Scores fall with the distance from the diagonal that ends at the last key, by slopes, (B, Hq) fp32, which have no
  /// gradient. With used lengths that is the last key of each sequence.
  bool alibi = false;
  /// Added to scores, of the dtype or fp32, where a tensor names the dimensions that it has.
  PairTensor bias = PairTensor::none;
  bool bias_fp32 = false;      ///< the bias is fp32; false without one
  bool bias_gradient = false;  ///< backward only, with a bias: its gradient is wanted, of its shape and type
  /// A byte for each pair, 0 where the query does not attend to the key.
  PairTensor attention_mask = PairTensor::none;
  bool sink = false;  ///< sinks, (Hq) fp32, count in the sums of rows
  /// The probability with which elements of P are dropped: at least 0, which drops none, and less than 1. A call has a
  /// seed and an offset, as numbers or in the device's memory.
  float dropout = 0;
  Lengths lengths = Lengths::whole;
  /// The sequences lie one behind the other: Q (1, Hq, Sq, D) and so on, where `batch` is the number of sequences.
  /// Their lengths are used ones: the mask is named for a sequence of all rows.
  bool packed = false;
  LengthDistribution distribution = LengthDistribution::log_uniform;  ///< of packed sequences; this one otherwise
  /// Packed sequences with tensors of pairs only (0 otherwise): the queries and keys that a sequence has at most, for
  /// which these have elements; 0: all rows.
  std::int64_t max_seq_q = 0, max_seq_kv = 0;
  Layout layout = Layout::bshd;  ///< of packed tensors; a call with strides of its own ignores it
  int alignment = 16;  ///< bytes that every row of each tensor starts at a multiple of: 16, or 2 (element-wise loader)
  bool deterministic = false;  ///< backward only: the same inputs give the same bits of every gradient
  /// The bits of a row of O and LSE (backward: of dQ, dK and dV) depend on what the row is computed from alone: they
  /// are the same alone and in a batch, with any number of heads, and, of a query, in a chunk and in the whole
  /// sequence, whatever the mask is called there. See generator/families/invariance.h. Gradients are
  /// deterministic.
  bool invariant = false;

  /// Whether a call says how many rows each sequence has.
  bool has_used_lengths() const { return lengths != Lengths::whole || packed; }

  /// Makes it a problem of sequences that lie apart; what packed ones need beside, such as other sizes, stays.
  void unpack() {
    packed = false;
    distribution = LengthDistribution::log_uniform;
    max_seq_q = max_seq_kv = 0;
  }

  /// Batch entries of tensors that have rows.
  std::int64_t row_batch() const { return packed ? 1 : batch; }

  /// Whether tensors of a call decide which pairs there are: there may be none.
  bool has_pairs_of_call() const { return attention_mask != PairTensor::none || has_used_lengths(); }

  /// Whether a call has tensors of pairs.
  bool has_pair_tensors() const { return bias != PairTensor::none || attention_mask != PairTensor::none; }

  /// Queries and keys for which tensors of pairs have elements.
  std::int64_t pair_queries() const { return max_seq_q != 0 ? max_seq_q : seq_q; }
  std::int64_t pair_keys() const { return max_seq_kv != 0 ? max_seq_kv : seq_kv; }

  /// Whether packed sequences have a greatest length, that of their tensors of pairs.
  bool has_longest_sequence() const { return packed && has_pair_tensors(); }

  /// Whether something is added to scores, which are in natural units then.
  bool adds_to_scores() const { return alibi || bias != PairTensor::none; }

  /// Whether sums of gradients must have a fixed order.
  bool has_fixed_order() const { return deterministic || invariant; }

  /// Columns of Q and K, and of V and O: equal for the time being, and not the same thing.
  int head_dim_qk() const { return head_dim; }
  int head_dim_v() const { return head_dim; }

  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
};

/// 1/sqrt(head_dim), rounded to float: the scale of a problem that names none.
float default_softmax_scale(int head_dim);

/// A problem with equal lengths and heads, default scale.
AttentionProblem make_problem(DataType dtype, std::int64_t batch, std::int64_t heads, std::int64_t seq, int head_dim,
                              MaskKind mask = MaskKind::none);

/// The forward that a backward problem differentiates.
AttentionProblem forward_of(AttentionProblem problem);

/// The problem with the simplest mask that hides the same pairs: none, causal (which begins with the first key), or a
/// window, in this order. Causal at one query that is aligned bottom right hides nothing, and so do windows as long as
/// their rows. A side of a window that hides no key is open. What validate() refuses of a mask stays as it is. A
/// longest sequence of all rows is none. What is compiled, tuned, stored or looked up is of problems in this form,
/// whichever way they were asked: the functions that take one from outside (of the runtime, the tuner, the tuning
/// database, packs and the command) see to it.
AttentionProblem simplest_mask(AttentionProblem problem);

/// Canonical text, for example "forward bf16 b4 hq16 hkv4 sq4096 d128 causal", of the simplest_mask(): problems that
/// ask the same have one text. Order of the words is fixed; words that equal their default are left out: hkv (= hq),
/// skv (= sq), mask (none), scale (1/sqrt(d)), layout (bshd), align (16), "deterministic". Masks: "causal" (bottom
/// right), "causal-top-left" (where that differs), "causal@OFFSET"; "window=LEFT,RIGHT", which FlashAttention calls its
/// window: so many keys on both sides of the diagonal that is aligned bottom right, "open" for all of a side;
/// "window=LEFT,RIGHT@OFFSET" of another diagonal. Scale: "scale0.1", shortest text that round-trips.
std::string canonical_text(const AttentionProblem& problem);

/// The inverse of canonical_text, in the form of simplest_mask(); words may come in any order, omitted ones have their
/// default (bf16, b1, hq1, sq1, d64). Throws Error(invalid_argument) that names the word. Does not judge the values:
/// that is validate().
AttentionProblem parse_problem(std::string_view text);

/// The words that name a mask, as an error lists them.
inline constexpr std::string_view kMaskWords =
    "none, causal, causal-top-left, causal@OFFSET, window=LEFT,RIGHT, window=LEFT,RIGHT@OFFSET";

/// The offset of a side that a mask leaves open, beyond those of any valid problem.
inline constexpr std::int64_t kOpenDiagonal = std::int64_t{1} << 40;

/// Gives a problem the mask of another one of the same lengths.
void copy_mask(const AttentionProblem& from, AttentionProblem* to);

/// Hides what a word of the canonical text names as a mask, by the lengths that the problem has, beside what its mask
/// hides already: "causal" and "window=LEFT,RIGHT" make the window that ends at the diagonal. The mask becomes the
/// simplest one that says so. False, and nothing set, if the word names no mask, or a number of it is not one.
bool apply_mask_word(std::string_view word, AttentionProblem* problem);

/// Hides the pairs outside of first <= key - query <= last, beside what the mask hides already; -kOpenDiagonal and
/// kOpenDiagonal leave a side as it is. The mask becomes the simplest kind that says so: none, causal
/// (which begins with the first key), or a window. A side that hides no key is open.
void hide_outside(std::int64_t first, std::int64_t last, AttentionProblem* problem);

/// hide_outside() of a window: `left` keys before the diagonal key - query = diagonal and `right` behind it; negative:
/// all of that side.
void apply_window(std::int64_t left, std::int64_t right, std::int64_t diagonal, AttentionProblem* problem);

/// The mask offset by which the last query attends to the last key: seq_kv - seq_q (0 where that is no int64, of
/// lengths that validate() refuses).
std::int64_t bottom_right_offset(const AttentionProblem& problem);

/// Throws Error(invalid_argument) that names the first field out of range and says what it may be: head_dim a multiple
/// of 8 in [8, 256], positive sizes, heads_q divisible by heads_kv, lengths below 2^31 - 1024, batch * heads_q below
/// 2^31, tensors below 2^50 elements, a positive scale, finite times log2(e), a softcap likewise and not so far from
/// the scale that their ratio is no float (0 for none), a dropout of at least 0 and less than 1, alignment 2 or 16, a
/// mask offset that keeps query + offset within 32 bits (0 without a mask), a window that some pair may be in,
/// deterministic only of a backward problem.
void validate(const AttentionProblem& problem);

/// Counted work: 4 * D FLOP per attended (query, key) pair and query head, backward 10 * D.
double count_flops(const AttentionProblem& problem);

/// The fewest bytes of device memory the problem must move: each input read once, each output written once (LSE
/// included).
double count_bytes(const AttentionProblem& problem);

std::string_view to_string(Pass pass);
std::string_view to_string(DataType dtype);
std::string_view to_string(Layout layout);
std::string_view to_string(MaskKind mask);  ///< "none", "causal", "window": as templates and the database name masks

/// Hash for unordered containers; equal problems have equal hashes.
struct AttentionProblemHash {
  std::size_t operator()(const AttentionProblem& problem) const noexcept;
};

}  // namespace attune
