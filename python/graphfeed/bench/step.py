# SPDX-License-Identifier: Apache-2.0
"""A step end to end: the refresh, in each way it can be made, and the graph of a model behind it;
from C++, which the budget is held at, and from Python.

A step begins with its first host call, on a drained stream, and ends when the host knows that all
device work is done. What a refresh adds is the median, over all rounds, of a step's time less that
of the graph alone in the same round; a round makes every step once, in an order drawn anew, so that
neither a drift of the machine nor what ran before favours one. CUDA events would miss the host's
part. Refreshes that are passed a source are passed two in turn, as a scheduler that fills one while
the other is read.

From Python a step finds the host's caches as another way of making it left them, which costs more
than what is asked. From C++ (step_benchmark) each step is made twice, and the second timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from graphfeed.bench import calls, cases, cells, host_copy, peers, report, stand_in
from graphfeed.bench.cells import Cell
from graphfeed.bench.groups import Context
from graphfeed.bench.report import Row
from graphfeed.bench.timing import Step, StepTimes, in_turn, median, percentile, step_times

ALONE = "graph alone"
DROPIN = "drop-in"
KERNEL = "Plan.run(programmatic=True), a kernel launch"
RUN = "Plan.run()"
STATIC = "node in the graph"
REPOINTED = "node in the graph, re-pointed"
FORKED = f"node in the graph, forked beside {stand_in.READER} kernels"
TRITON_ALONE = "graph alone, Triton's kernel first"
TRITON_STATIC = "node in the graph, Triton's kernel behind it"
TRITON_EARLY = "node in the graph, Triton's kernel behind it started early"
BUDGET = "step/in_graph"
_JITTER_OF = (DROPIN, RUN, REPOINTED)


@dataclass(frozen=True)
class Variant:
    """A way to make a step.

    Attributes:
        step: What is timed.
        sources: Which source its successive steps copy, over and over; none: it copies nothing.
        base: The variant whose time is not its own.
    """

    step: Step
    sources: tuple[int, ...] = (0,)
    base: str = ALONE


def step(context: Context) -> list[Row]:
    """Every way to make a step, for N = 1, 3 and 16, and the jitter of some for N = 3."""
    quick = ["--quick"] if context.quick else []
    rows = cpp_rows(host_copy.cpp_lines(context, "step_benchmark", *quick))
    for cell in [cells.PLAN] if context.quick else cells.NATIVE:
        with torch.cuda.stream(context.stream):
            bench = _Bench(context, cell)  # owns what the graphs read and write
            variants = bench.checked()
            times = _times(context, variants, context.step_rounds)
            rows += step_rows(cell, times, {n: v.base for n, v in variants.items()}, _peer(cell))
            if cell == cells.PLAN:
                names = (_peer(cell), *_JITTER_OF)
                jittering = {name: variants[name] for name in names if name is not None}
                times = _times(context, jittering, context.jitter_steps)
                rows += jitter_rows(cell, times, _peer(cell))
    return rows


def step_rows(
    cell: Cell, times: Mapping[str, StepTimes], bases: Mapping[str, str], peer: str | None
) -> list[Row]:
    """Added and whole time and host time of each variant, each beside the peer's."""
    rows = []
    for name in times:
        for what, number in _numbers(times, name, bases[name]).items():
            case = f"step: {name}: {what}, {cell.name}"
            theirs = _numbers(times, peer, bases[peer])[what] if peer and name != peer else None
            if theirs is None:
                rows.append(Row("", case, number, "us"))
            else:
                rows.append(report.beside("", case, number, "us", peer, theirs))
    return rows


def cpp_rows(lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """What step_benchmark printed; the times that it adds to the graph alone may be held."""
    rows = []
    for line in lines:
        cell, base, added = line["cell"], line["base"], line["added_us"]
        step = f"step: C++ {line['variant']}"
        if base not in (None, ALONE):
            rows.append(Row("", f"{step}: added to {base}, {cell}", added, "us"))
            continue
        informs = {
            "added": added,
            "added in a stream that never drains": line["in_stream_added_us"],
            "end to end": line["median_us"],
            "end to end p99": line["p99_us"],
            "in a stream that never drains": line["in_stream_us"],
        }
        held = f"{line['variant']}, {cell}"
        if held in report.STEP_CASES:
            rows.append(Row(BUDGET, held, informs.pop("added"), "us"))
        rows += [
            Row("", f"{step}: {what}, {cell}", number, "us")
            for what, number in informs.items()
            if number is not None
        ]
    return rows


def jitter_rows(cell: Cell, times: Mapping[str, StepTimes], peer: str | None) -> list[Row]:
    """How far p99 of the refresh's host time is from its median, beside the peer's."""
    jitter = {
        name: percentile(time.refresh, 99) - median(time.refresh) for name, time in times.items()
    }
    rows = []
    for name, number in jitter.items():
        case = f"host: jitter (p99 - median) of the refresh in a step, {name}, {cell.name}"
        if peer is None or name == peer:
            rows.append(Row("", case, number, "us"))
        else:
            rows.append(report.beside("", case, number, "us", peer, jitter[peer]))
    return rows


def _numbers(times: Mapping[str, StepTimes], name: str, base: str) -> dict[str, float]:
    time = times[name]
    differences = [ours - alone for ours, alone in zip(time.end, times[base].end)]
    return {
        **({} if name == base else {"added": median(differences)}),
        "end to end": median(time.end),
        "host calls": median(time.calls),
        "host calls p99": percentile(time.calls, 99),
    }


def _times(context: Context, variants: Mapping[str, Variant], rounds: int) -> dict[str, StepTimes]:
    steps = {name: variant.step for name, variant in variants.items()}
    return step_times(steps, synchronize=context.stream.synchronize, rounds=rounds)


def _peer(cell: Cell) -> str | None:
    peer = peers.sglang()
    return None if peer is None else peers.name_of(peer, cell)


class _Bench:
    """Two sources, the destinations of both, and the model that reads the first destination."""

    def __init__(self, context: Context, cell: Cell) -> None:
        self.stream = context.stream
        self.cell = cell
        self.sets = cases.Sets(cell, 1, "cuda")
        self.destinations = self.sets.destinations[0]
        other = cases.Sets(cell, 1, "cuda", seed=2)
        self.sources = (self.sets.sources[0], other.sources[0])
        self.model = stand_in.StandIn(self.destinations[0].cache_seqlens)
        self.sets.reset()
        self.model.run()

    def checked(self) -> dict[str, Variant]:
        """All variants, each of which has made the step of each of its sources right."""
        expected = [self.sets.expected(sources=[source]) for source in self.sources]
        variants = {
            ALONE: Variant(Step(None, self._capture(self.model.run).replay), sources=()),
        }
        variants |= self._before(variants[ALONE].step.replay)
        variants |= self._inside()
        variants |= self._started_early()
        for name, variant in variants.items():
            for source in variant.sources:
                self.sets.reset()
                variant.step()
                self.model.require(self.sources[source].cache_seqlens, name)
                self.sets.require(expected[source], name)
        return variants

    def _capture(self, step: Callable[[], object]) -> Any:
        return stand_in.capture(self.stream, step)

    def _plan(self) -> Any:
        return calls.plan(self.cell, self.sources[0], self.destinations)

    def _before(self, replay: Callable[[], object]) -> dict[str, Variant]:
        """Refreshes that are launched before the graph."""

        def alternating(make: Callable[..., Callable[[], object]]) -> Variant:
            each = [make(self.cell, source, self.destinations) for source in self.sources]
            return Variant(Step(in_turn(each), replay), (0, 1))

        variants = {peers.SEPARATE: alternating(partial(partial, cases.eager_copy))}
        peer = peers.sglang()
        if peer is not None:
            make = partial(peers.dropin_calls, peer.single, peer.multi)
            variants[_peer(self.cell)] = alternating(make)
        variants[DROPIN + peers.calls_text(self.cell)] = alternating(calls.dropins)
        if torch.cuda.get_device_capability()[0] >= 9:
            launch = partial(self._plan().run, programmatic=True)
            variants[KERNEL] = Variant(Step(launch, replay))
        variants[RUN] = Variant(Step(self._plan().run, replay))
        return variants

    def _inside(self) -> dict[str, Variant]:
        """Refreshes that are nodes of the graph."""
        plan = self._plan()

        def serial() -> None:
            plan.run()
            self.model.run()

        def forked() -> None:
            branch = plan.fork()
            self.model.run(before_reader=branch.join)

        repointed = self._capture(serial)
        node = plan.node(repointed)
        order = (1, 0)  # the node was captured with the first
        repoint = in_turn(
            [partial(node.repoint, calls.metadata(self.sources[source])) for source in order]
        )
        return {
            STATIC: Variant(Step(None, self._capture(serial).replay)),
            REPOINTED: Variant(Step(repoint, repointed.replay), order),
            FORKED: Variant(Step(None, self._capture(forked).replay)),
        }

    def _started_early(self) -> dict[str, Variant]:
        """A kernel behind the copy that starts while it runs; Triton's, since torch has none."""
        first = self.model.triton_first()
        if first is None:
            return {}
        plan = self._plan()

        def behind(early: bool) -> None:
            plan.run()
            self.model.run(first=partial(first, early=early))

        alone = self._capture(partial(self.model.run, first=partial(first, early=False)))
        serial, early = (self._capture(partial(behind, each)) for each in (False, True))
        return {
            TRITON_ALONE: Variant(Step(None, alone.replay), sources=(), base=TRITON_ALONE),
            TRITON_STATIC: Variant(Step(None, serial.replay), base=TRITON_ALONE),
            TRITON_EARLY: Variant(Step(None, early.replay), base=TRITON_ALONE),
        }
