// SPDX-License-Identifier: Apache-2.0
// What stands in for a model in a captured step: a chain of small kernels, one of which reads the
// refreshed lengths, so that a replay's result tells whether the refresh came before it.
#pragma once

#include <functional>
#include <span>

#include "graphfeed/capture.h"
#include "launch_case.h"

namespace graphfeed {

class StandIn {
 public:
  static constexpr int kNumKernels = 60;
  static constexpr int kReader = 4;  // the first that reads the metadata

  // `lengths` is a destination's cache_seqlens, [kBs] int32, which must outlive this. Compiles and
  // loads the kernels and runs them once, so that they can be captured.
  StandIn(const int32_t* lengths, CUstream stream);
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  // Launches all kernels, each waiting for the one before; the first begins as `first` says.
  // kProgrammatic needs compute capability 9.0. `before_reader` is called before the kernel that
  // reads the lengths is launched.
  void run(CUstream stream, Start first = Start::kSerial,
           const std::function<void()>& before_reader = {}) const;

  void reset();  // no result; done on return

  // Whether the last run, which has ended, read these, [kBs].
  [[nodiscard]] bool has_read(std::span<const int32_t> lengths) const;

 private:
  void launch(CUkernel kernel, void** params, CUstream stream, Start start) const;

  const int32_t* lengths_;  // [kBs], on the device
  CUdeviceptr start_ = 0;   // [kBs, kHidden] float32, zeros
  CUdeviceptr hidden_ = 0;  // [kBs, kHidden] float32; kNumKernels - 1 plus its row's length
  CUkernel begin_{};
  CUkernel begin_early_{};  // null where kernels cannot start early
  CUkernel add_one_{};
  CUkernel add_length_{};
};

}  // namespace graphfeed
