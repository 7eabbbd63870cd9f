# SPDX-License-Identifier: Apache-2.0
"""The native copy: named fields, any number of destinations."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from graphfeed import _library
from graphfeed._arrays import (
    is_read_in_place,
    is_read_only,
    passable_at,
    stream_of,
)

# Anything that speaks DLPack: torch, CuPy and JAX arrays, NumPy arrays, tvm_ffi.Tensor.
Tensor = Any

_copy = _library.function("copy", keep_gil=True)
_copy_tuple = _library.function("copy_tuple", keep_gil=True)


class ForwardMode(IntEnum):
    """What the captured graph computes."""

    DECODE = 0
    TARGET_VERIFY = 1
    DRAFT_EXTEND = 2


class Metadata(NamedTuple):
    """The tensors one attention backend reads in a captured step. All int32; None: not copied.

    bs is the batch size the graph was captured for, E the expanded rows, R the rows of the page
    tables: bs in decode, else those of the source's ``page_table_1``.
    """

    cache_seqlens: Tensor | None = None
    """[bs], tokens."""
    cu_seqlens_k: Tensor | None = None
    """[bs + 1], tokens. Element 0 is never written."""
    page_table_1: Tensor | None = None
    """[R, max_seqlen_k], one column a token."""
    seqlens_expanded: Tensor | None = None
    """[E], tokens. Not copied in decode, where it is ``cache_seqlens``."""
    dsa_cache_seqlens: Tensor | None = None
    """[bs] in decode, else [E], tokens."""
    dsa_cu_seqlens_k: Tensor | None = None
    """[bs + 1] in decode, else [E + 1], tokens. Element 0 is never written."""
    real_page_table: Tensor | None = None
    """[R, pages], one column a page; every column of the source is copied."""
    flashmla_num_splits: Tensor | None = None
    """[bs + 1] in decode, else [E + 1]."""
    flashmla_metadata: Tensor | None = None
    """Any shape of rank 1 or 2; all elements are copied in row-major order."""


def copy(
    source: Metadata,
    destinations: Sequence[Metadata],
    *,
    mode: int,
    bs: int,
    max_seqlen_k: int | None = None,
    seqlens_expanded_size: int | None = None,
    live_bound: Tensor | None = None,
    rows_per_request: int | None = None,
    page_size: int = 64,
    stream: int | None = None,
) -> None:
    """Copies the source's metadata into every destination, in one kernel launch.

    Destinations may be longer, wider and strided (a slice of a bigger buffer); nothing outside the
    copied block changes. Without fields, rows or columns it does nothing. CUDA tensors:
    asynchronous, so sources must not change until the stream has passed this work, and it becomes a
    node of the graph where the stream is capturing. CPU tensors: done on return.

    Args:
        source: The next batch's values.
        destinations: 1 to 16 captured graphs' buffers, each with the fields of the source.
        mode: A ``ForwardMode``.
        bs: Batch size the graphs were captured for.
        max_seqlen_k: Columns of ``page_table_1`` to copy. Default: all of the source's.
        seqlens_expanded_size: E, rows; not used in decode. Default: the size of the source's
            ``seqlens_expanded``, else of its ``dsa_cache_seqlens``.
        live_bound: int32 lengths on the same device, in tokens. Row r of ``page_table_1`` is
            copied up to column ``live_bound[r // rows_per_request]``, of ``real_page_table`` up to
            that divided by ``page_size``, rounded up. Columns past that are left as they were.
        rows_per_request: Default: 1 in decode, else R / bs.
        page_size: Tokens a column of ``real_page_table``; used with ``live_bound`` only.
        stream: A cudaStream_t as an integer. Default: the current stream of torch or CuPy, whose
            tensors these are; of other CUDA tensors the stream must be given.

    Raises:
        TypeError: A tensor is not int32, or an argument is not a tensor.
        ValueError: Anything else about an argument. The message names destination and field.
        RuntimeError: The machine cannot do it (no driver, no compiler, a failed launch), or the
            first use is inside a stream capture.
    """
    arrays = flat("copy", source, destinations)
    first = next((array for array in arrays if array is not None), None)
    scalars = (mode, bs, max_seqlen_k, seqlens_expanded_size)
    if is_read_in_place(first):
        args = (*scalars, stream, live_bound, rows_per_request, page_size, -1, *arrays)
        _copy_tuple(id(args))
        return
    if stream is None:
        stream = stream_of("copy", first)
    read_only = first_read_only(arrays, mode)
    arrays = passable_fields("copy", arrays)
    live_bound = passable_at("copy: live_bound", live_bound)
    _copy(*scalars, stream, live_bound, rows_per_request, page_size, read_only, *arrays)


def first_read_only(arrays: Sequence[Tensor | None], mode: int) -> int:
    """Returns the index of the first read-only array that is written, -1 for none.

    The index counts from behind the source's fields. In decode seqlens_expanded is not written.
    """
    num_fields = len(Metadata._fields)
    ignored = Metadata._fields.index("seqlens_expanded") if mode == ForwardMode.DECODE else -1
    written = enumerate(arrays[num_fields:])
    return next((i for i, a in written if i % num_fields != ignored and is_read_only(a)), -1)


def passable_fields(
    function: str, arrays: Sequence[Tensor | None], *, operand: int = 0
) -> list[Tensor | None]:
    """Returns fields as TVM FFI takes them.

    Args:
        function: Begins the message of an error.
        arrays: The fields of one Metadata after the other.
        operand: Whose the first are: 0 the source's, 1 + k destination k's.

    Raises:
        TypeError: An array's element type is one that DLPack cannot carry.
    """
    passed = []
    for i, array in enumerate(arrays):
        k, field = divmod(i, len(Metadata._fields))
        whose = f"destination {operand + k - 1}" if operand + k else "source"
        passed.append(passable_at(f"{function}: {whose}: {Metadata._fields[field]}", array))
    return passed


def flat(function: str, source: Metadata, destinations: Sequence[Metadata]) -> list[Tensor | None]:
    """Returns the fields of the source and of each destination, one after the other.

    Raises:
        TypeError: One of them is not Metadata.
    """
    if not isinstance(source, Metadata):
        raise TypeError(f"{function}: source: expected Metadata, got {type(source).__name__}")
    return [*source, *flat_destinations(function, destinations)]


def flat_destinations(function: str, destinations: Sequence[Metadata]) -> list[Tensor | None]:
    """Like `flat`, of the destinations alone."""
    if isinstance(destinations, Metadata) or not isinstance(destinations, Sequence):
        is_one = isinstance(destinations, Metadata)
        got = "one Metadata" if is_one else type(destinations).__name__
        raise TypeError(f"{function}: destinations: expected a sequence of Metadata, got {got}")
    arrays: list[Tensor | None] = []
    for k, destination in enumerate(destinations):
        if not isinstance(destination, Metadata):
            kind = type(destination).__name__
            raise TypeError(f"{function}: destination {k}: expected Metadata, got {kind}")
        arrays += destination
    return arrays
