// SPDX-License-Identifier: Apache-2.0
// What is asked of any tensor of a caller: its type, device, rank, size and memory.
#pragma once

#include <cstdint>
#include <string>

#include "graphfeed/error.h"
#include "graphfeed/tensor.h"
#include "overlap.h"

namespace graphfeed {

// Addresses and strides are multiplied in 64 bits; a span beyond this is nobody's memory.
inline constexpr int64_t kMaxSpanElements = int64_t{1} << 48;

struct TensorChecks {
  const char* function;  // begins every message
  Device device;         // every tensor must be on it
  const char* anchor;    // what of the caller's is on it, for messages
};

// Whose tensor a message is about.
struct Place {
  static constexpr int kNeither = -1;
  int operand;        // 0 the source, 1 + k destination k, or kNeither
  const char* field;  // or the name of an argument
};

// Pinned host memory is computed on as CPU memory.
Device compute_device(Device device);

[[noreturn]] void refuse(const TensorChecks& checks, Place place, const std::string& reason,
                         ErrorKind kind = ErrorKind::kValue);

std::string text_of(DType type);                     // "int64"
std::string text_of(int64_t rows, int64_t columns);  // "2 x 3"

[[noreturn]] void refuse_dtype(const TensorChecks& checks, const Tensor& tensor, Place place);

// Throws Error (type) where the elements are not int32.
inline void check_dtype(const TensorChecks& checks, const Tensor& tensor, Place place) {
  if (tensor.dtype != kInt32) refuse_dtype(checks, tensor, place);
}

// Device, sizes, and for a destination that it may be written.
void check_tensor(const TensorChecks& checks, const Tensor& tensor, Place place);

void check_rank(const TensorChecks& checks, const Tensor& tensor, Place place, int32_t rank);

// At least `count` elements in a vector.
void check_size(const TensorChecks& checks, const Tensor& tensor, Place place, int64_t count);

void check_address(const TensorChecks& checks, const void* data, Place place,
                   uintptr_t alignment = sizeof(int32_t));

// The block's memory: addressable, aligned, and for a destination without elements over each other.
void check_memory(const TensorChecks& checks, Place place, const MemoryBlock& block,
                  uintptr_t alignment = sizeof(int32_t));

// A block of a tensor, its memory checked; nulls where it has no elements.
void set_operand(const TensorChecks& checks, const Tensor& tensor, Place place,
                 const MemoryBlock& block, Operand& operand);

// The first rows and columns of a table.
void set_table_operand(const TensorChecks& checks, const Tensor& tensor, Place place, int64_t rows,
                       int64_t columns, Operand& operand);

// Elements [offset : offset + count] of a vector.
void set_vector_operand(const TensorChecks& checks, const Tensor& tensor, Place place,
                        int64_t offset, int64_t count, Operand& operand);

}  // namespace graphfeed
