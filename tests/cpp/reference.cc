// SPDX-License-Identifier: Apache-2.0
#include "reference.h"

#include <algorithm>
#include <random>

namespace graphfeed::reference {
namespace {

constexpr std::array<const char*, kNumFields> kNames{
    "cache_seqlens",    "cu_seqlens_k",        "page_table_1",
    "seqlens_expanded", "dsa_cache_seqlens",   "dsa_cu_seqlens_k",
    "real_page_table",  "flashmla_num_splits", "flashmla_metadata"};

constexpr std::array<std::optional<Tensor> Metadata::*, kNumFields> kMembers{
    &Metadata::cache_seqlens,    &Metadata::cu_seqlens_k,        &Metadata::page_table_1,
    &Metadata::seqlens_expanded, &Metadata::dsa_cache_seqlens,   &Metadata::dsa_cu_seqlens_k,
    &Metadata::real_page_table,  &Metadata::flashmla_num_splits, &Metadata::flashmla_metadata};

constexpr int64_t kFlashmlaParts = 6;  // flashmla_metadata is [6, 8]
constexpr int64_t kFlashmlaWords = 8;

struct Shape {
  int32_t ndim;
  int64_t rows;
  int64_t columns;
};

Shape shape_of(const BatchSpec& spec, Field field, bool destination) {
  const bool decode = spec.mode == ForwardMode::kDecode;
  const int64_t per_row = decode ? spec.bs : spec.expanded;
  const int64_t rows = decode && destination ? spec.bs : spec.rows;
  switch (field) {
    case kCacheSeqlens:
      return {1, 1, spec.bs};
    case kCuSeqlensK:
      return {1, 1, spec.bs + 1};
    case kPageTable1:
      return {2, rows, destination ? spec.max_seqlen_k.value_or(spec.width) : spec.width};
    case kSeqlensExpanded:
      return {1, 1, spec.expanded};
    case kDsaCacheSeqlens:
      return {1, 1, per_row};
    case kDsaCuSeqlensK:
    case kFlashmlaNumSplits:
      return {1, 1, per_row + 1};
    case kRealPageTable:
      return {2, rows, spec.pages};
    case kFlashmlaMetadata:
      return {2, kFlashmlaParts, kFlashmlaWords};
  }
  return {1, 1, 0};
}

void fill(Buffer& buffer, std::mt19937& random) {
  std::fill(buffer.storage.begin(), buffer.storage.end(), kGap);
  for (int64_t i = 0; i < buffer.rows; ++i) {
    for (int64_t j = 0; j < buffer.columns; ++j) {
      at(buffer, i, j) = static_cast<int32_t>(random() & 0x3fffffff);
    }
  }
}

Buffers make_source(const BatchSpec& spec) {
  Buffers buffers;
  for (size_t f = 0; f < kNumFields; ++f) {
    if ((spec.fields >> f & 1U) == 0) continue;
    const Shape shape = shape_of(spec, static_cast<Field>(f), false);
    Buffer& buffer = buffers[f].emplace();
    buffer.ndim = shape.ndim;
    buffer.rows = shape.rows;
    buffer.columns = shape.columns;
    lay_out(buffer, spec.source, 1);
  }
  return buffers;
}

// Every other destination takes flashmla_metadata as a vector, and spacious ones are bigger than
// the block that is copied.
Buffers make_destination(const BatchSpec& spec, int64_t k) {
  Buffers buffers;
  for (size_t f = 0; f < kNumFields; ++f) {
    if ((spec.fields >> f & 1U) == 0) continue;
    Shape shape = shape_of(spec, static_cast<Field>(f), true);
    const bool flat = f == kFlashmlaMetadata;
    if (flat && k % 2 == 1) shape = {1, 1, shape.rows * shape.columns};
    if (spec.destination == Layout::kSpacious) {
      if (shape.ndim == 2) shape.rows += 2;
      if (!flat || shape.ndim == 1) shape.columns += 3 + k;
    }
    Buffer& buffer = buffers[f].emplace();
    buffer.ndim = shape.ndim;
    buffer.rows = shape.rows;
    buffer.columns = shape.columns;
    lay_out(buffer, spec.destination, k);
    std::fill(buffer.storage.begin(), buffer.storage.end(), kUntouched);
  }
  return buffers;
}

int64_t copied_rows(const BatchSpec& spec) {
  return spec.mode == ForwardMode::kDecode ? spec.bs : spec.rows;
}

int64_t rows_per_request(const BatchSpec& spec) {
  return spec.mode == ForwardMode::kDecode ? 1 : std::max<int64_t>(spec.rows / spec.bs, 1);
}

// One length a request: none, nonsense, one, around a page, beyond every table.
Buffer make_lengths(const BatchSpec& spec) {
  const std::array<int64_t, 8> kinds{
      0, -3, 1, spec.page_size, spec.page_size + 1, spec.width - 1, spec.width + 1000, INT32_MIN};
  Buffer buffer;
  buffer.columns = (copied_rows(spec) + rows_per_request(spec) - 1) / rows_per_request(spec);
  lay_out(buffer, spec.source == Layout::kStrided ? Layout::kStrided : Layout::kExact, 1);
  for (int64_t i = 0; i < buffer.columns; ++i) {
    const auto kind = static_cast<size_t>((i + spec.seed) % 8);
    at(buffer, 0, i) = static_cast<int32_t>(kinds[kind]);
  }
  return buffer;
}

void copy_vector(const Batch& batch, Buffers& to, Field field, int64_t begin, int64_t end) {
  if (!to[field]) return;
  for (int64_t j = begin; j < end; ++j) at(*to[field], 0, j) = at(*batch.source[field], 0, j);
}

void copy_table(const Batch& batch, Buffers& to, Field field, int64_t columns,
                int64_t tokens_per_column) {
  if (!to[field]) return;
  for (int64_t i = 0; i < copied_rows(batch.spec); ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      if (batch.lengths &&
          j * tokens_per_column >= at(*batch.lengths, 0, i / rows_per_request(batch.spec))) {
        break;
      }
      at(*to[field], i, j) = at(*batch.source[field], i, j);
    }
  }
}

void copy_flat(const Batch& batch, Buffers& to) {
  if (!to[kFlashmlaMetadata]) return;
  const Buffer& from = *batch.source[kFlashmlaMetadata];
  Buffer& flat = *to[kFlashmlaMetadata];
  for (int64_t i = 0; i < from.rows * from.columns; ++i) {
    at(flat, i / flat.columns, i % flat.columns) = at(from, i / from.columns, i % from.columns);
  }
}

}  // namespace

int32_t& at(Buffer& buffer, int64_t i, int64_t j) {
  return buffer.storage.at(
      static_cast<size_t>(buffer.first + i * buffer.row_stride + j * buffer.column_stride));
}

int32_t at(const Buffer& buffer, int64_t i, int64_t j) {
  return at(const_cast<Buffer&>(buffer), i, j);
}

void lay_out(Buffer& buffer, Layout layout, int64_t variant) {
  const bool table = buffer.ndim == 2;
  buffer.column_stride = layout == Layout::kStrided ? 2 + variant % 2 : 1;
  buffer.row_stride = table ? buffer.columns * buffer.column_stride : 0;
  int64_t guard = 8;
  switch (layout) {
    case Layout::kExact:
      guard = 0;
      break;
    case Layout::kSpacious:
      if (table) buffer.row_stride = (buffer.columns + 4 * variant + 7) / 4 * 4;
      break;
    case Layout::kOdd:
      if (table) buffer.row_stride = (buffer.columns + 2 * variant + 1) | 1;
      guard = 5 + variant % 3;
      break;
    case Layout::kSkewed:
      if (table) buffer.row_stride = ((buffer.columns + 3) | 1) + 4 * variant;
      guard = 5 + 4 * variant;
      break;
    case Layout::kStrided:
      if (table) buffer.row_stride += 1 + variant;
      break;
    case Layout::kBackward:
      buffer.row_stride = -buffer.row_stride - (table ? variant : 0);
      buffer.column_stride = -1;
      break;
    case Layout::kRepeated:
      (table ? buffer.row_stride : buffer.column_stride) = 0;
      break;
  }
  const int64_t down = std::max<int64_t>(buffer.rows - 1, 0) * buffer.row_stride;
  const int64_t across = std::max<int64_t>(buffer.columns - 1, 0) * buffer.column_stride;
  const int64_t before = std::max<int64_t>(-down, 0) + std::max<int64_t>(-across, 0);
  const int64_t after = std::max<int64_t>(down, 0) + std::max<int64_t>(across, 0);
  const bool empty = buffer.rows == 0 || buffer.columns == 0;
  buffer.first = guard + before;
  buffer.storage.resize(static_cast<size_t>(guard + before + (empty ? 0 : 1) + after + guard));
}

std::string text_of(ForwardMode mode) {
  constexpr std::array<const char*, 3> kModes{"Decode", "TargetVerify", "DraftExtend"};
  return kModes.at(static_cast<size_t>(mode));
}

uint32_t fields_without(uint32_t absent) {
  uint32_t fields = kEveryField;
  for (size_t i = 0; i < kOptionalFields.size(); ++i) {
    if ((absent >> i & 1U) != 0) fields &= ~kOptionalFields[i];
  }
  return fields;
}

Batch make_batch(const BatchSpec& spec) {
  Batch batch{.spec = spec, .source = make_source(spec), .destinations = {}, .lengths = {}};
  for (int k = 0; k < spec.num_destinations; ++k) {
    batch.destinations.push_back(make_destination(spec, k));
  }
  if (spec.live_bound) batch.lengths = make_lengths(spec);
  refill_source(batch, spec.seed);
  return batch;
}

void refill_source(Batch& batch, uint32_t seed) {
  std::mt19937 random(seed);
  for (auto& buffer : batch.source) {
    if (buffer) fill(*buffer, random);
  }
}

std::vector<Buffers> expected_destinations(const Batch& batch) {
  const BatchSpec& spec = batch.spec;
  const int64_t bs = spec.bs;
  const int64_t expanded = spec.expanded;
  std::vector<Buffers> destinations = batch.destinations;
  for (Buffers& to : destinations) {
    copy_vector(batch, to, kCacheSeqlens, 0, bs);
    copy_vector(batch, to, kCuSeqlensK, 1, bs + 1);
    copy_table(batch, to, kPageTable1, spec.max_seqlen_k.value_or(spec.width), 1);
    copy_table(batch, to, kRealPageTable, spec.pages, spec.page_size);
    copy_flat(batch, to);
    if (spec.mode == ForwardMode::kDecode) {
      copy_vector(batch, to, kDsaCacheSeqlens, 0, bs);
      copy_vector(batch, to, kDsaCuSeqlensK, 1, bs + 1);
      copy_vector(batch, to, kFlashmlaNumSplits, 0, bs + 1);
    } else {
      copy_vector(batch, to, kSeqlensExpanded, 0, expanded);
      copy_vector(batch, to, kDsaCacheSeqlens, 0, expanded);
      copy_vector(batch, to, kDsaCuSeqlensK, 1, expanded + 1);
      copy_vector(batch, to, kFlashmlaNumSplits, 0, expanded + 1);
    }
  }
  return destinations;
}

Tensor tensor_of(const Buffer& buffer, void* storage, Device device) {
  Tensor tensor{.data = static_cast<int32_t*>(storage) + buffer.first,
                .device = device,
                .ndim = buffer.ndim,
                .shape = {buffer.rows, buffer.columns},
                .strides = {buffer.row_stride, buffer.column_stride}};
  if (buffer.ndim == 1) {
    tensor.shape = {buffer.columns, 1};
    tensor.strides = {buffer.column_stride, 1};
  }
  return tensor;
}

Metadata metadata_of(const Buffers& buffers, const Storages& storages, Device device) {
  Metadata metadata;
  for (size_t f = 0; f < kNumFields; ++f) {
    if (buffers[f]) metadata.*kMembers[f] = tensor_of(*buffers[f], storages[f], device);
  }
  return metadata;
}

Storages host_storages(Buffers& buffers) {
  Storages storages{};
  for (size_t f = 0; f < kNumFields; ++f) {
    if (buffers[f]) storages[f] = buffers[f]->storage.data();
  }
  return storages;
}

CopyRequest request_of(const Batch& batch, const Metadata& source,
                       std::span<const Metadata> destinations, void* lengths, Device device) {
  CopyRequest request{.mode = batch.spec.mode,
                      .bs = batch.spec.bs,
                      .max_seqlen_k = batch.spec.max_seqlen_k,
                      .seqlens_expanded_size = batch.spec.expanded,
                      .source = source,
                      .destinations = destinations};
  if (batch.lengths) {
    request.live_bound = LiveBound{.lengths = tensor_of(*batch.lengths, lengths, device),
                                   .page_size = batch.spec.page_size};
  }
  return request;
}

std::string first_difference(std::span<const Buffers> got, std::span<const Buffers> expected) {
  for (size_t k = 0; k < expected.size(); ++k) {
    for (size_t f = 0; f < kNumFields; ++f) {
      if (!expected[k][f]) continue;
      const auto& a = got[k][f]->storage;
      const auto& b = expected[k][f]->storage;
      const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
      if (x == a.end() && y == b.end()) continue;
      return "destination " + std::to_string(k) + ": " + kNames[f] + ": storage[" +
             std::to_string(x - a.begin()) + "] is " +
             (x == a.end() ? "past the end" : std::to_string(*x)) + ", expected " +
             (y == b.end() ? "no such element" : std::to_string(*y));
    }
  }
  return {};
}

}  // namespace graphfeed::reference
