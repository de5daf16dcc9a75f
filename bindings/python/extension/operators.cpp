// Operators of PyTorch that are implemented here, so that its dispatcher and its autograd, which are C++, call the
// library without running Python code:
//
//   aten::_scaled_dot_product_flash_attention, ..._cudnn_attention, and their _backward
//       PyTorch's own attention while enable_sdpa() is in force.
//   aten::_scaled_dot_product_fused_attention_overrideable, and its _backward
//       attention() of which a gradient is wanted. PyTorch leaves these operators without kernels for CUDA and records
//       their derivative as that of its own attention, in C++. attend() finds the kind of a call, leaves what is to be
//       launched for the thread, and calls the operator. What the operator has no argument for travels through others,
//       which autograd keeps and hands to the backward pass:
//
//           dropout_p       -1 - Options::choices: negative, hence nobody else's
//           scale           itself
//           max_q, max_k    results: both sides of the window
//
// A call of a kind that is in the table of known_calls.h is served here. Every other goes on to an operator of the same
// arguments in the namespace attune_kernels, which _operators.py and _sdpa.py implement in Python: it checks the call,
// makes it, enters its kind, or leaves it to PyTorch. Its last result is undefined, or a tensor that raises what went
// wrong when it is written to. So exceptions keep their type, and none is ever thrown from here: this file may come
// with a C++ runtime of its own.
//
// Nothing here needs Python's lock but the functions of the module.

#include "operators.h"

#include "served_calls.h"

namespace attune_python {
namespace {

bool has_shims = false;

struct Implementation {
  const char* name;
  TorchFunction function;
};

constexpr Implementation kImplementations[] = {
    {"_scaled_dot_product_flash_attention", flash_forward},
    {"_scaled_dot_product_flash_attention_backward", flash_backward},
    {"_scaled_dot_product_cudnn_attention", cudnn_forward},
    {"_scaled_dot_product_cudnn_attention_backward", cudnn_backward},
    {"_scaled_dot_product_fused_attention_overrideable", attention_forward},
    {"_scaled_dot_product_fused_attention_overrideable_backward", attention_backward},
};

constexpr char kCapsule[] = "attune_kernels.implementation";

void withdraw(PyObject* capsule) {
  auto* const library = static_cast<TorchLibrary*>(PyCapsule_GetPointer(capsule, kCapsule));
  if (library != nullptr) shims.aoti_torch_delete_library_object(library);
}

template <class Function>
bool take(PyObject* addresses, const char* name, Function*& place) {
  PyObject* const address = PyDict_GetItemString(addresses, name);
  place = nullptr;
  if (address == nullptr) return false;
  place = reinterpret_cast<Function*>(PyLong_AsVoidPtr(address));
  return place != nullptr && PyErr_Occurred() == nullptr;
}

}  // namespace

PyObject* use_shims(PyObject*, PyObject* addresses) {
  if (!PyDict_Check(addresses)) {
    PyErr_SetString(PyExc_TypeError, "use_shims() takes a dict of addresses");
    return nullptr;
  }
  TorchShims found;
#define TAKE(name) take(addresses, #name, found.name)
  has_shims = TAKE(aoti_torch_dtype_float16) && TAKE(aoti_torch_dtype_bfloat16) && TAKE(aoti_torch_dtype_float32) &&
              TAKE(aoti_torch_dtype_uint64) && TAKE(aoti_torch_dtype_int64) && TAKE(aoti_torch_is_defined) &&
              TAKE(aoti_torch_get_data_ptr) && TAKE(aoti_torch_get_dim) && TAKE(aoti_torch_get_sizes) &&
              TAKE(aoti_torch_get_strides) && TAKE(aoti_torch_get_dtype) && TAKE(aoti_torch_get_device_type) &&
              TAKE(aoti_torch_get_device_index) && TAKE(aoti_torch_empty_strided) &&
              TAKE(aoti_torch_new_uninitialized_tensor) && TAKE(aoti_torch_delete_tensor_object) &&
              TAKE(torch_delete_list) && TAKE(aoti_torch_grad_mode_is_enabled) && TAKE(aoti_torch_library_init_impl) &&
              TAKE(torch_library_impl) && TAKE(aoti_torch_delete_library_object) && TAKE(torch_call_dispatcher) &&
              TAKE(dispatch_mode_enabled) && TAKE(global_context) && TAKE(deterministic_algorithms) && TAKE(zero);
  TAKE(aoti_torch_get_current_cuda_stream);
#undef TAKE
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (has_shims) shims = found;
  return PyBool_FromLong(has_shims);
}

PyObject* implement(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *key = nullptr;
  if (!PyArg_ParseTuple(arguments, "ss", &name, &key)) return nullptr;
  for (const Implementation& one : kImplementations) {
    if (!has_shims || strcmp(one.name, name) != 0) continue;
    TorchLibrary* library = nullptr;
    if (shims.aoti_torch_library_init_impl("aten", key, kCapsule, 0, &library) != 0) break;
    PyObject* const capsule = PyCapsule_New(library, kCapsule, withdraw);
    if (capsule == nullptr) {
      shims.aoti_torch_delete_library_object(library);
      return nullptr;
    }
    if (shims.torch_library_impl(library, name, one.function, kTorchInterface) == 0) return capsule;
    Py_DECREF(capsule);
    break;
  }
  return PyErr_Format(PyExc_RuntimeError, "aten::%s cannot be implemented for %s", name, key);
}

PyObject* served(PyObject*, PyObject*) { return Py_BuildValue("(ll)", served_forward.load(), served_backward.load()); }

}  // namespace attune_python
