#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

// Operators of PyTorch that are implemented in C: functions of the extension's module, which known_calls.cpp lists.
// operators.cpp says how they work.

namespace attune_python {

PyObject* use_shims(PyObject*, PyObject* addresses);
PyObject* implement(PyObject*, PyObject* arguments);
PyObject* record_by(PyObject*, PyObject* arguments);
PyObject* attend(PyObject*, PyObject* arguments);
PyObject* options_of(PyObject*, PyObject* arguments);
PyObject* served(PyObject*, PyObject*);

}  // namespace attune_python
