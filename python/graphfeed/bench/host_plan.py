# SPDX-License-Identifier: Apache-2.0
"""Host time of a plan's runs: from C++ beside an empty launch, from Python beside SGLang's copy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from graphfeed.bench import calls, cases, cells, host_copy, peers, report
from graphfeed.bench.cells import Cell
from graphfeed.bench.groups import Context
from graphfeed.bench.report import Row
from graphfeed.bench.timing import HostCall, HostTime, in_turn

OURS = "Plan.run()"
OURS_FROM = "Plan.run(source)"
OURS_ALTERNATING = "Plan.run(source), sources alternate"
CPP_BUDGETS = {
    "Plan::run": "host/plan/cpp",
    "Plan::run(source)": "",
    "Plan::run(source) from two in turn": "",
}


def plan(context: Context) -> list[Row]:
    """Runs as bound, which the budgets are held at, and runs that bind a source first."""
    rows = cpp_rows(host_copy.cpp_times(context), CPP_BUDGETS)
    for cell in cells.NATIVE:
        rows += _python_rows(context, cell)
    return rows


def cpp_rows(times: Mapping[str, HostTime], budgets: Mapping[str, str]) -> list[Row]:
    """The rows of the functions of `budgets` in launch_benchmark's times, which may be none."""
    rows = []
    for case, time in times.items():
        function, _, cell = case.partition(", ")
        if function in budgets:
            empty, peer = times[host_copy.EMPTY_LAUNCH], f"{host_copy.EMPTY_LAUNCH}, C++"
            rows += _rows(budgets[function], f"C++ {function}", cell, time, peer, empty)
    return rows


def _python_rows(context: Context, cell: Cell) -> list[Row]:
    """On torch's current stream, which each run finds; all calls take turns, checked first."""
    sets, other = (cases.Sets(cell, 1, "cuda", seed=seed) for seed in (1, 2))
    source, destinations = sets.sources[0], sets.destinations[0]
    with torch.cuda.stream(context.stream):
        expected = sets.expected()
        bound, from_one, from_two = (
            calls.plan(cell, other.sources[0], destinations) for _ in range(3)
        )
        bound.run(calls.metadata(source))
        in_order = (other.sources[0], source)
        each = [partial(from_two.run, calls.metadata(fields)) for fields in in_order]
        sets.require_call(each[0], sets.expected(sources=in_order[:1]), OURS_ALTERNATING)
        sets.require_call(each[1], expected, OURS_ALTERNATING)
        timed = {
            OURS: HostCall(bound.run),
            OURS_FROM: HostCall(partial(from_one.run, calls.metadata(source))),
        }
        peer = peers.sglang()
        if peer is not None:
            call = peers.dropin_calls(peer.single, peer.multi, cell, source, destinations)
            timed[peers.name_of(peer, cell)] = HostCall(call, peers.num_calls(cell))
        for name, host_call in timed.items():
            sets.require_call(host_call.call, expected, name)
        timed[OURS_ALTERNATING] = HostCall(in_turn(each))
        return python_rows(cell, host_copy.times(context, timed))


def python_rows(cell: Cell, times: Mapping[str, HostTime]) -> list[Row]:
    """Rows of our runs, beside what else was timed, if anything was."""
    budgets = {
        OURS: "host/plan/python_copy" if cell == cells.PLAN else "",
        OURS_FROM: "",
        OURS_ALTERNATING: "",
    }
    peer = next((name for name in times if name not in budgets), None)
    if peer is None:
        return [
            Row("", f"host: Python {name}, {cell.name}", times[name].median, "us")
            for name in budgets
        ]
    rows = []
    for name, budget in budgets.items():
        rows += _rows(budget, f"Python {name}", cell.name, times[name], peer, times[peer])
    return rows


def _rows(
    budget: str, function: str, cell: str, time: HostTime, peer: str, theirs: HostTime
) -> list[Row]:
    """Median and p99; a row that is held to a budget is named by its cell alone."""
    case = cell if budget else f"host: {function}, {cell}"
    p99 = f"host: {function} p99, {cell}"
    return [
        report.beside(budget, case, time.median, "us", peer, theirs.median),
        report.beside("", p99, time.p99, "us", peer, theirs.p99),
    ]
