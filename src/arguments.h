// SPDX-License-Identifier: Apache-2.0
// The arguments of a foreign call by position, however they came: TVM FFI's packed values, or the
// items of a Python tuple.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "graphfeed/copy.h"
#include "graphfeed/tensor.h"

namespace graphfeed {

class Arguments {
 public:
  virtual ~Arguments() = default;
  [[nodiscard]] virtual size_t size() const = 0;
  [[nodiscard]] virtual bool is_none(size_t i) const = 0;
  [[nodiscard]] virtual std::optional<int64_t> integer(size_t i) const = 0;  // absent: is not one
  [[nodiscard]] virtual std::optional<Tensor> tensor(size_t i) const = 0;    // absent: is not one
  [[nodiscard]] virtual std::string type_name(size_t i) const = 0;
  // The stream on which the caller's framework is working.
  [[nodiscard]] virtual Stream current_stream(int32_t cuda_device) const = 0;
};

}  // namespace graphfeed
