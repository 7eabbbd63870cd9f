# SPDX-License-Identifier: Apache-2.0
"""Generation: from a batch's state to the metadata of any number of destinations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfeed import _library
from graphfeed._arrays import is_read_in_place, is_read_only, passable_at, stream_of
from graphfeed._copy import Tensor
from graphfeed._schedulers import FlashMlaScheduler, PagedMqaScheduler, flat_schedulers

_generate = _library.function("generate", keep_gil=True)
_generate_tuple = _library.function("generate_tuple", keep_gil=True)


class BatchState(NamedTuple):
    """What the engine knows of the next batch, on the device of the destinations; only read.

    All but ``req_to_token`` may be int32 or int64. What the mode does not need is ignored.
    """

    seq_lens: Tensor
    """[bs], tokens a request."""
    req_pool_indices: Tensor | None = None
    """[bs], rows of ``req_to_token``; needed where a table is generated."""
    req_to_token: Tensor | None = None
    """[pool, width], int32; needed where a table is generated."""
    extend_seq_lens: Tensor | None = None
    """[bs], draft tokens of each request, in draft_extend. None: all have num_draft_tokens."""
    raw_bs: Tensor | None = None
    """[1], in place of the number that ``generate`` takes."""
    num_draft_tokens: Tensor | None = None
    """[1], in place of the number that ``generate`` takes, which is then the most it may be.

    In draft_extend only, without ``extend_seq_lens``.
    """
    topk_length: Tensor | None = None
    """[R], tokens that each row attends to, of ``FlashMlaScheduler.topk`` at most."""


class GeneratedMetadata(NamedTuple):
    """One captured graph's buffers to fill. All int32; None: not written.

    R is bs in decode, bs * num_draft_tokens in target_verify, else seqlens_expanded_size.
    """

    cache_seqlens: Tensor | None = None
    """[bs], tokens."""
    cu_seqlens_k: Tensor | None = None
    """[bs + 1], tokens. Element 0 is written, as 0."""
    page_table_1: Tensor | None = None
    """[R, width], one column a token."""
    seqlens_expanded: Tensor | None = None
    """[R], tokens."""
    dsa_cache_seqlens: Tensor | None = None
    """[R], tokens."""
    dsa_cu_seqlens_k: Tensor | None = None
    """[R + 1], tokens. Element 0 is written, as 0."""
    real_page_table: Tensor | None = None
    """[R, pages], one column a page."""
    paged_mqa_ctx_lens_2d: Tensor | None = None
    """[R, 1], or in target_verify [bs, num_draft_tokens], tokens."""
    pooled_cache_seqlens: Tensor | None = None
    """[R], pools of index_kpool tokens."""
    pooled_page_table: Tensor | None = None
    """[R, width], one column index_kpool pages."""
    paged_mqa_schedule: Tensor | None = None
    """[num_sms + 1, 2], as ``paged_mqa`` says."""
    flashmla_metadata: Tensor | None = None
    """[num_sm_parts, 8], as ``flashmla`` says. Words that mean nothing are 0."""
    flashmla_num_splits: Tensor | None = None
    """[R + 1], as ``flashmla`` says."""


def generate(
    batch: BatchState,
    destinations: Sequence[GeneratedMetadata],
    *,
    mode: int,
    bs: int,
    raw_bs: int | None = None,
    num_draft_tokens: int = 1,
    seqlens_expanded_size: int | None = None,
    max_seqlen_k: int | None = None,
    index_topk: int = 2048,
    page_size: int = 64,
    index_kpool: int = 1,
    seq_len_fill: int = 1,
    paged_mqa: PagedMqaScheduler | None = None,
    flashmla: FlashMlaScheduler | None = None,
    report: Tensor | None = None,
    stream: int | None = None,
) -> None:
    """Computes the metadata of a batch into every destination, in one kernel launch.

    The formulas are in docs/design.md and in graphfeed/generate.h; they are those of SGLang's
    ``fused_dsa_*_metadata``. Table columns past a request's length keep what they held. An empty
    batch has the heads of the prefix sums written. No value on the device is trusted: lengths,
    rows and pool indices out of bounds are taken as the nearest in them. CUDA tensors:
    asynchronous, so the batch state must not change until the stream has passed this work, and it
    becomes a node of the graph where the stream is capturing. CPU tensors: done on return.

    Args:
        batch: The state of the next batch.
        destinations: 1 to 16 captured graphs' buffers. They may have different fields, be longer,
            wider and strided.
        mode: A ``ForwardMode``.
        bs: Batch size the graphs were captured for.
        raw_bs: Requests from this one on are padding. Default: none are.
        num_draft_tokens: Draft tokens a request; not used in decode.
        seqlens_expanded_size: R in draft_extend; rows past the last request's have length 0.
            Default: bs * num_draft_tokens; with ``extend_seq_lens`` the size of the first
            destination's ``seqlens_expanded``, or else of its ``dsa_cache_seqlens``.
        max_seqlen_k: Tokens a row of a table is filled for; every table must have as many.
            Default: as many as ``req_to_token`` and the table both have.
        index_topk: Tokens that sparse attention selects.
        page_size: Tokens a column of ``real_page_table``, a power of two.
        index_kpool: Tokens a pool of the index, a power of two.
        seq_len_fill: Length of a padding request.
        paged_mqa: How to make ``paged_mqa_schedule``; given where a destination has that, and only
            there.
        flashmla: The same of ``flashmla_metadata`` and ``flashmla_num_splits``.
        report: Checked mode: int64 [3], written anew by each launch. ``{kind, row, value}`` of the
            first request, but for padding, with a value that is taken as another: 1 seq_lens, 2
            req_pool_indices, 3 extend_seq_lens. Where all are right, ``{4, 0, raw_bs}``,
            ``{5, 0, num_draft_tokens}``, ``{6, bs, sum of extend_seq_lens, more than R}``, else
            zeros. No call waits for it.
        stream: A cudaStream_t as an integer. Default: the current stream of torch or CuPy, whose
            tensors these are; of other CUDA tensors the stream must be given.

    Raises:
        TypeError: A tensor has another element type, or an argument is not a tensor.
        ValueError: Anything else about an argument, such as an output that overlaps an input. The
            message names destination and field.
        RuntimeError: The machine cannot do it (no driver, no compiler, a failed launch), or the
            first use is inside a stream capture.
    """
    arrays = flat_generation("generate", batch, destinations)
    sizes = (mode, bs, raw_bs, num_draft_tokens, seqlens_expanded_size, max_seqlen_k)
    scalars = (*sizes, index_topk, page_size, index_kpool, seq_len_fill)
    schedulers = flat_schedulers("generate", paged_mqa, flashmla)
    if is_read_in_place(batch.seq_lens):
        args = (*scalars, stream, -1, report, *schedulers, *arrays)
        _generate_tuple(id(args))
        return
    if stream is None:
        stream = stream_of("generate", batch.seq_lens)
    outputs = arrays[len(batch) :]
    read_only = first_read_only_output(outputs)
    report = passable_report("generate", report)
    passed = [*passable_batch("generate", batch), *passable_generated("generate", outputs)]
    _generate(*scalars, stream, read_only, report, *schedulers, *passed)


def first_read_only_output(outputs: Sequence[Tensor | None]) -> int:
    """Returns the index of the first read-only array, -1 for none."""
    return next((i for i, array in enumerate(outputs) if is_read_only(array)), -1)


def passable_report(function: str, report: Tensor | None) -> Tensor | None:
    """Returns the report as TVM FFI takes it.

    Raises:
        TypeError: Its element type is one that DLPack cannot carry.
        ValueError: It is read-only.
    """
    if is_read_only(report):
        raise ValueError(f"{function}: report: is read-only")
    return passable_at(f"{function}: report", report, expected="int64")


def passable_batch(function: str, batch: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Returns a batch state's tensors as TVM FFI takes them.

    Raises:
        TypeError: An array's element type is one that DLPack cannot carry.
    """
    passed = []
    for name, array in zip(BatchState._fields, batch):
        expected = "int32" if name == "req_to_token" else "int32 or int64"
        passed.append(passable_at(f"{function}: {name}", array, expected=expected))
    return passed


def passable_generated(function: str, arrays: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Like `passable_batch`, of the fields of one destination after the other."""
    passed = []
    for i, array in enumerate(arrays):
        k, field = divmod(i, len(GeneratedMetadata._fields))
        name = GeneratedMetadata._fields[field]
        passed.append(passable_at(f"{function}: destination {k}: {name}", array))
    return passed


def flat_generation(
    function: str, batch: BatchState, destinations: Sequence[GeneratedMetadata]
) -> list[Tensor | None]:
    """Returns the tensors of the batch state and the fields of each destination.

    Raises:
        TypeError: One of them is of another type.
    """
    if not isinstance(batch, BatchState):
        raise TypeError(f"{function}: batch: expected BatchState, got {type(batch).__name__}")
    return [*batch, *flat_generated(function, destinations)]


def flat_generated(function: str, destinations: Sequence[GeneratedMetadata]) -> list[Tensor | None]:
    """Like `flat_generation`, of the destinations alone."""
    if isinstance(destinations, GeneratedMetadata) or not isinstance(destinations, Sequence):
        is_one = isinstance(destinations, GeneratedMetadata)
        got = "one GeneratedMetadata" if is_one else type(destinations).__name__
        raise TypeError(
            f"{function}: destinations: expected a sequence of GeneratedMetadata, got {got}"
        )
    arrays: list[Tensor | None] = []
    for k, destination in enumerate(destinations):
        if not isinstance(destination, GeneratedMetadata):
            kind = type(destination).__name__
            raise TypeError(f"{function}: destination {k}: expected GeneratedMetadata, got {kind}")
        arrays += destination
    return arrays
