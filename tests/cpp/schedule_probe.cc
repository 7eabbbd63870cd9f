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
  DeviceBlock<kThreads, sizeof(PagedMqaTile<kThreads>)> block;
  make_paged_mqa_schedule(
      block, s, PagedMqaRuns{static_cast<int32_t>(s.rows), 1},
      [&](int32_t i) { return PagedMqaRun{lengths[i] - 1, 1}; }, 0, 1,
      [&](int32_t k, PagedMqaEntry entry) {
        schedule[2 * k] = entry.q;
        schedule[2 * k + 1] = entry.split;
      });
}

extern "C" __global__ void __launch_bounds__(kThreads)
flashmla_probe(FlashmlaSchedule s, const int64_t* tokens, int32_t* metadata, int32_t* num_splits) {
  DeviceBlock<kThreads, sizeof(FlashmlaChunk<kThreads>)> block;
  auto& chunk = block.template shared<FlashmlaChunk<kThreads>>();
  const auto put_part = [&](int32_t part, const FlashmlaWords& words) {
    for (int i = 0; i < kFlashmlaWords; ++i) metadata[part * kFlashmlaWords + i] = words.word[i];
  };
  const auto put_splits = [&](int64_t i, int32_t value) { num_splits[i] = value; };
  const auto tokens_of = [&](int64_t row) { return tokens[row]; };
  decltype(block)::PerThread<uint64_t> work{0};
  for (int64_t row = threadIdx.x; row < s.rows; row += kThreads) {
    work.value += work_of(s, tokens[row]);
  }
  FlashmlaWalk walk = flashmla_walk(share_of(s, block.sum(work)));
  walk_rows(block, chunk, s, walk, 0, s.rows, tokens_of, put_part, put_splits);
  finish_walk(block, s, walk, put_part, put_splits);
}
)";
}

std::vector<std::string> schedule_probe_options(int cc_major, int cc_minor) {
  std::vector<std::string> options = compile_options(cc_major, cc_minor);
  options.push_back("--include-path=" + in_source_tree("src"));
  return options;
}

}  // namespace graphfeed
