// SPDX-License-Identifier: Apache-2.0
// A view of a caller's tensor, as the checks and kernels need it. It owns nothing.
#pragma once

#include <array>
#include <cstdint>

namespace graphfeed {

// Element type in DLPack's numbering, so that a DLDataType converts member by member.
struct DType {
  uint8_t code = 0;  // 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool
  uint8_t bits = 32;
  uint16_t lanes = 1;
  friend bool operator==(const DType&, const DType&) = default;
};
inline constexpr DType kInt32{.code = 0, .bits = 32, .lanes = 1};
inline constexpr DType kInt64{.code = 0, .bits = 64, .lanes = 1};

// Device types in DLPack's numbering. Pinned host memory (kCudaHost) is used as CPU memory.
enum class DeviceType : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3 };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int32_t id = 0;  // CUDA ordinal, as the CUDA driver and runtime count; 0 for CPU
  friend bool operator==(const Device&, const Device&) = default;
};
inline constexpr Device kCpu{.type = DeviceType::kCpu, .id = 0};
constexpr Device cuda(int32_t id) { return {.type = DeviceType::kCuda, .id = id}; }

// A tensor of any rank; the first two dimensions are kept, since no field has more.
struct Tensor {
  void* data = nullptr;  // address of the first element, byte offset already added
  DType dtype = kInt32;
  Device device = kCpu;
  int32_t ndim = 1;
  std::array<int64_t, 2> shape{};    // elements
  std::array<int64_t, 2> strides{};  // elements; zero and negative strides are legal in a source
  bool read_only = false;            // refused as a destination
};

// A vector of `size` int32 elements, `stride` elements apart.
constexpr Tensor vector_of(void* data, int64_t size, Device device, int64_t stride = 1) {
  return {.data = data, .device = device, .ndim = 1, .shape = {size, 1}, .strides = {stride, 1}};
}

// A table of `rows` x `columns` int32 elements whose rows start `row_stride` elements apart.
constexpr Tensor table_of(void* data, int64_t rows, int64_t columns, Device device,
                          int64_t row_stride) {
  return {.data = data,
          .device = device,
          .ndim = 2,
          .shape = {rows, columns},
          .strides = {row_stride, 1}};
}

}  // namespace graphfeed
