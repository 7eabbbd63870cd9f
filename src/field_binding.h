// SPDX-License-Identifier: Apache-2.0
// In: the caller's tensors of one field. Out: that field's row of the table, every rule about the
// tensors checked.
#pragma once

#include <cstdint>

#include "bind.h"
#include "schema.h"
#include "tensor_checks.h"

namespace graphfeed {

struct FieldBinding : TensorChecks {
  const CopyRequest& request;
};

inline constexpr Place kLiveBoundPlace{.operand = Place::kNeither, .field = "live_bound"};

// Rows of the page tables: bs in decode, else the rows of the source's table. 0 without a table.
int64_t table_rows(const CopyRequest& request);

// Appends the row of `spec` to the table, and its operands. False where the mode does not copy the
// field, or it is absent everywhere, or has no elements: then nothing is appended.
bool bind_field(const FieldBinding& binding, const FieldSpec& spec, BoundTable& table);

// The rules about the live bound that no other tensor has.
void check_live_bound(const FieldBinding& binding, int64_t rows);

}  // namespace graphfeed
