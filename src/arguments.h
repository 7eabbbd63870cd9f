// SPDX-License-Identifier: Apache-2.0
// The arguments of a foreign call by position, however they came: TVM FFI's packed values, or the
// items of a Python tuple.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "graphfeed/copy.h"
#include "graphfeed/error.h"
#include "graphfeed/tensor.h"

namespace graphfeed {

class Arguments {
 public:
  virtual ~Arguments() = default;
  [[nodiscard]] virtual size_t size() const = 0;
  [[nodiscard]] virtual bool is_none(size_t i) const = 0;
  [[nodiscard]] virtual std::optional<int64_t> integer(size_t i) const = 0;  // absent: is not one
  // Fills `tensor`, an absent one, in place; false, and it stays absent, where argument i is none.
  virtual bool read(size_t i, std::optional<Tensor>& tensor) const = 0;
  [[nodiscard]] virtual std::string type_name(size_t i) const = 0;
  // The stream on which the caller's framework is working.
  [[nodiscard]] virtual Stream current_stream(int32_t cuda_device) const = 0;
};

// A foreign call: its arguments, and the checks of them that every call makes.
struct Call {
  const char* function;  // begins every message
  const Arguments& arguments;

  [[noreturn]] void refuse_type(size_t i, const std::string& name, const char* expected) const {
    throw Error(ErrorKind::kType, std::string(function) + ": " + name,
                std::string("expected ") + expected + ", got " + arguments.type_name(i));
  }

  [[nodiscard]] int64_t integer(size_t i, const char* name) const {
    if (const auto value = arguments.integer(i)) return *value;
    refuse_type(i, name, "an integer");
  }

  [[nodiscard]] std::optional<int64_t> optional_integer(size_t i, const char* name) const {
    return arguments.is_none(i) ? std::nullopt : std::optional(integer(i, name));
  }

  [[nodiscard]] std::optional<Tensor> optional_tensor(size_t i, const char* name) const {
    std::optional<Tensor> tensor;
    if (!arguments.read(i, tensor) && !arguments.is_none(i)) {
      refuse_type(i, name, "a tensor or None");
    }
    return tensor;
  }

  void expect_count(size_t expected) const {
    if (arguments.size() == expected) return;
    throw Error(ErrorKind::kType, function,
                "expected " + std::to_string(expected) + " arguments, got " +
                    std::to_string(arguments.size()));
  }
};

}  // namespace graphfeed
