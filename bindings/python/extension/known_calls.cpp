// attune_kernels._known_calls: serves calls of attention() and backward() of a kind that was checked before, without
// running Python code.
//
//   _calls.py checks a call in full, makes it, and enters it here by add_forward() or add_backward(): the structs of
//   the C interface that a call of this kind hands over, without pointers. A later call asks forward() or backward()
//   first. These read the tensors through PyTorch's DLPack exchange API, and look up a key of everything that the
//   structs were made from:
//
//     the pass, and the options
//     of each tensor its dtype, device, shape and strides, and the alignment of all addresses together
//
//   If there is an entry, they allocate the results and the workspace by torch.empty_like and Tensor.new_empty, as
//   _calls.py does, put the pointers in, and call the library. If there is none, or anything is unusual, they return
//   None, and _calls.py makes the call: it is the one place of checks and of their messages, and nothing is ever
//   refused here.
//
// Calls that PyTorch makes, in the backward pass and where its own attention is replaced, have the same table: see
// operators.cpp.
//
// Python's lock guards the table. An entry is counted, since a call lets go of the lock while it is in use: in the
// launch, and wherever PyTorch runs Python code. Compiled against the limited API of Python 3.9, so that one file
// serves all later versions that have the lock.

#include "known_calls.h"

#include <new>

#include "operators.h"

namespace attune_python {

Table forward_calls, backward_calls;

namespace {

// What _extension.py asks for: grows with each change of what functions here take or return.
constexpr int kInterface = 3;

// What use() was given.
const DLPackExchangeAPI* exchange = nullptr;
PyObject* tensor_type = nullptr;       // torch.Tensor
PyObject* empty_like = nullptr;        // torch.empty_like
PyObject* as_float32 = nullptr;        // {"dtype": torch.float32}
PyObject* is_deterministic = nullptr;  // torch.are_deterministic_algorithms_enabled
PyObject* raise_status = nullptr;      // raises what the library's status and last error say
PyObject* new_empty_name = nullptr;

// Whether `object` is a torch.Tensor, of no derived class, with memory of its own: not fake, functional, sparse,
// nested, on the device meta, or empty. PyTorch raises for most of these.
bool read(PyObject* object, DLTensor& tensor) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != tensor_type) return false;
  if (exchange->dltensor_from_py_object_no_sync(object, &tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  return tensor.data != nullptr && tensor.ndim > 0 && tensor.ndim <= kMostDimensions && tensor.strides != nullptr;
}

// A side of a window: None is all of it.
bool read_side(PyObject* side, int64_t& keys) {
  if (side == Py_None) {
    keys = -1;
    return true;
  }
  if (!PyLong_CheckExact(side)) return false;
  int overflow = 0;
  keys = PyLong_AsLongLongAndOverflow(side, &overflow);
  return overflow == 0;
}

bool read_flag(PyObject* object, bool& flag) {
  flag = object == Py_True;
  return flag || object == Py_False;
}

}  // namespace

bool read_forward_tensors(PyObject* const* objects, DLTensor* tensors) {
  if (exchange == nullptr) return false;
  for (int i = kQ; i <= kV; ++i) {
    if (!read(objects[i], tensors[i])) return false;
  }
  return true;
}

bool read_options(PyObject* object, Options& options) {
  if (!PyTuple_CheckExact(object) || PyTuple_Size(object) != Options::kCount) return false;
  PyObject* const scale = PyTuple_GetItem(object, 1);
  PyObject* const layout = PyTuple_GetItem(object, 2);
  PyObject* const window = PyTuple_GetItem(object, 4);
  PyObject* const deterministic = PyTuple_GetItem(object, 5);

  bool causal = false, top_left = false, invariant = false;
  if (!read_flag(PyTuple_GetItem(object, 0), causal) || !read_flag(PyTuple_GetItem(object, 3), top_left) ||
      !read_flag(PyTuple_GetItem(object, 6), invariant)) {
    return false;
  }
  options.choices =
      (causal ? Options::kCausal : 0) | (top_left ? Options::kTopLeft : 0) | (invariant ? Options::kInvariant : 0);

  if (scale != Py_None) {
    if (!PyFloat_CheckExact(scale)) return false;
    options.scale = PyFloat_AsDouble(scale);
    options.choices |= Options::kScale;
  }

  PyObject* const softcap = PyTuple_GetItem(object, 7);
  PyObject* const dropout_p = PyTuple_GetItem(object, 8);
  if (!PyFloat_CheckExact(softcap) || !PyFloat_CheckExact(dropout_p) || PyFloat_AsDouble(dropout_p) != 0) return false;
  options.softcap = PyFloat_AsDouble(softcap);
  if (options.softcap != 0) options.choices |= Options::kSoftcap;

  if (!PyUnicode_CheckExact(layout)) return false;
  if (PyUnicode_CompareWithASCIIString(layout, "bshd") == 0) {
    options.choices |= Options::kBshd;
  } else if (PyUnicode_CompareWithASCIIString(layout, "bhsd") != 0) {
    return false;
  }

  if (window != Py_None) {
    if (!PyTuple_CheckExact(window) || PyTuple_Size(window) != 2) return false;
    if (!read_side(PyTuple_GetItem(window, 0), options.left) || !read_side(PyTuple_GetItem(window, 1), options.right))
      return false;
    options.choices |= Options::kWindow;
  }

  if (deterministic != Py_None) {
    bool given = false;
    if (!read_flag(deterministic, given)) return false;
    options.choices |= Options::kDeterministicGiven | (given ? Options::kDeterministic : 0);
  }
  return true;
}

namespace {

// Reads what backward() is given; grad_lse may be None.
bool read_backward_tensors(PyObject* const* objects, DLTensor* tensors) {
  if (exchange == nullptr) return false;
  for (int i = kQ; i <= kGradLse; ++i) {
    if (i == kGradLse && objects[i] == Py_None) continue;
    if (!read(objects[i], tensors[i])) return false;
  }
  return true;
}

bool recognize_forward(Key& key, PyObject* const* objects, DLTensor* tensors, PyObject* given) {
  Options options;
  if (!read_forward_tensors(objects, tensors) || !read_options(given, options)) return false;
  key.add_forward_tensors(tensors);
  key.add(options);
  return true;
}

bool recognize_backward(Key& key, PyObject* const* objects, DLTensor* tensors, PyObject* given) {
  Options options;
  if (!read_backward_tensors(objects, tensors) || !read_options(given, options)) return false;
  if (!options.has(Options::kDeterministicGiven)) {
    const Reference now(PyObject_CallFunctionObjArgs(is_deterministic, nullptr));
    bool is_enabled = false;
    if (!now || !read_flag(now.get(), is_enabled)) {
      PyErr_Clear();
      return false;
    }
    options.settle_deterministic(is_enabled);
  }
  key.add_backward_tensors(tensors, objects[kGradLse] != Py_None);
  key.add(options);
  return true;
}

// tensor.new_empty(*shape, **options)
PyObject* new_empty(PyObject* tensor, PyObject* shape, PyObject* options) {
  const Reference method(PyObject_GetAttr(tensor, new_empty_name));
  return method ? PyObject_Call(method.get(), shape, options) : nullptr;
}

// What every launch needs beside its tensors, from where q's memory comes from and on its stream. False: a Python
// exception is set, or `is_served` is false.
struct Surroundings {
  Reference workspace;  // lives until the launch is on its stream
  void* workspace_data = nullptr;
  void* stream = nullptr;
  bool is_served = true;

  bool find(const Use& entry, PyObject* q, const DLDevice& device) {
    if (entry->workspace_shape != nullptr) {
      workspace.take(new_empty(q, entry->workspace_shape, nullptr));
      if (!workspace) return false;
      DLTensor memory;
      is_served = read(workspace.get(), memory);
      if (!is_served) return false;
      workspace_data = data_of(memory);
    }
    return device.device_type == kDLCPU ||
           exchange->current_work_stream(device.device_type, device.device_id, &stream) == 0;
  }
};

// Raises the exception of a status that is no success.
PyObject* failed(attune_status status) {
  const Reference number(PyLong_FromLong(status));
  if (!number) return nullptr;
  const Reference nothing(PyObject_CallFunctionObjArgs(raise_status, number.get(), nullptr));
  if (nothing)
    PyErr_Format(PyExc_RuntimeError, "the library's status %d raised no exception", static_cast<int>(status));
  return nullptr;
}

PyObject* forward(PyObject*, PyObject* arguments) {
  PyObject *objects[kV + 1], *options, *return_lse;
  if (!PyArg_UnpackTuple(arguments, "forward", 5, 5, &objects[kQ], &objects[kK], &objects[kV], &options, &return_lse)) {
    return nullptr;
  }
  DLTensor tensors[kV + 1];
  Key key;
  bool wants_lse = false;
  if (!read_flag(return_lse, wants_lse) || !recognize_forward(key, objects, tensors, options)) return not_served();
  const Use entry(forward_calls.find(key));
  if (!entry) return not_served();
  const Launch& launch = entry->launch;
  Operands handed = launch.operands;
  handed[ATTUNE_Q].data = data_of(tensors[kQ]);
  handed[ATTUNE_K].data = data_of(tensors[kK]);
  handed[ATTUNE_V].data = data_of(tensors[kV]);
  const DLDevice device = tensors[kQ].device;

  Reference out(PyObject_CallFunctionObjArgs(empty_like, objects[kQ], nullptr));
  if (!out) return nullptr;
  DLTensor result;
  if (!read(out.get(), result) || !launch.fits(result, handed[ATTUNE_O])) return not_served();
  handed[ATTUNE_O].data = data_of(result);

  Reference lse;
  if (wants_lse) {
    lse.take(new_empty(objects[kQ], entry->lse_shape, as_float32));
    if (!lse) return nullptr;
    if (!read(lse.get(), result)) return not_served();
    handed[ATTUNE_LSE].data = data_of(result);
  } else {
    lse.take(none());
  }

  Surroundings around;
  if (!around.find(entry, objects[kQ], device)) return around.is_served ? nullptr : not_served();
  PyThreadState* const unlocked = PyEval_SaveThread();
  const attune_status status = launch.run(handed, around.workspace_data, around.stream);
  PyEval_RestoreThread(unlocked);
  if (status != ATTUNE_OK) return failed(status);
  return PyTuple_Pack(2, out.get(), lse.get());
}

PyObject* backward(PyObject*, PyObject* arguments) {
  PyObject *objects[kMostTensors], *options;
  if (!PyArg_UnpackTuple(arguments, "backward", 8, 8, &objects[kGradOut], &objects[kQ], &objects[kK], &objects[kV],
                         &objects[kOut], &objects[kLse], &objects[kGradLse], &options)) {
    return nullptr;
  }
  DLTensor tensors[kMostTensors];
  Key key;
  if (!recognize_backward(key, objects, tensors, options)) return not_served();
  const Use entry(backward_calls.find(key));
  if (!entry) return not_served();
  const Launch& launch = entry->launch;
  Operands handed = launch.operands;
  handed[ATTUNE_Q].data = data_of(tensors[kQ]);
  handed[ATTUNE_K].data = data_of(tensors[kK]);
  handed[ATTUNE_V].data = data_of(tensors[kV]);
  handed[ATTUNE_O].data = data_of(tensors[kOut]);
  handed[ATTUNE_LSE].data = data_of(tensors[kLse]);
  handed[ATTUNE_D_O].data = data_of(tensors[kGradOut]);
  handed[ATTUNE_D_LSE].data = objects[kGradLse] == Py_None ? nullptr : data_of(tensors[kGradLse]);
  const DLDevice device = tensors[kQ].device;

  Reference grads[3];
  attune_tensor* const views[3] = {&handed[ATTUNE_D_Q], &handed[ATTUNE_D_K], &handed[ATTUNE_D_V]};
  for (int i = 0; i < 3; ++i) {
    grads[i].take(PyObject_CallFunctionObjArgs(empty_like, objects[kQ + i], nullptr));
    if (!grads[i]) return nullptr;
    DLTensor result;
    if (!read(grads[i].get(), result) || !launch.fits(result, *views[i])) return not_served();
    views[i]->data = data_of(result);
  }

  Surroundings around;
  if (!around.find(entry, objects[kQ], device)) return around.is_served ? nullptr : not_served();
  PyThreadState* const unlocked = PyEval_SaveThread();
  const attune_status status = launch.run(handed, around.workspace_data, around.stream);
  PyEval_RestoreThread(unlocked);
  if (status != ATTUNE_OK) return failed(status);
  return PyTuple_Pack(3, grads[0].get(), grads[1].get(), grads[2].get());
}

// Structs of the C interface from the bytes that _library.py has of them.
bool read_structs(PyObject* bytes, void* into, size_t expected) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &data, &size) != 0) return false;
  if (size != static_cast<Py_ssize_t>(expected)) {
    PyErr_Format(PyExc_ValueError, "a struct has %zd bytes: it must have %zu", size, expected);
    return false;
  }
  memcpy(into, data, expected);
  return true;
}

// Enters what the structs were made from. None of the words of the key is anything but an input of theirs.
PyObject* enter(Table& table, const Key& key, uint64_t function, PyObject* problem, PyObject* operands,
                size_t operand_count, size_t workspace_bytes, Py_ssize_t workspace_elements, PyObject* lse_shape) {
  Entry* const entry = new (std::nothrow) Entry;
  if (entry == nullptr) return PyErr_NoMemory();
  entry->key = key;
  Launch& launch = entry->launch;
  launch.function = function;
  launch.workspace_bytes = workspace_bytes;
  launch.workspace_elements = workspace_elements;
  launch.operand_count = operand_count;
  bool is_made = read_structs(problem, &launch.problem, sizeof launch.problem) &&
                 read_structs(operands, launch.operands.list, operand_count * sizeof(attune_operand));
  if (lse_shape != nullptr) {
    Py_INCREF(lse_shape);
    entry->lse_shape = lse_shape;
  }
  if (workspace_elements > 0)
    is_made = is_made && (entry->workspace_shape = Py_BuildValue("(n)", workspace_elements)) != nullptr;
  const bool is_added = is_made && table.add(entry);
  if (!is_added) entry->let_go();
  return is_made ? PyBool_FromLong(is_added) : nullptr;
}

PyObject* add_forward(PyObject*, PyObject* arguments) {
  PyObject *objects[kV + 1], *options, *problem, *operands, *lse_shape;
  unsigned long long function = 0, workspace_bytes = 0;
  Py_ssize_t workspace_elements = 0;
  if (!PyArg_ParseTuple(arguments, "OOOOKOOKnO!", &objects[kQ], &objects[kK], &objects[kV], &options, &function,
                        &problem, &operands, &workspace_bytes, &workspace_elements, &PyTuple_Type, &lse_shape)) {
    return nullptr;
  }
  DLTensor tensors[kV + 1];
  Key key;
  if (!recognize_forward(key, objects, tensors, options)) Py_RETURN_FALSE;
  return enter(forward_calls, key, function, problem, operands, kForwardOperands, workspace_bytes, workspace_elements,
               lse_shape);
}

PyObject* add_backward(PyObject*, PyObject* arguments) {
  PyObject *objects[kMostTensors], *options, *problem, *operands;
  unsigned long long function = 0, workspace_bytes = 0;
  Py_ssize_t workspace_elements = 0;
  if (!PyArg_ParseTuple(arguments, "OOOOOOOOKOOKn", &objects[kGradOut], &objects[kQ], &objects[kK], &objects[kV],
                        &objects[kOut], &objects[kLse], &objects[kGradLse], &options, &function, &problem, &operands,
                        &workspace_bytes, &workspace_elements)) {
    return nullptr;
  }
  DLTensor tensors[kMostTensors];
  Key key;
  if (!recognize_backward(key, objects, tensors, options)) Py_RETURN_FALSE;
  return enter(backward_calls, key, function, problem, operands, kBackwardOperands, workspace_bytes, workspace_elements,
               nullptr);
}

PyObject* forget_forward(PyObject*, PyObject*) {
  forward_calls.clear();
  return none();
}

PyObject* forget_backward(PyObject*, PyObject*) {
  backward_calls.clear();
  return none();
}

PyObject* kinds(PyObject*, PyObject*) { return Py_BuildValue("(ii)", forward_calls.size(), backward_calls.size()); }

PyObject* use(PyObject*, PyObject* arguments) {
  PyObject *capsule, *type, *like, *options, *asks, *raises;
  if (!PyArg_UnpackTuple(arguments, "use", 6, 6, &capsule, &type, &like, &options, &asks, &raises)) return nullptr;
  auto* header = static_cast<const DLPackExchangeAPIHeader*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  if (header == nullptr) return nullptr;
  while (header != nullptr && header->version.major != kDlpackMajorVersion) header = header->prev_api;
  auto* const api = reinterpret_cast<const DLPackExchangeAPI*>(header);
  if (api == nullptr || api->dltensor_from_py_object_no_sync == nullptr || api->current_work_stream == nullptr)
    Py_RETURN_FALSE;
  forward_calls.clear();
  backward_calls.clear();
  keep(tensor_type, type);
  keep(empty_like, like);
  keep(as_float32, options);
  keep(is_deterministic, asks);
  keep(raise_status, raises);
  exchange = api;
  Py_RETURN_TRUE;
}

PyMethodDef methods[] = {
    {"use", use, METH_VARARGS,
     "use(exchange, tensor_type, empty_like, as_float32, is_deterministic, raise_status): False if this version of "
     "DLPack is not known."},
    {"add_forward", add_forward, METH_VARARGS,
     "add_forward(q, k, v, options, function, problem, operands, workspace_bytes, workspace_elements, lse_shape): "
     "whether calls like this are served from now on."},
    {"add_backward", add_backward, METH_VARARGS,
     "add_backward(grad_out, q, k, v, out, lse, grad_lse, options, function, problem, operands, "
     "workspace_bytes, workspace_elements): the same."},
    {"forward", forward, METH_VARARGS,
     "forward(q, k, v, options, return_lse): (out, lse), or None if the call is not served here."},
    {"backward", backward, METH_VARARGS,
     "backward(grad_out, q, k, v, out, lse, grad_lse, options): (grad_q, grad_k, grad_v), or None if the call is not "
     "served here."},
    {"forget_forward", forget_forward, METH_NOARGS, "Empties the table of forward()."},
    {"forget_backward", forget_backward, METH_NOARGS, "Empties the table of backward()."},
    {"kinds", kinds, METH_NOARGS, "How many kinds of calls forward() and backward() serve."},
    {"use_shims", use_shims, METH_O, "use_shims({name: address}): whether all functions of torch_shims.h are there."},
    {"implement", implement, METH_VARARGS,
     "implement(operator, key): what implements PyTorch's operator for a dispatch key in C, as long as it lives."},
    {"record_by", record_by, METH_VARARGS,
     "record_by(operator, saved_tensor_hooks, is_tracing): what attend() asks of PyTorch."},
    {"attend", attend, METH_VARARGS,
     "attend(q, k, v, options): out, whose derivative PyTorch has recorded, or None if the call is not served here."},
    {"served", served, METH_NOARGS, "How many calls of operators forward and backward were served in C."},
    {"options_of", options_of, METH_VARARGS,
     "options_of(code, left, right, scale): the options that attend() has told PyTorch so."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT,
                      "_known_calls",
                      "Serves repeated calls; _calls.py says how.",
                      -1,
                      methods,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr};

void before_fork() {
  forward_calls.hold();
  backward_calls.hold();
}

void after_fork() {
  backward_calls.release();
  forward_calls.release();
}

}  // namespace
}  // namespace attune_python

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the name that Python looks for.
PyMODINIT_FUNC PyInit__known_calls() {
  using namespace attune_python;
  new_empty_name = PyUnicode_InternFromString("new_empty");
  if (new_empty_name == nullptr) return nullptr;
  if (pthread_atfork(before_fork, after_fork, after_fork) != 0) return PyErr_NoMemory();
  PyObject* const made = PyModule_Create(&module);
  if (made != nullptr && PyModule_AddIntConstant(made, "INTERFACE", kInterface) != 0) {
    Py_DECREF(made);
    return nullptr;
  }
  return made;
}
