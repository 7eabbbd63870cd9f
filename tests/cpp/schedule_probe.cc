// SPDX-License-Identifier: Apache-2.0
#include "schedule_probe.h"

#include "nvrtc.h"
#include "source_tree.h"

namespace graphfeed {

std::string schedule_probe_source(int num_threads) {
  return "constexpr int kThreads = " + std::to_string(num_threads) + ";\n" + R"(
#include "device/flashmla_schedule.h"
#include "device/paged_mqa_schedule.h"

using namespace graphfeed;

extern "C" __global__ void __launch_bounds__(kThreads)
paged_mqa_probe(PagedMqaSchedule s, const int32_t* lengths, int32_t* schedule) {
  __shared__ CudaBlock<kThreads>::Shared shared;
  __shared__ PagedMqaChunk<kThreads> chunk;
  CudaBlock<kThreads> block(shared);
  make_paged_mqa_schedule(
      block, chunk, s, [&](int64_t row) { return lengths[row]; },
      [&](int32_t k, PagedMqaEntry entry) {
        schedule[2 * k] = entry.q;
        schedule[2 * k + 1] = entry.split;
      });
}

extern "C" __global__ void __launch_bounds__(kThreads)
flashmla_probe(FlashmlaSchedule s, const int64_t* tokens, int32_t* metadata, int32_t* num_splits) {
  __shared__ CudaBlock<kThreads>::Shared shared;
  __shared__ FlashmlaChunk<kThreads> chunk;
  CudaBlock<kThreads> block(shared);
  make_flashmla_schedule(
      block, chunk, s, [&](int64_t row) { return tokens[row]; },
      [&](int32_t part, const FlashmlaWords& words) {
        for (int i = 0; i < kFlashmlaWords; ++i) {
          metadata[part * kFlashmlaWords + i] = words.word[i];
        }
      },
      [&](int64_t i, int32_t value) { num_splits[i] = value; });
}
)";
}

std::vector<std::string> schedule_probe_options(int cc_major, int cc_minor) {
  std::vector<std::string> options = compile_options(cc_major, cc_minor);
  options.push_back("--include-path=" + in_source_tree("src"));
  return options;
}

}  // namespace graphfeed
