// SPDX-License-Identifier: Apache-2.0
// In: a number or a vector that a generation is given. Out: it, as kernels take it, its rules
// checked.
#pragma once

#include <cstdint>

#include "generate_outputs.h"

namespace graphfeed {

constexpr Place argument(const char* name) { return {.operand = Place::kNeither, .field = name}; }

// Throws Error (value) where it is not from `lowest` to `highest`.
void check_range(const TensorChecks& checks, const char* name, int64_t value, int64_t lowest,
                 int64_t highest);

// The first `count` elements of an int32 or int64 vector, which are only read.
IntegerVector bind_integers(const GenerationBinding& binding, const Tensor& tensor,
                            const char* name, int64_t count);

}  // namespace graphfeed
