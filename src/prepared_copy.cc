// SPDX-License-Identifier: Apache-2.0
#include "prepared_copy.h"

#include "copy_cpu.h"
#include "driver.h"
#include "kernel_cache.h"

namespace graphfeed {

void PreparedCopy::run_on_cpu() const { copy_on_cpu(bound.table); }

CopyTemplate::CopyTemplate(const CopyRequest& request)
    : request_(request), destinations_(request.destinations.begin(), request.destinations.end()) {
  request_.destinations = destinations_;
}

std::unique_ptr<PreparedCopy> CopyTemplate::prepare(const Metadata& source) const {
  CopyRequest next = request_;
  next.source = source;
  auto copy = std::make_unique<PreparedCopy>(source);
  BoundCopy& bound = copy->bound;
  bind(next, "plan", bound);
  if (bound.device.type == DeviceType::kCuda && bound.table.num_fields > 0) {
    const ScopedDevice current(bound.device.id);
    copy->kernel = KernelCache::process().get(bound.device.id, bound.key, nullptr, "plan");
    pack(bound.key, bound.table, copy->launch);
  }
  return copy;
}

bool CopyTemplate::repoint(PreparedCopy& copy, const Metadata& source) const {
  if (!copy.rebinding.rebind(source, copy.bound)) return false;
  repack(copy);
  return true;
}

void CopyTemplate::undo(PreparedCopy& copy) const {
  copy.rebinding.undo(copy.bound);
  repack(copy);
}

void CopyTemplate::repack(PreparedCopy& copy) const {
  if (copy.kernel == nullptr) return;
  pack_source(copy.bound.key, copy.bound.table, copy.launch);
}

}  // namespace graphfeed
