#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "torch_shims.h"

// Operators of PyTorch that are implemented in C; operators.cpp says how they work.

namespace attune_python {

void flash_forward(TorchValue* stack, uint64_t arguments, uint64_t results);
void flash_backward(TorchValue* stack, uint64_t arguments, uint64_t results);
void cudnn_forward(TorchValue* stack, uint64_t arguments, uint64_t results);
void cudnn_backward(TorchValue* stack, uint64_t arguments, uint64_t results);
void attention_forward(TorchValue* stack, uint64_t arguments, uint64_t results);
void attention_backward(TorchValue* stack, uint64_t arguments, uint64_t results);

// Functions of the extension's module, which known_calls.cpp lists.
PyObject* use_shims(PyObject*, PyObject* addresses);
PyObject* implement(PyObject*, PyObject* arguments);
PyObject* record_by(PyObject*, PyObject* arguments);
PyObject* attend(PyObject*, PyObject* arguments);
PyObject* options_of(PyObject*, PyObject* arguments);
PyObject* served(PyObject*, PyObject*);

}  // namespace attune_python
