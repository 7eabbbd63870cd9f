// SPDX-License-Identifier: Apache-2.0
// In: the arguments of a foreign call. Out: the generation they ask for, made.
#pragma once

#include "arguments.h"
#include "graphfeed/plan.h"

namespace graphfeed {

// (mode, bs, raw_bs, num_draft_tokens, seqlens_expanded_size, max_seqlen_k, index_topk, page_size,
// index_kpool, seq_len_fill, stream, read_only, report, paged_mqa..., flashmla..., batch state...,
// destination 0 fields..., ...): each scheduler's five members as in Python, the first None where
// there is none, the batch state in the order of BatchState, fields in schema order. read_only is
// the index of a read-only tensor among those of the destinations, -1 for none.
void call_generate(const Arguments& arguments);

// A plan of the same arguments, for the caller to delete; their stream is not used.
Plan* call_plan_generate(const Arguments& arguments);

// (address of a plan, stream, programmatic, batch state...): Plan::run, started as asked.
void call_plan_run_batch(const Arguments& arguments);

// (address of a plan, destination 0 fields..., destination 1 fields..., ...): Plan::check.
void call_plan_check_generated(const Arguments& arguments);

// (address of a node, batch state...): GraphNode::repoint.
void call_node_repoint_batch(const Arguments& arguments);

// The published argument lists in the published order, with index_kpool behind;
// python/graphfeed/sglang/ names them.
void call_fused_dsa_decode(const Arguments& arguments);
void call_fused_dsa_target_verify(const Arguments& arguments);
void call_fused_dsa_draft_extend(const Arguments& arguments);

}  // namespace graphfeed
