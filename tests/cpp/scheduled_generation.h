// SPDX-License-Identifier: Apache-2.0
// Generations that make scheduler metadata too: outputs to make it into, and what must be there
// afterwards, by the references of a generation and of schedules.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "generate_reference.h"
#include "schedule_batch.h"

namespace graphfeed {

struct ScheduledSpec {
  reference::GenerateSpec generation;
  std::optional<PagedMqaScheduler> paged_mqa{};
  std::optional<FlashMlaScheduler> flashmla{};
  std::vector<int64_t> topk_length{};  // empty: not given
  reference::Layout layout = reference::Layout::kSpacious;
};

// The published kernel's description by that of golden vectors.
PagedMqaScheduler scheduler_of(PagedMqaRevision revision, int64_t num_sms);
FlashMlaScheduler scheduler_of(FlashmlaRevision revision, int64_t num_sm_parts, int64_t topk);

// paged_mqa_schedule, flashmla_metadata, flashmla_num_splits of one destination.
using ScheduleBuffers = std::array<std::optional<reference::Buffer>, 3>;
using ScheduleStorages = std::array<void*, 3>;

class ScheduledGeneration {
 public:
  explicit ScheduledGeneration(ScheduledSpec spec);

  // Adds the schedulers and their outputs to a request for batch(), whose destinations are these.
  void add_to(GenerateRequest& request, std::span<GeneratedMetadata> destinations,
              std::span<const ScheduleStorages> storages, void* topk_length, Device device) const;

  // Other lengths: in batch()'s inputs, for which all outputs are as they were at first.
  void change_lengths(std::vector<int64_t> seq_lens);

  [[nodiscard]] reference::GenerateBatch& batch() { return batch_; }
  [[nodiscard]] std::vector<ScheduleBuffers>& outputs() { return outputs_; }
  [[nodiscard]] std::vector<int64_t>& topk_length() { return spec_.topk_length; }
  [[nodiscard]] std::vector<ScheduleStorages> host_storages();

  // Where `got` is not as it must be; empty where it is.
  [[nodiscard]] std::string difference(std::span<const ScheduleBuffers> got) const;

  // What must be there, without gaps: of paged_mqa, and of flashmla.
  [[nodiscard]] std::vector<int32_t> expected_paged_mqa() const;
  [[nodiscard]] reference::FlashmlaMetadata expected_flashmla() const;

 private:
  [[nodiscard]] std::vector<int64_t> expected(reference::Generated field) const;

  ScheduledSpec spec_;
  reference::GenerateBatch batch_;
  std::vector<ScheduleBuffers> outputs_;
};

// Generates on the CPU; where something differs from what must be there, and empty where nothing
// does.
std::string difference_after_generation(const ScheduledSpec& spec);

// Batches of every mode, both schedulers of any revision, padding, draft tokens on the device.
ScheduledSpec random_spec(std::mt19937& random, int64_t max_bs);

}  // namespace graphfeed
