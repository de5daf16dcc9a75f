// attention() of which a gradient is wanted, as an operator that PyTorch's autograd records.

#include "operators.h"
#include "served_calls.h"

namespace attune_python {
namespace {

// What record_by() was given.
PyObject* recorded_operator = nullptr;   // aten::_scaled_dot_product_fused_attention_overrideable
PyObject* saved_tensor_hooks = nullptr;  // those in force, or None
PyObject* is_tracing = nullptr;

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

}  // namespace

void attention_forward(TorchValue* stack, uint64_t, uint64_t) {
  const Attended* const call = attended;
  attended = nullptr;
  if (call == nullptr) {
    hand_over_forward("attune_kernels::_attention_forward", stack);  // which refuses it as PyTorch does
  } else {
    attend_forward(*call, stack);
  }
}

namespace {

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

}  // namespace

void attention_backward(TorchValue* stack, uint64_t, uint64_t) {
  if (!serve_attention_backward(stack)) hand_over("attune_kernels::_attention_backward", stack, 4);
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
  if (recorded_operator == nullptr || !read_forward_tensors(objects, tensors) || !read_options(given, call.options) ||
      call.options.has(Options::kSoftcap)) {  // for which the operator's arguments have no room
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
  return Py_BuildValue("(NOsNOONdd)", PyBool_FromLong(options.has(Options::kCausal)),
                       options.has(Options::kScale) ? scale : Py_None, options.has(Options::kBshd) ? "bshd" : "bhsd",
                       PyBool_FromLong(options.has(Options::kTopLeft)), window.get(), deterministic.get(),
                       PyBool_FromLong(options.has(Options::kInvariant)), 0.0, 0.0);
}

}  // namespace attune_python
