#pragma once

#include <stdint.h>

// What the DLPack specification, version 1.3, lays down of its C exchange API: a table of functions that an array
// library hangs on its tensor type as the capsule `__dlpack_c_exchange_api__`. Only this much is declared, under the
// specification's names; the layout is fixed for all versions with this major number, so that neither a header of
// DLPack nor one of PyTorch is needed.

extern "C" {

enum { kDlpackMajorVersion = 1 };

// DLDeviceType. Memory of the host has no streams.
enum { kDLCPU = 1, kDLCUDA = 2 };

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;    // the tensor's own, as are the strides: valid until the tensor changes
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

struct DLPackExchangeAPIHeader {
  DLPackVersion version;
  DLPackExchangeAPIHeader* prev_api;  // the table of an older version, or null
};

struct DLPackExchangeAPI {
  DLPackExchangeAPIHeader header;
  void (*managed_tensor_allocator)();  // these three are not called here
  void (*managed_tensor_from_py_object_no_sync)();
  void (*managed_tensor_to_py_object_no_sync)();
  int (*dltensor_from_py_object_no_sync)(void* py_object, DLTensor* out);  // may be null; -1: a Python exception is set
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out_stream);
};

}  // extern "C"
