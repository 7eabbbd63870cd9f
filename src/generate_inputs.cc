// SPDX-License-Identifier: Apache-2.0
#include "generate_inputs.h"

#include <string>

namespace graphfeed {

void check_range(const TensorChecks& checks, const char* name, int64_t value, int64_t lowest,
                 int64_t highest) {
  if (value >= lowest && value <= highest) return;
  refuse(checks, argument(name),
         "must be from " + std::to_string(lowest) + " to " + std::to_string(highest) + ", got " +
             std::to_string(value));
}

IntegerVector bind_integers(const GenerationBinding& binding, const Tensor& tensor,
                            const char* name, int64_t count) {
  const Place place = argument(name);
  if (tensor.dtype != kInt32 && tensor.dtype != kInt64) {
    refuse(binding, place, "expected int32 or int64, got " + text_of(tensor.dtype),
           ErrorKind::kType);
  }
  check_tensor(binding, tensor, place);
  check_rank(binding, tensor, place, 1);
  check_size(binding, tensor, place, count);
  const int64_t words = tensor.dtype == kInt64 ? 2 : 1;
  if (count > 0) {
    if (tensor.strides[0] > kMaxSpanElements || tensor.strides[0] < -kMaxSpanElements) {
      refuse(binding, place, "its strides span more than 2^48 elements");
    }
    const MemoryBlock block{.data = static_cast<const int32_t*>(tensor.data),
                            .rows = count,
                            .columns = words,
                            .row_stride = words * tensor.strides[0],
                            .column_stride = 1};
    check_memory(binding, place, block, static_cast<uintptr_t>(4 * words));
    binding.blocks.add_input(block, place);
  }
  return {tensor.data, tensor.strides[0], words == 2, 0};
}

}  // namespace graphfeed
