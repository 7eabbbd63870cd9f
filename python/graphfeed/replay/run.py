# SPDX-License-Identifier: Apache-2.0
"""The main job: plays a trace and refreshes and checks every destination at each step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import graphfeed
from graphfeed import ForwardMode
from graphfeed.replay.arrays import Arrays, Destination, destination_blocks, open_arrays
from graphfeed.replay.engine import BatchState, Engine, EngineConfig
from graphfeed.replay.reference import Reference
from graphfeed.replay.source import SourceBuilder
from graphfeed.replay.trace import Request

NUM_DRAFT_BACKENDS = 3
DEFAULT_STEPS = 2000

Refresh = Callable[..., None]  # called as graphfeed.copy is


@dataclass(frozen=True)
class Spread:
    """Percentiles by nearest rank: values that occurred."""

    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Summary:
    """What a replay did.

    Attributes:
        device: Where the tensors were.
        steps: Steps played; each refreshes the draft backends (decode) and then target_verify.
        decode_destinations: Destinations refreshed in one decode call.
        verify_destinations: Destinations refreshed in one target_verify call.
        draft_tokens: Draft tokens verified a step.
        requests: Requests of the trace.
        requests_finished: Requests that came to their last token.
        requests_running: Requests still in the batch when the replay ended.
        inputs_truncated: Admitted requests whose input was cut to the context limit.
        pool_pages: Pages in the pool.
        peak_pages: Most pages in use at once.
        batch: Running requests a step, padding not counted.
        context: Tokens of a running request, over all requests and steps.
        decode_us: Host time of a decode call; its maximum may hold the first call's compilation.
        verify_us: Host time of a target_verify call.
        step_us: Host time of a step's two calls. Caches are cold: the check of the whole buffers
            runs between calls, so this is more than a benchmark's loop shows.
        bytes_refreshed: Bytes written into destinations.
        bytes_checked: Bytes of destinations compared, those around the refreshed blocks included.
        mismatches: Wrong elements found; a replay that returns found none.
        seconds: Time the whole replay took.
    """

    device: str
    steps: int
    decode_destinations: int
    verify_destinations: int
    draft_tokens: int
    requests: int
    requests_finished: int
    requests_running: int
    inputs_truncated: int
    pool_pages: int
    peak_pages: int
    batch: Spread
    context: Spread
    decode_us: Spread
    verify_us: Spread
    step_us: Spread
    bytes_refreshed: int
    bytes_checked: int
    mismatches: int
    seconds: float


@dataclass
class _Record:
    batch: list[int] = field(default_factory=list)
    context: list[int] = field(default_factory=list)
    decode_us: list[float] = field(default_factory=list)
    verify_us: list[float] = field(default_factory=list)
    num_refreshed: int = 0
    num_checked: int = 0


class _Graph:
    """A captured graph's destinations, their source, and what they must hold."""

    def __init__(
        self, arrays: Arrays, config: EngineConfig, *, mode: ForwardMode, names: Sequence[str]
    ) -> None:
        self.mode = mode
        self._stream = arrays.stream
        self._source = SourceBuilder(arrays, config, mode=mode)
        rows = self._source.rows_per_request
        first = 0 if mode is ForwardMode.DECODE else NUM_DRAFT_BACKENDS
        self.destinations = [
            Destination(
                name,
                blocks=destination_blocks(config, rows_per_request=rows, index=first + index),
                arrays=arrays,
            )
            for index, name in enumerate(names)
        ]
        self._metadata = [destination.metadata for destination in self.destinations]
        buffers = [buffer for each in self.destinations for buffer in each.buffers.values()]
        self.num_elements = sum(math.prod(buffer.shape) for buffer in buffers)
        self._replay = arrays.capture(buffers)

    def refresh(self, state: BatchState, req_to_token: Any, *, refresh: Refresh) -> float:
        """Builds the source, refreshes every destination; returns the call's host time in us."""
        source = self._source.build(state, req_to_token)
        width = self._source.max_seqlen_k(state)
        rows = state.bs * self._source.rows_per_request
        begin = time.perf_counter()
        refresh(
            source,
            self._metadata,
            mode=self.mode,
            bs=state.bs,
            max_seqlen_k=width,
            seqlens_expanded_size=rows,
            stream=self._stream,
        )
        return (time.perf_counter() - begin) * 1e6

    def check(self, reference: Reference, state: BatchState) -> int:
        """Replays the graph and compares what it read; returns the elements refreshed."""
        read = iter(self._replay())
        num_refreshed = 0
        for destination in self.destinations:
            got = {name: next(read) for name in destination.buffers}
            if self.mode is ForwardMode.DECODE:
                num_refreshed += reference.expect_decode(destination.name, state)
            else:
                num_refreshed += reference.expect_verify(destination.name, state)
            reference.check(destination.name, step=state.step, got=got)
        return num_refreshed


def run(
    requests: Sequence[Request],
    *,
    config: EngineConfig | None = None,
    steps: int = DEFAULT_STEPS,
    device: str = "auto",
    refresh: Refresh | None = None,
    on_step: Callable[[int], None] | None = None,
) -> Summary:
    """Plays ``requests`` through the engine stand-in, refreshing and checking every step.

    Args:
        requests: The trace, ordered by arrival.
        config: Sizes of the engine; its defaults if None.
        steps: Most steps to play; the replay ends sooner when every request has finished.
        device: ``auto``, ``cpu`` or ``cuda``.
        refresh: Called as ``graphfeed.copy``, which is the default, to refresh destinations.
        on_step: Called after each step with the number of steps done.

    Returns:
        The summary.

    Raises:
        Mismatch: A destination does not hold what it must after a step.
        DeviceError: ``cuda`` was asked for and cannot be had.
        ValueError: ``steps`` is below 1 or there are no requests.
    """
    if steps < 1:
        raise ValueError(f"steps: expected 1 or more, got {steps}")
    if not requests:
        raise ValueError("requests: expected at least one")
    config = config or EngineConfig()
    arrays = open_arrays(device)
    if refresh is None:
        refresh = graphfeed.copy
        if arrays.ordinal is not None:
            graphfeed.warmup(arrays.ordinal)
    engine = Engine(requests, config)
    begin = time.perf_counter()
    with arrays.on_stream():
        record = _play(engine, arrays, steps=steps, refresh=refresh, on_step=on_step)
    seconds = time.perf_counter() - begin
    return _summarise(record, engine, arrays=arrays, requests=len(requests), seconds=seconds)


def _play(
    engine: Engine,
    arrays: Arrays,
    *,
    steps: int,
    refresh: Refresh,
    on_step: Callable[[int], None] | None,
) -> _Record:
    config = engine.config
    drafts = [f"draft {index}" for index in range(NUM_DRAFT_BACKENDS)]
    decode = _Graph(arrays, config, mode=ForwardMode.DECODE, names=drafts)
    verify = _Graph(arrays, config, mode=ForwardMode.TARGET_VERIFY, names=["verify"])
    destinations = (*decode.destinations, *verify.destinations)
    reference = Reference(config, {each.name: each.blocks for each in destinations})
    req_to_token = arrays.array(engine.req_to_token)
    record = _Record()
    for step in range(steps):
        state = engine.next_state()
        if state is None:
            break
        arrays.update(req_to_token, engine.req_to_token, writes=engine.writes)
        reference.follow(state)
        record.decode_us.append(decode.refresh(state, req_to_token, refresh=refresh))
        record.num_refreshed += decode.check(reference, state)
        record.verify_us.append(verify.refresh(state, req_to_token, refresh=refresh))
        record.num_refreshed += verify.check(reference, state)
        record.num_checked += decode.num_elements + verify.num_elements
        record.batch.append(len(state.held))
        record.context.extend(request.length for request in state.held)
        engine.finish_step()
        if on_step is not None:
            on_step(step + 1)
    return record


def _summarise(
    record: _Record, engine: Engine, *, arrays: Arrays, requests: int, seconds: float
) -> Summary:
    step_us = np.add(record.decode_us, record.verify_us)
    return Summary(
        device=arrays.label,
        steps=len(record.batch),
        decode_destinations=NUM_DRAFT_BACKENDS,
        verify_destinations=1,
        draft_tokens=engine.config.draft_tokens,
        requests=requests,
        requests_finished=engine.num_finished,
        requests_running=len(engine.running),
        inputs_truncated=engine.num_truncated,
        pool_pages=engine.config.pool_pages,
        peak_pages=engine.peak_pages,
        batch=_spread(record.batch),
        context=_spread(record.context),
        decode_us=_spread(record.decode_us),
        verify_us=_spread(record.verify_us),
        step_us=_spread(step_us),
        bytes_refreshed=4 * record.num_refreshed,
        bytes_checked=4 * record.num_checked,
        mismatches=0,
        seconds=seconds,
    )


def _spread(values: Sequence[float] | np.ndarray) -> Spread:
    ordered = np.sort(np.asarray(values))

    def rank(percent: int) -> float:
        return ordered[-(-len(ordered) * percent // 100) - 1].item()

    return Spread(p50=rank(50), p90=rank(90), p99=rank(99), max=rank(100))
