// SPDX-License-Identifier: Apache-2.0
#include "schedule_reference.h"

#include <algorithm>

namespace graphfeed::reference {
namespace {

// Query atoms a request: pairs where the revision can pair them.
int64_t num_atoms(PagedMqaRevision revision, int64_t next_n) {
  switch (revision) {
    case PagedMqaRevision::k477618c:
      return 1;
    case PagedMqaRevision::k7f2a703:
      return next_n % 2 == 0 ? next_n / 2 : next_n;
    case PagedMqaRevision::k54e2261Sm90:
      return (next_n + 1) / 2;
    case PagedMqaRevision::k54e2261Sm100:
      return next_n;  // tokens
  }
  return 0;
}

// Whether SM k has one unit more than the quotient.
bool takes_remainder(PagedMqaRevision revision, int64_t k, int64_t remainder, int64_t num_sms) {
  if (revision == PagedMqaRevision::k54e2261Sm90) return k >= num_sms - remainder;
  return k < remainder;
}

int64_t num_blocks(int64_t tokens, int64_t block_size) {
  return std::max<int64_t>(tokens - 1, 0) / block_size + 1;
}

// Where the walk over parts is.
struct Position {
  int64_t row = 0;
  int64_t block = 0;
  int64_t split = 0;
};

// One part takes what its payload allows; rows that it ends are counted into num_splits.
void walk_part(std::span<const int64_t> tokens, int64_t block_size, int64_t overhead,
               int64_t payload, Position& at, std::vector<int32_t>& num_splits) {
  while (at.row < static_cast<int64_t>(tokens.size())) {
    const int64_t left =
        num_blocks(tokens[static_cast<size_t>(at.row)], block_size) - at.block + overhead;
    if (payload < left) {
      if (payload > overhead) {
        at.block += payload - overhead;
        ++at.split;
      }
      return;
    }
    payload -= left;
    num_splits.push_back(num_splits.back() + static_cast<int32_t>(at.split) + 1);
    at = {.row = at.row + 1};
  }
}

}  // namespace

std::vector<int32_t> paged_mqa_schedule(PagedMqaRevision revision, std::span<const int32_t> lengths,
                                        int64_t next_n, int64_t split_kv, int64_t num_sms) {
  const int64_t atoms = num_atoms(revision, next_n);
  const auto rows = static_cast<int64_t>(lengths.size());
  const auto splits_of = [&](int64_t row) {
    return (lengths[static_cast<size_t>(row)] + split_kv - 1) / split_kv;
  };
  int64_t total = 0;
  for (int64_t row = 0; row < rows; ++row) total += splits_of(row) * atoms;

  std::vector<int32_t> schedule;
  int64_t row = 0;
  int64_t unit = 0;  // of the row
  for (int64_t k = 0; k <= num_sms; ++k) {
    while (row < rows && unit >= splits_of(row) * atoms) unit -= splits_of(row++) * atoms;
    int64_t q = row * atoms;
    int64_t split = 0;
    if (row < rows && revision == PagedMqaRevision::k54e2261Sm100) {
      split = unit / atoms;
    } else if (row < rows) {
      q += unit / splits_of(row);
      split = unit % splits_of(row);
    }
    schedule.push_back(static_cast<int32_t>(q));
    schedule.push_back(static_cast<int32_t>(split));
    unit += total / num_sms + takes_remainder(revision, k, total % num_sms, num_sms);
  }
  return schedule;
}

FlashmlaMetadata flashmla_metadata(FlashmlaRevision revision, std::span<const int64_t> tokens,
                                   int64_t block_size, int64_t overhead, int64_t num_sm_parts) {
  int64_t total = 0;
  for (const int64_t row_tokens : tokens) total += num_blocks(row_tokens, block_size) + overhead;
  const int64_t payload = (total + num_sm_parts - 1) / num_sm_parts + overhead;

  FlashmlaMetadata made{.metadata = {}, .num_splits = {0}};
  Position at;
  for (int64_t part = 0; part < num_sm_parts; ++part) {
    const Position begin = at;
    walk_part(tokens, block_size, overhead, payload, at, made.num_splits);
    const int64_t end_row = at.block > 0 ? at.row : at.row - 1;
    const int64_t end_tokens = tokens[static_cast<size_t>(end_row)];
    const int64_t end_blocks = end_tokens == 0 ? 0 : num_blocks(end_tokens, block_size);
    const int64_t end_block = at.block > 0 ? at.block : end_blocks;
    bool first_split = begin.block != 0;
    bool last_split = end_block != end_blocks;
    if (begin.row == end_row) first_split = last_split = first_split || last_split;
    const bool idle = begin.row == static_cast<int64_t>(tokens.size());
    const int64_t begin_block = idle ? kUndefined : begin.block;
    std::vector<int64_t> words;
    if (revision == FlashmlaRevision::k1408756) {
      words = {begin.row,   begin_block, end_row,    end_block,
               begin.split, kUndefined,  kUndefined, kUndefined};
    } else {
      words = {begin.row,   end_row,     begin_block, end_block,
               begin.split, first_split, last_split,  kUndefined};
    }
    for (const int64_t word : words) made.metadata.push_back(static_cast<int32_t>(word));
  }
  return made;
}

std::vector<int64_t> sparse_tokens(FlashmlaRevision revision, int64_t rows, int64_t block_size,
                                   int64_t topk, std::span<const int32_t> topk_length,
                                   int64_t extra_topk, std::span<const int32_t> extra_topk_length) {
  std::vector<int64_t> tokens(static_cast<size_t>(rows), topk);
  if (revision == FlashmlaRevision::k1408756) return tokens;
  for (size_t row = 0; row < tokens.size(); ++row) {
    if (!topk_length.empty()) tokens[row] = topk_length[row];
    tokens[row] = std::max<int64_t>(tokens[row], 1);
    if (extra_topk == 0) continue;
    tokens[row] = num_blocks(tokens[row], block_size) * block_size;
    tokens[row] += extra_topk_length.empty() ? extra_topk : extra_topk_length[row];
  }
  return tokens;
}

}  // namespace graphfeed::reference
