/* What XLA calls for attune_kernels.jax: two handlers of its foreign function interface, which hand an attention
 * problem and the addresses of its tensors to libattune. _jax_handlers.py builds this file against the header that
 * jaxlib brings along, and gives it the functions of the library, so that it is linked to nothing.
 *
 * A call brings three attributes: `problem`, the bytes of an attune_problem; `operands`, those of a list of
 * attune_operand without addresses; and `buffers`, for each of them the number of the buffer that it is, arguments
 * first and then results, or -1. Workspace comes from XLA's allocator, which is ordered by the stream. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

/* attune_operand */
typedef struct {
  int32_t name;
  int32_t reserved;
  void* data;
  int64_t strides[3];
} operand;

typedef int launch(const void* problem, const operand* operands, size_t count, void* workspace, size_t bytes,
                   void* stream);

/* The functions of libattune, and where attune_problem has its device. */
typedef struct {
  launch* forward;
  launch* backward;
  int (*workspace_bytes)(const void* problem, size_t* bytes);
  const char* (*last_error)(void);
  size_t device_offset;
} library_functions;

static library_functions library;

enum { kMostOperands = 64, kMostProblemBytes = 1024, kWorkspaceAlignment = 256, kAlignmentOfXla = 16 };

#define EXPORT __attribute__((visibility("default")))

/* Before the first call. */
EXPORT void attune_jax_use(const library_functions* functions) { library = *functions; }

static XLA_FFI_Error* error(const XLA_FFI_Api* api, const char* message) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message, XLA_FFI_Error_Code_INTERNAL};
  return api->XLA_FFI_Error_Create(&args);
}

/* An attribute's elements, or null where there is none of this name that is an array. */
static const XLA_FFI_Array* attribute(const XLA_FFI_CallFrame* frame, const char* name) {
  for (int64_t i = 0; i < frame->attrs.size; ++i) {
    const XLA_FFI_ByteSpan* given = frame->attrs.names[i];
    if (frame->attrs.types[i] == XLA_FFI_AttrType_ARRAY && given->len == strlen(name) &&
        memcmp(given->ptr, name, given->len) == 0)
      return (const XLA_FFI_Array*)frame->attrs.attrs[i];
  }
  return NULL;
}

/* The address of a buffer, arguments first and then results. */
static void* buffer(const XLA_FFI_CallFrame* frame, int32_t number) {
  const int64_t arguments = frame->args.size;
  void* const found = number < arguments ? frame->args.args[number] : frame->rets.rets[number - arguments];
  return ((XLA_FFI_Buffer*)found)->data;
}

#ifndef ATTUNE_JAX_ON_HOST

/* The stream that XLA runs on, and into the problem the device that it is of. */
static XLA_FFI_Error* stream_and_device(const XLA_FFI_CallFrame* frame, void** stream, char* problem) {
  XLA_FFI_Stream_Get_Args of_stream = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, NULL, frame->ctx, NULL};
  XLA_FFI_Error* failed = frame->api->XLA_FFI_Stream_Get(&of_stream);
  if (failed != NULL) return failed;
  XLA_FFI_DeviceOrdinal_Get_Args of_device = {XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, NULL, frame->ctx, 0};
  failed = frame->api->XLA_FFI_DeviceOrdinal_Get(&of_device);
  if (failed != NULL) return failed;
  const int32_t device = of_device.device_ordinal + 1; /* as attune_problem counts them */
  memcpy(problem + library.device_offset, &device, sizeof device);
  *stream = of_stream.stream;
  return NULL;
}

static XLA_FFI_Error* allocate(const XLA_FFI_CallFrame* frame, size_t bytes, void** memory) {
  XLA_FFI_DeviceMemory_Allocate_Args args = {
      XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE, NULL, frame->ctx, bytes, kAlignmentOfXla, NULL};
  XLA_FFI_Error* failed = frame->api->XLA_FFI_DeviceMemory_Allocate(&args);
  *memory = args.data;
  return failed;
}

static XLA_FFI_Error* release(const XLA_FFI_CallFrame* frame, size_t bytes, void* memory) {
  XLA_FFI_DeviceMemory_Free_Args args = {XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE, NULL, frame->ctx, bytes, memory};
  return frame->api->XLA_FFI_DeviceMemory_Free(&args);
}

#else /* tests let XLA call this on the host, where it has no streams, devices or allocator */

static XLA_FFI_Error* stream_and_device(const XLA_FFI_CallFrame* frame, void** stream, char* problem) {
  (void)frame, (void)stream, (void)problem;
  return NULL;
}

static XLA_FFI_Error* allocate(const XLA_FFI_CallFrame* frame, size_t bytes, void** memory) {
  *memory = malloc(bytes);
  return *memory == NULL ? error(frame->api, "no memory") : NULL;
}

static XLA_FFI_Error* release(const XLA_FFI_CallFrame* frame, size_t bytes, void* memory) {
  (void)frame, (void)bytes;
  free(memory);
  return NULL;
}

#endif

static XLA_FFI_Error* run(XLA_FFI_CallFrame* frame, launch* function) {
  const XLA_FFI_Api* api = frame->api;
  const XLA_FFI_Metadata_Extension* extension = (const XLA_FFI_Metadata_Extension*)frame->extension_start;
  if (extension != NULL && extension->extension_base.type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* metadata = extension->metadata; /* XLA asks what this was built for */
    metadata->api_version =
        (XLA_FFI_Api_Version){XLA_FFI_Api_Version_STRUCT_SIZE, NULL, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
    /* No traits, and 0 for what newer versions ask behind them. */
    memset(&metadata->traits, 0, metadata->struct_size - offsetof(XLA_FFI_Metadata, traits));
    return NULL;
  }
  const XLA_FFI_Array* given = attribute(frame, "problem");
  const XLA_FFI_Array* list = attribute(frame, "operands");
  const XLA_FFI_Array* buffers = attribute(frame, "buffers");
  if (given == NULL || list == NULL || buffers == NULL || given->size > kMostProblemBytes ||
      buffers->size > kMostOperands || list->size != buffers->size * sizeof(operand))
    return error(api, "attune_kernels: the attributes are not those of attune_kernels.jax");

  _Alignas(max_align_t) char problem[kMostProblemBytes];
  operand operands[kMostOperands];
  memcpy(problem, given->data, given->size);
  memcpy(operands, list->data, list->size);
  for (size_t i = 0; i < buffers->size; ++i) {
    const int32_t number = ((const int32_t*)buffers->data)[i];
    if (number >= frame->args.size + frame->rets.size)
      return error(api, "attune_kernels: an operand names a buffer that the call lacks");
    if (number >= 0) operands[i].data = buffer(frame, number);
  }

  void* stream = NULL;
  XLA_FFI_Error* failed = stream_and_device(frame, &stream, problem);
  if (failed != NULL) return failed;
  size_t bytes = 0;
  if (library.workspace_bytes(problem, &bytes) != 0) return error(api, library.last_error());
  void* memory = NULL;
  const size_t allocated = bytes == 0 ? 0 : bytes + kWorkspaceAlignment - kAlignmentOfXla;
  if (bytes != 0 && (failed = allocate(frame, allocated, &memory)) != NULL) return failed;
  void* workspace = (void*)(((uintptr_t)memory + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment);
  XLA_FFI_Error* result = function(problem, operands, buffers->size, workspace, bytes, stream) == 0
                              ? NULL
                              : error(api, library.last_error());
  if (bytes != 0) {
    failed = release(frame, allocated, memory);
    if (result == NULL) return failed;
  }
  return result;
}

EXPORT XLA_FFI_Error* attune_jax_forward(XLA_FFI_CallFrame* frame) { return run(frame, library.forward); }

EXPORT XLA_FFI_Error* attune_jax_backward(XLA_FFI_CallFrame* frame) { return run(frame, library.backward); }
