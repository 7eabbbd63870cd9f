# SPDX-License-Identifier: Apache-2.0
"""A plan's work inside captured graphs: branches to join, nodes to point at another source."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from graphfeed import _library
from graphfeed._arrays import framework
from graphfeed._copy import Metadata
from graphfeed._generate import BatchState

if TYPE_CHECKING:
    from graphfeed._plan import Plan

_join = _library.function("branch_join", keep_gil=True)
_delete_branch = _library.function("branch_delete", keep_gil=True)
_repoint = _library.function("node_repoint", keep_gil=True)
_repoint_tuple = _library.function("node_repoint_tuple", keep_gil=True)
_repoint_batch = _library.function("node_repoint_batch", keep_gil=True)
_repoint_batch_tuple = _library.function("node_repoint_batch_tuple", keep_gil=True)
_delete_node = _library.function("node_delete", keep_gil=True)


class Branch:
    """A copy beside what is captured next. Made by ``Plan.fork``."""

    def __init__(self, plan: Plan, address: int) -> None:
        self._plan = plan
        self._address = address
        weakref.finalize(self, _delete_branch, address).atexit = False

    def join(self, *, stream: int | None = None) -> None:
        """Makes what the stream captures from here on wait for the branch.

        Does nothing where the fork was made outside a capture, and ran in order.

        Args:
            stream: As in ``Plan.run``.

        Raises:
            ValueError: The stream is not in the capture that was forked.
        """
        _join(self._address, self._plan._stream("plan: join", stream))


class GraphNode:
    """A plan's nodes in an executable graph. Made by ``Plan.node``.

    Keeps the plan, the torch graph and the source it was pointed at alive. Used by one thread at a
    time, as CUDA asks of the executable, whose replays count as use.
    """

    def __init__(self, plan: Plan, graph: Any, executable: int, address: int) -> None:
        self._plan = plan
        self._graph = graph
        self._executable = executable
        self._executable_now = getattr(graph, "raw_cuda_graph_exec", None)
        self._sources: tuple[Metadata | BatchState, ...] = ()
        self._address = address
        weakref.finalize(self, _delete_node, address).atexit = False

    def repoint(self, source: Metadata | BatchState) -> None:
        """Makes later replays read `source`; those launched before are not affected.

        Host work only. The source of the capture is no longer read. The plan itself is not changed.

        Args:
            source: The fields of the plan, checked with its destinations; a batch state for one
                that generates. Sizes and live bound stay those of the plan.

        Raises:
            TypeError: As ``Plan.run``.
            ValueError: Likewise, or the source has nothing to copy. The node then stays as it was.
            RuntimeError: CUDA refused it, or the torch graph was reset or instantiated again since
                ``Plan.node``.
        """
        self._plan._check_type(source)
        is_batch = isinstance(source, BatchState)
        if self._executable_now is not None and self._executable_now() != self._executable:
            raise RuntimeError(
                "plan: node: graph: was instantiated again since: call Plan.node again"
            )
        before = self._sources
        self._sources = (*before, source)  # both, until it is certain which is read
        try:
            if self._plan._in_place:
                args = (self._address, *source)
                (_repoint_batch_tuple if is_batch else _repoint_tuple)(id(args))
            else:
                repoint = _repoint_batch if is_batch else _repoint
                repoint(self._address, *self._plan._passable(source))
        except Exception:
            self._sources = before
            raise
        self._sources = (source,)


def handles_of(graph: Any) -> tuple[int, int]:
    """Returns a graph's cudaGraph_t and cudaGraphExec_t.

    Raises:
        TypeError: It is no graph and no pair of integers.
        ValueError: torch did not keep it.
    """
    if isinstance(graph, tuple) and len(graph) == 2 and all(isinstance(h, int) for h in graph):
        return graph
    if not hasattr(graph, "raw_cuda_graph"):
        if framework(graph) == "torch" and type(graph).__name__ == "CUDAGraph":
            raise ValueError(
                "plan: node: graph: this torch keeps no graph: torch 2.8 or newer has "
                "torch.cuda.CUDAGraph(keep_graph=True)"
            )
        raise TypeError(
            "plan: node: graph: expected a torch.cuda.CUDAGraph or a pair of integers, got "
            f"{type(graph).__name__}"
        )
    try:
        handle = graph.raw_cuda_graph()
    except RuntimeError as error:
        raise ValueError(
            "plan: node: graph: torch did not keep it, or it is not captured yet: capture into "
            "torch.cuda.CUDAGraph(keep_graph=True)"
        ) from error
    try:
        return handle, graph.raw_cuda_graph_exec()
    except RuntimeError:  # not instantiated yet; doing it a second time would end the first
        graph.instantiate()
        return handle, graph.raw_cuda_graph_exec()
