// ${title}
// ${licence}
//
// ${problem}
// ${config}
// ${gpu}

#include "launch.h"

#include <cuda.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#ifndef ${name}_from_cubin
extern "C" const void* ${name}_kernel(int number);  // of kernel.cu
#endif

namespace ${name}_launcher {
namespace {

//% include export/launch_rules
//% if dropout

//% include export/launch_dropout
//% end

constexpr int kHeadDim = ${head_dim}, kElementBytes = ${element_bytes}, kAlignment = ${alignment};

// What sizes the kernels were compiled for.
constexpr std::int64_t kPackedGroup = ${packed_group};    // query heads that share K and V; 0: any number
constexpr std::int64_t kRowMultiple = ${row_multiple};    // of the queries of a head, or of the heads that are packed; 1: any
constexpr std::int64_t kKeyMultiple = ${key_multiple};    // of the keys; 1: any
constexpr bool kNeedsGroups = ${needs_groups};  // heads_q > heads_kv
constexpr bool kPackedSequences = ${is_packed};  // tensors have one batch entry, in which all sequences lie

constexpr int kComputeMajor = ${compute_major}, kComputeMinor = ${compute_minor};
constexpr bool kThisArchitectureOnly = ${architecture_only};

// The workspace: fixed bytes, then buffers that grow with the problem, each at a multiple of 256 bytes.
constexpr std::int64_t kFixedBytes = ${fixed_bytes};
constexpr bool kFixedZeroed = ${fixed_zeroed};
struct Part {
  const char* name;
  Buffer buffer;
  bool zeroed;  // before the first launch
};
constexpr int kParts = ${part_count};
constexpr Part kWorkspace[kParts + 1] = {
//% for parts
    {"${parts.name}", ${parts.buffer}, ${parts.zeroed}},  // ${parts.note}
//% end
    {"", {}, false}};

struct Layout {
  std::int64_t offsets[kParts + 1];
  std::int64_t bytes, zeroed_bytes;  // all that is zeroed comes first
};

Layout layout_of(const Call& call) {
  Layout layout = {};
  layout.bytes = kFixedBytes;
  layout.zeroed_bytes = kFixedZeroed ? kFixedBytes : 0;
  for (int i = 0; i < kParts; ++i) {
    layout.offsets[i] = round_up(layout.bytes, kWorkspaceAlignment);
    layout.bytes = layout.offsets[i] + bytes_of(kWorkspace[i].buffer, call);
    if (kWorkspace[i].zeroed) layout.zeroed_bytes = layout.bytes;
  }
  return layout;
}

struct Kernel {
  const char* entry;
  Launch launch;
  unsigned threads, shared_bytes;  // of a CTA
  bool programmatic;               // may begin while the launch before it runs, for whose results it waits itself
};
constexpr Kernel kKernels[] = {
//% for launches
    {"${launches.entry}",
     ${launches.rules},
     ${launches.threads}, ${launches.shared_bytes}, ${launches.programmatic}},
//% end
};
constexpr int kKernelCount = sizeof(kKernels) / sizeof(kKernels[0]);

//% if tensor_maps
// A tensor map as kernel.cu aligns it.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

//% end
//% for structs
// The one parameter of ${structs.entry}.
struct Arguments${structs.number} {
  ${structs.fields}
};
static_assert(sizeof(Arguments${structs.number}) == ${structs.bytes}, "kernel.cu has the same struct");
${structs.offsets}

//% end
thread_local char message[512];

cudaError_t fail(cudaError_t error, const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::vsnprintf(message, sizeof(message), format, values);
  va_end(values);
  return error;
}

long long shown(std::int64_t value) { return value; }

// Errors of the driver have the numbers of the runtime's.
cudaError_t fail_in(const char* what, cudaError_t error) {
  return fail(error, "%s failed: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}
cudaError_t fail_in(const char* what, CUresult result) { return fail_in(what, static_cast<cudaError_t>(result)); }

// A function of the driver, found without linking libcuda.
template <typename Function>
cudaError_t find(const char* name, unsigned version, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
#else
  (void)version;
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) return fail_in(name, error);
  if (found == nullptr || result != cudaDriverEntryPointSuccess)
    return fail(cudaErrorNotSupported, "the NVIDIA driver has no %s, which needs CUDA %u.%u: update it", name, version / 1000, version % 1000 / 10);
  *function = reinterpret_cast<Function>(found);
  return cudaSuccess;
}

#define RETURN_IF_FAILED(expression) \
  if (const cudaError_t error = (expression); error != cudaSuccess) return error

#ifdef ${name}_from_cubin
cudaError_t check_device();

CUkernel loaded[kKernelCount];
CUresult (*get_context)(CUcontext*) = nullptr;
CUresult (*get_function)(CUfunction*, CUkernel) = nullptr;

cudaError_t load(const void* cubin) {
  RETURN_IF_FAILED(check_device());
  CUresult (*load_data)(CUlibrary*, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**, unsigned) = nullptr;
  CUresult (*get_kernel)(CUkernel*, CUlibrary, const char*) = nullptr;
  RETURN_IF_FAILED(find("cuLibraryLoadData", 12000, &load_data));
  RETURN_IF_FAILED(find("cuLibraryGetKernel", 12000, &get_kernel));
  RETURN_IF_FAILED(find("cuKernelGetFunction", 12000, &get_function));
  RETURN_IF_FAILED(find("cuCtxGetCurrent", 4000, &get_context));
  CUlibrary library = nullptr;
  if (const CUresult result = load_data(&library, cubin, nullptr, nullptr, 0, nullptr, nullptr, 0); result != CUDA_SUCCESS)
    return fail_in("cuLibraryLoadData", result);
  for (int i = 0; i < kKernelCount; ++i) {
    if (const CUresult result = get_kernel(&loaded[i], library, kKernels[i].entry); result != CUDA_SUCCESS)
      return fail_in(kKernels[i].entry, result);
  }
  return cudaSuccess;
}

cudaError_t function_of(int number, CUfunction* function) {
  if (loaded[number] == nullptr)
    return fail(cudaErrorNotReady, "the kernels are not loaded: call ${name}_load() with the bytes of kernel.cubin first");
  CUcontext context = nullptr;
  if (get_context(&context) == CUDA_SUCCESS && context == nullptr) {  // nothing was done in this thread yet
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaSetDevice(device);
    if (error != cudaSuccess) return fail_in("making the device's context current", error);
  }
  const CUresult result = get_function(function, loaded[number]);
  return result == CUDA_SUCCESS ? cudaSuccess : fail_in(kKernels[number].entry, result);
}
#else
cudaError_t function_of(int number, CUfunction* function) {
  cudaFunction_t found = nullptr;
  const cudaError_t error = cudaGetFuncBySymbol(&found, ${name}_kernel(number));
  if (error != cudaSuccess) return fail_in(kKernels[number].entry, error);
  *function = reinterpret_cast<CUfunction>(found);
  return cudaSuccess;
}
#endif

// The driver's functions that a call takes.
struct Driver {
  CUresult (*launch)(const CUlaunchConfig*, CUfunction, void**, void**) = nullptr;
  CUresult (*set_attribute)(CUfunction, CUfunction_attribute, int) = nullptr;
//% if tensor_maps
  CUresult (*encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                     const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) = nullptr;
//% end
};
cudaError_t find_driver(Driver* driver) {
  RETURN_IF_FAILED(find("cuLaunchKernelEx", 11080, &driver->launch));
  RETURN_IF_FAILED(find("cuFuncSetAttribute", 9000, &driver->set_attribute));
//% if tensor_maps
  RETURN_IF_FAILED(find("cuTensorMapEncodeTiled", 12000, &driver->encode));
//% end
  return cudaSuccess;
}

cudaError_t launch(const Driver& driver, int number, const Call& call, void* arguments, cudaStream_t stream) {
  const Kernel& kernel = kKernels[number];
  CUfunction function = nullptr;
  RETURN_IF_FAILED(function_of(number, &function));
  constexpr unsigned kSharedBytesWithoutOptIn = 48 * 1024;
  if (kernel.shared_bytes > kSharedBytesWithoutOptIn) {
    const CUresult result =
        driver.set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(kernel.shared_bytes));
    if (result != CUDA_SUCCESS) return fail_in("cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)", result);
  }
  CUlaunchAttribute attributes[2] = {};
  unsigned used = 0;
  if (kernel.launch.cluster > 1) {
    CUlaunchAttribute& cluster = attributes[used++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim.x = static_cast<unsigned>(kernel.launch.cluster);
    cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
  }
  if (kernel.programmatic) {
    CUlaunchAttribute& programmatic = attributes[used++];
    programmatic.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    programmatic.value.programmaticStreamSerializationAllowed = 1;
  }
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(grid_of(kernel.launch, call));
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = kernel.threads;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = kernel.shared_bytes;
  config.hStream = reinterpret_cast<CUstream>(stream);
  config.attrs = attributes;
  config.numAttrs = used;
  void* parameters[] = {arguments};
  const CUresult result = driver.launch(&config, function, parameters, nullptr);
  return result == CUDA_SUCCESS ? cudaSuccess : fail_in(kernel.entry, result);
}

struct Extents {
  std::int64_t batch, heads, rows;
};
Extents of_queries(const Call& call) { return {row_batch(call), call.heads_q, call.seq_q}; }
Extents of_keys(const Call& call) { return {row_batch(call), call.heads_kv, call.seq_kv}; }
//% if pairs
// What a tensor of pairs has of a dimension: one where its stride repeats it.
std::int64_t own(std::int64_t stride, std::int64_t extent) { return stride == 0 ? 1 : extent; }
//% end
//% for pair_forms
Extents of_${pair_forms.name}(const ${name}_call& asked) {
  return {own(asked.${pair_forms.name}_stride_batch, asked.batch), own(asked.${pair_forms.name}_stride_head, asked.heads_q), own(asked.${pair_forms.name}_stride_row, asked.${pair_queries})};
}
//% end
//% if pair_maps
// Whether a tensor map can describe a tensor; the kernels read others without.
bool has_map(const void* data, const Extents& extents, std::int64_t stride_batch, std::int64_t stride_head, std::int64_t stride_row, int element_bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % kRowAlignment == 0 && is_aligned_stride(stride_batch, extents.batch, element_bytes) &&
         is_aligned_stride(stride_head, extents.heads, element_bytes) && is_aligned_stride(stride_row, extents.rows, element_bytes);
}
//% end
//% if tensor_maps

// The contiguous dimension of a tensor.
struct Columns {
  std::int64_t count;
  int bytes;  // of an element
  CUtensorMapDataType type;
};
constexpr Columns kColumns = {kHeadDim, kElementBytes, CU_TENSOR_MAP_DATA_TYPE_${tensor_map_type}};

// The map of a tensor, (column, head, row, batch) from the contiguous dimension outwards, and the box of it that one copy moves. With a rank of 5 rows are
// counted in two dimensions, (column, head, row, size, batch), so that a copy can end where a sequence does.
template <unsigned kRank>
cudaError_t encode(const Driver& driver, TensorMap* to, const char* name, const void* data, const Columns& columns, const Extents& extents,
                   std::int64_t stride_batch, std::int64_t stride_head, std::int64_t stride_row, const cuuint32_t (&box)[kRank], CUtensorMapSwizzle swizzle) {
  const auto stride = [&](std::int64_t elements, std::int64_t extent) {
    return static_cast<cuuint64_t>(map_stride_bytes(elements, extent, columns.bytes));
  };
  const auto count = static_cast<cuuint64_t>(columns.count), heads = static_cast<cuuint64_t>(extents.heads), rows = static_cast<cuuint64_t>(extents.rows),
             batch = static_cast<cuuint64_t>(extents.batch);
  const cuuint64_t of_head = stride(stride_head, extents.heads), of_row = stride(stride_row, extents.rows), of_batch = stride(stride_batch, extents.batch);
  cuuint64_t dims[5] = {count, heads, rows, batch}, strides[4] = {of_head, of_row, of_batch};
  if (kRank == 5) {
    dims[3] = rows + 1;
    dims[4] = batch;
    strides[2] = of_row;
    strides[3] = of_batch;
    data = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(data) - rows * of_row);
  }
  constexpr cuuint32_t kEveryElement[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;  // aligned as the driver wants it
  const CUresult result = driver.encode(&map, columns.type, kRank, const_cast<void*>(data), dims, strides, box, kEveryElement, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                        swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  static_assert(sizeof(map) == sizeof(*to));
  std::memcpy(to, &map, sizeof(map));
  if (result == CUDA_SUCCESS) return cudaSuccess;
  return fail(static_cast<cudaError_t>(result), "the driver makes no tensor map of %s (error %d)", name, static_cast<int>(result));
}
//% end

Call call_of(const ${name}_call& asked) {
//% if sets_call
  Call call = {asked.batch, asked.heads_q, asked.heads_kv, asked.seq_q, asked.seq_kv, ${first_diagonal}, ${last_diagonal}, asked.softmax_scale, ${asked_softcap}, ${diagonals_move}, kPackedSequences};
//% else
  return {asked.batch, asked.heads_q, asked.heads_kv, asked.seq_q, asked.seq_kv, ${first_diagonal}, ${last_diagonal}, asked.softmax_scale, ${asked_softcap}, ${diagonals_move}, kPackedSequences};
//% end
//% for pair_forms
  const Extents ${pair_forms.name} = of_${pair_forms.name}(asked);
  call.${pair_forms.name}_batch = ${pair_forms.name}.batch;
  call.${pair_forms.name}_heads = ${pair_forms.name}.heads;
  call.${pair_forms.name}_rows = ${pair_forms.name}.rows;
//% end
//% if longest_sequence
  call.max_seq_q = asked.max_seq_q;
  call.max_seq_kv = asked.max_seq_kv;
//% end
//% if dropout
  call.dropout = asked.dropout;
//% end
//% if sets_call
  return call;
//% end
}

cudaError_t check_sizes(const ${name}_call& asked) {
  const auto invalid = cudaErrorInvalidValue;
  const struct {
    const char* name;
    std::int64_t value, limit;
  } sizes[] = {{"batch", asked.batch, kHeadsLimit},
               {"heads_q", asked.heads_q, kHeadsLimit},
               {"heads_kv", asked.heads_kv, kHeadsLimit},
               {"seq_q", asked.seq_q, kLengthLimit},
//% if longest_sequence
               {"max_seq_q", asked.max_seq_q, kLengthLimit},
               {"max_seq_kv", asked.max_seq_kv, kLengthLimit},
//% end
               {"seq_kv", asked.seq_kv, kLengthLimit}};
  for (const auto& size : sizes) {
    if (size.value < 1 || size.value >= size.limit)
      return fail(invalid, "%s is %lld: must be at least 1 and below %lld", size.name, shown(size.value), shown(size.limit));
  }
  if (asked.heads_q % asked.heads_kv != 0)
    return fail(invalid, "heads_q is %lld: must be a multiple of heads_kv, which is %lld", shown(asked.heads_q), shown(asked.heads_kv));
  if (asked.batch * asked.heads_q >= kHeadsLimit)
    return fail(invalid, "batch * heads_q is %lld: must be below %lld; split the batch", shown(asked.batch * asked.heads_q), shown(kHeadsLimit));
  if ((kPackedSequences ? 1 : asked.batch) * asked.heads_q >= kElementsLimit / (std::max(asked.seq_q, asked.seq_kv) * kHeadDim))
    return fail(invalid, "tensors must have fewer than 2^50 elements; split the batch");
  if (!(asked.softmax_scale > 0) || !(asked.softmax_scale * kLog2E <= 3.402823466e38f))
    return fail(invalid, "softmax_scale is %g: must be positive, and finite times log2(e)", static_cast<double>(asked.softmax_scale));
//% if softcap
  if (!(asked.softcap > 0) || !(asked.softcap * kLog2E <= 3.402823466e38f) || !(asked.softmax_scale / asked.softcap >= 1.17549435e-38f) ||
      !(asked.softmax_scale / asked.softcap <= 3.402823466e38f))
    return fail(invalid, "softcap is %g: must be positive, and finite times log2(e), and softmax_scale divided by it a float", static_cast<double>(asked.softcap));
//% end
//% if dropout
  if (!(asked.dropout > 0 && asked.dropout < 1)) return fail(invalid, "dropout is %g: must be positive and less than 1", static_cast<double>(asked.dropout));
//% end
//% if hides_first_keys
  if (asked.first_offset > asked.mask_offset)
    return fail(invalid, "first_offset is %lld and mask_offset %lld: no query sees any key", shown(asked.first_offset), shown(asked.mask_offset));
  if (asked.first_offset <= -kLengthLimit || asked.first_offset > kLengthLimit - asked.seq_q)
    return fail(invalid, "first_offset is %lld: query + offset must stay within 32 bits; a side that hides nothing is no window", shown(asked.first_offset));
//% end
//% if hides_pairs
  if (${open_right}(asked.mask_offset <= -kLengthLimit || asked.mask_offset > kLengthLimit - asked.seq_q))
    return fail(invalid, "mask_offset is %lld: query + offset must stay within 32 bits", shown(asked.mask_offset));
//% end
  const std::int64_t group = asked.heads_q / asked.heads_kv;
  if (kPackedGroup != 0 && group != kPackedGroup)
    return fail(invalid, "%lld query heads share K and V: these kernels were made for %lld", shown(group), shown(kPackedGroup));
  if (asked.seq_q * (kPackedGroup != 0 ? kPackedGroup : 1) % kRowMultiple != 0)
    return fail(invalid, "seq_q is %lld: these kernels take no tile that is not full; %s of %lld", shown(asked.seq_q),
                kPackedGroup != 0 ? "its rows of all packed heads must be a multiple" : "it must be a multiple", shown(kRowMultiple));
  if (asked.seq_kv % kKeyMultiple != 0)
    return fail(invalid, "seq_kv is %lld: these kernels take no tile that is not full; it must be a multiple of %lld", shown(asked.seq_kv),
                shown(kKeyMultiple));
  if (kNeedsGroups && group == 1) return fail(invalid, "these kernels need grouped heads (heads_q > heads_kv)");
//% if fused_dbias
  const Extents bias = of_bias(asked);
  if (bias.batch < asked.batch || bias.heads < asked.heads_q || bias.rows < asked.seq_q)
    return fail(invalid, "the bias repeats, as a stride of 0 says: these kernels sum no gradients, and were made for a bias with an element for each pair");
//% end
  const Call call = call_of(asked);
  for (const Kernel& kernel : kKernels) {
    if (has_too_many_packed_rows(kernel.launch, call) || tiles_of(kernel.launch, call) == kTooManyTiles)
      return fail(invalid, "%s would need more CTAs than a grid has; split the batch", kernel.entry);
  }
  return cudaSuccess;
}

cudaError_t check_tensor(const char* name, const void* data, const Extents& extents, std::int64_t stride_batch, std::int64_t stride_head,
                         std::int64_t stride_row) {
  if (data == nullptr) return fail(cudaErrorInvalidValue, "%s is null", name);
  if (reinterpret_cast<std::uintptr_t>(data) % kAlignment != 0)
    return fail(cudaErrorMisalignedAddress, "%s starts at an address that is no multiple of %d bytes", name, kAlignment);
  const struct {
    const char* name;
    std::int64_t stride, extent;
  } strides[] = {{"batch", stride_batch, extents.batch}, {"head", stride_head, extents.heads}, {"row", stride_row, extents.rows}};
  for (const auto& each : strides) {
    if (kAlignment == kRowAlignment && !is_aligned_stride(each.stride, each.extent, kElementBytes))
      return fail(cudaErrorInvalidValue, "%s_stride_%s is %lld: must be a multiple of %lld elements, not negative and below 2^39", name, each.name,
                  shown(each.stride), shown(kRowAlignment / kElementBytes));
  }
  return cudaSuccess;
}

//% if pairs
cudaError_t check_pairs(const char* name, const void* data, unsigned element_bytes) {
  if (data == nullptr) return fail(cudaErrorInvalidValue, "%s is null", name);
  if (reinterpret_cast<std::uintptr_t>(data) % element_bytes != 0)
    return fail(cudaErrorMisalignedAddress, "%s starts at an address that is no multiple of %u bytes", name, element_bytes);
  return cudaSuccess;
}

//% end
cudaError_t check_rows(const char* name, const void* data, bool may_be_null) {
  if (data == nullptr && !may_be_null) return fail(cudaErrorInvalidValue, "%s is null", name);
  if (reinterpret_cast<std::uintptr_t>(data) % alignof(float) != 0)
    return fail(cudaErrorMisalignedAddress, "%s starts at an address that is no multiple of 4 bytes", name);
  return cudaSuccess;
}

cudaError_t check_device() {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess) return fail_in("asking for the current device", error);
  const bool newer = major > kComputeMajor || (major == kComputeMajor && minor >= kComputeMinor);
  const bool same = major == kComputeMajor && minor == kComputeMinor;
  if (kThisArchitectureOnly ? same : newer) return cudaSuccess;
  return fail(cudaErrorNoKernelImageForDevice, "the current device has compute capability %d.%d: these kernels need %d.%d%s", major, minor,
              kComputeMajor, kComputeMinor, kThisArchitectureOnly ? "" : " or newer");
}

cudaError_t check_workspace(const ${name}_call& asked, const Layout& layout) {
  if (layout.bytes == 0) return cudaSuccess;
  const std::size_t given = asked.workspace == nullptr ? 0 : asked.workspace_bytes;
  if (given < static_cast<std::size_t>(layout.bytes))
    return fail(cudaErrorInvalidValue, "the workspace holds %lld bytes, %lld are needed; ask ${name}_workspace_bytes()",
                static_cast<long long>(given), shown(layout.bytes));
  if (reinterpret_cast<std::uintptr_t>(asked.workspace) % kWorkspaceAlignment != 0)
    return fail(cudaErrorMisalignedAddress, "the workspace starts at an address that is no multiple of %lld bytes", shown(kWorkspaceAlignment));
  return cudaSuccess;
}

cudaError_t run(const ${name}_call& asked, cudaStream_t stream) {
  RETURN_IF_FAILED(check_sizes(asked));
  const Call call = call_of(asked);
//% for checked_tensors
  RETURN_IF_FAILED(check_tensor("${checked_tensors.name}", asked.${checked_tensors.name}, ${checked_tensors.extents}, asked.${checked_tensors.name}_stride_batch,
                           asked.${checked_tensors.name}_stride_head, asked.${checked_tensors.name}_stride_row));
//% end
//% for checked_pairs
  RETURN_IF_FAILED(check_pairs("${checked_pairs.name}", asked.${checked_pairs.name}, ${checked_pairs.bytes}));
//% end
//% for checked_rows
  RETURN_IF_FAILED(check_rows("${checked_rows.name}", asked.${checked_rows.name}, ${checked_rows.may_be_null}));
//% end
  const Layout layout = layout_of(call);
  RETURN_IF_FAILED(check_workspace(asked, layout));
  RETURN_IF_FAILED(check_device());
  Driver driver;
  RETURN_IF_FAILED(find_driver(&driver));

  char* const workspace = static_cast<char*>(asked.workspace);
  if (layout.zeroed_bytes != 0) {
    const cudaError_t error = cudaMemsetAsync(workspace, 0, static_cast<std::size_t>(layout.zeroed_bytes), stream);
    if (error != cudaSuccess) return fail_in("zeroing the workspace", error);
  }
//% for calls
  {
    const Launch& kernel = kKernels[${calls.number}].launch;
    (void)kernel;
    Arguments${calls.number} arguments = {};
    ${calls.values}
    RETURN_IF_FAILED(launch(driver, ${calls.number}, call, &arguments, stream));
  }
//% end
  return cudaSuccess;
}

}  // namespace

// With C linkage these are the functions of launch.h.
extern "C" {

void ${name}_problem(${name}_call* call) {
  *call = {};
  call->batch = ${batch};
  call->heads_q = ${heads_q};
  call->heads_kv = ${heads_kv};
  call->seq_q = ${seq_q};
  call->seq_kv = ${seq_kv};
//% if longest_sequence
  call->max_seq_q = ${max_seq_q};
  call->max_seq_kv = ${max_seq_kv};
//% end
  call->softmax_scale = ${softmax_scale};
//% if softcap
  call->softcap = ${softcap_value};
//% end
//% if dropout
  call->dropout = ${dropout_value};
//% end
//% if hides_first_keys
  call->first_offset = ${first_offset};
//% end
//% if hides_pairs
  call->mask_offset = ${mask_offset};
//% end
  ${name}_pack(call);
}

void ${name}_pack(${name}_call* call) {
//% for packed
  call->${packed.stride} = ${packed.value};
//% end
}

size_t ${name}_workspace_bytes(const ${name}_call* call) {
  message[0] = 0;
  if (call == nullptr || check_sizes(*call) != cudaSuccess) return 0;
  return static_cast<std::size_t>(layout_of(call_of(*call)).bytes);
}

cudaError_t ${name}(const ${name}_call* call, cudaStream_t stream) {
  message[0] = 0;
  if (call == nullptr) return fail(cudaErrorInvalidValue, "the call is null");
  return run(*call, stream);
}

const char* ${name}_message(void) { return message; }

#ifdef ${name}_from_cubin
cudaError_t ${name}_load(const void* cubin) {
  message[0] = 0;
  return load(cubin);
}
#endif

}  // extern "C"
}  // namespace ${name}_launcher

#undef RETURN_IF_FAILED
