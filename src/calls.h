// SPDX-License-Identifier: Apache-2.0
// In: the arguments of a foreign call. Out: the copy they ask for, made.
#pragma once

#include "arguments.h"
#include "graphfeed/plan.h"

namespace graphfeed {

// (mode, bs, max_seqlen_k, seqlens_expanded_size, stream, live_bound, rows_per_request, page_size,
// read_only, source fields..., destination 0 fields..., ...), fields in schema order. read_only is
// the index of a read-only tensor among those of the destinations, or -1.
void call_copy(const Arguments& arguments);

// A plan of the same arguments, for the caller to delete; their stream is not used.
Plan* call_plan(const Arguments& arguments);

// (address of a plan, stream), or the same with a source's fields in schema order behind. Without a
// stream, on the current one of the arguments' framework.
void call_plan_run(const Arguments& arguments);

// (address of a plan, destination 0 fields..., destination 1 fields..., ...): Plan::check.
void call_plan_check(const Arguments& arguments);

// (address of a plan, stream, programmatic), or the same with a source's fields in schema order
// behind: Plan::run, started as asked.
void call_plan_start(const Arguments& arguments);

// (address of a plan, stream, programmatic): Plan::fork. The branch is for the caller to delete.
Branch* call_plan_fork(const Arguments& arguments);

// (address of a branch, stream): Branch::join.
void call_branch_join(const Arguments& arguments);

// (address of a plan, CUgraph, CUgraphExec): Plan::node, for the caller to delete.
GraphNode* call_plan_node(const Arguments& arguments);

// (address of a node, source's fields in schema order): GraphNode::repoint.
void call_node_repoint(const Arguments& arguments);

// The published argument lists in the published order; python/graphfeed/sglang/ names them.
void call_fused_metadata_copy(const Arguments& arguments);
void call_fused_metadata_copy_multi(const Arguments& arguments);

}  // namespace graphfeed
