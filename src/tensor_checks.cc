// SPDX-License-Identifier: Apache-2.0
#include "tensor_checks.h"

#include <algorithm>

namespace graphfeed {
namespace {

std::string text_of(Device device) {
  switch (device.type) {
    case DeviceType::kCpu:
    case DeviceType::kCudaHost:
      return "cpu";
    case DeviceType::kCuda:
      return "cuda:" + std::to_string(device.id);
  }
  return "DLPack device " + std::to_string(static_cast<int32_t>(device.type)) + ":" +
         std::to_string(device.id);
}

}  // namespace

Device compute_device(Device device) {
  const bool host = device.type == DeviceType::kCpu || device.type == DeviceType::kCudaHost;
  return host ? kCpu : device;
}

std::string text_of(DType type) {
  constexpr const char* kNames[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  std::string text = type.code < 7 ? kNames[type.code] : "type" + std::to_string(type.code) + "_";
  if (type.code != 6) text += std::to_string(type.bits);
  return type.lanes == 1 ? text : text + "x" + std::to_string(type.lanes);
}

void refuse(const TensorChecks& checks, Place place, const std::string& reason, ErrorKind kind) {
  std::string where = checks.function;
  if (place.operand == 0) where += ": source";
  if (place.operand > 0) where += ": destination " + std::to_string(place.operand - 1);
  throw Error(kind, where + ": " + place.field, reason);
}

std::string text_of(int64_t rows, int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

void refuse_dtype(const TensorChecks& checks, const Tensor& tensor, Place place) {
  refuse(checks, place, "expected int32, got " + text_of(tensor.dtype), ErrorKind::kType);
}

void check_tensor(const TensorChecks& checks, const Tensor& tensor, Place place) {
  const Device device = compute_device(tensor.device);
  if (device.type != DeviceType::kCpu && device.type != DeviceType::kCuda) {
    refuse(checks, place, "is on " + text_of(device) + ", expected cpu or cuda");
  }
  if (!(device == checks.device)) {
    refuse(checks, place,
           "is on " + text_of(device) + ", " + checks.anchor + " is on " + text_of(checks.device));
  }
  if (place.operand > 0 && tensor.read_only) refuse(checks, place, "is read-only");
  for (int d = 0; d < std::min(tensor.ndim, 2); ++d) {
    const int64_t size = tensor.shape[static_cast<size_t>(d)];
    if (size < 0) refuse(checks, place, "has a negative size, " + std::to_string(size));
  }
}

void check_rank(const TensorChecks& checks, const Tensor& tensor, Place place, int32_t rank) {
  if (tensor.ndim == rank) return;
  refuse(checks, place,
         "expected rank " + std::to_string(rank) + ", got " + std::to_string(tensor.ndim));
}

void check_size(const TensorChecks& checks, const Tensor& tensor, Place place, int64_t count) {
  if (tensor.shape[0] >= count) return;
  refuse(checks, place,
         "needs " + std::to_string(count) + " elements, has " + std::to_string(tensor.shape[0]));
}

void check_address(const TensorChecks& checks, const void* data, Place place, uintptr_t alignment) {
  if (data == nullptr) refuse(checks, place, "has a null data pointer");
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    refuse(checks, place, "its data is not aligned to " + std::to_string(alignment) + " bytes");
  }
}

void check_memory(const TensorChecks& checks, Place place, const MemoryBlock& block,
                  uintptr_t alignment) {
  check_address(checks, block.data, place, alignment);
  const auto span = [](int64_t stride, int64_t count) {
    return static_cast<__int128>(stride < 0 ? -static_cast<__int128>(stride) : stride) *
           (count - 1);
  };
  if (span(block.row_stride, block.rows) + span(block.column_stride, block.columns) >
      kMaxSpanElements) {
    refuse(checks, place, "its strides span more than 2^48 elements");
  }
  if (place.operand > 0 && overlaps_itself(block)) {
    refuse(checks, place,
           "its elements overlap each other (strides " +
               text_of(block.row_stride, block.column_stride) + ")");
  }
}

void set_operand(const TensorChecks& checks, const Tensor& tensor, Place place,
                 const MemoryBlock& block, Operand& operand) {
  operand = {nullptr, 0, 0};
  if (block.rows == 0 || block.columns == 0) return;
  check_memory(checks, place, block);
  operand = {static_cast<int32_t*>(tensor.data), block.row_stride, block.column_stride};
}

void set_table_operand(const TensorChecks& checks, const Tensor& tensor, Place place, int64_t rows,
                       int64_t columns, Operand& operand) {
  check_tensor(checks, tensor, place);
  check_rank(checks, tensor, place, 2);
  if (tensor.shape[0] < rows || tensor.shape[1] < columns) {
    refuse(checks, place,
           "needs " + text_of(rows, columns) + " elements, has " +
               text_of(tensor.shape[0], tensor.shape[1]));
  }
  set_operand(checks, tensor, place,
              {.data = static_cast<const int32_t*>(tensor.data),
               .rows = rows,
               .columns = columns,
               .row_stride = tensor.strides[0],
               .column_stride = tensor.strides[1]},
              operand);
}

void set_vector_operand(const TensorChecks& checks, const Tensor& tensor, Place place,
                        int64_t offset, int64_t count, Operand& operand) {
  check_tensor(checks, tensor, place);
  check_rank(checks, tensor, place, 1);
  if (count > 0 && tensor.shape[0] - offset < count) {
    const uint64_t needed = static_cast<uint64_t>(count) + static_cast<uint64_t>(offset);
    refuse(checks, place,
           "needs " + std::to_string(needed) + " elements, has " + std::to_string(tensor.shape[0]));
  }
  // From element 0 on, so that the address of element `offset` is within what is checked too.
  set_operand(checks, tensor, place,
              {.data = static_cast<const int32_t*>(tensor.data),
               .rows = 1,
               .columns = count > 0 ? offset + count : 0,
               .row_stride = 0,
               .column_stride = tensor.strides[0]},
              operand);
  if (operand.data != nullptr) operand.data += offset * operand.column_stride;
}

}  // namespace graphfeed
