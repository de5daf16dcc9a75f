#include "served_calls.h"

namespace attune_python {

std::atomic<long> served_forward{0}, served_backward{0};

namespace {

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

}  // namespace

bool launch_forward(const Launch& launch, const View* views, OwnedTensor& out, OwnedTensor& lse, bool lse_is_column) {
  const View& q = views[kQ];
  Operands handed = launch.operands;
  handed[ATTUNE_Q].data = data_of(views[kQ].tensor);
  handed[ATTUNE_K].data = data_of(views[kK].tensor);
  handed[ATTUNE_V].data = data_of(views[kV].tensor);
  handed[ATTUNE_O].data = allocate_result(launch, q, handed[ATTUNE_O], out);

  const int64_t* const shape = q.tensor.shape;
  const int64_t heads = shape[launch.is_bshd() ? 2 : 1], rows = shape[launch.is_bshd() ? 1 : 2];
  const int64_t sizes[] = {shape[0], heads, rows, 1}, strides[] = {heads * rows, rows, 1, 1};
  if (handed[ATTUNE_O].data == nullptr ||
      !allocate(q, shims.aoti_torch_dtype_float32(), lse_is_column ? 4 : 3, sizes, strides, lse) ||
      shims.aoti_torch_get_data_ptr(lse.get(), &handed[ATTUNE_LSE].data) != 0) {
    return false;
  }

  Surroundings around;
  return around.find(launch, q) && launch.run(handed, around.workspace_data, around.stream) == ATTUNE_OK;
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

  Operands handed = launch.operands;
  handed[ATTUNE_Q].data = data_of(tensors[kQ]);
  handed[ATTUNE_K].data = data_of(tensors[kK]);
  handed[ATTUNE_V].data = data_of(tensors[kV]);
  handed[ATTUNE_O].data = data_of(tensors[kOut]);
  handed[ATTUNE_LSE].data = data_of(tensors[kLse]);
  handed[ATTUNE_D_O].data = data_of(tensors[kGradOut]);
  handed[ATTUNE_D_LSE].data = nullptr;
  attune_tensor* const results[] = {&handed[ATTUNE_D_Q], &handed[ATTUNE_D_K], &handed[ATTUNE_D_V]};
  for (int i = kQ; i <= kV; ++i) {
    results[i]->data = allocate_result(launch, views[i], *results[i], grads[i]);
    if (results[i]->data == nullptr) return false;
  }
  Surroundings around;
  if (!around.find(launch, views[kQ])) return false;
  if (launch.run(handed, around.workspace_data, around.stream) != ATTUNE_OK) return false;
  ++served_backward;
  return true;
}

void put_gradients(const char* letters, TorchValue* stack, OwnedTensor* grads) {
  free_arguments(letters, stack);
  for (int i = kQ; i <= kV; ++i) stack[i] = grads[i].release();
}

}  // namespace attune_python
