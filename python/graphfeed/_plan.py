# SPDX-License-Identifier: Apache-2.0
"""A copy that is bound once and made at every step."""

from __future__ import annotations

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

_plan = _library.function("plan", keep_gil=True)
_plan_tuple = _library.function("plan_tuple", keep_gil=True)
_run = _library.function("plan_run", keep_gil=True)
_run_here = _library.function("plan_run_here", keep_gil=True)
_run_tuple = _library.function("plan_run_tuple", keep_gil=True)
_start = _library.function("plan_start", keep_gil=True)
_start_tuple = _library.function("plan_start_tuple", keep_gil=True)
_fork = _library.function("plan_fork", keep_gil=True)
_node = _library.function("plan_node", keep_gil=True)
_check = _library.function("plan_check", keep_gil=True)
_check_tuple = _library.function("plan_check_tuple", keep_gil=True)
_delete = _library.function("plan_delete", keep_gil=True)


class Plan:
    """A copy whose tensors are checked once and whose addresses are kept.

    Takes the arguments of ``graphfeed.copy`` but ``stream``, and raises what it raises. It also
    loads the kernel, so that a first run may be inside a stream capture; make the plan outside one.
    The plan keeps its tensors alive. A tensor must stay where it is: one that is resized or given
    other storage needs another plan.
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
        self._in_place = is_read_in_place(first)
        if self._in_place:
            args = (*scalars, live_bound, *bound, -1, *arrays)
            address = _plan_tuple(id(args))
        else:
            passed = passable_fields("plan", arrays)
            lengths = passable_at("plan: live_bound", live_bound)
            read_only = first_read_only(arrays, mode)
            address = _plan(*scalars, lengths, *bound, read_only, *passed)
        self._sources: tuple[Metadata, ...] = (source,)  # the last is bound, or one before it
        self._others = (arrays[len(source) :], live_bound)
        self._binding = threading.Lock()
        self._address = address
        # Not at exit: a daemon thread may run the plan until the very end.
        weakref.finalize(self, _delete, address).atexit = False

    def __reduce__(self) -> NoReturn:
        raise TypeError("plan: cannot be copied or pickled: it owns a launch prepared in place")

    def run(
        self,
        source: Metadata | None = None,
        *,
        stream: int | None = None,
        programmatic: bool = False,
    ) -> None:
        """Makes the copy: a launch of a prepared graph, or of the kernel where `stream` captures.

        Args:
            source: Copy from these tensors from now on: the same fields, checked anew with all
                destinations. Sizes and live bound stay those of the plan. Default: the source bound
                last, read anew.
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
        if not isinstance(source, Metadata):
            raise TypeError(f"plan: source: expected Metadata, got {type(source).__name__}")
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
        """Makes the copy beside what a capturing stream captures next, until ``Branch.join``.

        It waits for what was captured before. Outside a capture it runs in order, so that the same
        code warms up and captures. Copies from the source bound last.

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
        arrays = flat_destinations("plan", destinations)
        if self._in_place:
            args = (self._address, *arrays)
            _check_tuple(id(args))
        else:
            _check(self._address, *passable_fields("plan", arrays, operand=1))

    def _launch(self, stream: int | None, fields: tuple, programmatic: bool) -> None:
        in_tuple, packed = (_start_tuple, _start) if programmatic else (_run_tuple, _run)
        start = (1,) if programmatic else ()
        if self._in_place:
            args = (self._address, stream, *start, *fields)
            in_tuple(id(args))
            return
        stream = self._stream("plan", stream)
        packed(self._address, stream, *start, *passable_fields("plan", fields))

    def _stream(self, function: str, stream: int | None) -> int | None:
        if stream is not None:
            return stream
        written = next((array for array in self._others[0] if array is not None), None)
        return stream_without_arguments(function, written)
