// SPDX-License-Identifier: Apache-2.0
#include "python_arguments.h"

#include <dlfcn.h>
#include <dlpack/dlpack.h>

#include "graphfeed/dlpack.h"
#include "graphfeed/error.h"

namespace graphfeed {
namespace {

using Object = void*;  // PyObject*

// Functions of Python's stable C API.
struct Python {
  Object (*PyTuple_GetItem)(Object, intptr_t);
  intptr_t (*PyTuple_Size)(Object);
  int (*PyType_IsSubtype)(Object, Object);
  long long (*PyLong_AsLongLong)(Object);
  Object (*PyErr_Occurred)();
  void (*PyErr_Clear)();
  Object (*PyObject_Type)(Object);
  Object (*PyObject_GetAttrString)(Object, const char*);
  const char* (*PyUnicode_AsUTF8AndSize)(Object, intptr_t*);
  void (*Py_DecRef)(Object);
  Object none;
  Object int_type;
  Object bool_type;
};

template <class Symbol>
void find(Symbol& symbol, const char* name) {
  symbol = reinterpret_cast<Symbol>(dlsym(RTLD_DEFAULT, name));
  if (symbol != nullptr) return;
  throw Error(ErrorKind::kRuntime, "set_tensor_class",
              std::string(name) + " is not in this process: it needs a Python interpreter");
}

Python find_python() {
  Python python{};
  find(python.PyTuple_GetItem, "PyTuple_GetItem");
  find(python.PyTuple_Size, "PyTuple_Size");
  find(python.PyType_IsSubtype, "PyType_IsSubtype");
  find(python.PyLong_AsLongLong, "PyLong_AsLongLong");
  find(python.PyErr_Occurred, "PyErr_Occurred");
  find(python.PyErr_Clear, "PyErr_Clear");
  find(python.PyObject_Type, "PyObject_Type");
  find(python.PyObject_GetAttrString, "PyObject_GetAttrString");
  find(python.PyUnicode_AsUTF8AndSize, "PyUnicode_AsUTF8AndSize");
  find(python.Py_DecRef, "Py_DecRef");
  find(python.none, "_Py_NoneStruct");
  find(python.int_type, "PyLong_Type");
  find(python.bool_type, "PyBool_Type");
  return python;
}

const Python& python() {
  static const Python kept = find_python();
  return kept;
}

// The object's own type, whatever it says of itself.
Object type_of(Object object) {
  const Object type = python().PyObject_Type(object);
  python().Py_DecRef(type);  // the object holds it too
  return type;
}

// Written once, under the interpreter lock, before any call reads it.
const DLPackExchangeAPI* exchange = nullptr;
Object tensor_class = nullptr;

bool is_tensor(Object object) {
  const Object type = type_of(object);
  return type == tensor_class || python().PyType_IsSubtype(type, tensor_class) != 0;
}

}  // namespace

bool set_tensor_class(int64_t exchange_api, int64_t class_address) {
  static_cast<void>(python());
  const auto* api = reinterpret_cast<const DLPackExchangeAPI*>(exchange_api);
  if (api->header.version.major != DLPACK_MAJOR_VERSION ||
      api->dltensor_from_py_object_no_sync == nullptr || api->current_work_stream == nullptr) {
    return false;
  }
  exchange = api;
  tensor_class = reinterpret_cast<Object>(class_address);
  return true;
}

PythonArguments::PythonArguments(int64_t tuple)
    : tuple_(reinterpret_cast<Object>(tuple)),
      size_(static_cast<size_t>(python().PyTuple_Size(tuple_))) {}

void* PythonArguments::item(size_t i) const {
  return python().PyTuple_GetItem(tuple_, static_cast<intptr_t>(i));
}

bool PythonArguments::is_none(size_t i) const { return item(i) == python().none; }

std::optional<int64_t> PythonArguments::integer(size_t i) const {
  // A bool and a tensor of one element convert to an integer, and are none.
  const Object object = item(i);
  const Object type = type_of(object);
  if (type != python().int_type && (type == python().bool_type || is_tensor(object))) {
    return std::nullopt;
  }
  const long long value = python().PyLong_AsLongLong(object);
  if (value == -1 && python().PyErr_Occurred() != nullptr) {
    python().PyErr_Clear();
    return std::nullopt;
  }
  return value;
}

bool PythonArguments::read(size_t i, std::optional<Tensor>& tensor) const {
  const Object object = item(i);
  if (object == python().none || !is_tensor(object)) return false;
  DLTensor exchanged;
  if (exchange->dltensor_from_py_object_no_sync(object, &exchanged) != 0) {
    python().PyErr_Clear();
    return false;
  }
  from_dlpack(exchanged, tensor.emplace());
  return true;
}

std::string PythonArguments::type_name(size_t i) const {
  const Python& py = python();
  const Object type = py.PyObject_Type(item(i));
  const Object name = py.PyObject_GetAttrString(type, "__name__");
  intptr_t size = 0;
  const char* text = name != nullptr ? py.PyUnicode_AsUTF8AndSize(name, &size) : nullptr;
  std::string result = text != nullptr ? std::string(text, static_cast<size_t>(size)) : "object";
  if (name != nullptr) py.Py_DecRef(name);
  py.Py_DecRef(type);
  py.PyErr_Clear();
  return result;
}

Stream PythonArguments::current_stream(int32_t cuda_device) const {
  return torch_stream(cuda_device);
}

Stream torch_stream(int32_t cuda_device) {
  void* stream = nullptr;
  if (exchange->current_work_stream(kDLCUDA, cuda_device, &stream) != 0) {
    python().PyErr_Clear();
    throw Error(ErrorKind::kRuntime, "stream",
                "torch gave no current stream for cuda:" + std::to_string(cuda_device));
  }
  return stream;
}

}  // namespace graphfeed
