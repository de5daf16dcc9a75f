#pragma once

#include <stdint.h>

// What the extension calls of PyTorch: C functions of its stable interface, and four C++ functions whose arguments are
// pointers and numbers. They are declared here under PyTorch's names and given by address, so that the extension is not
// linked against PyTorch. _operators.py looks them up, and leaves the extension without them where one is missing.

extern "C" {

// A pointer to an at::Tensor that the holder must delete. The tensor may be undefined, which is None in Python.
struct TorchTensor;
struct TorchLibrary;
struct TorchList;

// An argument or a result: a number in its first bytes, a TorchTensor*, a TorchList*, or for an optional argument a
// pointer to one of these, null for None.
using TorchValue = uint64_t;

// An implementation of an operator: takes its arguments from the stack, whose tensors it owns, and leaves results
// there.
using TorchFunction = void (*)(TorchValue* stack, uint64_t arguments, uint64_t results);

}  // extern "C"

namespace attune_python {

// The layout of stack and lists that is meant, as PyTorch numbers its versions: that of 2.10.
constexpr uint64_t kTorchInterface = uint64_t{2} << 56 | uint64_t{10} << 48;

// c10::DeviceType
enum { kTorchCpu = 0, kTorchCuda = 1 };

// Functions return 0, or another number where PyTorch has raised an exception, which they have printed.
struct TorchShims {
  int32_t (*aoti_torch_dtype_float16)();
  int32_t (*aoti_torch_dtype_bfloat16)();
  int32_t (*aoti_torch_dtype_float32)();
  int32_t (*aoti_torch_dtype_uint64)();
  int32_t (*aoti_torch_dtype_int64)();
  int32_t (*aoti_torch_is_defined)(TorchTensor*, bool*);
  int32_t (*aoti_torch_get_data_ptr)(TorchTensor*, void**);
  int32_t (*aoti_torch_get_dim)(TorchTensor*, int64_t*);
  int32_t (*aoti_torch_get_sizes)(TorchTensor*, int64_t**);
  int32_t (*aoti_torch_get_strides)(TorchTensor*, int64_t**);
  int32_t (*aoti_torch_get_dtype)(TorchTensor*, int32_t*);
  int32_t (*aoti_torch_get_device_type)(TorchTensor*, int32_t*);
  int32_t (*aoti_torch_get_device_index)(TorchTensor*, int32_t*);
  int32_t (*aoti_torch_empty_strided)(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                      int32_t device_type, int32_t device_index, TorchTensor**);
  int32_t (*aoti_torch_new_uninitialized_tensor)(TorchTensor**);  // an undefined one
  int32_t (*aoti_torch_delete_tensor_object)(TorchTensor*);
  int32_t (*torch_delete_list)(TorchList*);
  bool (*aoti_torch_grad_mode_is_enabled)();
  int32_t (*aoti_torch_library_init_impl)(const char* name_space, const char* key, const char* file, uint32_t line,
                                          TorchLibrary**);
  int32_t (*torch_library_impl)(TorchLibrary*, const char* name, TorchFunction, uint64_t interface);
  int32_t (*aoti_torch_delete_library_object)(TorchLibrary*);
  int32_t (*torch_call_dispatcher)(const char* name, const char* overload, TorchValue* stack, uint64_t interface);

  // c10::impl::dispatch_mode_enabled(), at::globalContext().deterministicAlgorithms(), and at::_ops::zero_::call(),
  // which raises C++ exceptions where those above return a number.
  bool (*dispatch_mode_enabled)(bool skip_infra_modes);  // some versions have no such argument, and ignore it
  void* (*global_context)();
  bool (*deterministic_algorithms)(const void* context);
  void* (*zero)(TorchTensor*);

  // Null where PyTorch has no CUDA.
  int32_t (*aoti_torch_get_current_cuda_stream)(int32_t device_index, void** stream);
};

}  // namespace attune_python
