// SPDX-License-Identifier: Apache-2.0
// A copy or a generation that is bound once and made at every step.
#pragma once

#include <memory>
#include <span>

#include "graphfeed/capture.h"
#include "graphfeed/copy.h"
#include "graphfeed/generate.h"

namespace graphfeed {

// Checks the tensors of a copy or a generation once, as copy() and generate() do, and keeps their
// addresses: the memory of every tensor must outlive the plan, or its use. Sources and batch states
// are read anew by each run.
//
// A run launches an instantiated graph of one node, which costs the host less than half of a kernel
// launch; into a stream that is being captured it launches the kernel, which so becomes a node of
// the caller's graph. The plan keeps one such graph a stream, for the last few streams it ran on.
// Safe from several threads, which take turns. Runs on different streams are not ordered.
class Plan {
 public:
  // Loads the kernel too, so that a first run may be inside a capture; not itself to be called
  // inside one. The request is not needed afterwards. Throws Error as copy() or generate() does.
  explicit Plan(const CopyRequest& request);
  explicit Plan(const GenerateRequest& request);
  ~Plan();  // work that was launched goes on
  Plan(Plan&& other) noexcept;
  Plan& operator=(Plan&& other) noexcept;

  // Copies from the source, or generates from the batch state, that was bound last. Asynchronous on
  // CUDA, done on return for CPU tensors. kProgrammatic makes it a kernel launch, outside a capture
  // too; Error (runtime) where the device does not know it.
  void run(Stream stream = nullptr, Start start = Start::kSerial);

  // Binds another source of the same fields first, checked with all destinations as at first; sizes
  // and live bound stay those of the plan. Throws Error and stays as it was where that or the
  // launch fails, and where the plan does not copy.
  void run(const Metadata& source, Stream stream = nullptr, Start start = Start::kSerial);

  // The same with another batch state, for a plan that generates: bound in place of the request's
  // with all destinations, whose sizes and numbers stay those of the plan.
  void run(const BatchState& batch, Stream stream = nullptr, Start start = Start::kSerial);

  // run(stream), but what a capturing stream captures next does not wait for it: until
  // Branch::join(), the copy runs beside that. It waits for what was captured before. Outside a
  // capture the same as run(). Needs no second stream and no event.
  Branch fork(Stream stream, Start start = Start::kSerial);

  // The nodes that this plan's runs and forks became in `graph` (a CUgraph or cudaGraph_t, captured
  // and not destroyed), in an executable of it. The plan remembers the nodes of the last 256 graphs
  // it was captured into; this call looks them up and costs time with the size of the graph. Throws
  // Error (value) where the plan has no node in this graph. An executable of another graph is not
  // found out before repoint() fails.
  [[nodiscard]] GraphNode node(void* graph, void* graph_exec) const;

  // Compares the destinations' tensors with those that were bound. Throws Error (value) that names
  // the first which moved, or has another size, stride or type: a graph that was captured with the
  // bound one would read, and a run would write, memory that is no longer the buffer's. Cheap
  // enough for every step.
  void check(std::span<const Metadata> destinations) const;
  void check(std::span<const GeneratedMetadata> destinations) const;

  [[nodiscard]] Device device() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace graphfeed
