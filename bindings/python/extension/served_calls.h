#pragma once

#include <atomic>

#include "known_calls.h"
#include "torch_values.h"

// Calls of PyTorch's operators that are served: the library is called on its tensors. Where one of these functions says
// false, the call goes to the Python code, which makes it anew and raises what there is to raise.

namespace attune_python {

extern std::atomic<long> served_forward, served_backward;  // how many

// Launches forward on q, k and v. lse_is_column: lse has a fourth dimension of size 1.
bool launch_forward(const Launch& launch, const View* views, OwnedTensor& out, OwnedTensor& lse, bool lse_is_column);

// The same if a call like this was made before; q, k and v begin the stack.
bool serve_forward(const TorchValue* stack, const Options& options, OwnedTensor& out, OwnedTensor& lse,
                   bool lse_is_column);

// `places` of q, k, v, out, lse and grad_out on the stack.
bool serve_backward(const TorchValue* stack, const int* places, Options options, OwnedTensor* grads);

// Frees the arguments, and leaves the three gradients in their place.
void put_gradients(const char* letters, TorchValue* stack, OwnedTensor* grads);

}  // namespace attune_python
