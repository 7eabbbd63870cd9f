// SPDX-License-Identifier: Apache-2.0
// An eager copy to compare with, written from the field table alone, and the batches that tests
// copy. It shares no code with the library: of graphfeed it uses the public types.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graphfeed/copy.h"

namespace graphfeed::reference {

enum Field : uint8_t {
  kCacheSeqlens,
  kCuSeqlensK,
  kPageTable1,
  kSeqlensExpanded,
  kDsaCacheSeqlens,
  kDsaCuSeqlensK,
  kRealPageTable,
  kFlashmlaNumSplits,
  kFlashmlaMetadata,
};
inline constexpr size_t kNumFields = 9;
inline constexpr uint32_t kEveryField = (1U << kNumFields) - 1;
inline constexpr std::array<uint32_t, 3> kOptionalFields{
    1U << kRealPageTable, 1U << kFlashmlaNumSplits, 1U << kFlashmlaMetadata};

// "Decode", "TargetVerify", "DraftExtend": in the names of tests.
std::string text_of(ForwardMode mode);

// Every field but the optional ones that `absent` (0..7) has a bit for.
uint32_t fields_without(uint32_t absent);

inline constexpr int32_t kUntouched = -7'777'777;  // all of a destination's storage, at first
inline constexpr int32_t kGap = -1'234'567;        // a source's storage between its elements

// One tensor in storage of its own. Element (i, j) of a table, (0, j) of a vector, is
// storage[first + i * row_stride + j * column_stride].
struct Buffer {
  std::vector<int32_t> storage;
  int64_t first = 0;
  int32_t ndim = 1;
  int64_t rows = 1;
  int64_t columns = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};
using Buffers = std::array<std::optional<Buffer>, kNumFields>;

enum class Layout : uint8_t {
  kExact,     // dense; the storage ends with the last element
  kSpacious,  // 16-byte aligned rows, bigger than asked for, with storage before and behind
  kOdd,       // rows an odd distance apart, the first one 4 to 12 bytes past an aligned address
  kSkewed,    // as kOdd, but every tensor is off an aligned address alike, in each row
  kStrided,   // columns 2 or 3 elements apart
  kBackward,  // negative strides: a source only
  kRepeated,  // one row, or one element of a vector, over and over: a source only
};

// Sizes and strides of `layout`; `variant` makes those of two tensors differ.
void lay_out(Buffer& buffer, Layout layout, int64_t variant);

// Element (i, j) of a table, (0, j) of a vector.
int32_t& at(Buffer& buffer, int64_t i, int64_t j);
int32_t at(const Buffer& buffer, int64_t i, int64_t j);

// The sizes as in metadata.h. Row and column counts of the source's tables.
struct BatchSpec {
  ForwardMode mode = ForwardMode::kDecode;
  int64_t bs = 5;
  int64_t expanded = 14;  // E
  int64_t rows = 15;      // of the source's tables; in decode at least bs
  int64_t width = 37;
  int64_t pages = 3;
  std::optional<int64_t> max_seqlen_k{};
  int num_destinations = 1;
  uint32_t fields = kEveryField;
  Layout source = Layout::kExact;
  Layout destination = Layout::kExact;
  bool live_bound = false;
  int64_t page_size = 64;
  uint32_t seed = 1;
};

struct Batch {
  BatchSpec spec;
  Buffers source;
  std::vector<Buffers> destinations;
  std::optional<Buffer> lengths;  // of the live bound
};

Batch make_batch(const BatchSpec& spec);

// New values for every element of the source, from another seed.
void refill_source(Batch& batch, uint32_t seed);

// The destinations as they must be after the copy, gaps and guards too.
std::vector<Buffers> expected_destinations(const Batch& batch);

// `buffer` as a tensor whose storage is at `storage`.
Tensor tensor_of(const Buffer& buffer, void* storage, Device device);
using Storages = std::array<void*, kNumFields>;
Metadata metadata_of(const Buffers& buffers, const Storages& storages, Device device);
Storages host_storages(Buffers& buffers);

// The request for `batch`; `lengths` is the storage of the live bound, or null.
CopyRequest request_of(const Batch& batch, const Metadata& source,
                       std::span<const Metadata> destinations, void* lengths, Device device);

// Where the first unequal element is, and both values; empty if there is none.
std::string first_difference(std::span<const Buffers> got, std::span<const Buffers> expected);

}  // namespace graphfeed::reference
