#include "tuner/trial/trial_inputs.h"

#include <vector>

#include "runtime/oracle/reference_attention.h"

namespace attune {
namespace {

std::size_t element_count(const AttentionProblem& problem, Operand operand) {
  return static_cast<std::size_t>(operand_shape(problem, operand).elements());
}

// O as a forward leaves it, packed in problem.layout, and its LSE.
void round_forward(const AttentionProblem& problem, const ReferenceForward& forward, std::vector<std::uint16_t>* o,
                   std::vector<float>* lse) {
  const TensorView view = packed_view(problem, Operand::o);
  o->resize(forward.o.size());
  for (std::size_t i = 0; i < o->size(); ++i) {
    const std::int64_t at = offset_of_element(problem, view, static_cast<std::int64_t>(i));
    (*o)[static_cast<std::size_t>(at)] = from_double(problem.dtype, forward.o[i]);
  }
  lse->clear();
  for (const double value : forward.lse) lse->push_back(static_cast<float>(value));
}

void fill_forward_results(TrialTensors& tensors, const AttentionProblem& problem, const TermValues& terms,
                          DeviceOracle* oracle, DefaultForward& forward) {
  std::vector<std::uint16_t> o(element_count(problem, Operand::o), 0);
  std::vector<float> lse(element_count(problem, Operand::lse), 0);
  if (!oracle) {
    std::vector<std::uint16_t> q, k, v;
    tensors.read_back(Operand::q, q);
    tensors.read_back(Operand::k, k);
    tensors.read_back(Operand::v, v);
    round_forward(problem, reference_forward(problem, q, k, v, terms), &o, &lse);
  }
  tensors.upload(Operand::o, o.data());
  tensors.upload(Operand::lse, lse.data());
  if (!oracle) return;
  for (std::size_t copy = 0; copy < tensors.copies(); ++copy) forward.launch(tensors.call(copy));
  forward.synchronize();
}

}  // namespace

void fill_trial_inputs(TrialTensors& tensors, const AttentionProblem& problem, std::uint64_t seed,
                       const TermValues& terms, DeviceOracle* oracle, DefaultForward& forward) {
  const auto seed_of = [&](Operand operand) { return 3 * seed + static_cast<std::uint64_t>(operand); };
  const bool backward = problem.pass == Pass::backward;
  for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::d_o}) {
    if (operand != Operand::d_o || backward) tensors.fill_random(operand, seed_of(operand), oracle);
  }
  for (const Operand operand : term_inputs_of(problem)) tensors.upload(operand, terms.bytes(operand).data());
  if (!backward) return;
  std::vector<float> d_lse;
  for (const std::uint16_t bits :
       random_normal(problem.dtype, element_count(problem, Operand::d_lse), seed_of(Operand::d_lse)))
    d_lse.push_back(static_cast<float>(to_double(problem.dtype, bits)));
  tensors.upload(Operand::d_lse, d_lse.data());
  // A backward kernel's bounds allow for what a forward kernel rounds.
  fill_forward_results(tensors, problem, terms, oracle, forward);
}

}  // namespace attune
