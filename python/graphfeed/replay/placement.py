# SPDX-License-Identifier: Apache-2.0
"""The ways to refresh a graph's destinations: tensor by tensor, by copy, by plan, in the graph.

A placement is made ready once for a graph and a captured batch size, which is not timed; what it
then does at a step is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import graphfeed
from graphfeed import ForwardMode, Metadata
from graphfeed.replay.arrays import Arrays, Captured, DeviceError

if TYPE_CHECKING:
    from graphfeed.replay.model import ModelGraph


@dataclass(frozen=True)
class Batch:
    """What a step hands over.

    Attributes:
        source: The step's metadata.
        bs: Captured batch size.
        rows: Rows of the page tables, and E.
        max_seqlen_k: Columns of the longest request.
    """

    source: Metadata
    bs: int
    rows: int
    max_seqlen_k: int


class Prepared(NamedTuple):
    """A placement made ready for one graph and batch size. It holds no reference to that graph."""

    refresh: Callable[[Batch], None]  # at each step, timed
    captured: Captured  # what is replayed after it


@dataclass(frozen=True)
class Placement:
    """A way to refresh.

    Attributes:
        name: As it is asked for and shown.
        timed: What it does at a step, in words.
        prepare: Makes it ready; called with the first batch of a size, whose source is then valid.
        live: Sources have tables of full width, of which each row is refreshed to its own request's
            length; else every row to the longest's.
        needs_nodes: Works only where nodes of captured graphs can be re-pointed.
    """

    name: str
    timed: str
    prepare: Callable[[ModelGraph, Batch], Prepared]
    live: bool = False
    needs_nodes: bool = False


def choose(arrays: Arrays, asked: Sequence[Placement] | None) -> list[Placement]:
    """The placements to play on a device: those asked for, by default all that work there.

    Raises:
        DeviceError: One asked for does not work there.
        ValueError: None is asked for, or one twice.
    """
    if asked is None:
        each = PLACEMENTS.values()
        return [one for one in each if arrays.no_nodes is None or not one.needs_nodes]
    if not asked or len({one.name for one in asked}) < len(asked):
        names = ", ".join(one.name for one in asked) or "none"
        raise ValueError(f"placements: expected one or more, each once, got {names}")
    for one in asked:
        if one.needs_nodes and arrays.no_nodes is not None:
            raise DeviceError(f"placement {one.name}: {arrays.no_nodes}")
    return list(asked)


def _by_copies(graph: ModelGraph, first: Batch) -> Prepared:
    destinations, mode = graph.metadata, graph.mode

    def refresh(batch: Batch) -> None:
        for destination in destinations:
            _copy_fields(batch, destination, mode=mode)

    return Prepared(refresh, graph.captured)


def _copy_fields(batch: Batch, destination: Metadata, *, mode: ForwardMode) -> None:
    source, bs, rows = batch.source, batch.bs, batch.rows
    pages = source.real_page_table.shape[1]
    destination.cache_seqlens[:bs] = source.cache_seqlens
    destination.cu_seqlens_k[1 : bs + 1] = source.cu_seqlens_k[1:]
    destination.page_table_1[:rows, : batch.max_seqlen_k] = source.page_table_1
    if mode is not ForwardMode.DECODE:
        destination.seqlens_expanded[:rows] = source.seqlens_expanded
    destination.dsa_cache_seqlens[:rows] = source.dsa_cache_seqlens
    destination.dsa_cu_seqlens_k[1 : rows + 1] = source.dsa_cu_seqlens_k[1:]
    destination.real_page_table[:rows, :pages] = source.real_page_table
    destination.flashmla_num_splits[: rows + 1] = source.flashmla_num_splits
    destination.flashmla_metadata[:] = source.flashmla_metadata


def _by_copy(graph: ModelGraph, first: Batch) -> Prepared:
    destinations, mode, stream = graph.metadata, graph.mode, graph.stream

    def refresh(batch: Batch) -> None:
        graphfeed.copy(
            batch.source,
            destinations,
            mode=mode,
            bs=batch.bs,
            max_seqlen_k=batch.max_seqlen_k,
            seqlens_expanded_size=batch.rows,
            stream=stream,
        )

    return Prepared(refresh, graph.captured)


def _by_plan(graph: ModelGraph, first: Batch) -> Prepared:
    plan, stream = _bind(graph, first), graph.stream

    def refresh(batch: Batch) -> None:
        if batch is first:
            plan.run(stream=stream)
        else:
            plan.run(batch.source, stream=stream)

    return Prepared(refresh, graph.captured)


def _in_graph(graph: ModelGraph, first: Batch) -> Prepared:
    plan = _bind(graph, first)
    captured = graph.capture(lambda: plan.run(stream=graph.stream))
    node = plan.node(captured)
    return Prepared(lambda batch: node.repoint(batch.source), captured)


def _bind(graph: ModelGraph, first: Batch) -> graphfeed.Plan:
    # A plan's sizes stay, so they are the widest, and the lengths bound what is moved.
    return graphfeed.Plan(
        first.source,
        graph.metadata,
        mode=graph.mode,
        bs=first.bs,
        seqlens_expanded_size=first.rows,
        live_bound=first.source.cache_seqlens,  # the same memory at every step
        page_size=graph.page_size,
    )


PLACEMENTS = {
    each.name: each
    for each in (
        Placement("copies", "a tensor copy for each field and destination", _by_copies),
        Placement("copy", "2 calls of graphfeed.copy", _by_copy),
        Placement("plan", "2 runs of plans, each table row up to its length", _by_plan, live=True),
        Placement(
            "graph",
            "2 nodes re-pointed; the plans' copy is in the replay, which all placements pay",
            _in_graph,
            live=True,
            needs_nodes=True,
        ),
    )
}
