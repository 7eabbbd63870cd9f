// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

namespace graphfeed {
namespace {

template <int kBucket>
void fill(const BoundTable& table, StridedTable<kBucket>& to) {
  static_cast<TableShape&>(to) = table;
  to.bound = table.bound;
  for (int f = 0; f < table.num_fields; ++f) {
    static_cast<FieldShape&>(to.fields[f]) = table.fields[f];
    std::copy_n(table.fields[f].operands, 1 + table.num_destinations, to.fields[f].operands);
  }
}

template <int kBucket>
void fill(const BoundTable& table, DenseTable<kBucket>& to) {
  static_cast<TableShape&>(to) = table;
  for (int f = 0; f < table.num_fields; ++f) {
    const BoundField& from = table.fields[f];
    to.fields[f].columns = from.columns;
    to.fields[f].segment = from.segment;
    to.fields[f].access = from.access;
    to.fields[f].skew = from.skew;
    for (int k = 0; k <= table.num_destinations; ++k) {
      to.fields[f].operands[k] = from.operands[k].data;
    }
  }
}

template <int kBucket>
void fill(const ScheduledTable<kMaxDestinations>& table, GenerationTable<kBucket>& to) {
  static_cast<GenerationShape&>(to) = table;
  for (int f = 0; f < kNumVectorFields; ++f) {
    std::copy_n(table.vectors[f], table.num_destinations, to.vectors[f]);
  }
  for (int f = 0; f < kNumTableFields; ++f) {
    std::copy_n(table.tables[f], table.num_destinations, to.tables[f]);
  }
  std::copy_n(table.ctx_block_strides, table.num_destinations, to.ctx_block_strides);
}

template <int kBucket>
void fill(const ScheduledTable<kMaxDestinations>& table, ScheduledTable<kBucket>& to) {
  fill(table, static_cast<GenerationTable<kBucket>&>(to));
  to.schedule = table.schedule;
  for (int f = 0; f < kNumScheduleFields; ++f) {
    std::copy_n(table.schedules[f], table.num_destinations, to.schedules[f]);
  }
}

int32_t*& address_in(Operand& operand) { return operand.data; }
int32_t*& address_in(int32_t*& operand) { return operand; }

// Calls action(table), of the type of a key's parameter, with a null pointer of that type.
template <int kBucket, class Action>
auto with_table_of(bool dense, Action action) {
  return dense ? action(static_cast<DenseTable<kBucket>*>(nullptr))
               : action(static_cast<StridedTable<kBucket>*>(nullptr));
}

template <class Action>
auto with_table_of(KernelKey key, Action action) {
  static_assert(kDestinationBuckets == std::array{1, 4, 16});
  if (key.bucket == 1) return with_table_of<1>(key.dense, action);
  if (key.bucket == 4) return with_table_of<4>(key.dense, action);
  return with_table_of<16>(key.dense, action);
}

// Calls action(table), of the type of a generation's parameter, with a null pointer of that type.
template <int kBucket, class Action>
auto with_generation_of(bool schedules, Action action) {
  return schedules ? action(static_cast<ScheduledTable<kBucket>*>(nullptr))
                   : action(static_cast<GenerationTable<kBucket>*>(nullptr));
}

// Where the address of something that is written is.
template <class Table>
const std::byte* mark_in(const Table& table) {
  for (int d = 0; d < table.num_destinations; ++d) {
    for (const auto& outputs : table.vectors) {
      if (outputs[d].data != nullptr) return reinterpret_cast<const std::byte*>(&outputs[d].data);
    }
    for (const auto& outputs : table.tables) {
      if (outputs[d].data != nullptr) return reinterpret_cast<const std::byte*>(&outputs[d].data);
    }
    if constexpr (requires { table.schedules; }) {
      for (const auto& outputs : table.schedules) {
        if (outputs[d].data != nullptr) return reinterpret_cast<const std::byte*>(&outputs[d].data);
      }
    }
  }
  return reinterpret_cast<const std::byte*>(&table.report);
}

CUlaunchConfig config_of(int32_t blocks, int threads, int32_t shared_bytes) {
  return {.grid_x = static_cast<unsigned>(blocks),
          .grid_y = 1,
          .grid_z = 1,
          .block_x = static_cast<unsigned>(threads),
          .block_y = 1,
          .block_z = 1,
          .shared_bytes = static_cast<unsigned>(shared_bytes),
          .stream = nullptr,
          .attributes = nullptr,
          .num_attributes = 0};
}

}  // namespace

void pack(KernelKey key, const BoundTable& table, PackedLaunch& launch) {
  launch.config = config_of(table.num_blocks, kBlockThreads, table.shared_bytes);
  with_table_of(key, [&]<class Table>(Table*) {
    static_assert(sizeof(Table) <= sizeof(launch.parameter));
    static_assert(std::has_unique_object_representations_v<Table>);
    launch.bytes = sizeof(Table);
    std::memset(launch.parameter.data(), 0, sizeof(Table));
    auto& packed = *new (launch.parameter.data()) Table;
    fill(table, packed);
    const auto* const mark =
        reinterpret_cast<const std::byte*>(&address_in(packed.fields[0].operands[1]));
    launch.mark = static_cast<size_t>(mark - launch.parameter.data());
  });
}

void pack_source(KernelKey key, const BoundTable& table, PackedLaunch& launch) {
  with_table_of(key, [&]<class Table>(Table*) {
    auto& packed = *std::launder(reinterpret_cast<Table*>(launch.parameter.data()));
    for (int f = 0; f < table.num_fields; ++f) {
      address_in(packed.fields[f].operands[0]) = table.fields[f].operands[0].data;
    }
  });
}

void pack(KernelKey key, const ScheduledTable<kMaxDestinations>& table, PackedLaunch& launch) {
  launch.config = config_of(num_blocks_of(table), kGenerateThreads, 0);
  const auto pack_as = [&]<class Table>(Table*) {
    static_assert(sizeof(Table) <= sizeof(launch.parameter));
    static_assert(std::has_unique_object_representations_v<Table>);
    launch.bytes = sizeof(Table);
    std::memset(launch.parameter.data(), 0, launch.bytes);
    auto& packed = *new (launch.parameter.data()) Table;
    fill(table, packed);
    launch.mark = static_cast<size_t>(mark_in(packed) - launch.parameter.data());
  };
  if (key.bucket == 1) return with_generation_of<1>(key.schedules, pack_as);
  if (key.bucket == 4) return with_generation_of<4>(key.schedules, pack_as);
  with_generation_of<16>(key.schedules, pack_as);
}

}  // namespace graphfeed
