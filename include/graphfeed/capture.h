// SPDX-License-Identifier: Apache-2.0
// A plan's work inside the graphs that an application captures: when it starts, what waits for it,
// and which source it reads at the next replay.
#pragma once

#include <cstdint>
#include <memory>

#include "graphfeed/copy.h"
#include "graphfeed/generate.h"
#include "graphfeed/metadata.h"

namespace graphfeed {

// When a plan's kernel starts. kSerial: when the work before it on its stream is done.
// kProgrammatic, from compute capability 9.0 on: as soon as every block of the kernel before it has
// called cudaTriggerProgrammaticLaunchCompletion() (griddepcontrol.launch_dependents) or ended; it
// then waits for that kernel to end before it reads or writes memory. CPU tensors know no
// difference. (CUDA's name: programmatic dependent launch.)
enum class Start : uint8_t { kSerial, kProgrammatic };

// What Plan::fork() left in a stream's capture: a node beside those that are captured next.
class Branch {
 public:
  // What `stream` captures from here on waits for the branch; without a join only the graph's end
  // does. Does nothing where the fork was made outside a capture, and so ran in order. Throws Error
  // (value) where `stream` is not in the capture that was forked.
  void join(Stream stream) const;

 private:
  friend class Plan;

  uint64_t capture_id_ = 0;
  void* node_ = nullptr;  // CUgraphNode; null: there is nothing to wait for
};

// A plan's nodes in an executable graph of the application's. Made by Plan::node(). The graph, the
// executable, and the memory of all tensors must outlive it, or its use; the plan need not. Used by
// one thread at a time, as CUDA asks of the executable, whose launches count as use.
class GraphNode {
 public:
  ~GraphNode();
  GraphNode(GraphNode&& other) noexcept;
  GraphNode& operator=(GraphNode&& other) noexcept;

  // The executable copies from `source` at its launches from here on; launches made before, running
  // or not, are not affected. No device work. The source has the plan's fields and is checked with
  // its destinations, as Plan::run(source) does; sizes and live bound stay those of the plan, which
  // itself is not changed. Throws Error as Plan::run(source) does, for a source with nothing to
  // copy too (value), and stays as it was.
  void repoint(const Metadata& source);

  // The same with a batch state, for a node that generates.
  void repoint(const BatchState& batch);

 private:
  friend class Plan;
  struct State;
  explicit GraphNode(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace graphfeed
