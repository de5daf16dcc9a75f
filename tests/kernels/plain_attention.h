#pragma once

#include <span>
#include <string>
#include <vector>

#include "attune/attention.h"

namespace attune::tests {

/// Attention as one writes it in PyTorch, in the problem's type: what FlashAttention's rule measures a kernel by.
///   S = scale Q K^T in fp32,  P = round(softmax(S)),  O = P V;
///   dV = P^T dO,  dP = round(dO V^T),  dS = round(P o (dP - rowsum(P o dP))),  dQ = scale dS K,  dK = scale dS^T Q
/// Sums are in fp32 and every result is rounded. FlashAttention's own tests round S, too. So does the backward here;
/// the forward does not, and errs less: a kernel that computes S in fp32 can be held to that.
struct PlainInputs {
  std::vector<double> q, k, v, d_o;  ///< rounded already; (B, H, S, D), whatever the layout; forward has no d_o
};
struct PlainGradients {
  std::vector<double> d_q, d_k, d_v;
};
std::vector<double> plain_forward(const AttentionProblem& problem, const PlainInputs& inputs);
/// Where delta, the row's sum of P o dP, comes from.
enum class Delta {
  scores,   ///< that sum, as in PyTorch's operations
  saved_o,  ///< the row's sum of dO o round(O): all that is left of it where O is saved and P is not, as in
            ///< FlashAttention
};
PlainGradients plain_backward(const AttentionProblem& problem, const PlainInputs& inputs, Delta delta);

/// An output, what the plain algorithm makes of the same inputs, and what is right: rows of head_dim elements.
struct RuleOutput {
  std::string name;
  std::span<const double> actual, plain, exact;
  /// For gradients, what the plain algorithm makes of a saved O. The rule takes the larger error of the two. Where one
  /// key dominates, O's rounding breaks the rule without it, in FlashAttention and cuDNN as here.
  std::span<const double> plain_of_saved_o = {};
  /// What cancels in fp32 may leave so much where plain has an exact zero. 0 for O.
  double floor = 0;
  /// False: all rows have the same P, so that one rounding makes the mean error, which is then not judged.
  bool averages = true;
  /// For dQ: element 0 of each row, which is larger than the others where a data kind has offsets, is judged apart.
  bool offsets_apart = false;
};

/// FlashAttention's rule: the largest error is at most twice the plain algorithm's plus one rounding of the largest
/// element (FlashAttention's tests allow some two such roundings), and the mean error at most twice the plain one's.
/// A NaN breaks the rule. Empty if it holds, else a sentence.
std::string rule_complaint(const AttentionProblem& problem, const RuleOutput& output);

}  // namespace attune::tests
