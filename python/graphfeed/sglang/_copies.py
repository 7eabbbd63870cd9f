# SPDX-License-Identifier: Apache-2.0
"""The drop-ins for SGLang's two functions that copy metadata."""

from __future__ import annotations

from graphfeed._copy import Tensor
from graphfeed.sglang._forward import forwarded_to


@forwarded_to("fused_metadata_copy")
def fused_metadata_copy_cuda(
    cache_seqlens_src: Tensor,
    cu_seqlens_k_src: Tensor,
    page_indices_src: Tensor,
    dsa_cache_seqlens_src: Tensor,
    seqlens_expanded_src: Tensor | None,
    dsa_cu_seqlens_k_src: Tensor,
    real_page_table_src: Tensor | None,
    flashmla_num_splits_src: Tensor | None,
    flashmla_metadata_src: Tensor | None,
    cache_seqlens_dst: Tensor,
    cu_seqlens_k_dst: Tensor,
    page_table_1_dst: Tensor,
    dsa_cache_seqlens_dst: Tensor,
    seqlens_expanded_dst: Tensor | None,
    dsa_cu_seqlens_k_dst: Tensor,
    real_page_table_dst: Tensor | None,
    flashmla_num_splits_dst: Tensor | None,
    flashmla_metadata_dst: Tensor | None,
    forward_mode: int,
    bs: int,
    max_len: int,
    max_seqlen_k: int,
    seqlens_expanded_size: int,
) -> None:
    """Copies one source's metadata into one captured graph's buffers.

    Args:
        forward_mode: 0 decode, 1 target_verify, 2 draft_extend.
        bs: Batch size the graph was captured for.
        max_len: Columns of the page table to copy, in decode.
        max_seqlen_k: The same in the other modes; in draft_extend max_len where this is not
            positive.
        seqlens_expanded_size: E, rows; not used in decode.
    """


@forwarded_to("fused_metadata_copy_multi")
def fused_metadata_copy_multi_cuda(
    cache_seqlens_src: Tensor,
    cu_seqlens_k_src: Tensor,
    page_indices_src: Tensor,
    dsa_cache_seqlens_src: Tensor,
    dsa_cu_seqlens_k_src: Tensor,
    real_page_table_src: Tensor | None,
    flashmla_num_splits_src: Tensor | None,
    flashmla_metadata_src: Tensor | None,
    cache_seqlens_dst0: Tensor,
    cu_seqlens_k_dst0: Tensor,
    page_table_1_dst0: Tensor,
    dsa_cache_seqlens_dst0: Tensor,
    dsa_cu_seqlens_k_dst0: Tensor,
    real_page_table_dst0: Tensor | None,
    flashmla_num_splits_dst0: Tensor | None,
    flashmla_metadata_dst0: Tensor | None,
    cache_seqlens_dst1: Tensor,
    cu_seqlens_k_dst1: Tensor,
    page_table_1_dst1: Tensor,
    dsa_cache_seqlens_dst1: Tensor,
    dsa_cu_seqlens_k_dst1: Tensor,
    real_page_table_dst1: Tensor | None,
    flashmla_num_splits_dst1: Tensor | None,
    flashmla_metadata_dst1: Tensor | None,
    cache_seqlens_dst2: Tensor,
    cu_seqlens_k_dst2: Tensor,
    page_table_1_dst2: Tensor,
    dsa_cache_seqlens_dst2: Tensor,
    dsa_cu_seqlens_k_dst2: Tensor,
    real_page_table_dst2: Tensor | None,
    flashmla_num_splits_dst2: Tensor | None,
    flashmla_metadata_dst2: Tensor | None,
    bs: int,
    max_len: int,
    seqlens_expanded_size: int,
) -> None:
    """Copies one source's decode metadata into the buffers of three captured graphs.

    Args:
        bs: Batch size the graphs were captured for.
        max_len: Columns of the page table to copy.
        seqlens_expanded_size: Not used: this is decode.
    """
