#pragma once

#include "attune.h"

namespace attune::testing {

/// The structs of a call of the C interface, on memory of their own.
struct CallData {
  alignas(256) unsigned char bytes[8][64 * 64 * 2] = {};
  float lse[64] = {};
  attune_problem problem = {};
  static constexpr std::size_t kOperands = 9;  // all but the gradient of LSE
  attune_operand operands[kOperands] = {};

  CallData() {
    problem.struct_size = sizeof(problem);
    problem.dtype = ATTUNE_BF16;
    problem.batch = problem.heads_q = 1;
    problem.seq_q = 64;
    problem.head_dim = 64;
    unsigned char* next = bytes[0];
    for (int name = ATTUNE_Q; name < ATTUNE_D_LSE; ++name) {
      operands[name].name = name;
      if (name == ATTUNE_LSE) {
        operands[name].tensor.data = lse;
        continue;
      }
      operands[name].tensor = {next, 64 * 64, 64, 64};
      next += sizeof(bytes[0]);
    }
  }
};

}  // namespace attune::testing
