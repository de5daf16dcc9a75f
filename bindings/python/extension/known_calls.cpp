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
// Python's lock guards the table. An entry is counted, since a call lets go of the lock while it is in use: in the
// launch, and wherever PyTorch runs Python code. Compiled against the limited API of Python 3.9, so that one file
// serves all later versions that have the lock.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include <new>

#include "attune.h"
#include "dlpack_exchange.h"

namespace {

using ForwardFunction = attune_status (*)(const attune_problem*, const attune_tensors*, void*, size_t, void*);
using BackwardFunction = attune_status (*)(const attune_problem*, const attune_tensors*, const attune_gradients*, void*,
                                           size_t, void*);

// What _extension.py asks for: grows with each change of what functions here take or return.
constexpr int kInterface = 1;
constexpr int kMostDimensions = 4;
constexpr int kMostTensors = 7;                          // of backward: q, k, v, out, lse, grad_out, grad_lse
constexpr int kWordsOfTensor = 2 + 2 * kMostDimensions;  // type and dimensions, device, shape, strides
constexpr int kWordsOfOptions = 4;                       // choices, scale, both sides of the window
constexpr int kMostWords = kMostTensors * kWordsOfTensor + kWordsOfOptions + 1;
constexpr int kBuckets = 2048;  // of a table
// Of a table; _calls.py, which enters as many kinds and then forgets them, never gets here.
constexpr int kMostEntries = 4096;
constexpr uint64_t kAlignment = 16;  // the most that a kernel asks of an address

// What use() was given.
const DLPackExchangeAPI* exchange = nullptr;
PyObject* tensor_type = nullptr;       // torch.Tensor
PyObject* empty_like = nullptr;        // torch.empty_like
PyObject* as_float32 = nullptr;        // {"dtype": torch.float32}
PyObject* is_deterministic = nullptr;  // torch.are_deterministic_algorithms_enabled
PyObject* raise_status = nullptr;      // raises what the library's status and last error say
PyObject* new_empty_name = nullptr;

// A counted reference to an object; empty after a call that failed.
class Reference {
 public:
  explicit Reference(PyObject* owned = nullptr) : object_(owned) {}
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  void take(PyObject* owned) {
    PyObject* const before = object_;
    object_ = owned;
    Py_XDECREF(before);
  }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

PyObject* not_served() { return none(); }

uint64_t address_of(const DLTensor& tensor) { return reinterpret_cast<uint64_t>(tensor.data) + tensor.byte_offset; }

void* data_of(const DLTensor& tensor) { return static_cast<char*>(tensor.data) + tensor.byte_offset; }

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

// What a call is recognized by.
struct Key {
  int64_t words[kMostWords];
  int count = 0;
  uint64_t addresses = 0;  // or-ed: their alignment becomes a word in the end

  void add(int64_t word) { words[count++] = word; }

  void add(const DLTensor& tensor) {
    add(int64_t{tensor.dtype.code} | int64_t{tensor.dtype.bits} << 8 | int64_t{tensor.dtype.lanes} << 16 |
        int64_t{tensor.ndim} << 32);
    add(int64_t{tensor.device.device_type} << 32 | static_cast<uint32_t>(tensor.device.device_id));
    for (int axis = 0; axis < tensor.ndim; ++axis) {
      add(tensor.shape[axis]);
      add(tensor.strides[axis]);
    }
  }

  // In the place of a tensor that is not there; no tensor begins with it.
  void add_nothing() { add(-1); }

  void note_address(const DLTensor& tensor) { addresses |= address_of(tensor); }

  void add_alignment() { add(static_cast<int64_t>(addresses & (kAlignment - 1))); }

  uint64_t hash() const {
    uint64_t mixed = 0;
    for (int i = 0; i < count; ++i) {
      mixed = (mixed ^ static_cast<uint64_t>(words[i])) * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
      mixed ^= mixed >> 29;
    }
    return mixed;
  }

  bool operator==(const Key& other) const {
    return count == other.count && memcmp(words, other.words, sizeof words[0] * static_cast<size_t>(count)) == 0;
  }
};

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

// (causal, scale, layout, top_left, window, deterministic) as words, if each is of the type that it has in most
// programs. Backward has results that depend on whether they must be deterministic, and asks PyTorch if the call does
// not say.
bool add_options(Key& key, PyObject* options, bool is_backward) {
  constexpr int64_t kCausal = 1, kTopLeft = 2, kBshd = 4, kDeterministic = 8, kDeterministicGiven = 16, kScale = 32,
                    kWindow = 64;
  if (!PyTuple_CheckExact(options) || PyTuple_Size(options) != 6) return false;
  PyObject* const scale = PyTuple_GetItem(options, 1);
  PyObject* const layout = PyTuple_GetItem(options, 2);
  PyObject* const window = PyTuple_GetItem(options, 4);
  PyObject* const deterministic = PyTuple_GetItem(options, 5);

  bool causal = false, top_left = false;
  if (!read_flag(PyTuple_GetItem(options, 0), causal) || !read_flag(PyTuple_GetItem(options, 3), top_left))
    return false;
  int64_t choices = (causal ? kCausal : 0) | (top_left ? kTopLeft : 0);

  double factor = 0;
  if (scale != Py_None) {
    if (!PyFloat_CheckExact(scale)) return false;
    factor = PyFloat_AsDouble(scale);
    choices |= kScale;
  }

  if (!PyUnicode_CheckExact(layout)) return false;
  if (PyUnicode_CompareWithASCIIString(layout, "bshd") == 0) {
    choices |= kBshd;
  } else if (PyUnicode_CompareWithASCIIString(layout, "bhsd") != 0) {
    return false;
  }

  int64_t left = 0, right = 0;
  if (window != Py_None) {
    if (!PyTuple_CheckExact(window) || PyTuple_Size(window) != 2) return false;
    if (!read_side(PyTuple_GetItem(window, 0), left) || !read_side(PyTuple_GetItem(window, 1), right)) return false;
    choices |= kWindow;
  }

  if (deterministic != Py_None) {
    bool given = false;
    if (!read_flag(deterministic, given)) return false;
    choices |= kDeterministicGiven | (given ? kDeterministic : 0);
  } else if (is_backward) {
    const Reference now(PyObject_CallFunctionObjArgs(is_deterministic, nullptr));
    bool enabled = false;
    if (!now || !read_flag(now.get(), enabled)) {
      PyErr_Clear();
      return false;
    }
    choices |= kDeterministicGiven | (enabled ? kDeterministic : 0);
  }

  int64_t bits = 0;
  memcpy(&bits, &factor, sizeof bits);
  key.add(choices);
  key.add(bits);
  key.add(left);
  key.add(right);
  return true;
}

// What calls of one kind hand over, but for pointers to data.
struct Entry {
  Entry* next = nullptr;  // in its bucket
  uint64_t hash = 0;
  int users = 1;  // the table, and each call under way
  Key key;
  uint64_t function = 0;  // attune_forward or attune_backward
  attune_problem problem;
  attune_tensors tensors;
  attune_gradients gradients;  // of backward alone
  size_t workspace_bytes = 0;
  // Arguments of new_empty(): sizes one by one, which PyTorch reads faster than a tuple of them.
  PyObject* workspace_shape = nullptr;  // null if no workspace is needed
  PyObject* lse_shape = nullptr;

  ~Entry() {
    Py_XDECREF(workspace_shape);
    Py_XDECREF(lse_shape);
  }

  void let_go() {
    if (--users == 0) delete this;
  }
};

// An entry that a call uses: it stays, though the table may forget it.
class Use {
 public:
  explicit Use(Entry* entry) : entry_(entry) {
    if (entry_ != nullptr) ++entry_->users;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    if (entry_ != nullptr) entry_->let_go();
  }

  const Entry* operator->() const { return entry_; }
  explicit operator bool() const { return entry_ != nullptr; }

 private:
  Entry* entry_;
};

class Table {
 public:
  Entry* find(const Key& key) const {
    const uint64_t hash = key.hash();
    Entry* entry = buckets_[hash % kBuckets];
    while (entry != nullptr && !(entry->hash == hash && entry->key == key)) entry = entry->next;
    return entry;
  }

  int size() const { return count_; }

  // Takes the place of an entry with the same key. False if the table is full.
  bool add(Entry* entry) {
    entry->hash = entry->key.hash();
    Entry** place = &buckets_[entry->hash % kBuckets];
    while (*place != nullptr && !((*place)->hash == entry->hash && (*place)->key == entry->key))
      place = &(*place)->next;
    Entry* const before = *place;
    if (before == nullptr && count_ == kMostEntries) return false;
    entry->next = before == nullptr ? nullptr : before->next;
    *place = entry;
    if (before == nullptr) {
      ++count_;
    } else {
      before->let_go();
    }
    return true;
  }

  void clear() {
    for (Entry*& bucket : buckets_) {
      while (bucket != nullptr) {
        Entry* const entry = bucket;
        bucket = entry->next;
        --count_;
        entry->let_go();
      }
    }
  }

 private:
  Entry* buckets_[kBuckets] = {};
  int count_ = 0;
};

Table forward_calls, backward_calls;

enum { kQ, kK, kV, kOut, kLse, kGradOut, kGradLse };

bool add_forward_tensors(Key& key, PyObject* const* objects, DLTensor* tensors) {
  for (int i = kQ; i <= kV; ++i) {
    if (!read(objects[i], tensors[i])) return false;
    key.add(tensors[i]);
    key.note_address(tensors[i]);
  }
  key.add_alignment();
  return true;
}

bool add_backward_tensors(Key& key, PyObject* const* objects, DLTensor* tensors) {
  for (int i = kQ; i <= kGradLse; ++i) {
    if (i == kGradLse && objects[i] == Py_None) {
      key.add_nothing();
      continue;
    }
    if (!read(objects[i], tensors[i])) return false;
    key.add(tensors[i]);
    if (i != kLse && i != kGradLse) key.note_address(tensors[i]);
  }
  key.add_alignment();
  return true;
}

// tensor.new_empty(*shape, **options)
PyObject* new_empty(PyObject* tensor, PyObject* shape, PyObject* options) {
  const Reference method(PyObject_GetAttr(tensor, new_empty_name));
  return method ? PyObject_Call(method.get(), shape, options) : nullptr;
}

// Whether a result that PyTorch has just made can be handed over as `expected` has it: in eager programs always.
bool fits(const DLTensor& tensor, const attune_tensor& expected, bool is_bshd) {
  const int head_axis = is_bshd ? 2 : 1, seq_axis = is_bshd ? 1 : 2;
  return tensor.ndim == kMostDimensions && tensor.strides[0] == expected.stride_batch &&
         tensor.strides[head_axis] == expected.stride_head && tensor.strides[seq_axis] == expected.stride_row &&
         address_of(tensor) % kAlignment == 0;
}

bool has_layout_bshd(const attune_problem& problem) { return problem.layout == ATTUNE_LAYOUT_BSHD; }

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
  if (exchange == nullptr || !read_flag(return_lse, wants_lse) || !add_forward_tensors(key, objects, tensors) ||
      !add_options(key, options, false)) {
    return not_served();
  }
  const Use entry(forward_calls.find(key));
  if (!entry) return not_served();
  attune_tensors handed = entry->tensors;
  handed.q.data = data_of(tensors[kQ]);
  handed.k.data = data_of(tensors[kK]);
  handed.v.data = data_of(tensors[kV]);
  const DLDevice device = tensors[kQ].device;

  Reference out(PyObject_CallFunctionObjArgs(empty_like, objects[kQ], nullptr));
  if (!out) return nullptr;
  DLTensor result;
  if (!read(out.get(), result) || !fits(result, handed.o, has_layout_bshd(entry->problem))) return not_served();
  handed.o.data = data_of(result);

  Reference lse;
  if (wants_lse) {
    lse.take(new_empty(objects[kQ], entry->lse_shape, as_float32));
    if (!lse) return nullptr;
    if (!read(lse.get(), result)) return not_served();
    handed.lse = static_cast<float*>(data_of(result));
  } else {
    lse.take(none());
  }

  Surroundings around;
  if (!around.find(entry, objects[kQ], device)) return around.is_served ? nullptr : not_served();
  PyThreadState* const unlocked = PyEval_SaveThread();
  const attune_status status = reinterpret_cast<ForwardFunction>(entry->function)(
      &entry->problem, &handed, around.workspace_data, entry->workspace_bytes, around.stream);
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
  if (exchange == nullptr || !add_backward_tensors(key, objects, tensors) || !add_options(key, options, true)) {
    return not_served();
  }
  const Use entry(backward_calls.find(key));
  if (!entry) return not_served();
  attune_tensors handed = entry->tensors;
  handed.q.data = data_of(tensors[kQ]);
  handed.k.data = data_of(tensors[kK]);
  handed.v.data = data_of(tensors[kV]);
  handed.o.data = data_of(tensors[kOut]);
  handed.lse = static_cast<float*>(data_of(tensors[kLse]));
  attune_gradients gradients = entry->gradients;
  gradients.d_o.data = data_of(tensors[kGradOut]);
  gradients.d_lse = objects[kGradLse] == Py_None ? nullptr : static_cast<const float*>(data_of(tensors[kGradLse]));
  const DLDevice device = tensors[kQ].device;

  Reference grads[3];
  attune_tensor* const views[3] = {&gradients.d_q, &gradients.d_k, &gradients.d_v};
  for (int i = 0; i < 3; ++i) {
    grads[i].take(PyObject_CallFunctionObjArgs(empty_like, objects[kQ + i], nullptr));
    if (!grads[i]) return nullptr;
    DLTensor result;
    if (!read(grads[i].get(), result) || !fits(result, *views[i], has_layout_bshd(entry->problem))) return not_served();
    views[i]->data = data_of(result);
  }

  Surroundings around;
  if (!around.find(entry, objects[kQ], device)) return around.is_served ? nullptr : not_served();
  PyThreadState* const unlocked = PyEval_SaveThread();
  const attune_status status = reinterpret_cast<BackwardFunction>(entry->function)(
      &entry->problem, &handed, &gradients, around.workspace_data, entry->workspace_bytes, around.stream);
  PyEval_RestoreThread(unlocked);
  if (status != ATTUNE_OK) return failed(status);
  return PyTuple_Pack(3, grads[0].get(), grads[1].get(), grads[2].get());
}

// A struct of the C interface from the bytes that _library.py has of it.
template <class Struct>
bool read_struct(PyObject* bytes, Struct& into) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &data, &size) != 0) return false;
  if (size != static_cast<Py_ssize_t>(sizeof into)) {
    PyErr_Format(PyExc_ValueError, "a struct has %zd bytes: it must have %zu", size, sizeof into);
    return false;
  }
  memcpy(&into, data, sizeof into);
  return true;
}

// Enters what the structs were made from. None of the words of the key is anything but an input of theirs.
PyObject* enter(Table& table, const Key& key, uint64_t function, PyObject* problem, PyObject* tensors,
                PyObject* gradients, size_t workspace_bytes, Py_ssize_t workspace_elements, PyObject* lse_shape) {
  Entry* const entry = new (std::nothrow) Entry;
  if (entry == nullptr) return PyErr_NoMemory();
  entry->key = key;
  entry->function = function;
  entry->workspace_bytes = workspace_bytes;
  bool is_made = read_struct(problem, entry->problem) && read_struct(tensors, entry->tensors);
  if (gradients != nullptr) is_made = is_made && read_struct(gradients, entry->gradients);
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
  PyObject *objects[kV + 1], *options, *problem, *views, *lse_shape;
  unsigned long long function = 0, workspace_bytes = 0;
  Py_ssize_t workspace_elements = 0;
  if (!PyArg_ParseTuple(arguments, "OOOOKOOKnO!", &objects[kQ], &objects[kK], &objects[kV], &options, &function,
                        &problem, &views, &workspace_bytes, &workspace_elements, &PyTuple_Type, &lse_shape)) {
    return nullptr;
  }
  DLTensor tensors[kV + 1];
  Key key;
  if (exchange == nullptr || !add_forward_tensors(key, objects, tensors) || !add_options(key, options, false))
    Py_RETURN_FALSE;
  return enter(forward_calls, key, function, problem, views, nullptr, workspace_bytes, workspace_elements, lse_shape);
}

PyObject* add_backward(PyObject*, PyObject* arguments) {
  PyObject *objects[kMostTensors], *options, *problem, *views, *gradients;
  unsigned long long function = 0, workspace_bytes = 0;
  Py_ssize_t workspace_elements = 0;
  if (!PyArg_ParseTuple(arguments, "OOOOOOOOKOOOKn", &objects[kGradOut], &objects[kQ], &objects[kK], &objects[kV],
                        &objects[kOut], &objects[kLse], &objects[kGradLse], &options, &function, &problem, &views,
                        &gradients, &workspace_bytes, &workspace_elements)) {
    return nullptr;
  }
  DLTensor tensors[kMostTensors];
  Key key;
  if (exchange == nullptr || !add_backward_tensors(key, objects, tensors) || !add_options(key, options, true))
    Py_RETURN_FALSE;
  return enter(backward_calls, key, function, problem, views, gradients, workspace_bytes, workspace_elements, nullptr);
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

void keep(PyObject*& place, PyObject* object) {
  Py_INCREF(object);
  PyObject* const before = place;
  place = object;
  Py_XDECREF(before);
}

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
     "add_forward(q, k, v, options, function, problem, tensors, workspace_bytes, workspace_elements, lse_shape): "
     "whether calls like this are served from now on."},
    {"add_backward", add_backward, METH_VARARGS,
     "add_backward(grad_out, q, k, v, out, lse, grad_lse, options, function, problem, tensors, gradients, "
     "workspace_bytes, workspace_elements): the same."},
    {"forward", forward, METH_VARARGS,
     "forward(q, k, v, options, return_lse): (out, lse), or None if the call is not served here."},
    {"backward", backward, METH_VARARGS,
     "backward(grad_out, q, k, v, out, lse, grad_lse, options): (grad_q, grad_k, grad_v), or None if the call is not "
     "served here."},
    {"forget_forward", forget_forward, METH_NOARGS, "Empties the table of forward()."},
    {"forget_backward", forget_backward, METH_NOARGS, "Empties the table of backward()."},
    {"kinds", kinds, METH_NOARGS, "How many kinds of calls forward() and backward() serve."},
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

}  // namespace

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the name that Python looks for.
PyMODINIT_FUNC PyInit__known_calls() {
  new_empty_name = PyUnicode_InternFromString("new_empty");
  if (new_empty_name == nullptr) return nullptr;
  PyObject* const made = PyModule_Create(&module);
  if (made != nullptr && PyModule_AddIntConstant(made, "INTERFACE", kInterface) != 0) {
    Py_DECREF(made);
    return nullptr;
  }
  return made;
}
