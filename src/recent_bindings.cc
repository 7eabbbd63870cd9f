// SPDX-License-Identifier: Apache-2.0
#include "recent_bindings.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "rebind.h"
#include "schema.h"
#include "tensor_equality.h"

namespace graphfeed {
namespace {

bool is_same(const std::optional<Tensor>& a, const std::optional<Tensor>& b) {
  return a.has_value() == b.has_value() && (!a || graphfeed::is_same(*a, *b));
}

bool is_same(const Metadata& a, const Metadata& b) {
  return std::all_of(kSchema.begin(), kSchema.end(), [&](const FieldSpec& spec) {
    return is_same(a.*spec.member, b.*spec.member);
  });
}

bool is_same(const std::optional<LiveBound>& a, const std::optional<LiveBound>& b) {
  return a.has_value() == b.has_value() &&
         (!a || (graphfeed::is_same(a->lengths, b->lengths) &&
                 a->rows_per_request == b->rows_per_request && a->page_size == b->page_size));
}

}  // namespace

struct RecentBindings::Entry {
  void bind(const CopyRequest& to, const char* function) {
    request = to;
    destinations.assign(to.destinations.begin(), to.destinations.end());
    rebinding.restart(to.source);
    graphfeed::bind(to, function, bound);
  }

  [[nodiscard]] bool is_for(const CopyRequest& other) const {
    return request.bs == other.bs && request.mode == other.mode &&
           request.max_seqlen_k == other.max_seqlen_k &&
           request.seqlens_expanded_size == other.seqlens_expanded_size &&
           std::ranges::equal(destinations, other.destinations,
                              [](const Metadata& a, const Metadata& b) { return is_same(a, b); }) &&
           is_same(request.live_bound, other.live_bound);
  }

  CopyRequest request;  // but for its destinations
  std::vector<Metadata> destinations;
  Rebinding rebinding;
  BoundCopy bound;
};

RecentBindings::RecentBindings() = default;
RecentBindings::~RecentBindings() = default;

const BoundCopy& RecentBindings::bind(const CopyRequest& request, const char* function) {
  auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const auto& each) {
    return each != nullptr && each->is_for(request);
  });
  if (entry == entries_.end() || !(*entry)->rebinding.rebind(request.source, (*entry)->bound)) {
    if (entry == entries_.end()) --entry;
    if (*entry == nullptr) *entry = std::make_unique<Entry>();
    try {
      (*entry)->bind(request, function);
    } catch (...) {
      entry->reset();
      throw;
    }
  }
  std::rotate(entries_.begin(), entry, entry + 1);
  return entries_.front()->bound;
}

}  // namespace graphfeed
