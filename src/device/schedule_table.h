// SPDX-License-Identifier: Apache-2.0
// What a generating kernel that makes scheduler metadata too is given beyond a generation's table.
#pragma once

#include "device/flashmla_equal_rows.h"
#include "device/generation_table.h"
#include "device/paged_mqa_schedule.h"

namespace graphfeed {

enum class ScheduleField : uint8_t { kPagedMqaSchedule, kFlashmlaMetadata, kFlashmlaNumSplits };
inline constexpr int kNumScheduleFields = 3;

// What a row's FlashMLA schedule depends on.
enum class FlashmlaLengths : uint8_t {
  kNone,             // top-k: all rows are equal
  kDsaCacheSeqlens,  // dense
  kTopkLength,       // top-k of each row
};

struct ScheduleShape {
  PagedMqaSchedule paged_mqa;
  FlashmlaSchedule flashmla;
  FlashmlaEqualRows equal_rows;  // where lengths is kNone
  IntegerVector topk_length;     // [R], where it is kTopkLength
  int32_t num_paged_mqa_blocks;  // 0: no such schedule. They come first
  int32_t num_flashmla_blocks;
  FlashmlaLengths lengths;
  uint8_t has_whole_requests;  // paged_mqa_ctx_lens_2d is [bs, n]
  uint8_t reserved[6];
};

// Null data: absent.
struct ScheduleOutput {
  int32_t* data;
  int64_t row_stride;     // of num_splits, between elements
  int64_t column_stride;  // of num_splits 0
};

template <int kBucket>
struct ScheduledTable : GenerationTable<kBucket> {
  ScheduleShape schedule;
  ScheduleOutput schedules[kNumScheduleFields][kBucket];
};

}  // namespace graphfeed
