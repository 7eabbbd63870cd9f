# SPDX-License-Identifier: Apache-2.0
"""A copy or a generation that is bound once and made at every step."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

from graphfeed import _library
from graphfeed._arrays import is_read_in_place, passable_at, stream_without_arguments
from graphfeed._capture import Branch, GraphNode, handles_of
from graphfeed._copy import (
    Metadata,
    Tensor,
    first_read_only,
    flat,
    flat_destinations,
    passable_fields,
)
from graphfeed._generate import (
    BatchState,
    GeneratedMetadata,
    first_read_only_output,
    flat_generated,
    flat_generation,
    passable_batch,
    passable_generated,
    passable_report,
)
from graphfeed._schedulers import FlashMlaScheduler, PagedMqaScheduler, flat_schedulers

_plan = _library.function("plan", keep_gil=True)
_plan_tuple = _library.function("plan_tuple", keep_gil=True)
_plan_generate = _library.function("plan_generate", keep_gil=True)
_plan_generate_tuple = _library.function("plan_generate_tuple", keep_gil=True)
_run = _library.function("plan_run", keep_gil=True)
_run_here = _library.function("plan_run_here", keep_gil=True)
_run_tuple = _library.function("plan_run_tuple", keep_gil=True)
_start = _library.function("plan_start", keep_gil=True)
_start_tuple = _library.function("plan_start_tuple", keep_gil=True)
_run_batch = _library.function("plan_run_batch", keep_gil=True)
_run_batch_tuple = _library.function("plan_run_batch_tuple", keep_gil=True)
_fork = _library.function("plan_fork", keep_gil=True)
_node = _library.function("plan_node", keep_gil=True)
_check = _library.function("plan_check", keep_gil=True)
_check_tuple = _library.function("plan_check_tuple", keep_gil=True)
_check_generated = _library.function("plan_check_generated", keep_gil=True)
_check_generated_tuple = _library.function("plan_check_generated_tuple", keep_gil=True)
_delete = _library.function("plan_delete", keep_gil=True)


class Plan:
    """A copy or a generation whose tensors are checked once and whose addresses are kept.

    Takes the arguments of ``graphfeed.copy`` but ``stream``, and raises what it raises;
    ``Plan.generating`` is the same for ``graphfeed.generate``. It also loads the kernel, so that a
    first run may be inside a stream capture; make the plan outside one. The plan keeps its tensors
    alive. A tensor must stay where it is: one that is resized or given other storage needs another
    plan.
    """

    def __init__(
        self,
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
    ) -> None:
        arrays = flat("plan", source, destinations)
        first = next((array for array in arrays if array is not None), None)
        scalars = (mode, bs, max_seqlen_k, seqlens_expanded_size, None)
        bound = (rows_per_request, page_size)
        in_place = is_read_in_place(first)
        if in_place:
            args = (*scalars, live_bound, *bound, -1, *arrays)
            address = _plan_tuple(id(args))
        else:
            passed = passable_fields("plan", arrays)
            lengths = passable_at("plan: live_bound", live_bound)
            read_only = first_read_only(arrays, mode)
            address = _plan(*scalars, lengths, *bound, read_only, *passed)
        self._keep(address, in_place, source, arrays[len(source) :], live_bound)

    @classmethod
    def generating(
        cls,
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
    ) -> Plan:
        """Makes a plan of ``graphfeed.generate``, with its arguments but ``stream``.

        Its runs take a ``BatchState`` where those of a copy take a source.
        """
        arrays = flat_generation("plan", batch, destinations)
        outputs = arrays[len(batch) :]
        sizes = (mode, bs, raw_bs, num_draft_tokens, seqlens_expanded_size, max_seqlen_k)
        scalars = (*sizes, index_topk, page_size, index_kpool, seq_len_fill, None)
        schedulers = flat_schedulers("plan", paged_mqa, flashmla)
        in_place = is_read_in_place(batch.seq_lens)
        if in_place:
            args = (*scalars, -1, report, *schedulers, *arrays)
            address = _plan_generate_tuple(id(args))
        else:
            read_only = first_read_only_output(outputs)
            passed = [*passable_batch("plan", batch), *passable_generated("plan", outputs)]
            report_passed = passable_report("plan", report)
            address = _plan_generate(*scalars, read_only, report_passed, *schedulers, *passed)
        plan = cls.__new__(cls)
        plan._keep(address, in_place, batch, outputs, report)
        return plan

    def _keep(
        self,
        address: int,
        in_place: bool,
        source: Metadata | BatchState,
        written: list[Tensor | None],
        other: Tensor | None,
    ) -> None:
        self._in_place = in_place
        self._source_type = type(source)
        # The last is bound, or one before it.
        self._sources: tuple[Metadata | BatchState, ...] = (source,)
        self._others = (written, other)
        self._binding = threading.Lock()
        self._address = address
        # Not at exit: a daemon thread may run the plan until the very end.
        weakref.finalize(self, _delete, address).atexit = False

    def __repr__(self) -> str:
        kind, fields = ("copies", Metadata._fields)
        if self._source_type is BatchState:
            kind, fields = ("generates", GeneratedMetadata._fields)
        return f"<graphfeed.Plan, {kind} to {len(self._others[0]) // len(fields)} destination(s)>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("plan: cannot be copied or pickled: it owns a launch prepared in place")

    def run(
        self,
        source: Metadata | BatchState | None = None,
        *,
        stream: int | None = None,
        programmatic: bool = False,
    ) -> None:
        """Does the work: a launch of a prepared graph, or of the kernel where `stream` captures.

        Args:
            source: Copy or generate from these tensors from now on: the same fields, checked anew
                with all destinations. Sizes and live bound stay those of the plan. Default: those
                bound last, read anew.
            stream: A cudaStream_t as an integer. Default: the current stream of torch or CuPy,
                whose tensors the plan was made of; for others it must be given on CUDA.
            programmatic: Start while the kernel before still runs, if that one allows it
                (programmatic dependent launch), and wait for its end before touching memory. From
                compute capability 9.0 on; a kernel launch, outside a capture too.

        Raises:
            TypeError: As ``graphfeed.copy``, for a new source.
            ValueError: Likewise. The plan then stays as it was, as after a failed launch.
            RuntimeError: The launch failed, or the device knows no programmatic start.
        """
        if source is None:
            if stream is None and self._in_place and not programmatic:
                _run_here(self._address)
            else:
                self._launch(stream, (), programmatic)
            return
        self._check_type(source)
        with self._binding:
            # Both are kept until it is certain which of them is bound.
            before = self._sources
            self._sources = (*before, source)
            try:
                self._launch(stream, source, programmatic)
            except Exception:
                self._sources = before
                raise
            self._sources = (source,)

    def fork(self, *, stream: int | None = None, programmatic: bool = False) -> Branch:
        """Does the work beside what a capturing stream captures next, until ``Branch.join``.

        It waits for what was captured before. Outside a capture it runs in order, so that the same
        code warms up and captures. Reads the source bound last.

        Args:
            stream: As in ``run``.
            programmatic: As in ``run``.

        Returns:
            What to join. A branch that is never joined is waited for by the graph's end alone.

        Raises:
            ValueError: The stream is not known.
            RuntimeError: As in ``run``.
        """
        address = _fork(self._address, self._stream("plan: fork", stream), int(programmatic))
        return Branch(self, address)

    def node(self, graph: Any) -> GraphNode:
        """Finds what the plan's runs and forks became in a captured graph.

        The plan remembers its nodes of the last 256 graphs. Not for every step: it looks at all of
        the graph's nodes.

        Args:
            graph: A ``torch.cuda.CUDAGraph`` made with ``keep_graph=True``, captured; it is
                instantiated if it was not. Or ``(graph, graph_exec)``, a cudaGraph_t and a
                cudaGraphExec_t as integers, which must outlive the result.

        Raises:
            TypeError: `graph` is neither.
            ValueError: torch did not keep the graph, or the plan has no node in it.
        """
        handle, executable = handles_of(graph)
        return GraphNode(self, graph, executable, _node(self._address, handle, executable))

    def check(self, destinations: Sequence[Metadata]) -> None:
        """Compares tensors with the destinations that were bound; cheap enough for every step.

        Args:
            destinations: What an engine now takes for its captured graphs' buffers.

        Raises:
            ValueError: One moved, or has another size, stride or type: the message names it. A
                graph captured with the bound one would read, and a run would write, memory that is
                no longer the buffer's.
        """
        if self._source_type is BatchState:
            arrays = flat_generated("plan", destinations)
            in_tuple, packed, passable = (
                _check_generated_tuple,
                _check_generated,
                passable_generated,
            )
        else:
            arrays = flat_destinations("plan", destinations)
            in_tuple, packed = _check_tuple, _check
            passable = functools.partial(passable_fields, operand=1)
        if self._in_place:
            args = (self._address, *arrays)
            in_tuple(id(args))
        else:
            packed(self._address, *passable("plan", arrays))

    def _check_type(self, source: Any) -> None:
        if not isinstance(source, self._source_type):
            name = "batch" if self._source_type is BatchState else "source"
            expected, got = self._source_type.__name__, type(source).__name__
            raise TypeError(f"plan: {name}: expected {expected}, got {got}")

    def _passable(self, source: Metadata | BatchState) -> list[Tensor | None]:
        passable = passable_batch if self._source_type is BatchState else passable_fields
        return passable("plan", source)

    def _launch(self, stream: int | None, fields: tuple, programmatic: bool) -> None:
        if self._source_type is BatchState and fields:
            in_tuple, packed, start = _run_batch_tuple, _run_batch, (int(programmatic),)
        elif programmatic:
            in_tuple, packed, start = _start_tuple, _start, (1,)
        else:
            in_tuple, packed, start = _run_tuple, _run, ()
        if self._in_place:
            args = (self._address, stream, *start, *fields)
            in_tuple(id(args))
            return
        stream = self._stream("plan", stream)
        packed(self._address, stream, *start, *(self._passable(fields) if fields else ()))

    def _stream(self, function: str, stream: int | None) -> int | None:
        if stream is not None:
            return stream
        outputs, other = self._others
        written = next((array for array in outputs if array is not None), other)
        return stream_without_arguments(function, written)
