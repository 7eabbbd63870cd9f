// SPDX-License-Identifier: Apache-2.0
// In: what the caller said. Out: a table that later stages trust. Every check of user input is made
// here, before anything is written.
#pragma once

#include <array>

#include "device/field_table.h"
#include "graphfeed/copy.h"
#include "kernel_key.h"

namespace graphfeed {

struct BoundField : FieldShape {
  Operand operands[1 + kMaxDestinations];  // the source, then the destinations
};

struct BoundTable : TableShape {
  BoundShape bound;
  int32_t shared_bytes;  // a block reserves, so that fewer of them run at once
  BoundField fields[kMaxFields];
};

struct BoundCopy {
  Device device;
  KernelKey key;
  BoundTable table;                       // num_fields 0: nothing to do
  std::array<uint8_t, kMaxFields> specs;  // of table.fields[f]: its place in the schema
};

// `value` as a mode. Throws Error (value) that names `argument` where it is none.
ForwardMode mode_of(int64_t value, const char* function, const char* argument);

// Throws Error (value) that names `argument` where `value` is negative.
void check_not_negative(int64_t value, const char* function, const char* argument);

// The device of the source's first field that the mode copies; every other tensor must be on it.
// kCpu where there is none. The mode is a valid one.
Device device_of(const CopyRequest& request);

// Fills `bound`; throws Error, whose sentence starts with `function`, where the request is wrong.
// Written through a reference: the table is 4 KB and only the part in use is touched.
void bind(const CopyRequest& request, const char* function, BoundCopy& bound);

}  // namespace graphfeed
