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

#include <stdlib.h>

#include <atomic>

#include "known_calls.h"
#include "torch_shims.h"

namespace attune_python {
namespace {

TorchShims shims;
bool has_shims = false;

std::atomic<long> served_forward{0}, served_backward{0};  // calls of the operators, not those that were handed over

// What record_by() was given.
PyObject* recorded_operator = nullptr;   // aten::_scaled_dot_product_fused_attention_overrideable
PyObject* saved_tensor_hooks = nullptr;  // those in force, or None
PyObject* is_tracing = nullptr;

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

TorchTensor* tensor_of(TorchValue value) { return reinterpret_cast<TorchTensor*>(value); }

bool flag_of(TorchValue value) { return (value & 0xff) != 0; }

double number_of(TorchValue value) {
  double number = 0;
  memcpy(&number, &value, sizeof number);
  return number;
}

TorchValue undefined() {
  TorchTensor* tensor = nullptr;
  shims.aoti_torch_new_uninitialized_tensor(&tensor);
  return reinterpret_cast<TorchValue>(tensor);
}

bool is_defined(TorchValue value) {
  bool defined = false;
  return shims.aoti_torch_is_defined(tensor_of(value), &defined) == 0 && defined;
}

// A tensor as a key has it, and as PyTorch numbers its type and device.
struct View {
  DLTensor tensor = {};
  int32_t dtype = 0, device_type = 0, device_index = 0;
};

// False for what the library is never handed: undefined, of no memory, of another type or device.
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

// A new tensor on the device of `like`.
bool allocate(const View& like, int32_t dtype, int rank, const int64_t* sizes, const int64_t* strides,
              OwnedTensor& made) {
  return shims.aoti_torch_empty_strided(rank, sizes, strides, dtype, like.device_type, like.device_index,
                                        made.place()) == 0;
}

// A new tensor of the shape of `like` and the strides that calls of this kind have; its address.
void* allocate_result(const Launch& launch, const View& like, const attune_tensor& expected, OwnedTensor& made) {
  int64_t strides[kMostDimensions] = {expected.stride_batch, expected.stride_head, expected.stride_row, 1};
  if (launch.is_bshd()) {
    strides[1] = expected.stride_row;
    strides[2] = expected.stride_head;
  }
  void* data = nullptr;
  if (!allocate(like, like.dtype, kMostDimensions, like.tensor.shape, strides, made) ||
      shims.aoti_torch_get_data_ptr(made.get(), &data) != 0 || reinterpret_cast<uint64_t>(data) % kAlignment != 0) {
    return nullptr;
  }
  return data;
}

// What every launch needs beside its tensors, from where q's memory comes from and on its stream.
struct Surroundings {
  OwnedTensor workspace;  // lives until the launch is on its stream
  void* workspace_data = nullptr;
  void* stream = nullptr;

  bool find(const Launch& launch, const View& q) {
    if (launch.workspace_elements > 0) {
      const int64_t stride = 1;
      if (!allocate(q, q.dtype, 1, &launch.workspace_elements, &stride, workspace) ||
          shims.aoti_torch_get_data_ptr(workspace.get(), &workspace_data) != 0) {
        return false;
      }
    }
    if (q.device_type == kTorchCpu) return true;
    return shims.aoti_torch_get_current_cuda_stream != nullptr &&
           shims.aoti_torch_get_current_cuda_stream(q.device_index, &stream) == 0;
  }
};

// False leaves the call to the Python code, which makes it anew and raises what there is to raise.
bool launch_forward(const Launch& launch, const View* views, OwnedTensor& out, OwnedTensor& lse, bool lse_is_column) {
  const View& q = views[kQ];
  attune_tensors handed = launch.tensors;
  handed.q.data = data_of(views[kQ].tensor);
  handed.k.data = data_of(views[kK].tensor);
  handed.v.data = data_of(views[kV].tensor);
  handed.o.data = allocate_result(launch, q, handed.o, out);

  const int64_t* const shape = q.tensor.shape;
  const int64_t heads = shape[launch.is_bshd() ? 2 : 1], rows = shape[launch.is_bshd() ? 1 : 2];
  const int64_t sizes[] = {shape[0], heads, rows, 1}, strides[] = {heads * rows, rows, 1, 1};
  void* lse_data = nullptr;
  if (handed.o.data == nullptr ||
      !allocate(q, shims.aoti_torch_dtype_float32(), lse_is_column ? 4 : 3, sizes, strides, lse) ||
      shims.aoti_torch_get_data_ptr(lse.get(), &lse_data) != 0) {
    return false;
  }
  handed.lse = static_cast<float*>(lse_data);

  Surroundings around;
  return around.find(launch, q) &&
         reinterpret_cast<ForwardFunction>(launch.function)(&launch.problem, &handed, around.workspace_data,
                                                            launch.workspace_bytes, around.stream) == ATTUNE_OK;
}

bool serve_forward(const TorchValue* stack, const Options& options, OwnedTensor& out, OwnedTensor& lse,
                   bool lse_is_column) {
  View views[kV + 1];
  Key key;
  DLTensor tensors[kV + 1];
  for (int i = kQ; i <= kV; ++i) {
    if (!read(tensor_of(stack[i]), views[i])) return false;
    tensors[i] = views[i].tensor;
  }
  key.add_forward_tensors(tensors);
  key.add(options);
  Launch launch;
  if (!forward_calls.copy(key, launch) || !launch_forward(launch, views, out, lse, lse_is_column)) return false;
  ++served_forward;
  return true;
}

// `places` of q, k, v, out, lse and grad_out on the stack.
bool serve_backward(const TorchValue* stack, const int* places, Options options, OwnedTensor* grads) {
  View views[kGradOut + 1];
  DLTensor tensors[kMostTensors];
  for (int i = kQ; i <= kGradOut; ++i) {
    if (!read(tensor_of(stack[places[i]]), views[i])) return false;
    tensors[i] = views[i].tensor;
  }
  // cuDNN's has a fourth dimension of size 1, which the library's has not.
  if (tensors[kLse].ndim == 4 && tensors[kLse].shape[3] == 1) tensors[kLse].ndim = 3;
  options.settle_deterministic(shims.deterministic_algorithms(shims.global_context()));
  Key key;
  key.add_backward_tensors(tensors, false);
  key.add(options);
  Launch launch;
  if (!backward_calls.copy(key, launch)) return false;

  attune_tensors handed = launch.tensors;
  handed.q.data = data_of(tensors[kQ]);
  handed.k.data = data_of(tensors[kK]);
  handed.v.data = data_of(tensors[kV]);
  handed.o.data = data_of(tensors[kOut]);
  handed.lse = static_cast<float*>(data_of(tensors[kLse]));
  attune_gradients gradients = launch.gradients;
  gradients.d_o.data = data_of(tensors[kGradOut]);
  gradients.d_lse = nullptr;
  attune_tensor* const results[] = {&gradients.d_q, &gradients.d_k, &gradients.d_v};
  for (int i = kQ; i <= kV; ++i) {
    results[i]->data = allocate_result(launch, views[i], *results[i], grads[i]);
    if (results[i]->data == nullptr) return false;
  }
  Surroundings around;
  if (!around.find(launch, views[kQ])) return false;
  const attune_status status = reinterpret_cast<BackwardFunction>(launch.function)(
      &launch.problem, &handed, &gradients, around.workspace_data, launch.workspace_bytes, around.stream);
  if (status != ATTUNE_OK) return false;
  ++served_backward;
  return true;
}

// Of each argument of an operator, how it is freed.
enum Argument : char { kTensor = 'T', kNumber = 'n', kList = 'l', kOptionalTensor = 't', kOptionalNumber = 'o' };

void free_arguments(const char* arguments, const TorchValue* stack) {
  for (; *arguments != 0; ++arguments, ++stack) {
    auto* const inner = reinterpret_cast<TorchValue*>(*stack);
    switch (*arguments) {
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

// Calls the operator of that name with the arguments on the stack, and puts its results there, which end with a
// failure. Both kinds of results are tensors: PyTorch 2.11 mistakes the types of others.
void hand_over(const char* name, TorchValue* stack, int results) {
  if (shims.torch_call_dispatcher(name, "", stack, kTorchInterface) != 0) raise(tensor_of(undefined()));
  TorchTensor* const failure = tensor_of(stack[results]);
  if (is_defined(stack[results])) {
    for (int i = 0; i < results; ++i) shims.aoti_torch_delete_tensor_object(tensor_of(stack[i]));
    raise(failure);
  }
  shims.aoti_torch_delete_tensor_object(failure);
}

// The same for a forward operator: out, lse, cum_seq_q, cum_seq_k, two results that belong to dropout, debug_attn_mask,
// and max_q and max_k as one tensor in the host's memory, which become numbers in the middle.
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

void put_gradients(const char* arguments, TorchValue* stack, OwnedTensor* grads) {
  free_arguments(arguments, stack);
  for (int i = kQ; i <= kV; ++i) stack[i] = grads[i].release();
}

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
  // Of a dropout that there is not, and of a mask that nobody asked for.
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

void flash_forward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_flash_forward(stack)) hand_over_forward("attune_kernels::_flash_forward", stack);
}

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

void flash_backward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_flash_backward(stack)) hand_over("attune_kernels::_flash_backward", stack, 3);
}

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

void cudnn_forward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_cudnn_forward(stack)) hand_over_forward("attune_kernels::_cudnn_forward", stack);
}

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

void cudnn_backward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_cudnn_backward(stack)) hand_over("attune_kernels::_cudnn_backward", stack, 3);
}

// What attend() leaves for the operator that it calls on its thread.
struct Attended {
  Launch launch;
  Options options;
  void* data[kV + 1];
};

thread_local const Attended* attended = nullptr;

// (q, k, v, attn_bias, dropout_p, is_causal, return_debug_mask, scale)
constexpr char kAttentionForward[] = "TTTtnnno";

// Without out if the launch fails or the tensors are not those of attend(), as a mode might do; attend() then leaves
// the call to the Python code.
void attend_forward(const Attended& call, TorchValue* stack) {
  OwnedTensor out, lse;
  View views[kV + 1];
  bool is_served = true;
  for (int i = kQ; i <= kV; ++i)
    is_served = is_served && read(tensor_of(stack[i]), views[i]) && data_of(views[i].tensor) == call.data[i];
  is_served = is_served && launch_forward(call.launch, views, out, lse, false);
  if (is_served) ++served_forward;
  free_arguments(kAttentionForward, stack);
  stack[0] = is_served ? out.release() : undefined();
  stack[1] = is_served ? lse.release() : undefined();
  stack[2] = undefined();
  stack[3] = undefined();
  stack[4] = static_cast<TorchValue>(call.options.left);
  stack[5] = static_cast<TorchValue>(call.options.right);
  for (int i = 6; i < 9; ++i) stack[i] = undefined();
}

void attention_forward(TorchValue* stack, uint64_t, uint64_t) {
  const Attended* const call = attended;
  attended = nullptr;
  if (call == nullptr) {
    hand_over_forward("attune_kernels::_attention_forward", stack);  // which refuses it as PyTorch does
  } else {
    attend_forward(*call, stack);
  }
}

double code_of(const Options& options) { return static_cast<double>(-1 - options.choices); }

// False if the number is none that code_of() gives.
bool read_code(double code, Options& options) {
  if (!(code <= -1 && code >= -1 - Options::kAllChoices)) return false;
  options.choices = static_cast<int64_t>(-1 - code);
  return code_of(options) == code;
}

// (grad_out, q, k, v, attn_bias, grad_input_mask, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
// seed, offset, scale)
constexpr char kAttentionBackward[] = "TTTTTlTTTTnnnnTTo";

bool serve_attention_backward(TorchValue* stack) {
  constexpr int kPlaces[] = {1, 2, 3, 6, 7, 0};
  Options options;
  // Whoever differentiates gradients or watches operators is to see one that is recorded.
  if (shims.aoti_torch_grad_mode_is_enabled() || shims.dispatch_mode_enabled(false)) return false;
  if (!read_code(number_of(stack[12]), options)) return false;
  options.left = static_cast<int64_t>(stack[10]);
  options.right = static_cast<int64_t>(stack[11]);
  if (options.has(Options::kScale)) {
    if (stack[16] == 0) return false;
    options.scale = number_of(*reinterpret_cast<const TorchValue*>(stack[16]));
  }
  OwnedTensor grads[3];
  if (!serve_backward(stack, kPlaces, options, grads)) return false;
  put_gradients(kAttentionBackward, stack, grads);
  stack[3] = undefined();
  return true;
}

void attention_backward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_attention_backward(stack)) hand_over("attune_kernels::_attention_backward", stack, 4);
}

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
    if (shims.aoti_torch_library_init_impl("aten", key, __FILE__, __LINE__, &library) != 0) break;
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

PyObject* record_by(PyObject*, PyObject* arguments) {
  PyObject *op, *hooks, *tracing;
  if (!PyArg_UnpackTuple(arguments, "record_by", 3, 3, &op, &hooks, &tracing)) return nullptr;
  keep(recorded_operator, op);
  keep(saved_tensor_hooks, hooks);
  keep(is_tracing, tracing);
  return none();
}

PyObject* attend(PyObject*, PyObject* arguments) {
  PyObject *objects[kV + 1], *given;
  if (!PyArg_UnpackTuple(arguments, "attend", 4, 4, &objects[kQ], &objects[kK], &objects[kV], &given)) return nullptr;
  DLTensor tensors[kV + 1];
  Attended call;
  if (!has_shims || recorded_operator == nullptr || !read_forward_tensors(objects, tensors) ||
      !read_options(given, call.options)) {
    return not_served();
  }
  Key key;
  key.add_forward_tensors(tensors);
  key.add(call.options);
  if (!forward_calls.copy(key, call.launch)) return not_served();
  for (int i = kQ; i <= kV; ++i) call.data[i] = data_of(tensors[i]);

  // Who keeps saved tensors elsewhere, such as a checkpoint, may count on what a call saves. The Python code saves the
  // same at every call, also at the first of a kind.
  const Reference hooks(PyObject_CallFunctionObjArgs(saved_tensor_hooks, Py_False, nullptr));
  if (!hooks) return nullptr;
  const Reference tracing(PyObject_CallFunctionObjArgs(is_tracing, nullptr));
  if (!tracing) return nullptr;
  if (hooks.get() != Py_None || tracing.get() != Py_False) return not_served();

  const Reference code(PyFloat_FromDouble(code_of(call.options)));
  const Reference positional(code ? PyTuple_Pack(5, objects[kQ], objects[kK], objects[kV], Py_None, code.get())
                                  : nullptr);
  if (!positional) return nullptr;
  Reference named;
  if (call.options.has(Options::kScale)) {
    named.take(Py_BuildValue("{sO}", "scale", PyTuple_GetItem(given, 1)));
    if (!named) return nullptr;
  }
  attended = &call;
  const Reference results(PyObject_Call(recorded_operator, positional.get(), named.get()));
  const bool is_ours = attended == nullptr;  // else somebody has put other kernels in place of these
  attended = nullptr;
  if (!results) {
    if (is_ours || !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
    PyErr_Clear();
    return not_served();
  }
  if (!is_ours || !PyTuple_CheckExact(results.get()) || PyTuple_Size(results.get()) < 1) return not_served();
  PyObject* const out = PyTuple_GetItem(results.get(), 0);
  Py_INCREF(out);  // None: not served
  return out;
}

PyObject* options_of(PyObject*, PyObject* arguments) {
  double code = 0;
  long long left = 0, right = 0;
  PyObject* scale = nullptr;
  if (!PyArg_ParseTuple(arguments, "dLLO", &code, &left, &right, &scale)) return nullptr;
  Options options;
  if (!read_code(code, options)) return none();
  const Reference window(options.has(Options::kWindow) ? Py_BuildValue("(LL)", left, right) : none());
  const Reference deterministic(
      options.has(Options::kDeterministicGiven) ? PyBool_FromLong(options.has(Options::kDeterministic)) : none());
  if (!window || !deterministic) return nullptr;
  return Py_BuildValue("(NOsNOO)", PyBool_FromLong(options.has(Options::kCausal)),
                       options.has(Options::kScale) ? scale : Py_None, options.has(Options::kBshd) ? "bshd" : "bhsd",
                       PyBool_FromLong(options.has(Options::kTopLeft)), window.get(), deterministic.get());
}

PyObject* served(PyObject*, PyObject*) { return Py_BuildValue("(ll)", served_forward.load(), served_backward.load()); }

}  // namespace attune_python
