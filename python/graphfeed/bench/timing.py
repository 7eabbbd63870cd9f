# SPDX-License-Identifier: Apache-2.0
"""Times calls: on the host in drained batches, on the device as replays of a CUDA graph, and whole
steps of both.
"""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# Launches in flight stay far below the driver's queue of 1024, so that no call waits for room.
_MAX_LAUNCHES_IN_FLIGHT = 512
_MAX_CALLS_A_BATCH = 50
_WARM_BATCHES = 3


@dataclass(frozen=True)
class HostCall:
    """A call without arguments, and how many kernels or copies it launches.

    Attributes:
        call: What is timed.
        launches: Kernels or copies a call.
        after: Called behind each call, untimed.
    """

    call: Callable[[], object]
    launches: int = 1
    after: Callable[[], object] | None = None

    @property
    def batch(self) -> int:
        return max(1, min(_MAX_CALLS_A_BATCH, _MAX_LAUNCHES_IN_FLIGHT // self.launches))


@dataclass(frozen=True)
class HostTime:
    """Microseconds of host time a call."""

    median: float
    p99: float


def percentile(samples: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the samples lie, interpolated between neighbours."""
    if not samples:
        raise ValueError("percentile: expected at least one sample")
    ordered = sorted(samples)
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(samples: Sequence[float]) -> float:
    return percentile(samples, 50)


def host_times(
    calls: Mapping[str, HostCall],
    *,
    synchronize: Callable[[], object],
    batches: int = 100,
    budget_s: float = 0.4,
) -> dict[str, HostTime]:
    """Median and p99 host time of each call.

    The calls take turns batch by batch, so that a drift of the machine meets all of them. Between
    batches the device drains; draining is not timed. A call stops taking turns after `budget_s`.
    """
    clock_ns = _clock_overhead_ns()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    spent_ns = dict.fromkeys(calls, 0)
    with _no_garbage_collection():
        for batch in range(-_WARM_BATCHES, batches):
            for name, host_call in calls.items():
                if spent_ns[name] > budget_s * 1e9:
                    continue
                start = time.perf_counter_ns()
                took_ns = _time_calls(host_call)
                synchronize()
                if batch >= 0:
                    spent_ns[name] += time.perf_counter_ns() - start
                    samples[name] += [(ns - clock_ns) / 1e3 for ns in took_ns]
    return {name: HostTime(median(s), percentile(s, 99)) for name, s in samples.items()}


def in_turn(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """A call that makes one of the calls, the next one at each call; itself it takes 0.1 us."""
    following = itertools.cycle(calls).__next__
    return lambda: following()()


def _time_calls(host_call: HostCall) -> list[int]:
    """Nanoseconds of each call of a batch, with one reading of the clock in each."""
    clock, call, after = time.perf_counter_ns, host_call.call, host_call.after
    stamps = [clock()]
    stamp = stamps.append
    if after is None:
        for _ in range(host_call.batch):
            call()
            stamp(clock())
        return [b - a for a, b in zip(stamps, stamps[1:])]
    for _ in range(host_call.batch):
        call()
        stamp(clock())
        after()
        stamp(clock())
    return [b - a for a, b in zip(stamps[::2], stamps[1::2])]


def _clock_overhead_ns() -> float:
    clock = time.perf_counter_ns
    stamps = [clock()]
    stamp = stamps.append
    for _ in range(2000):
        stamp(clock())
    return median([b - a for a, b in zip(stamps, stamps[1:])])


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class Step:
    """What refreshes the metadata, if a call does, and what then runs the model."""

    refresh: Callable[[], object] | None
    replay: Callable[[], object]

    def __call__(self) -> None:
        if self.refresh is not None:
            self.refresh()
        self.replay()


@dataclass
class StepTimes:
    """Microseconds of each step, in the order of the rounds.

    Attributes:
        refresh: Host time of the refresh; 0 or so where no call makes it.
        calls: Host time of all calls of the step.
        end: From before the first call until the device has drained.
    """

    refresh: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)


def step_times(
    steps: Mapping[str, Step], *, synchronize: Callable[[], object], rounds: int, seed: int = 1
) -> dict[str, StepTimes]:
    """Times each step once a round, each round in another order, each step on a drained device."""
    clock_ns = _clock_overhead_ns()
    clock, shuffle = time.perf_counter_ns, random.Random(seed).shuffle
    times = {name: StepTimes() for name in steps}
    order = list(steps)
    warm = max(3, rounds // 20)
    with _no_garbage_collection():
        synchronize()
        for turn in range(-warm, rounds):
            shuffle(order)
            for name in order:
                refresh, replay = steps[name].refresh, steps[name].replay
                start = clock()
                if refresh is not None:
                    refresh()
                refreshed = clock()
                replay()
                called = clock()
                synchronize()
                end = clock()
                if turn >= 0:
                    each = times[name]
                    each.refresh.append((refreshed - start - clock_ns) / 1e3)
                    each.calls.append((called - start - 2 * clock_ns) / 1e3)
                    each.end.append((end - start - 3 * clock_ns) / 1e3)
    return times


@dataclass(frozen=True)
class CapturedCalls:
    """A CUDA graph of `count` calls."""

    graph: Any  # torch.cuda.CUDAGraph
    count: int
    memory: Any = None  # what the nodes read and write, kept as long as the graph


def capture(
    calls: Sequence[Callable[[], object]], *, stream: Any, memory: Any, min_calls: int = 240
) -> CapturedCalls:
    """Captures the calls, again and again until there are `min_calls`, into one graph.

    Every call must have run before, so that nothing is compiled or loaded while capturing. `memory`
    owns the tensors of the calls.
    """
    import torch

    cycles = max(1, -(-min_calls // len(calls)))
    graph = torch.cuda.CUDAGraph()
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(cycles):
            for call in calls:
                call()
    return CapturedCalls(graph, cycles * len(calls), memory)


def device_times(
    graphs: Mapping[str, CapturedCalls], *, stream: Any, rounds: int = 30
) -> dict[str, float]:
    """Median microseconds a call of each graph; the gap between graph nodes is part of it.

    The graphs take turns replay by replay, each turn in another order and behind an untimed replay,
    so that none of them waits for the host. Sources and destinations should differ from call to
    call and together exceed the L2 cache twice, else the cache is measured.
    """
    import torch

    names = list(graphs)
    warm = 3
    marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in names}
    with torch.cuda.stream(stream):
        for turn in range(-warm, rounds):
            first = turn % len(names)
            order = names[first:] + names[:first]
            graphs[order[0]].graph.replay()
            for name in order:
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                graphs[name].graph.replay()
                stop.record()
                if turn >= 0:
                    marks[name].append((start, stop))
            stream.synchronize()
    return {
        name: median([a.elapsed_time(b) * 1e3 for a, b in marks[name]]) / captured.count
        for name, captured in graphs.items()
    }
