// PyTorch's own attention by FlashAttention's operators and by cuDNN's, while enable_sdpa() is in force.

#include "operators.h"
#include "served_calls.h"

namespace attune_python {
namespace {

// The options of PyTorch's own attention. `scale` is an optional number.
Options options_of_sdpa(bool is_causal, bool is_top_left, TorchValue scale) {
  Options options;
  options.choices = (is_causal ? Options::kCausal : 0) | (is_top_left ? Options::kTopLeft : 0);
  if (scale != 0) {
    options.choices |= Options::kScale;
    options.scale = number_of(*reinterpret_cast<const TorchValue*>(scale));
  }
  return options;
}

// (q, k, v, dropout_p, is_causal, return_debug_mask, scale)
constexpr char kFlashForward[] = "TTTnnno";

bool serve_flash_forward(TorchValue* stack) {
  if (number_of(stack[3]) != 0 || flag_of(stack[5])) return false;
  OwnedTensor out, lse, seed, offset, mask;
  View q;
  if (!serve_forward(stack, options_of_sdpa(flag_of(stack[4]), false, stack[6]), out, lse, false) ||
      !read(tensor_of(stack[kQ]), q)) {
    return false;
  }
  // The results of a dropout that there is not, and a mask that nobody asked for.
  const int64_t two = 2, one = 1, nothing = 0;
  const int32_t word = shims.aoti_torch_dtype_uint64();
  if (!allocate(q, word, 1, &two, &one, seed) || !allocate(q, word, 0, &two, &one, offset) ||
      !allocate(q, q.dtype, 1, &nothing, &one, mask)) {
    return false;
  }
  const auto max_q = static_cast<TorchValue>(q.tensor.shape[2]);
  View k;
  const auto max_k = static_cast<TorchValue>(read(tensor_of(stack[kK]), k) ? k.tensor.shape[2] : 0);
  free_arguments(kFlashForward, stack);
  const TorchValue results[] = {out.release(), lse.release(),  undefined(),      undefined(),   max_q,
                                max_k,         seed.release(), offset.release(), mask.release()};
  memcpy(stack, results, sizeof results);
  return true;
}

}  // namespace

void flash_forward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_flash_forward(stack)) hand_over_forward("attune_kernels::_flash_forward", stack);
}

namespace {

// (grad_out, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset, scale)
constexpr char kFlashBackward[] = "TTTTTTTTnnnnTTo";

bool serve_flash_backward(TorchValue* stack) {
  constexpr int kPlaces[] = {1, 2, 3, 4, 5, 0};
  OwnedTensor grads[3];
  if (number_of(stack[10]) != 0 ||
      !serve_backward(stack, kPlaces, options_of_sdpa(flag_of(stack[11]), false, stack[14]), grads)) {
    return false;
  }
  put_gradients(kFlashBackward, stack, grads);
  return true;
}

}  // namespace

void flash_backward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_flash_backward(stack)) hand_over("attune_kernels::_flash_backward", stack, 3);
}

namespace {

// (q, k, v, attn_bias, compute_log_sumexp, dropout_p, is_causal, return_debug_mask, scale)
constexpr char kCudnnForward[] = "TTTtnnnno";

bool serve_cudnn_forward(TorchValue* stack) {
  if (stack[3] != 0 || number_of(stack[5]) != 0 || flag_of(stack[7])) return false;
  const bool is_causal = flag_of(stack[6]);
  OwnedTensor out, lse, seed, offset;
  View q, k;
  // cuDNN's diagonal begins top left.
  if (!serve_forward(stack, options_of_sdpa(is_causal, is_causal, stack[8]), out, lse, true) ||
      !read(tensor_of(stack[kQ]), q) || !read(tensor_of(stack[kK]), k)) {
    return false;
  }
  const int64_t one = 1;
  const int32_t word = shims.aoti_torch_dtype_int64();
  if (!allocate(q, word, 0, &one, &one, seed) || !allocate(q, word, 0, &one, &one, offset)) return false;
  const auto max_q = static_cast<TorchValue>(q.tensor.shape[2]), max_k = static_cast<TorchValue>(k.tensor.shape[2]);
  free_arguments(kCudnnForward, stack);
  const TorchValue results[] = {out.release(), lse.release(),  undefined(),      undefined(), max_q,
                                max_k,         seed.release(), offset.release(), undefined()};
  memcpy(stack, results, sizeof results);
  return true;
}

}  // namespace

void cudnn_forward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_cudnn_forward(stack)) hand_over_forward("attune_kernels::_cudnn_forward", stack);
}

namespace {

// (grad_out, q, k, v, out, lse, seed, offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
// scale)
constexpr char kCudnnBackward[] = "TTTTTTTTTTTnnnno";

bool serve_cudnn_backward(TorchValue* stack) {
  constexpr int kPlaces[] = {1, 2, 3, 4, 5, 0};
  const bool is_causal = flag_of(stack[14]);
  OwnedTensor grads[3];
  if (number_of(stack[13]) != 0 || is_defined(stack[8]) ||
      !serve_backward(stack, kPlaces, options_of_sdpa(is_causal, is_causal, stack[15]), grads)) {
    return false;
  }
  put_gradients(kCudnnBackward, stack, grads);
  return true;
}

}  // namespace

void cudnn_backward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_cudnn_backward(stack)) hand_over("attune_kernels::_cudnn_backward", stack, 3);
}

}  // namespace attune_python
