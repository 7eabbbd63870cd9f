# SPDX-License-Identifier: Apache-2.0
"""SGLang's fused metadata functions under their own names and arguments.

The copy functions take the arguments of ``sglang.kernels.ops.attention.dsa.fused_metadata_copy`` in
its order, by position or by keyword, with the older keyword spellings too (``nsa_*`` for
``dsa_*``). A field is absent where its source and destination are None. Fields, extents and shapes
are those of ``graphfeed.Metadata``; strided sources are read in place. The work goes, in one
launch, on the current stream of torch (or CuPy), whose tensors these are.

Errors: RuntimeError "must have dtype int32" for another dtype; otherwise as ``graphfeed.copy``.

The generating functions take the arguments of ``sglang.kernels.ops.attention.dsa.metadata``, and
``index_kpool`` as those of its ``kpool_metadata``. They fill what ``graphfeed.generate`` fills and
raise what it raises. No column past a request's length is written, where SGLang's write up to 127.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container
from typing import Any

from graphfeed import _library
from graphfeed._arrays import call_through_tvm_ffi, is_read_in_place, known_in_place
from graphfeed._copy import Tensor


def _by_name(
    function: str,
    names: list[str],
    args: tuple,
    named: dict[str, Any],
    defaults: dict[str, Any],
) -> tuple:
    """Returns the positional arguments that `args` and the keywords `named` make together."""
    for name in [name for name in named if name.startswith("nsa_")]:
        newer = "dsa_" + name[4:]
        if newer in named:
            raise TypeError(f"{function}: {newer} is given twice, as {name} too")
        named[newer] = named.pop(name)
    try:
        positional = args + tuple(
            named.pop(name) if name in named or name not in defaults else defaults[name]
            for name in names[len(args) :]
        )
    except KeyError as missing:
        raise TypeError(f"{function}: missing argument {missing}") from None
    if named:
        name = next(iter(named))
        what = "multiple values for" if name in names else "unexpected"
        raise TypeError(f"{function}: {what} argument {name!r}")
    return positional


def _forwarded_to(
    name: str, *, inputs: Container[str] | None = None
) -> Callable[[Callable], Callable]:
    """Makes a function of its signature alone: a call goes to the native function `name`.

    Arguments annotated as tensors are arrays; those that are not among `inputs`, or by default
    those whose name has ``_dst`` in it, are destinations.
    """
    native = _library.function(name, keep_gil=True)
    native_tuple = _library.function(name + "_tuple", keep_gil=True)

    def decorate(declared: Callable) -> Callable:
        function = declared.__name__
        parameters = inspect.signature(declared).parameters
        names = list(parameters)
        defaults = {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.default is not parameter.empty
        }
        arrays = [i for i, name in enumerate(names) if "Tensor" in parameters[name].annotation]
        written = [
            i for i in arrays if ("_dst" in names[i] if inputs is None else names[i] not in inputs)
        ]

        flags = [i for i, name in enumerate(names) if defaults.get(name) is False]

        @functools.wraps(declared)
        def forward(*args: Any, **named: Any) -> None:
            if named or (defaults and len(args) < len(names)):
                args = _by_name(function, names, args, named, defaults)
            for i in flags:  # native code takes no bool for an integer
                if isinstance(args[i], bool):
                    args = (*args[:i], int(args[i]), *args[i + 1 :])
            if args and (known_in_place(type(args[0])) or is_read_in_place(args[0])):
                native_tuple(id(args))
            else:
                call_through_tvm_ffi(function, native, args, names, arrays, written)

        return forward

    return decorate


@_forwarded_to("fused_metadata_copy")
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


@_forwarded_to("fused_metadata_copy_multi")
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


_BATCH_STATE = ("seq_lens", "extend_seq_lens", "req_pool_indices", "req_to_token")


@_forwarded_to("fused_dsa_decode_metadata", inputs=_BATCH_STATE)
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


@_forwarded_to("fused_dsa_target_verify_metadata", inputs=_BATCH_STATE)
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


@_forwarded_to("fused_dsa_draft_extend_metadata", inputs=_BATCH_STATE)
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
