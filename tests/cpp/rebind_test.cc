// SPDX-License-Identifier: Apache-2.0
// A rebound copy against one that was bound anew, over many unlike requests.
#include "rebind.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "bind_case.h"
#include "graphfeed/error.h"
#include "launch.h"
#include "schema.h"

namespace graphfeed {
namespace {

// What bind() makes of the request with this source; nothing where it refuses.
std::optional<BoundCopy> bound_anew(BindCase& bind_case, const Metadata& source) {
  CopyRequest request = bind_case.request;
  request.source = source;
  request.destinations = bind_case.destinations;
  BoundCopy bound{};
  try {
    bind(request, "copy", bound);
  } catch (const Error&) {
    return std::nullopt;
  }
  return bound;
}

void* moved_by(void* address, int64_t bytes) {
  return reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr): never read
      reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes));
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound));
  }
  bool one_in(int64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// A request of some of the fields, some of them strided, offset or empty.
BindCase random_case(Random& random) {
  const auto mode = static_cast<ForwardMode>(random.below(3));
  BindCase made(mode, 1 + static_cast<int>(random.below(16)), cuda(0));
  if (random.one_in(3)) made.request.max_seqlen_k = random.below(BindCase::kWidth + 1);
  if (random.one_in(4)) {
    made.request.live_bound =
        LiveBound{.lengths = vector_of(made_up_address(190), BindCase::kExpanded, cuda(0)),
                  .page_size = random.one_in(2) ? 64 : 1};
  }
  for (const FieldSpec& spec : kSchema) {
    if (random.one_in(4)) {
      made.request.source.*spec.member = std::nullopt;
      for (Metadata& destination : made.destinations) destination.*spec.member = std::nullopt;
      continue;
    }
    Tensor& source = *(made.request.source.*spec.member);
    if (random.one_in(4)) source.data = moved_by(source.data, 4 * random.below(4));
    if (random.one_in(4)) source.strides[0] += random.below(5);
    for (Metadata& destination : made.destinations) {
      Tensor& tensor = *(destination.*spec.member);
      if (tensor.ndim == 2 && random.one_in(4)) tensor.strides[0] += random.below(9);
      if (random.one_in(9)) tensor.data = moved_by(tensor.data, 4 * random.below(4));
    }
  }
  return made;
}

// Another source: mostly elsewhere by a multiple of 16 bytes, now and then unlike the one before,
// wrong, or over a destination.
Metadata another_source(Random& random, const BindCase& of, const Metadata& before) {
  Metadata next = before;
  for (const FieldSpec& spec : kSchema) {
    auto& tensor = next.*spec.member;
    if (!tensor) continue;
    tensor->data = moved_by(tensor->data, 16 * random.below(1 << 20));
    if (random.one_in(60)) tensor->data = moved_by(tensor->data, 1 + random.below(15));
    if (random.one_in(150)) tensor->data = nullptr;
    if (random.one_in(150)) tensor->shape[0] += random.below(3) - 1;
    if (random.one_in(150)) tensor->strides[0] += random.below(3);
    if (random.one_in(150)) tensor->dtype = kInt64;
    if (random.one_in(150)) tensor->device = cuda(1);
    if (random.one_in(60)) {
      const auto k =
          static_cast<size_t>(random.below(static_cast<int64_t>(of.destinations.size())));
      const Tensor& written = *(of.destinations[k].*spec.member);
      tensor->data = moved_by(written.data, 16 * (random.below(200) - 100));
    }
    if (random.one_in(300)) tensor.reset();
  }
  return next;
}

TEST(Rebind, IsWhatBindMakesOfTheSameRequest) {
  int num_rebound = 0;
  int num_left_to_bind = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    BindCase bind_case = random_case(random);
    Metadata source = bind_case.request.source;
    std::optional<BoundCopy> bound = bound_anew(bind_case, source);
    if (!bound) continue;
    Rebinding rebinding(source);
    for (int i = 0; i < 10; ++i) {
      const Metadata next = another_source(random, bind_case, source);
      const BoundCopy before = *bound;
      const std::optional<BoundCopy> expected = bound_anew(bind_case, next);
      if (!rebinding.rebind(next, *bound)) {
        ASSERT_EQ(difference(*bound, before), "");
        ++num_left_to_bind;
        continue;
      }
      ASSERT_TRUE(expected.has_value()) << "bind() refuses it";
      ASSERT_EQ(difference(*bound, *expected), "");
      ++num_rebound;
      if (random.one_in(4)) {
        rebinding.undo(*bound);
        ASSERT_EQ(difference(*bound, before), "");
        continue;
      }
      source = next;
    }
  }
  EXPECT_GT(num_rebound, 5000);
  EXPECT_GT(num_left_to_bind, 2000);
}

// Bytes that a kernel of the key reads from, which a packed copy of each must agree in.
TEST(Rebind, LeavesAParameterAsIfPackedAnew) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    BindCase bind_case = random_case(random);
    const Metadata& source = bind_case.request.source;
    std::optional<BoundCopy> bound = bound_anew(bind_case, source);
    if (!bound || bound->table.num_fields == 0) continue;
    PackedLaunch launch{};
    pack(bound->key, bound->table, launch);
    EXPECT_LE(launch.mark + sizeof(void*), launch.parameter.size());
    int32_t* marked = nullptr;
    std::memcpy(&marked, launch.parameter.data() + launch.mark, sizeof(marked));
    EXPECT_EQ(marked, bound->table.fields[0].operands[1].data);

    Rebinding rebinding(source);
    Metadata next = source;
    for (const FieldSpec& spec : kSchema) {
      if (auto& tensor = next.*spec.member) tensor->data = moved_by(tensor->data, 4096);
    }
    if (!rebinding.rebind(next, *bound)) continue;
    pack_source(bound->key, bound->table, launch);
    PackedLaunch anew{};
    pack(bound->key, bound->table, anew);
    ASSERT_EQ(launch.parameter, anew.parameter);
    EXPECT_EQ(launch.mark, anew.mark);
  }
}

TEST(Rebind, LeavesToBindWhatItCannotDecide) {
  using Change = void (*)(Metadata & source, const Metadata& destination);
  constexpr Change kChanges[] = {
      [](Metadata& source, const Metadata&) { source.cache_seqlens->shape[0] += 1; },
      [](Metadata& source, const Metadata&) { source.page_table_1->strides[0] += 4; },
      [](Metadata& source, const Metadata&) { source.cu_seqlens_k->dtype = kInt64; },
      [](Metadata& source, const Metadata&) { source.cu_seqlens_k->device = kCpu; },
      [](Metadata& source, const Metadata&) { source.real_page_table->ndim = 1; },
      [](Metadata& source, const Metadata&) { source.flashmla_metadata.reset(); },
      [](Metadata& source, const Metadata&) { source.cache_seqlens->data = nullptr; },
      [](Metadata& source, const Metadata&) {
        source.cache_seqlens->data = moved_by(source.cache_seqlens->data, 4);
      },
      [](Metadata& source, const Metadata&) {
        source.cache_seqlens->data = moved_by(source.cache_seqlens->data, 2);
      },
      [](Metadata& source, const Metadata& destination) {
        source.cache_seqlens->data = destination.page_table_1->data;
      },
  };
  for (const Change change : kChanges) {
    SCOPED_TRACE("change " + std::to_string(&change - kChanges));
    BindCase bind_case(ForwardMode::kTargetVerify, 3, cuda(0));
    const Metadata source = bind_case.request.source;
    BoundCopy bound = bound_of(bind_case);
    const BoundCopy before = bound;
    Rebinding rebinding(source);
    Metadata next = source;
    change(next, bind_case.destinations[1]);
    EXPECT_FALSE(rebinding.rebind(next, bound));
    EXPECT_EQ(difference(bound, before), "");
    EXPECT_TRUE(rebinding.rebind(source, bound));
  }
}

}  // namespace
}  // namespace graphfeed
