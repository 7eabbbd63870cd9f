# SPDX-License-Identifier: Apache-2.0
"""SGLang's fused metadata copy functions under their own names, arguments and errors.

They take the arguments of ``sglang.kernels.ops.attention.dsa.fused_metadata_copy`` in its order, by
position or by keyword, with the older keyword spellings too (``nsa_*`` for ``dsa_*``). A field is
absent where its source and destination are None. Fields, extents and shapes are those of
``graphfeed.Metadata``; strided sources are read in place. The work goes, in one launch, on the
current stream of torch (or CuPy), whose tensors these are.

Errors: RuntimeError "must have dtype int32" for another dtype; otherwise as ``graphfeed.copy``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from graphfeed import _library
from graphfeed._arrays import call_through_tvm_ffi, is_read_in_place
from graphfeed._copy import Tensor


def _by_name(function: str, names: list[str], args: tuple, named: dict[str, Any]) -> tuple:
    """Returns the positional arguments that `args` and the keywords `named` make together."""
    for name in [name for name in named if name.startswith("nsa_")]:
        newer = "dsa_" + name[4:]
        if newer in named:
            raise TypeError(f"{function}: {newer} is given twice, as {name} too")
        named[newer] = named.pop(name)
    try:
        positional = args + tuple(named.pop(name) for name in names[len(args) :])
    except KeyError as missing:
        raise TypeError(f"{function}: missing argument {missing}") from None
    if named:
        name = next(iter(named))
        what = "multiple values for" if name in names else "unexpected"
        raise TypeError(f"{function}: {what} argument {name!r}")
    return positional


def _forwarded_to(name: str) -> Callable[[Callable], Callable]:
    """Makes a function of its signature alone: a call goes to the native function `name`."""
    native = _library.function(name, keep_gil=True)
    native_tuple = _library.function(name + "_tuple", keep_gil=True)

    def decorate(declared: Callable) -> Callable:
        function = declared.__name__
        names = list(inspect.signature(declared).parameters)
        arrays = range(sum("_src" in name or "_dst" in name for name in names))

        @functools.wraps(declared)
        def forward(*args: Any, **named: Any) -> None:
            if named:
                args = _by_name(function, names, args, named)
            if args and is_read_in_place(args[0]):
                native_tuple(id(args))
            else:
                call_through_tvm_ffi(function, native, args, names, arrays)

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
