#include "torch_values.h"

#include <stdlib.h>

#include "known_calls.h"

namespace attune_python {

TorchShims shims;

namespace {

enum Argument : char { kTensor = 'T', kNumber = 'n', kList = 'l', kOptionalTensor = 't', kOptionalNumber = 'o' };

// Raises what `failure` raises when it is written to. No object here may need to be destroyed on the way, and nobody
// can free the failure afterwards: the next one of the thread does.
[[noreturn]] void raise(TorchTensor* failure) {
  static thread_local TorchTensor* last = nullptr;
  if (last != nullptr) shims.aoti_torch_delete_tensor_object(last);
  last = failure;
  shims.zero(failure);
  shims.zero(tensor_of(undefined()));  // a mode has kept the exception off: PyTorch knows no such operator
  abort();
}

}  // namespace

TorchValue undefined() {
  TorchTensor* tensor = nullptr;
  shims.aoti_torch_new_uninitialized_tensor(&tensor);
  return reinterpret_cast<TorchValue>(tensor);
}

bool is_defined(TorchValue value) {
  bool defined = false;
  return shims.aoti_torch_is_defined(tensor_of(value), &defined) == 0 && defined;
}

bool read(TorchTensor* tensor, View& view) {
  bool defined = false;
  int64_t rank = 0;
  DLTensor& read = view.tensor;
  if (shims.aoti_torch_is_defined(tensor, &defined) != 0 || !defined) return false;
  if (shims.aoti_torch_get_dim(tensor, &rank) != 0 || rank < 1 || rank > kMostDimensions) return false;
  if (shims.aoti_torch_get_dtype(tensor, &view.dtype) != 0 ||
      shims.aoti_torch_get_device_type(tensor, &view.device_type) != 0 ||
      shims.aoti_torch_get_device_index(tensor, &view.device_index) != 0) {
    return false;
  }
  read.ndim = static_cast<int32_t>(rank);
  // kDLFloat and kDLBfloat
  if (view.dtype == shims.aoti_torch_dtype_bfloat16()) {
    read.dtype = {4, 16, 1};
  } else if (view.dtype == shims.aoti_torch_dtype_float16()) {
    read.dtype = {2, 16, 1};
  } else if (view.dtype == shims.aoti_torch_dtype_float32()) {
    read.dtype = {2, 32, 1};
  } else {
    return false;
  }
  if (view.device_type == kTorchCuda) {
    read.device = {kDLCUDA, view.device_index};
  } else if (view.device_type == kTorchCpu) {
    read.device = {kDLCPU, 0};
  } else {
    return false;
  }
  return shims.aoti_torch_get_sizes(tensor, &read.shape) == 0 &&
         shims.aoti_torch_get_strides(tensor, &read.strides) == 0 &&
         shims.aoti_torch_get_data_ptr(tensor, &read.data) == 0 && read.data != nullptr;
}

bool allocate(const View& like, int32_t dtype, int rank, const int64_t* sizes, const int64_t* strides,
              OwnedTensor& made) {
  return shims.aoti_torch_empty_strided(rank, sizes, strides, dtype, like.device_type, like.device_index,
                                        made.place()) == 0;
}

void free_arguments(const char* letters, const TorchValue* stack) {
  for (; *letters != 0; ++letters, ++stack) {
    auto* const inner = reinterpret_cast<TorchValue*>(*stack);
    switch (*letters) {
      case kTensor:
        shims.aoti_torch_delete_tensor_object(tensor_of(*stack));
        break;
      case kList:
        shims.torch_delete_list(reinterpret_cast<TorchList*>(*stack));
        break;
      case kOptionalTensor:
        if (inner != nullptr) shims.aoti_torch_delete_tensor_object(tensor_of(*inner));
        delete inner;
        break;
      case kOptionalNumber:
        delete inner;
        break;
      default:
        break;
    }
  }
}

void hand_over(const char* name, TorchValue* stack, int results) {
  if (shims.torch_call_dispatcher(name, "", stack, kTorchInterface) != 0) raise(tensor_of(undefined()));
  TorchTensor* const failure = tensor_of(stack[results]);
  if (is_defined(stack[results])) {
    for (int i = 0; i < results; ++i) shims.aoti_torch_delete_tensor_object(tensor_of(stack[i]));
    raise(failure);
  }
  shims.aoti_torch_delete_tensor_object(failure);
}

void hand_over_forward(const char* name, TorchValue* stack) {
  constexpr int kTensors = 7;
  hand_over(name, stack, kTensors + 1);
  TorchTensor* const lengths = tensor_of(stack[kTensors]);
  void* data = nullptr;
  int64_t max[2] = {};
  if (shims.aoti_torch_get_data_ptr(lengths, &data) == 0 && data != nullptr) memcpy(max, data, sizeof max);
  shims.aoti_torch_delete_tensor_object(lengths);
  for (int i = kTensors - 1; i >= 4; --i) stack[i + 2] = stack[i];
  stack[4] = static_cast<TorchValue>(max[0]);
  stack[5] = static_cast<TorchValue>(max[1]);
}

}  // namespace attune_python
