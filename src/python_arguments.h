// SPDX-License-Identifier: Apache-2.0
// The items of a Python tuple, read in place: no object is made for a tensor. For the calls that an
// engine makes at every step with torch tensors, where making and dropping one costs more than the
// copy does. Uses the interpreter's stable C API, found in the running process.
#pragma once

#include <cstdint>

#include "arguments.h"

namespace graphfeed {

// Of a tensor class: how its objects are read. Given once, when Python first meets the class.
// exchange_api: the address in its __dlpack_c_exchange_api__ capsule; tensor_class: of the class.
// False, and nothing set, where this version of the interface cannot read in place. Throws Error
// (runtime) where the process has no Python.
bool set_tensor_class(int64_t exchange_api, int64_t tensor_class);

// `tuple` is the address of a tuple that outlives this; the calling thread holds the interpreter
// lock, and set_tensor_class() was called.
class PythonArguments : public Arguments {
 public:
  explicit PythonArguments(int64_t tuple);
  [[nodiscard]] size_t size() const override { return size_; }
  [[nodiscard]] bool is_none(size_t i) const override;
  [[nodiscard]] std::optional<int64_t> integer(size_t i) const override;
  bool read(size_t i, std::optional<Tensor>& tensor) const override;
  [[nodiscard]] std::string type_name(size_t i) const override;
  [[nodiscard]] Stream current_stream(int32_t cuda_device) const override;

 private:
  [[nodiscard]] void* item(size_t i) const;

  void* tuple_;
  size_t size_;
};

// torch's current stream. set_tensor_class() has returned true.
Stream torch_stream(int32_t cuda_device);

}  // namespace graphfeed
