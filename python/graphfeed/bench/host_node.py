# SPDX-License-Identifier: Apache-2.0
"""Host time to point a captured copy at another source: from C++, which the budget is held at, and
from Python. The two sources take turns, and the graph is replayed, untimed, behind each call.
"""

from __future__ import annotations

from functools import partial

import torch

from graphfeed.bench import calls, cases, cells, host_copy, host_plan, stand_in
from graphfeed.bench.cells import Cell
from graphfeed.bench.groups import Context
from graphfeed.bench.report import Row
from graphfeed.bench.timing import HostCall, in_turn

CPP_BUDGETS = {"GraphNode::repoint": "host/node/repointed"}


def node(context: Context) -> list[Row]:
    cpp = host_copy.cpp_times(context)
    rows = host_plan.cpp_rows(cpp, CPP_BUDGETS)
    empty_launch = cpp[host_copy.EMPTY_LAUNCH].median if cpp else None
    for cell in cells.NATIVE:
        rows += _python_rows(context, cell, empty_launch)
    return rows


def _python_rows(context: Context, cell: Cell, empty_launch: float | None) -> list[Row]:
    """Checks a replay from either source first."""
    sets, other = (cases.Sets(cell, 1, "cuda", seed=seed) for seed in (1, 2))
    source, second = sets.sources[0], other.sources[0]
    with torch.cuda.stream(context.stream):
        plan = calls.plan(cell, source, sets.destinations[0])
        graph = stand_in.capture(context.stream, plan.run)
        captured = plan.node(graph)
        in_order = (second, source)  # it was captured with the source
        each = [partial(captured.repoint, calls.metadata(fields)) for fields in in_order]
        for fields, repoint in zip(in_order, each):
            expected = sets.expected(sources=[fields])
            repoint()
            graph.replay()
            sets.require(expected, "GraphNode.repoint")
        name = "GraphNode.repoint"
        timed = {name: HostCall(in_turn(each), after=graph.replay)}
        time = host_copy.times(context, timed)[name]
    return host_copy.native_rows(f"host: Python {name}, {cell.name}", time, empty_launch)
