// SPDX-License-Identifier: Apache-2.0
// In: a request whose destinations stay. Out: for one source after the other, what a launch takes.
#pragma once

#include <memory>
#include <vector>

#include "bind.h"
#include "prepared_launch.h"
#include "rebind.h"

namespace graphfeed {

class PreparedCopy : public PreparedLaunch {
 public:
  explicit PreparedCopy(const Metadata& source) : rebinding(source) {}
  [[nodiscard]] Device device() const override { return bound.device; }
  [[nodiscard]] bool is_empty() const override { return bound.table.num_fields == 0; }
  void run_on_cpu() const override;

  BoundCopy bound;
  Rebinding rebinding;
};

// The part of a request that every source is copied by.
class CopyTemplate {
 public:
  explicit CopyTemplate(const CopyRequest& request);

  // Binds, loads the kernel and packs. Holds no lock: loading may call a log callback, which may
  // wait for one of its own. Throws Error as bind() and the kernel cache do.
  [[nodiscard]] std::unique_ptr<PreparedCopy> prepare(const Metadata& source) const;

  // Points `copy` at another source where that takes no more than other addresses. False, and
  // nothing is changed, where it may: then prepare() does it, or says what is wrong.
  bool repoint(PreparedCopy& copy, const Metadata& source) const;

  // Takes the last repoint() back.
  void undo(PreparedCopy& copy) const;

  [[nodiscard]] const CopyRequest& first() const { return request_; }
  [[nodiscard]] const std::vector<Metadata>& destinations() const { return destinations_; }

 private:
  void repack(PreparedCopy& copy) const;

  CopyRequest request_;  // its source is the first
  std::vector<Metadata> destinations_;
};

}  // namespace graphfeed
