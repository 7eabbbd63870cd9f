// SPDX-License-Identifier: Apache-2.0
// The one exception this library throws.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace graphfeed {

// kType: a tensor has the wrong element type. kValue: any other argument is wrong. kRuntime: the
// arguments are right and the machine is not (no driver, no compiler, a failed launch).
enum class ErrorKind : uint8_t { kType, kValue, kRuntime };

// what() reads `function: destination 1: field: what was expected and what came`.
class Error : public std::runtime_error {
 public:
  // where: function, then destination and field if there are any; reason: the rest of the sentence.
  Error(ErrorKind kind, std::string where, std::string reason)
      : std::runtime_error(where + ": " + reason),
        kind_(kind),
        where_(std::move(where)),
        reason_(std::move(reason)) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  ErrorKind kind_;
  std::string where_;
  std::string reason_;
};

}  // namespace graphfeed
