#pragma once

#include <string>

#include "generator/plan/kernel_plan.h"

namespace attune {

// What the launcher of an export says of operands and of the arguments of its kernels. In its text `asked` is the call
// as its caller fills it in, `call` what follows from that.

/// Whether an operand's rows are queries, not keys.
bool rows_are_queries(Operand operand);

/// The expression for an operand's dimensions; of the bias's gradient those of the bias.
std::string extents_of(Operand operand);

/// The declaration of a field of an argument struct. Throws Error(unsupported) for what is no part of a call.
std::string declaration_of(const KernelArgument& field);

/// The statement that gives a field of a launch's arguments its value. Throws Error(unsupported) for a buffer that the
/// plan does not have.
std::string value_of(const KernelArgument& field, const KernelPlan& plan, const KernelLaunch& launch);

}  // namespace attune
