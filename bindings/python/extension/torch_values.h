#pragma once

// Arguments and results of PyTorch's operators, as its stable interface passes them: what is read of them, made, freed,
// and handed on. Nothing here needs Python's lock.

#include <string.h>

#include "dlpack_exchange.h"
#include "torch_shims.h"

namespace attune_python {

extern TorchShims shims;  // what use_shims() was given

class OwnedTensor {
 public:
  OwnedTensor() = default;
  OwnedTensor(const OwnedTensor&) = delete;
  OwnedTensor& operator=(const OwnedTensor&) = delete;
  ~OwnedTensor() {
    if (tensor_ != nullptr) shims.aoti_torch_delete_tensor_object(tensor_);
  }

  TorchTensor* get() const { return tensor_; }
  TorchTensor** place() { return &tensor_; }
  TorchValue release() {
    TorchTensor* const tensor = tensor_;
    tensor_ = nullptr;
    return reinterpret_cast<TorchValue>(tensor);
  }

 private:
  TorchTensor* tensor_ = nullptr;
};

inline TorchTensor* tensor_of(TorchValue value) { return reinterpret_cast<TorchTensor*>(value); }

inline bool flag_of(TorchValue value) { return (value & 0xff) != 0; }

inline double number_of(TorchValue value) {
  double number = 0;
  memcpy(&number, &value, sizeof number);
  return number;
}

TorchValue undefined();

bool is_defined(TorchValue value);

// A tensor as a key has it, and as PyTorch numbers its type and device.
struct View {
  DLTensor tensor = {};
  int32_t dtype = 0, device_type = 0, device_index = 0;
};

// False for what the library is never handed: undefined, of no memory, of another type or device.
bool read(TorchTensor* tensor, View& view);

// A new tensor on the device of `like`.
bool allocate(const View& like, int32_t dtype, int rank, const int64_t* sizes, const int64_t* strides,
              OwnedTensor& made);

// Frees the arguments of an operator. Each has a letter: T a tensor, t an optional tensor, n a number, o an optional
// number, l a list of numbers.
void free_arguments(const char* letters, const TorchValue* stack);

// Calls the operator of that name with the arguments on the stack, and puts its results there, which end with a
// failure. If that is defined, this raises what the failure does. All results are tensors: PyTorch 2.11 mistakes the
// types of others. Callers may have no object that must be destroyed.
void hand_over(const char* name, TorchValue* stack, int results);

// The same for a forward operator: out, lse, cum_seq_q, cum_seq_k, two results that belong to dropout, debug_attn_mask,
// and max_q and max_k as one tensor in the host's memory, which become numbers in the middle.
void hand_over_forward(const char* name, TorchValue* stack);

}  // namespace attune_python
