# SPDX-License-Identifier: Apache-2.0
"""The ways to refresh a graph's destinations: copying or generation; called, planned, captured.

A placement is made ready once for a graph and a captured batch size, which is not timed; what it
then does at a step is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import graphfeed
from graphfeed import ForwardMode, Metadata
from graphfeed.replay.arrays import Arrays, Captured, DeviceError
from graphfeed.replay.engine import PADDED_LENGTH

if TYPE_CHECKING:
    from graphfeed.replay.model import ModelGraph


@dataclass(frozen=True)
class Kind:
    """What placements do. To ask for a kind is to ask for all of it that the device can do."""

    name: str


COPYING = Kind("copying")  # of metadata that was built ahead
GENERATION = Kind("generation")  # of metadata, from the batch's state

KINDS = {each.name: each for each in (COPYING, GENERATION)}


@dataclass(frozen=True)
class Batch:
    """What a step hands over.

    Attributes:
        source: The step's metadata, or for a generation its state on the device.
        bs: Captured batch size.
        rows: Rows of the page tables, and E.
        max_seqlen_k: Columns of the longest request.
    """

    source: Metadata | graphfeed.BatchState
    bs: int
    rows: int
    max_seqlen_k: int


class Prepared(NamedTuple):
    """A placement made ready for one graph and batch size. It holds no reference to that graph."""

    refresh: Callable[[Batch], None]  # at each step, timed
    captured: Captured  # what is replayed after it
    plan: graphfeed.Plan | None = None  # kept as long as what it was captured into


@dataclass(frozen=True)
class Placement:
    """A way to refresh.

    Attributes:
        name: As it is asked for and shown.
        timed: What it does at a step, in words.
        prepare: Makes it ready; called with the first batch of a size, whose source is then valid.
        kind: COPYING or GENERATION.
        live: Copied tables have full width, and each row is refreshed to its own request's length;
            else every row to the longest's. Generated rows always end at their own.
        needs_nodes: Works only where captured graphs are kept, with nodes that can be found.
    """

    name: str
    timed: str
    prepare: Callable[[ModelGraph, Batch], Prepared]
    kind: Kind = COPYING
    live: bool = False
    needs_nodes: bool = False


def choose(arrays: Arrays, asked: Sequence[Placement | Kind] | None) -> list[Placement]:
    """The placements to play on a device: those asked for, by default all that work there.

    Raises:
        DeviceError: One asked for does not work there.
        ValueError: None is asked for, or one twice.
    """
    can_do = [one for one in PLACEMENTS.values() if arrays.no_nodes is None or not one.needs_nodes]
    if asked is None:
        return can_do
    if not asked or len({one.name for one in asked}) < len(asked):
        names = ", ".join(one.name for one in asked) or "none"
        raise ValueError(f"placements: expected one or more, each once, got {names}")
    chosen: dict[str, Placement] = {}
    for one in asked:
        if isinstance(one, Kind):
            chosen.update((each.name, each) for each in can_do if each.kind is one)
        elif one.needs_nodes and arrays.no_nodes is not None:
            raise DeviceError(f"placement {one.name}: {arrays.no_nodes}")
        else:
            chosen[one.name] = one
    return list(chosen.values())


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
        page_size=graph.config.page_size,
    )


def _by_generate(graph: ModelGraph, first: Batch) -> Prepared:
    destinations, stream, numbers = graph.metadata, graph.stream, _numbers(graph)

    def refresh(batch: Batch) -> None:
        graphfeed.generate(
            batch.source,
            destinations,
            bs=batch.bs,
            max_seqlen_k=batch.max_seqlen_k,
            stream=stream,
            **numbers,
        )

    return Prepared(refresh, graph.captured)


def _by_generating_plan(graph: ModelGraph, first: Batch) -> Prepared:
    plan, stream = _bind_generation(graph, first), graph.stream
    return Prepared(lambda batch: plan.run(stream=stream), graph.captured)


def _generated_in_graph(graph: ModelGraph, first: Batch) -> Prepared:
    plan = _bind_generation(graph, first)
    captured = graph.capture(lambda: plan.run(stream=graph.stream))
    return Prepared(lambda batch: None, captured, plan)


def _bind_generation(graph: ModelGraph, first: Batch) -> graphfeed.Plan:
    # The state is the same memory at every step, and its lengths end the rows of the tables.
    return graphfeed.Plan.generating(first.source, graph.metadata, bs=first.bs, **_numbers(graph))


def _numbers(graph: ModelGraph) -> dict[str, Any]:
    return {
        "mode": graph.mode,
        "num_draft_tokens": graph.rows_per_request,
        "index_topk": graph.config.top_k,
        "page_size": graph.config.page_size,
        "seq_len_fill": PADDED_LENGTH,
    }


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
        Placement("generate", "2 calls of graphfeed.generate", _by_generate, GENERATION),
        Placement(
            "generate-plan",
            "2 runs of plans that generate, nothing passed",
            _by_generating_plan,
            GENERATION,
        ),
        Placement(
            "generate-graph",
            "nothing; the generation is in the replay, which all placements pay",
            _generated_in_graph,
            GENERATION,
            needs_nodes=True,
        ),
    )
}
