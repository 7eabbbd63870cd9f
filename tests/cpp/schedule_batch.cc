// SPDX-License-Identifier: Apache-2.0
#include "schedule_batch.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace graphfeed {
namespace {

int64_t below(std::mt19937& random, int64_t bound) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
}

std::vector<int32_t> random_lengths(std::mt19937& random, int64_t max_rows) {
  const int64_t rows = 1 + below(random, max_rows);
  const auto kind = static_cast<LengthKind>(below(random, kNumLengthKinds));
  return draw_lengths(rows, kind, int64_t{1} << below(random, 21), random());
}

// context_lens as the published kernel was given it.
std::vector<int32_t> context_lens_of(const std::vector<int32_t>& lengths, int64_t next_n) {
  std::vector<int32_t> context_lens;
  for (const int32_t length : lengths) {
    for (auto back = static_cast<int32_t>(next_n) - 1; back >= 0; --back) {
      context_lens.push_back(std::max(length - back, 0));
    }
  }
  return context_lens;
}

}  // namespace

PagedMqaBatch batch_of(const GoldenCase& golden, PagedMqaRevision revision) {
  PagedMqaBatch batch{
      .revision = revision,
      .lengths = draw_lengths(golden.at("batch"), static_cast<LengthKind>(golden.at("kind")),
                              golden.at("limit"), golden.columns.at("seed")),
      .next_n = static_cast<uint32_t>(golden.at("next_n")),
      .block_kv = static_cast<uint32_t>(golden.at("split_kv") / 4),
      .num_sms = static_cast<int32_t>(golden.at("num_sms"))};
  EXPECT_EQ(hash_of(context_lens_of(batch.lengths, golden.at("next_n"))),
            golden.columns.at("input_hash"));
  return batch;
}

PagedMqaBatch random_batch(std::mt19937& random, PagedMqaRevision revision, int64_t max_rows) {
  std::vector<int32_t> lengths = random_lengths(random, max_rows);
  return {.revision = revision,
          .lengths = std::move(lengths),
          .next_n = static_cast<uint32_t>(1 + below(random, 8)),
          .block_kv = 16U << below(random, 3),
          .num_sms = static_cast<int32_t>(1 + below(random, 200))};
}

PagedMqaSchedule schedule_of(const PagedMqaBatch& batch) {
  return paged_mqa_schedule_of(batch.revision, static_cast<int64_t>(batch.lengths.size()),
                               batch.next_n, batch.block_kv, batch.num_sms);
}

std::vector<int32_t> expected_of(const PagedMqaBatch& batch) {
  const bool by_page = batch.revision == PagedMqaRevision::k477618c;
  return reference::paged_mqa_schedule(batch.revision, batch.lengths, batch.next_n,
                                       by_page ? int64_t{4} * batch.block_kv : 256, batch.num_sms);
}

FlashmlaBatch batch_of(const GoldenCase& golden, FlashmlaRevision revision) {
  const auto kind = static_cast<LengthKind>(golden.at("kind"));
  const uint64_t seed = golden.columns.at("seed");
  const int64_t rows = golden.at("batch");
  const auto topk = static_cast<int32_t>(golden.at("topk"));
  const auto extra_topk = static_cast<int32_t>(golden.at("extra_topk"));
  std::vector<int32_t> lengths;
  std::vector<int32_t> extra;
  if (topk == -1 || golden.at("has_topk_length") != 0) {
    lengths = draw_lengths(rows, kind, golden.at("limit"), seed);
  }
  if (golden.at("has_extra_topk_length") != 0) {
    extra = draw_lengths(rows, kind, extra_topk, seed + 1);
  }
  EXPECT_EQ(hash_of(extra, hash_of(lengths)), golden.columns.at("input_hash"));

  FlashmlaBatch batch{.schedule = {.rows = rows,
                                   .num_sm_parts = static_cast<int32_t>(golden.at("num_sm_parts")),
                                   .block_size = static_cast<uint32_t>(golden.at("block_size")),
                                   .fixed_overhead = static_cast<uint32_t>(golden.at("overhead")),
                                   .revision = revision,
                                   .reserved = {}},
                      .tokens = {lengths.begin(), lengths.end()}};
  if (topk == -1) return batch;
  batch.tokens.clear();
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    batch.tokens.push_back(sparse_tokens(batch.schedule, lengths.empty() ? topk : lengths[row],
                                         extra_topk != 0, extra.empty() ? extra_topk : extra[row]));
  }
  EXPECT_EQ(batch.tokens, reference::sparse_tokens(revision, rows, golden.at("block_size"), topk,
                                                   lengths, extra_topk, extra));
  return batch;
}

FlashmlaBatch random_batch(std::mt19937& random, FlashmlaRevision revision, int64_t max_rows) {
  const std::vector<int32_t> lengths = random_lengths(random, max_rows);
  const int64_t overhead = below(random, 2) == 0 ? 5 : below(random, 40);
  return {.schedule = {.rows = static_cast<int64_t>(lengths.size()),
                       .num_sm_parts = static_cast<int32_t>(1 + below(random, 200)),
                       .block_size = 16U << below(random, 4),
                       .fixed_overhead = static_cast<uint32_t>(overhead),
                       .revision = revision,
                       .reserved = {}},
          .tokens = {lengths.begin(), lengths.end()}};
}

reference::FlashmlaMetadata expected_of(const FlashmlaBatch& batch) {
  const FlashmlaSchedule& s = batch.schedule;
  return reference::flashmla_metadata(s.revision, batch.tokens, s.block_size, s.fixed_overhead,
                                      s.num_sm_parts);
}

reference::FlashmlaMetadata without_undefined(FlashmlaRevision revision,
                                              reference::FlashmlaMetadata made) {
  const bool old = revision == FlashmlaRevision::k1408756;
  const auto rows = static_cast<int32_t>(made.num_splits.size()) - 1;
  for (size_t first = 0; first < made.metadata.size(); first += kFlashmlaWords) {
    const auto forget = [&](size_t i) {
      EXPECT_EQ(made.metadata[first + i], 0);
      made.metadata[first + i] = reference::kUndefined;
    };
    for (size_t i = old ? 5 : 7; i < kFlashmlaWords; ++i) forget(i);
    if (made.metadata[first] == rows) forget(old ? 1 : 2);  // nothing to do: no begin_block
  }
  return made;
}

bool equals_golden(const std::vector<int32_t>& words, const GoldenCase& golden,
                   const std::string& output) {
  if (golden.at("full") == 0) return true;
  const auto& published = golden.outputs.at(output);
  return std::equal(words.begin(), words.end(), published.begin(), published.end(),
                    [](int32_t word, const std::optional<int32_t>& expected) {
                      return word == expected.value_or(reference::kUndefined);
                    });
}

}  // namespace graphfeed
