# SPDX-License-Identifier: Apache-2.0
"""The drop-ins for SGLang's three functions that make metadata from a batch's state."""

from __future__ import annotations

from graphfeed._copy import Tensor
from graphfeed.sglang._forward import forwarded_to

_BATCH_STATE = ("seq_lens", "extend_seq_lens", "req_pool_indices", "req_to_token")


@forwarded_to("fused_dsa_decode_metadata", inputs=_BATCH_STATE)
def fused_dsa_decode_metadata(
    seq_lens: Tensor,
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    cache_seqlens: Tensor,
    cu_seqlens_k: Tensor,
    page_table_1: Tensor | None,
    dsa_cache_seqlens: Tensor,
    dsa_cu_seqlens_k: Tensor,
    real_page_table: Tensor | None,
    bs: int,
    max_len: int,
    dsa_index_topk: int,
    physical_page_size: int,
    index_kpool: int = 1,
) -> None:
    """Fills a captured decode graph's buffers from the state of a batch.

    Args:
        bs: Batch size the graph was captured for.
        max_len: Columns of ``req_to_token`` and of ``page_table_1`` to look at.
        physical_page_size: 1: ``page_table_1`` is the page table, ``real_page_table`` is not used.
    """


@forwarded_to("fused_dsa_target_verify_metadata", inputs=_BATCH_STATE)
def fused_dsa_target_verify_metadata(
    seq_lens: Tensor,
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    cache_seqlens: Tensor,
    cu_seqlens_k: Tensor,
    page_table_1: Tensor | None,
    seqlens_expanded: Tensor,
    dsa_cache_seqlens: Tensor,
    dsa_cu_seqlens_k: Tensor,
    real_page_table: Tensor | None,
    bs: int,
    max_seqlen_k: int,
    dsa_index_topk: int,
    physical_page_size: int,
    next_n: int,
    paged_mqa_ctx_lens_2d: Tensor | None = None,
    index_kpool: int = 1,
) -> None:
    """Fills a captured target-verify graph's buffers from the state of a batch.

    Args:
        bs: Batch size the graph was captured for.
        max_seqlen_k: Columns of ``req_to_token`` and of ``page_table_1`` to look at.
        physical_page_size: 1: ``page_table_1`` is the page table, ``real_page_table`` is not used.
        next_n: Draft tokens a request.
        paged_mqa_ctx_lens_2d: [bs, next_n].
    """


@forwarded_to("fused_dsa_draft_extend_metadata", inputs=_BATCH_STATE)
def fused_dsa_draft_extend_metadata(
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    cache_seqlens: Tensor,
    cu_seqlens_k: Tensor,
    page_table_1: Tensor | None,
    seqlens_expanded: Tensor,
    dsa_cache_seqlens: Tensor,
    dsa_cu_seqlens_k: Tensor,
    real_page_table: Tensor | None,
    bs: int,
    total_len: int,
    max_seqlen_k: int,
    dsa_index_topk: int,
    physical_page_size: int,
    max_extend_len: int,
    max_total_len: int,
    static_extend_len: bool = False,
    index_kpool: int = 1,
) -> None:
    """Fills a captured draft-extend graph's buffers from the state of a batch.

    Args:
        bs: Batch size the graph was captured for.
        total_len: Rows.
        max_seqlen_k: Columns of ``req_to_token`` and of ``page_table_1`` to look at.
        physical_page_size: 1: ``page_table_1`` is the page table, ``real_page_table`` is not used.
        max_extend_len: The most rows of a request, where ``static_extend_len``.
        max_total_len: At least ``total_len``.
        static_extend_len: All requests have as many rows as the first of ``extend_seq_lens`` says.
    """
