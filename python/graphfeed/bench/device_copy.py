# SPDX-License-Identifier: Apache-2.0
"""Device time of the copy, in replayed graphs, beside SGLang's kernel and the best device copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from graphfeed.bench import calls, cases, cells, peers, report
from graphfeed.bench.cells import Cell
from graphfeed.bench.groups import Context
from graphfeed.bench.report import Row
from graphfeed.bench.timing import CapturedCalls, capture, device_times

OURS = "graphfeed"
Calls = Sequence[Callable[[], object]]


def small(context: Context) -> list[Row]:
    """Small batches, beside SGLang's multi copy."""
    rows = [row for cell in cells.SMALL for row in copy_rows(context, cell, "device/copy/small")]
    return [*rows, _empty_node_row(context)]


def live(context: Context) -> list[Row]:
    """A live bound, beside SGLang's multi copy, which copies whole rows."""
    return copy_rows(context, cells.LIVE, "device/copy/live")


def large(context: Context) -> list[Row]:
    """A table of many megabytes, beside the best device copy of as many bytes.

    The ratio is the best device copy's time over ours.
    """
    cell = cells.LARGE
    copies = _capture_device_copies(context, cell)
    times = _measure(context, cell, copies)
    ours = times[OURS]
    best = min(copies, key=lambda name: times[name])
    gigabytes = cell.bytes_moved / 1e3
    rows = [
        Row(
            "device/copy/large",
            cell.name,
            ours,
            "us",
            f"best device copy of as many bytes ({best})",
            times[best],
            times[best] / ours,
        ),
        report.beside(
            "",
            f"device: bandwidth, {cell.name}, {cell.bytes_moved} bytes read and written",
            gigabytes / ours,
            "GB/s",
            best,
            gigabytes / times[best],
        ),
    ]
    return rows + [
        report.beside("", f"device: {cell.name}", ours, "us", name, time)
        for name, time in times.items()
        if name not in (OURS, best)
    ]


def _empty_node_row(context: Context) -> Row:
    """An empty kernel as a graph node: what of the other times is the gap between nodes."""
    with torch.cuda.stream(context.stream):
        peers.empty_kernel()
    captured = capture([peers.empty_kernel], stream=context.stream, memory=None, min_calls=1000)
    time = device_times({"empty": captured}, stream=context.stream, rounds=context.rounds)
    return Row("", "device: empty kernel as a graph node", time["empty"], "us")


def copy_rows(context: Context, cell: Cell, budget: str) -> list[Row]:
    """A cell beside SGLang's kernel, which copies whole rows, and separate copies."""
    times = _measure(context, cell, {})
    ours = times.pop(OURS)
    rows = []
    for name, time in times.items():
        held = budget if name != peers.SEPARATE else ""
        case = cell.name if held else f"device: {cell.name}"
        rows.append(report.beside(held, case, ours, "us", name, time))
    return rows


def _measure(context: Context, cell: Cell, others: dict[str, CapturedCalls]) -> dict[str, float]:
    """Microseconds a copy of each side, of `others` too; every side's result is checked first."""
    sets = cases.Sets(cell, cell.num_sets(context.l2_bytes), "cuda")
    whole = replace(cell, live=None)
    sides: dict[str, tuple[Calls, Cell]] = {OURS: (_each(sets, partial(calls.native, cell)), cell)}
    peer = peers.sglang()
    if peer is not None:
        call = partial(peers.dropin_call, peer.single, peer.multi, whole)
        sides[peer.name] = (_each(sets, call), whole)
    eager = partial(partial, cases.eager_copy, cell)
    sides[peers.SEPARATE] = (_each(sets, eager), cell)
    graphs = {}
    with torch.cuda.stream(context.stream):
        for name, (side_calls, copied) in sides.items():
            expected = sets.expected(copied)
            side_calls[0]()
            graphs[name] = capture(side_calls, stream=context.stream, memory=sets)
            sets.reset()
            graphs[name].graph.replay()
            sets.require(expected, name)
    return device_times(graphs | others, stream=context.stream, rounds=context.rounds)


def _each(sets: cases.Sets, call: Callable[..., Callable[[], object]]) -> Calls:
    return [call(s, d) for s, d in zip(sets.sources, sets.destinations)]


def _capture_device_copies(context: Context, cell: Cell) -> dict[str, CapturedCalls]:
    blocks = peers.BlockPairs(cell.bytes_moved, cell.num_sets(context.l2_bytes))
    graphs = {}
    for name, copy in peers.DEVICE_COPIES.items():
        with torch.cuda.stream(context.stream):
            copy(*blocks.pairs[0])
            each = [partial(copy, *pair) for pair in blocks.pairs]
            graphs[name] = capture(each, stream=context.stream, memory=blocks)
            graphs[name].graph.replay()
            blocks.require_equal(name)
    return graphs
