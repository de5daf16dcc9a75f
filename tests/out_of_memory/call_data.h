#pragma once

#include "attune.h"

namespace attune::testing {

/// The structs of a call of the C interface, on memory of their own.
struct CallData {
  alignas(256) unsigned char bytes[8][64 * 64 * 2] = {};
  float lse[64] = {};
  attune_problem problem = {};
  attune_tensors tensors = {};
  attune_gradients gradients = {};

  CallData() {
    problem.struct_size = sizeof(problem);
    problem.dtype = ATTUNE_BF16;
    problem.batch = problem.heads_q = 1;
    problem.seq_q = 64;
    problem.head_dim = 64;
    tensors.struct_size = sizeof(tensors);
    gradients.struct_size = sizeof(gradients);
    attune_tensor* const all[] = {&tensors.q,     &tensors.k,     &tensors.v,     &tensors.o,
                                  &gradients.d_o, &gradients.d_q, &gradients.d_k, &gradients.d_v};
    for (int i = 0; i < 8; ++i) *all[i] = {bytes[i], 64 * 64, 64, 64};
    tensors.lse = lse;
  }
};

}  // namespace attune::testing
