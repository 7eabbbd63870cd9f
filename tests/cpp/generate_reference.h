// SPDX-License-Identifier: Apache-2.0
// A generation to compare with, written from the table in docs/design.md alone, and the batches
// that tests generate from. It shares no code with the library: of graphfeed it uses the public
// types.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graphfeed/generate.h"
#include "reference.h"

namespace graphfeed::reference {

enum Generated : uint8_t {
  kGenCacheSeqlens,
  kGenCuSeqlensK,
  kGenPageTable1,
  kGenSeqlensExpanded,
  kGenDsaCacheSeqlens,
  kGenDsaCuSeqlensK,
  kGenRealPageTable,
  kGenCtxLens,
  kGenPooledCacheSeqlens,
  kGenPooledPageTable,
};
inline constexpr size_t kNumGenerated = 10;
inline constexpr uint32_t kEveryGenerated = (1U << kNumGenerated) - 1;

// The batch state and all sizes of a generation.
struct GenerateSpec {
  ForwardMode mode = ForwardMode::kDecode;
  std::vector<int64_t> seq_lens{};          // bs of them
  std::vector<int64_t> req_pool_indices{};  // empty: drawn from `seed`
  std::vector<int64_t> extend_seq_lens{};   // not empty: draft_extend with rows of its own
  int64_t num_draft_tokens = 1;
  std::optional<int64_t> expanded{};  // R in draft_extend
  std::optional<int64_t> raw_bs{};
  bool raw_bs_on_device = false;
  std::optional<int64_t> device_draft_tokens{};
  int64_t pool = 7;
  int64_t width = 200;        // of req_to_token
  int64_t table_width = 200;  // of page_table_1; the compact tables are as wide
  int64_t index_topk = 16;
  int64_t page_size = 16;
  int64_t index_kpool = 1;
  int64_t seq_len_fill = 1;
  int num_destinations = 1;
  uint32_t fields = kEveryGenerated;
  bool ctx_blocks = false;  // paged_mqa_ctx_lens_2d as [bs, n]
  bool is_64 = false;       // seq_lens, req_pool_indices, extend_seq_lens
  Layout input = Layout::kExact;
  Layout output = Layout::kSpacious;
  bool report = false;
  uint32_t seed = 1;
};

enum Input : uint8_t { kSeqLens, kPoolIndices, kReqToToken, kExtendSeqLens, kRawBs, kDraftTokens };
inline constexpr size_t kNumInputs = 6;

// A tensor of 32-bit or 64-bit integers, whose storage is in words of 4 bytes.
struct IntegerBuffer {
  Buffer words;
  bool is_64 = false;
};
using GeneratedBuffers = std::array<std::optional<Buffer>, kNumGenerated>;

struct GenerateBatch {
  GenerateSpec spec;
  std::array<std::optional<IntegerBuffer>, kNumInputs> inputs;
  std::vector<GeneratedBuffers> destinations;
  std::optional<IntegerBuffer> report;
};

GenerateBatch make_generate_batch(const GenerateSpec& spec);

int64_t num_rows(const GenerateSpec& spec);                   // R
std::vector<int64_t> pool_indices(const GenerateSpec& spec);  // as drawn, if they are

// Puts the spec's values into the inputs again, after a change of them.
void refill_inputs(GenerateBatch& batch);

// The destinations as they must be afterwards, gaps and guards too.
std::vector<GeneratedBuffers> expected_generation(const GenerateBatch& batch);
// {kind, row, value}.
std::array<int64_t, 3> expected_report(const GenerateBatch& batch);

// Where the storage of each tensor is.
struct GenerateStorages {
  std::array<void*, kNumInputs> inputs{};
  std::vector<std::array<void*, kNumGenerated>> destinations;
  void* report = nullptr;
};
GenerateStorages host_storages(GenerateBatch& batch);

// The request for `batch`, whose destinations are put into `destinations`.
GenerateRequest request_of(const GenerateBatch& batch, const GenerateStorages& storages,
                           Device device, std::vector<GeneratedMetadata>& destinations);

// Where the first unequal element is, and both values; empty if there is none.
std::string first_difference(std::span<const GeneratedBuffers> got,
                             std::span<const GeneratedBuffers> expected);
std::string text_of(const GenerateSpec& spec);

}  // namespace graphfeed::reference
