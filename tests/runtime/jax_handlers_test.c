/* The handlers that XLA calls on a GPU, with an XLA and a libattune in their place: what each is given. python_jax.py
 * builds and runs it. */

#include "../../bindings/python/attune_kernels/jax_handlers.c"

#include <stdio.h>

static int failures;

#define CHECK(condition) ((condition) ? (void)0 : (void)(++failures, printf("line %d: %s\n", __LINE__, #condition)))

/* XLA: a stream, device 3, an allocator of 16-byte alignment, and errors that are their own messages. */
enum { kDeviceOffset = 8, kStream = 0x5000 };
static char memory[4096];
static size_t allocated, freed;
static const char* broken; /* the function that fails */

static XLA_FFI_Error* error_create(XLA_FFI_Error_Create_Args* args) { return (XLA_FFI_Error*)args->message; }
static XLA_FFI_Error* unless_broken(const char* name) {
  return broken != NULL && strcmp(broken, name) == 0 ? (XLA_FFI_Error*)name : NULL;
}
static XLA_FFI_Error* stream_get(XLA_FFI_Stream_Get_Args* args) {
  args->stream = (void*)kStream;
  return unless_broken("stream");
}
static XLA_FFI_Error* device_get(XLA_FFI_DeviceOrdinal_Get_Args* args) {
  args->device_ordinal = 3;
  return unless_broken("device");
}
static XLA_FFI_Error* memory_allocate(XLA_FFI_DeviceMemory_Allocate_Args* args) {
  allocated = args->size;
  args->data = (void*)(((uintptr_t)memory + 255) / 256 * 256 + 16);
  return unless_broken("allocate");
}
static XLA_FFI_Error* memory_free(XLA_FFI_DeviceMemory_Free_Args* args) {
  freed += args->size;
  CHECK((uintptr_t)args->data % 256 == 16);
  return unless_broken("free");
}

/* libattune */
static int status;
static size_t wanted_bytes, launches;
static struct {
  int32_t device;
  operand operands[3];
  size_t count, bytes;
  void *workspace, *stream;
  int is_backward;
} launched;

static int launched_with(const void* problem, const operand* operands, size_t count, void* workspace, size_t bytes,
                         void* stream) {
  memcpy(&launched.device, (const char*)problem + kDeviceOffset, sizeof launched.device);
  memcpy(launched.operands, operands, sizeof launched.operands);
  launched.count = count, launched.workspace = workspace, launched.bytes = bytes, launched.stream = stream;
  ++launches;
  return status;
}
static int forward(const void* problem, const operand* operands, size_t count, void* workspace, size_t bytes,
                   void* stream) {
  launched.is_backward = 0;
  return launched_with(problem, operands, count, workspace, bytes, stream);
}
static int backward(const void* problem, const operand* operands, size_t count, void* workspace, size_t bytes,
                    void* stream) {
  launched.is_backward = 1;
  return launched_with(problem, operands, count, workspace, bytes, stream);
}
static int workspace_bytes(const void* problem, size_t* bytes) {
  int32_t device;
  memcpy(&device, (const char*)problem + kDeviceOffset, sizeof device);
  CHECK(device == 4);
  *bytes = wanted_bytes;
  return 0;
}
static const char* last_error(void) { return "a sentence"; }

/* A call with one argument, one result and three operands, of which one is absent. */
static const char* call(XLA_FFI_Handler* handler, int32_t last_buffer) {
  XLA_FFI_Api api = {
      .struct_size = XLA_FFI_Api_STRUCT_SIZE, .XLA_FFI_Error_Create = error_create, .XLA_FFI_Stream_Get = stream_get};
  api.XLA_FFI_DeviceOrdinal_Get = device_get, api.XLA_FFI_DeviceMemory_Allocate = memory_allocate,
  api.XLA_FFI_DeviceMemory_Free = memory_free;
  char problem[24] = "problem";
  operand operands[3] = {{0, 0, NULL, {1, 2, 3}}, {3, 0, NULL, {4, 5, 6}}, {4, 0, NULL, {0, 0, 0}}};
  int32_t numbers[3] = {0, last_buffer, -1};
  XLA_FFI_Array arrays[3] = {{XLA_FFI_DataType_S32, 3, numbers},
                             {XLA_FFI_DataType_U8, sizeof operands, operands},
                             {XLA_FFI_DataType_U8, sizeof problem, problem}};
  XLA_FFI_ByteSpan names[3] = {{"buffers", 7}, {"operands", 8}, {"problem", 7}};
  XLA_FFI_Buffer argument = {.data = (void*)0x1000}, result = {.data = (void*)0x2000};
  XLA_FFI_ArgType argument_type = XLA_FFI_ArgType_BUFFER;
  XLA_FFI_RetType result_type = XLA_FFI_RetType_BUFFER;
  XLA_FFI_AttrType types[3] = {XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY};
  XLA_FFI_CallFrame frame = {
      .struct_size = XLA_FFI_CallFrame_STRUCT_SIZE, .api = &api, .stage = XLA_FFI_ExecutionStage_EXECUTE};
  frame.args = (XLA_FFI_Args){.size = 1, .types = &argument_type, .args = (void*[]){&argument}};
  frame.rets = (XLA_FFI_Rets){.size = 1, .types = &result_type, .rets = (void*[]){&result}};
  frame.attrs = (XLA_FFI_Attrs){.size = 3,
                                .types = types,
                                .names = (XLA_FFI_ByteSpan*[]){&names[0], &names[1], &names[2]},
                                .attrs = (void*[]){&arrays[0], &arrays[1], &arrays[2]}};
  const char* message = (const char*)handler(&frame);
  CHECK(operands[0].data == NULL && strcmp(problem, "problem") == 0); /* attributes are XLA's, and stay as they are */
  return message;
}

int main(void) {
  const library_functions functions = {forward, backward, workspace_bytes, last_error, kDeviceOffset};
  attune_jax_use(&functions);

  wanted_bytes = 1000;
  CHECK(call(attune_jax_forward, 1) == NULL);
  CHECK(!launched.is_backward && launched.count == 3 && launched.device == 4 && launched.stream == (void*)kStream);
  CHECK(launched.operands[0].data == (void*)0x1000 && launched.operands[0].strides[2] == 3);
  CHECK(launched.operands[1].data == (void*)0x2000 && launched.operands[1].name == 3 &&
        launched.operands[2].data == NULL);
  CHECK(launched.bytes == 1000 && (uintptr_t)launched.workspace % 256 == 0);
  CHECK((char*)launched.workspace + 1000 <= (char*)(((uintptr_t)memory + 255) / 256 * 256 + 16) + allocated &&
        freed == allocated);
  CHECK(call(attune_jax_backward, 1) == NULL && launched.is_backward);

  wanted_bytes = freed = allocated = 0;
  CHECK(call(attune_jax_forward, 1) == NULL && launched.workspace == NULL && allocated == 0 && freed == 0);

  wanted_bytes = 10;
  const char* const functions_of_xla[] = {"stream", "device", "allocate", "free"};
  for (size_t i = 0; i < sizeof functions_of_xla / sizeof *functions_of_xla; ++i) {
    const size_t before = launches;
    broken = functions_of_xla[i];
    CHECK(call(attune_jax_forward, 1) == broken);
    CHECK(launches == before + (strcmp(broken, "free") == 0));
  }
  broken = NULL, status = -2, freed = 0;
  CHECK(strcmp(call(attune_jax_forward, 1), "a sentence") == 0 && freed == allocated);
  status = 0;
  const size_t before = launches;
  CHECK(strstr(call(attune_jax_forward, 2), "a buffer that the call lacks") != NULL && launches == before);

  XLA_FFI_Metadata metadata = {.struct_size = XLA_FFI_Metadata_STRUCT_SIZE};
  XLA_FFI_Metadata_Extension asked = {.metadata = &metadata};
  asked.extension_base.type = XLA_FFI_Extension_Metadata;
  XLA_FFI_CallFrame frame = {.extension_start = (void*)&asked};
  CHECK(attune_jax_forward(&frame) == NULL && metadata.api_version.minor_version == XLA_FFI_API_MINOR &&
        metadata.traits == 0);
  XLA_FFI_Api api = {.XLA_FFI_Error_Create = error_create};
  XLA_FFI_CallFrame bare = {.api = &api};
  CHECK(strstr((const char*)attune_jax_forward(&bare), "attributes") != NULL && launches == before);
  return failures != 0;
}
