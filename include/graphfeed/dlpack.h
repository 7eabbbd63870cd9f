// SPDX-License-Identifier: Apache-2.0
// From DLPack's tensor to ours. Not part of graphfeed.h: it needs <dlpack/dlpack.h> from the
// caller.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>

#include "graphfeed/tensor.h"

namespace graphfeed {

// Makes `view`, a fresh one, that of `tensor`; its byte offset is added and absent strides mean
// dense, row-major.
inline void from_dlpack(const DLTensor& tensor, Tensor& view) {
  if (tensor.data != nullptr) view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.dtype = {.code = tensor.dtype.code, .bits = tensor.dtype.bits, .lanes = tensor.dtype.lanes};
  view.device = {.type = static_cast<DeviceType>(tensor.device.device_type),
                 .id = tensor.device.device_id};
  view.ndim = tensor.ndim;
  for (int d = 0; d < tensor.ndim && d < 2; ++d) {
    const auto i = static_cast<unsigned>(d);
    view.shape[i] = tensor.shape[d];
    if (tensor.strides != nullptr) {
      view.strides[i] = tensor.strides[d];
    } else {
      view.strides[i] = d == tensor.ndim - 1 ? 1 : tensor.shape[d + 1];
    }
  }
}

inline Tensor from_dlpack(const DLTensor& tensor) {
  Tensor view;
  from_dlpack(tensor, view);
  return view;
}

}  // namespace graphfeed
