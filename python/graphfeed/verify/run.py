# SPDX-License-Identifier: Apache-2.0
"""Plays seeds one after the other: draw, call, compare whole allocations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import graphfeed
from graphfeed.verify.block import Block
from graphfeed.verify.case import Case, draw
from graphfeed.verify.memory import HostMemory, Memory, open_memory


@dataclass(frozen=True)
class Difference:
    """The first element that differs, of one batch.

    Attributes:
        seed: Of the batch.
        case: The batch, in words.
        destination: Which one, from 0; -1: it is an input.
        field: The tensor; of an input, which nothing may write, ``input: ...``.
        row: Row of the element; 0 in a tensor of one dimension.
        column: Its column. Beside the tensor both count on from its first element.
        is_inside: Whether it is of the tensor, and not beside it, where nothing may be written.
        expected: What it must hold.
        got: What it holds.
        num_elements: How many of the allocation differ.
    """

    seed: int
    case: str
    destination: int
    field: str
    row: int
    column: int
    is_inside: bool
    expected: int
    got: int
    num_elements: int


@dataclass
class Summary:
    """What was compared.

    Attributes:
        device: Where calls were made.
        beside: What their results were compared with.
        batches: Batches that were the same.
        calls: Of these, by function and mode.
        elements: Elements compared, those beside the tensors too.
        seconds: Time it took.
        difference: Of the batch after them; None where all were the same.
    """

    device: str
    beside: str
    batches: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    elements: int = 0
    seconds: float = 0.0
    difference: Difference | None = None


def verify(
    *,
    seed: int,
    count: int | None,
    seconds: float | None,
    device: str = "auto",
    on_batch: Callable[[int, float], object] | None = None,
) -> Summary:
    """Plays the seeds from `seed` on, until a difference, `count` or `seconds`.

    Args:
        seed: Of the first batch; the next one's is one more.
        count: Most batches; None: no bound.
        seconds: Time to play; None: no bound.
        device: ``auto``, ``cpu`` or ``cuda``.
        on_batch: Called after each with the number of batches and the seconds so far.

    Raises:
        DeviceError: The device cannot be had.
        RuntimeError: Kernels cannot be loaded on it.
    """
    memory = open_memory(device)
    is_cuda = memory.stream is not None
    if is_cuda:
        graphfeed.warmup()
    beside = "graphfeed's CPU path" if is_cuda else "an eager reference that shares no code with it"
    summary = Summary(memory.label, beside)
    begin = time.perf_counter()
    while count is None or summary.batches < count:
        number = seed + summary.batches
        case = draw(number, schedules=is_cuda)
        summary.difference = _compare(number, case, memory, summary)
        summary.seconds = time.perf_counter() - begin
        if summary.difference is not None:
            break
        summary.batches += 1
        mode = graphfeed.ForwardMode(case.arguments["mode"]).name.lower()
        name = f"{case.function} {mode}"
        summary.calls[name] = summary.calls.get(name, 0) + 1
        if on_batch is not None:
            on_batch(summary.batches, summary.seconds)
        if seconds is not None and summary.seconds >= seconds:
            break
    return summary


def _compare(seed: int, case: Case, memory: Memory, summary: Summary) -> Difference | None:
    got = _play(case, memory)
    expected = _play_eagerly(case) if memory.stream is None else _play(case, HostMemory())
    for (number, name, block), one, other in zip(_blocks(case), got, expected):
        summary.elements += one.size
        wrong = np.flatnonzero(one != other)
        if wrong.size:
            at = int(wrong[0])
            return Difference(
                seed=seed,
                case=str(case),
                destination=number,
                field=name,
                **block.place_of(at)._asdict(),
                expected=int(other[at]),
                got=int(one[at]),
                num_elements=int(wrong.size),
            )
    return None


def _blocks(case: Case) -> list[tuple[int, str, Block]]:
    """Destination by destination, then what is read, which must stay as it was."""
    blocks = [
        (number, name, block)
        for number, destination in enumerate(case.destinations)
        for name, block in destination.items()
    ]
    return blocks + [(-1, f"input: {name}", block) for name, block in case.inputs.items()]


def _play(case: Case, memory: Memory) -> list[np.ndarray]:
    blocks = _blocks(case)
    allocations = [memory.allocate(block) for _, _, block in blocks]
    tensors = [
        memory.tensor(block, allocation) for (_, _, block), allocation in zip(blocks, allocations)
    ]
    inputs, destinations = _arrange(case, tensors)
    bound = None
    if case.live_bound is not None:
        kept = memory.allocate(case.live_bound)
        bound = memory.tensor(case.live_bound, kept)
    case.call(inputs, bound, destinations, memory.stream)
    return [
        memory.read(block, allocation) for (_, _, block), allocation in zip(blocks, allocations)
    ]


def _play_eagerly(case: Case) -> list[np.ndarray]:
    blocks = _blocks(case)
    allocations = [block.initial.copy() for _, _, block in blocks]
    tensors = [block.view(held) for (_, _, block), held in zip(blocks, allocations)]
    bound = None if case.live_bound is None else case.live_bound.view(case.live_bound.initial)
    inputs, destinations = _arrange(case, tensors)
    case.call_eagerly(inputs, bound, destinations)
    return allocations


def _arrange(case: Case, tensors: list[object]) -> tuple[dict, list[dict]]:
    """The inputs and the destinations, by name, of the tensors of `_blocks`."""
    left = iter(tensors)
    destinations = [{name: next(left) for name in each} for each in case.destinations]
    return {name: next(left) for name in case.inputs}, destinations
