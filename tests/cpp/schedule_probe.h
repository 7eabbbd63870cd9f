// SPDX-License-Identifier: Apache-2.0
// Kernels of one block that make scheduler metadata for lengths in device memory, for NVRTC.
#pragma once

#include <string>
#include <vector>

namespace graphfeed {

inline constexpr char kPagedMqaProbe[] = "paged_mqa_probe";
inline constexpr char kFlashmlaProbe[] = "flashmla_probe";

// paged_mqa_probe(PagedMqaSchedule, const int32_t* lengths, int32_t* schedule) and
// flashmla_probe(FlashmlaSchedule, const int64_t* tokens, int32_t* metadata, int32_t* num_splits),
// to be launched with so many threads.
std::string schedule_probe_source(int num_threads);

// The options to compile it for a device of that compute capability.
std::vector<std::string> schedule_probe_options(int cc_major, int cc_minor);

}  // namespace graphfeed
