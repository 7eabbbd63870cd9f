# SPDX-License-Identifier: Apache-2.0
"""Host time of the copy: the drop-in beside SGLang's own, the native call from Python and C++."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from graphfeed.bench import calls, cases, cells, peers, report
from graphfeed.bench.cells import Cell
from graphfeed.bench.groups import Context
from graphfeed.bench.report import Row
from graphfeed.bench.timing import HostCall, HostTime, host_times, in_turn

OURS = "graphfeed"
EMPTY_LAUNCH = "empty kernel launch"


def dropin(context: Context) -> list[Row]:
    """The cells that the drop-in's budget is held at, from one source and from two in turn.

    A call that copies what the call before did leaves its prepared launch as it was; with two
    sources it never does.
    """
    rows = []
    for cell in cells.DROPIN:
        budget = "host/dropin/single" if cell.destinations == 1 else "host/dropin/multi"
        rows += dropin_rows(context, cell, budget)
        rows += _alternating_rows(context, cell)
    return rows


def native(context: Context) -> list[Row]:
    """graphfeed.copy from Python and from C++, beside an empty kernel launch."""
    rows = []
    cpp = cpp_times(context)
    empty_launch = cpp[EMPTY_LAUNCH].median if cpp else None
    for case, time in cpp.items():
        if case == EMPTY_LAUNCH or case.startswith("graphfeed::copy, "):
            rows += native_rows(f"host: C++ {case}", time, empty_launch)
    for cell in cells.NATIVE:
        sets = cases.Sets(cell, 1, "cuda")
        call = calls.native(cell, sets.sources[0], sets.destinations[0])
        with torch.cuda.stream(context.stream):
            sets.require_call(call, sets.expected(), "graphfeed.copy")
            time = times(context, {OURS: HostCall(call)})[OURS]
        rows += native_rows(f"host: Python graphfeed.copy, {cell.name}", time, empty_launch)
    return rows


def dropin_rows(context: Context, cell: Cell, budget: str) -> list[Row]:
    """A cell through the drop-in, SGLang's own function and separate copies; checked first."""
    sets = cases.Sets(cell, 1, "cuda")
    source, destinations = sets.sources[0], sets.destinations[0]
    with torch.cuda.stream(context.stream):
        expected = sets.expected()
        timed = {OURS: HostCall(calls.dropin(cell, source, destinations))}
        peer = peers.sglang()
        if peer is not None:
            call = peers.dropin_call(peer.single, peer.multi, cell, source, destinations)
            timed[peer.name] = HostCall(call)
        for name, host_call in timed.items():
            sets.require_call(host_call.call, expected, name)
        separate = partial(cases.eager_copy, cell, source, destinations)
        launches = cell.num_copied_fields * cell.destinations
        timed[peers.SEPARATE] = HostCall(separate, launches)
        measured = times(context, timed)
    return _rows(cell, budget, measured)


def _alternating_rows(context: Context, cell: Cell) -> list[Row]:
    """The drop-in and SGLang's own function, from two sources in turn; both are checked first."""
    sets, other = (cases.Sets(cell, 1, "cuda", seed=seed) for seed in (1, 2))
    sources, destinations = (sets.sources[0], other.sources[0]), sets.destinations[0]
    makes = {OURS: calls.dropin}
    peer = peers.sglang()
    if peer is not None:
        makes[peer.name] = partial(peers.dropin_call, peer.single, peer.multi)
    timed = {}
    with torch.cuda.stream(context.stream):
        for name, make in makes.items():
            each = [make(cell, source, destinations) for source in sources]
            for source, call in zip(sources, each):
                sets.require_call(call, sets.expected(sources=[source]), name)
            timed[name] = HostCall(in_turn(each))
        measured = times(context, timed)
    ours = measured.pop(OURS)
    case = "host: drop-in, sources alternate"
    if not measured:
        return [Row("", f"{case}, {cell.name}", ours.median, "us")]
    rows = []
    for name, time in measured.items():
        rows.append(report.beside("", f"{case}, {cell.name}", ours.median, "us", name, time.median))
        rows.append(report.beside("", f"{case}, p99, {cell.name}", ours.p99, "us", name, time.p99))
    return rows


def _rows(cell: Cell, budget: str, times: Mapping[str, HostTime]) -> list[Row]:
    ours = times[OURS]
    rows = []
    for name, time in times.items():
        if name == OURS:
            continue
        held = budget if name != peers.SEPARATE else ""
        case = cell.name if held else f"host: drop-in, {cell.name}"
        rows.append(report.beside(held, case, ours.median, "us", name, time.median))
        p99 = f"host: drop-in p99, {cell.name}"
        rows.append(report.beside("", p99, ours.p99, "us", name, time.p99))
    return rows


def native_rows(case: str, time: HostTime, empty_launch: float | None) -> list[Row]:
    p99 = Row("", f"{case}, p99", time.p99, "us")
    if empty_launch is None or empty_launch == time.median:
        return [Row("", case, time.median, "us"), p99]
    launch = f"{EMPTY_LAUNCH}, C++"
    return [report.beside("", case, time.median, "us", launch, empty_launch), p99]


def times(context: Context, timed: Mapping[str, HostCall]) -> dict[str, HostTime]:
    """Host times of calls that take turns on the context's stream, which is the current one."""
    return host_times(timed, synchronize=context.stream.synchronize, batches=context.batches)


def cpp_times(context: Context) -> dict[str, HostTime]:
    """What launch_benchmark prints, the empty launch first; nothing where it is not built."""
    lines = cpp_lines(context, "launch_benchmark")
    return {line["case"]: HostTime(line["median_us"], line["p99_us"]) for line in lines}


def cpp_lines(context: Context, name: str, *options: str) -> list[dict[str, Any]]:
    """The objects that a C++ benchmark prints, a line each; none where it is not built."""
    if context.bin_dir is None:
        return []
    program = context.bin_dir / name
    if not program.exists():
        print(f"{program} is not built: no C++ rows", file=sys.stderr)
        return []
    result = subprocess.run([program, *options], check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in result.stdout.splitlines()]
