// SPDX-License-Identifier: Apache-2.0
// In: the caller's tensors of one field. Out: that field's row of the table, every rule about the
// tensors checked.
#pragma once

#include <cstdint>

#include "bind.h"
#include "graphfeed/error.h"
#include "schema.h"

namespace graphfeed {

struct FieldBinding {
  const CopyRequest& request;
  const char* function;  // begins every message
  Device device;         // every tensor must be on it
};

// Whose tensor a message is about.
struct Place {
  static constexpr int kNeither = -1;
  int operand;        // 0 the source, 1 + k destination k, or kNeither
  const char* field;  // or the name of an argument
};
inline constexpr Place kLiveBoundPlace{.operand = Place::kNeither, .field = "live_bound"};

// Pinned host memory is computed on as CPU memory.
Device compute_device(Device device);

// Rows of the page tables: bs in decode, else the rows of the source's table. 0 without a table.
int64_t table_rows(const CopyRequest& request);

// Appends the row of `spec` to the table, and its operands. False where the mode does not copy the
// field, or it is absent everywhere, or has no elements: then nothing is appended.
bool bind_field(const FieldBinding& binding, const FieldSpec& spec, BoundTable& table);

// Elements [offset : offset + count] of a vector.
void set_vector_operand(const FieldBinding& binding, const Tensor& tensor, Place place,
                        int64_t offset, int64_t count, Operand& operand);

// The rules about the live bound that no other tensor has.
void check_live_bound(const FieldBinding& binding, int64_t rows);

}  // namespace graphfeed
