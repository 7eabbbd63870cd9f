// SPDX-License-Identifier: Apache-2.0
// graphfeed::copy() on CPU tensors against the eager reference.
#include "graphfeed/copy.h"

#include <gtest/gtest.h>

#include <tuple>

#include "graphfeed/error.h"
#include "reference.h"

namespace graphfeed {
namespace {

using reference::Batch;
using reference::BatchSpec;
using reference::Layout;

constexpr std::array kModes{ForwardMode::kDecode, ForwardMode::kTargetVerify,
                            ForwardMode::kDraftExtend};
constexpr std::array kSourceLayouts{Layout::kExact,   Layout::kSpacious, Layout::kOdd,
                                    Layout::kSkewed,  Layout::kStrided,  Layout::kBackward,
                                    Layout::kRepeated};
constexpr std::array kDestinationLayouts{Layout::kExact, Layout::kSpacious, Layout::kOdd,
                                         Layout::kSkewed, Layout::kStrided};

// A batch's tensors and the request that names them. Not movable: the request has views into it.
struct HostRequest {
  explicit HostRequest(Batch& batch)
      : source(reference::metadata_of(batch.source, reference::host_storages(batch.source), kCpu)) {
    for (auto& buffers : batch.destinations) {
      destinations.push_back(
          reference::metadata_of(buffers, reference::host_storages(buffers), kCpu));
    }
    void* const lengths = batch.lengths ? batch.lengths->storage.data() : nullptr;
    request = reference::request_of(batch, source, destinations, lengths, kCpu);
  }
  HostRequest(const HostRequest&) = delete;
  HostRequest& operator=(const HostRequest&) = delete;

  Metadata source;
  std::vector<Metadata> destinations;
  CopyRequest request;
};

// Copies, and says how the result differs from the reference's.
std::string difference_after_copy(const BatchSpec& spec) {
  Batch batch = reference::make_batch(spec);
  const auto expected = reference::expected_destinations(batch);
  copy(HostRequest(batch).request);
  return reference::first_difference(batch.destinations, expected);
}

class CopyOnCpu : public testing::TestWithParam<std::tuple<ForwardMode, int>> {
 protected:
  [[nodiscard]] static BatchSpec spec() {
    BatchSpec spec;
    spec.mode = std::get<0>(GetParam());
    spec.num_destinations = std::get<1>(GetParam());
    return spec;
  }
};

INSTANTIATE_TEST_SUITE_P(ModesAndDestinations, CopyOnCpu,
                         testing::Combine(testing::ValuesIn(kModes),
                                          testing::Values(1, 2, 3, 8, 16)),
                         [](const auto& test) {
                           return reference::text_of(std::get<0>(test.param)) + "To" +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(CopyOnCpu, MatchesEagerCopyWithAnyOptionalFieldsAndLayouts) {
  BatchSpec each = spec();
  for (uint32_t absent = 0; absent < 8; ++absent) {
    each.fields = reference::fields_without(absent);
    for (const Layout source : kSourceLayouts) {
      for (const Layout destination : kDestinationLayouts) {
        each.source = source;
        each.destination = destination;
        ++each.seed;
        ASSERT_EQ(difference_after_copy(each), "")
            << "absent " << absent << ", layouts " << static_cast<int>(source) << " to "
            << static_cast<int>(destination);
      }
    }
  }
}

TEST_P(CopyOnCpu, MatchesEagerCopyOfManyWidths) {
  BatchSpec each = spec();
  for (const int64_t width : {1, 2, 4, 128, 511, 512, 1027, 2051}) {
    for (const Layout layout : kDestinationLayouts) {
      each.width = width;
      each.pages = (width + 63) / 64;
      each.destination = layout;
      ++each.seed;
      ASSERT_EQ(difference_after_copy(each), "") << "width " << width;
    }
  }
}

TEST_P(CopyOnCpu, CopiesNoFurtherThanTheLiveBound) {
  BatchSpec each = spec();
  each.live_bound = true;
  each.width = 300;
  each.pages = 5;
  for (const int64_t page_size : {1, 7, 64}) {
    for (const Layout source : kSourceLayouts) {
      for (const Layout destination : kDestinationLayouts) {
        each.page_size = page_size;
        each.source = source;
        each.destination = destination;
        ++each.seed;
        ASSERT_EQ(difference_after_copy(each), "") << "page size " << page_size;
      }
    }
  }
}

TEST_P(CopyOnCpu, CopiesEachFieldAlone) {
  BatchSpec each = spec();
  for (size_t field = 0; field < reference::kNumFields; ++field) {
    each.fields = 1U << field;
    EXPECT_EQ(difference_after_copy(each), "") << "field " << field;
  }
}

TEST_P(CopyOnCpu, CopiesFewerColumnsThanTheSourceHas) {
  BatchSpec each = spec();
  each.max_seqlen_k = 30;
  EXPECT_EQ(difference_after_copy(each), "");
  each.max_seqlen_k = 0;
  EXPECT_EQ(difference_after_copy(each), "");
}

TEST_P(CopyOnCpu, CopiesNoRowOfAnEmptyBatch) {
  BatchSpec each = spec();
  each.bs = 0;
  each.expanded = 0;
  each.rows = 0;
  EXPECT_EQ(difference_after_copy(each), "");
}

TEST(Copy, MatchesEagerCopyOfTablesAndVectorsOfManySegments) {
  for (const ForwardMode mode : kModes) {
    BatchSpec spec{.mode = mode,
                   .bs = 16,
                   .expanded = 5000,
                   .rows = 16,
                   .width = 70'001,
                   .num_destinations = 3,
                   .fields = 1U << reference::kPageTable1,
                   .source = Layout::kSkewed,
                   .destination = Layout::kSkewed};
    if (mode != ForwardMode::kDecode) spec.fields |= 1U << reference::kSeqlensExpanded;
    EXPECT_EQ(difference_after_copy(spec), "");
    spec.live_bound = true;
    spec.destination = Layout::kOdd;
    EXPECT_EQ(difference_after_copy(spec), "");
  }
}

TEST(Copy, TakesRowsPerRequestFromTheCaller) {
  Batch batch = reference::make_batch({.mode = ForwardMode::kDraftExtend,
                                       .bs = 5,
                                       .rows = 13,
                                       .fields = 1U << reference::kPageTable1});
  HostRequest host(batch);
  std::array<int32_t, 3> lengths{2, 0, 1};
  host.request.live_bound =
      LiveBound{.lengths = vector_of(lengths.data(), 3, kCpu), .rows_per_request = 5};
  copy(host.request);
  const auto& source = batch.source[reference::kPageTable1]->storage;
  const auto& copied = batch.destinations[0][reference::kPageTable1]->storage;
  for (size_t i = 0; i < 13; ++i) {
    for (size_t j = 0; j < 37; ++j) {
      const bool live = static_cast<int32_t>(j) < lengths.at(i / 5);
      ASSERT_EQ(copied[i * 37 + j], live ? source[i * 37 + j] : reference::kUntouched);
    }
  }
}

TEST(Copy, RoundsTheLiveBoundUpToWholePagesOfTheLargestSize) {
  Batch batch = reference::make_batch(
      {.bs = 2, .rows = 2, .pages = 2, .fields = 1U << reference::kRealPageTable});
  HostRequest host(batch);
  std::array<int32_t, 2> lengths{INT32_MAX, 2};
  host.request.live_bound =
      LiveBound{.lengths = vector_of(lengths.data(), 2, kCpu), .page_size = INT32_MAX};
  copy(host.request);
  const auto& source = batch.source[reference::kRealPageTable]->storage;
  const auto& copied = batch.destinations[0][reference::kRealPageTable]->storage;
  EXPECT_EQ(copied,
            (std::vector{source[0], reference::kUntouched, source[2], reference::kUntouched}));
}

TEST(Copy, LeavesABlockThatIsCopiedOntoItselfAsItWas) {
  Batch batch = reference::make_batch({.destination = Layout::kOdd});
  batch.destinations[0] = batch.source;
  const auto expected = batch.destinations;
  HostRequest host(batch);
  host.request.source = host.destinations[0];
  copy(host.request);
  EXPECT_EQ(reference::first_difference(batch.destinations, expected), "");
}

TEST(Copy, TreatsPinnedHostMemoryAsCpuMemory) {
  Batch batch = reference::make_batch({});
  const auto expected = reference::expected_destinations(batch);
  HostRequest host(batch);
  host.request.source.cache_seqlens->device = {.type = DeviceType::kCudaHost, .id = 0};
  copy(host.request);
  EXPECT_EQ(reference::first_difference(batch.destinations, expected), "");
}

// Each case spoils one thing that bind() finds only after it has accepted other fields.
TEST(Copy, LeavesDestinationsUntouchedWhereItRefuses) {
  using Spoil = void (*)(HostRequest&);
  constexpr std::array<Spoil, 7> kSpoils{
      [](HostRequest& host) { host.destinations[1].page_table_1->shape[1] -= 2; },
      [](HostRequest& host) { host.destinations[1].flashmla_num_splits->device = cuda(0); },
      [](HostRequest& host) { host.request.source.dsa_cache_seqlens->dtype = kInt64; },
      [](HostRequest& host) { host.destinations[1].flashmla_metadata.reset(); },
      [](HostRequest& host) {
        host.destinations[1].cache_seqlens->data = host.destinations[0].page_table_1->data;
      },
      [](HostRequest& host) { host.request.bs = INT64_MAX; },
      [](HostRequest& host) { host.destinations[1].real_page_table->read_only = true; },
  };
  for (size_t i = 0; i < kSpoils.size(); ++i) {
    Batch batch = reference::make_batch({.num_destinations = 2});
    const auto untouched = batch.destinations;
    HostRequest host(batch);
    kSpoils[i](host);
    EXPECT_THROW(copy(host.request), Error) << "case " << i;
    EXPECT_EQ(reference::first_difference(batch.destinations, untouched), "") << "case " << i;
  }
}

}  // namespace
}  // namespace graphfeed
