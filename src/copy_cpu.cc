// SPDX-License-Identifier: Apache-2.0
#include "copy_cpu.h"

#include <algorithm>
#include <cstring>

#include "device/copy.h"

namespace graphfeed {
namespace {

void move_columns(const Operand& from, const Operand& to, int64_t row, int64_t begin, int64_t end) {
  const int32_t* source = from.data + row * from.row_stride + begin * from.column_stride;
  int32_t* destination = to.data + row * to.row_stride + begin * to.column_stride;
  const int64_t count = std::max<int64_t>(end - begin, 0);
  if (from.column_stride == 1 && to.column_stride == 1) {
    // A block may be copied onto itself, so the two may be one.
    std::memmove(destination, source, static_cast<size_t>(count) * sizeof(int32_t));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    destination[i * to.column_stride] = source[i * from.column_stride];
  }
}

}  // namespace

void copy_on_cpu(const BoundTable& table) {
  for (int32_t block = 0; block < table.num_blocks; ++block) {
    const int32_t f = field_of(table, block);
    const BoundField& field = table.fields[f];
    const auto local = static_cast<uint32_t>(block - table.first_block[f]);
    for_each_run(field, local, [&](int64_t row, int32_t begin, int32_t end) {
      const int32_t limit = field.tokens_per_column == 0
                                ? static_cast<int32_t>(field.columns)
                                : live_columns(field, live_length(table.bound, row));
      for (int32_t k = 1; k <= table.num_destinations; ++k) {
        move_columns(field.operands[0], field.operands[k], row, begin, std::min(end, limit));
      }
      return limit;
    });
  }
}

}  // namespace graphfeed
