# SPDX-License-Identifier: Apache-2.0
"""Host time of a plan's runs: from C++ beside an empty launch, from Python beside SGLang's copy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from benchmarks import calls, cases, cells, host_copy, peers, report
from benchmarks.groups import Context
from benchmarks.report import Row
from benchmarks.timing import HostCall, HostTime

OURS = "Plan.run()"
OURS_FROM = "Plan.run(source)"
_CPP_BUDGETS = {"Plan::run": "host/plan/cpp", "Plan::run(source)": ""}


def plan(context: Context) -> list[Row]:
    """Runs as bound, which the budgets are held at, and runs that bind a source first."""
    return [*cpp_rows(host_copy.cpp_times(context)), *_python_rows(context)]


def cpp_rows(times: Mapping[str, HostTime]) -> list[Row]:
    """The rows of launch_benchmark's times of plans; none where it has not run."""
    rows = []
    for case, time in times.items():
        function, _, cell = case.partition(", ")
        if function in _CPP_BUDGETS:
            budget, empty = _CPP_BUDGETS[function], times[host_copy.EMPTY_LAUNCH]
            peer = f"{host_copy.EMPTY_LAUNCH}, C++"
            rows += _rows(budget, f"C++ {function}", cell, time, peer, empty)
    return rows


def _python_rows(context: Context) -> list[Row]:
    """On torch's current stream, which each run finds; all calls take turns, checked first."""
    cell = cells.PLAN
    sets = cases.Sets(cell, 1, "cuda")
    source, destinations = sets.sources[0], sets.destinations[0]
    with torch.cuda.stream(context.stream):
        expected = sets.expected()
        blank = cases.Fields(*(None if f is None else torch.zeros_like(f) for f in source))
        bound = calls.plan(cell, source, destinations)
        other = calls.plan(cell, blank, destinations)  # right only once it is bound to the source
        timed = {
            OURS: HostCall(bound.run),
            OURS_FROM: HostCall(partial(other.run, calls.metadata(source))),
        }
        peer = peers.sglang()
        if peer is not None:
            call = peers.dropin_call(peer.single, peer.multi, cell, source, destinations)
            timed[peer.name] = HostCall(call)
        for name, host_call in timed.items():
            sets.require_call(host_call.call, expected, name)
        times = host_copy.times(context, timed)
    if peer is None:
        return [Row("", f"host: Python {name}, {cell.name}", time.median, "us")
                for name, time in times.items()]  # fmt: skip
    theirs = times[peer.name]
    return [
        *_rows(
            "host/plan/python_copy", f"Python {OURS}", cell.name, times[OURS], peer.name, theirs
        ),
        *_rows("", f"Python {OURS_FROM}", cell.name, times[OURS_FROM], peer.name, theirs),
    ]


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
