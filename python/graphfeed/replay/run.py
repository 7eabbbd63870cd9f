# SPDX-License-Identifier: Apache-2.0
"""The main job: plays a trace and refreshes and checks every destination at each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import graphfeed
from graphfeed import ForwardMode
from graphfeed.replay.arrays import Arrays, open_arrays
from graphfeed.replay.engine import BatchState, Engine, EngineConfig
from graphfeed.replay.kept_state import KeptState
from graphfeed.replay.model import ModelGraph
from graphfeed.replay.placement import COPYING, GENERATION, Kind, Placement, choose
from graphfeed.replay.reference import Key, Reference
from graphfeed.replay.source import SourceBuilder
from graphfeed.replay.summary import PlacementTimes, Summary, spread
from graphfeed.replay.trace import Request

DEFAULT_STEPS = 2000


@dataclass(frozen=True)
class Step:
    """What was played at a step.

    Attributes:
        number: Steps played, this one included.
        trace_ms: Time in the trace.
        batch: Running requests.
        bs: Batch size of the captured graphs, padding included.
        median: Tokens of the median running request.
        longest: Tokens of the longest.
        placement: What refreshed.
        refresh_us: Host time of its two refreshes.
    """

    number: int
    trace_ms: float
    batch: int
    bs: int
    median: float
    longest: int
    placement: str
    refresh_us: float


@dataclass
class _Record:
    batch: list[int] = field(default_factory=list)
    context: list[int] = field(default_factory=list)
    num_refreshed: int = 0
    num_checked: int = 0


class _Player:
    """Plays steps by one placement, on destinations of its own."""

    def __init__(
        self,
        arrays: Arrays,
        config: EngineConfig,
        *,
        placement: Placement,
        decode: SourceBuilder | KeptState,
        verify: SourceBuilder | KeptState,
    ) -> None:
        drafts = [f"draft {index}" for index in range(config.draft_backends)]
        self.placement = placement
        self._decode = ModelGraph(arrays, config, placement=placement, source=decode, names=drafts)
        self._verify = ModelGraph(
            arrays, config, placement=placement, source=verify, names=["verify"]
        )
        self._decode_us: list[float] = []
        self._verify_us: list[float] = []

    @property
    def blocks(self) -> dict[Key, Any]:
        """The blocks of each destination's fields."""
        destinations = (*self._decode.destinations, *self._verify.destinations)
        return {Key(self.placement.name, each.name): each.blocks for each in destinations}

    def play(
        self, state: BatchState, req_to_token: Any, *, reference: Reference, record: _Record
    ) -> float:
        """Refreshes and checks; returns the host time of both refreshes in us."""
        self._decode_us.append(self._decode.refresh(state, req_to_token))
        record.num_refreshed += self._decode.check(reference, state)
        self._verify_us.append(self._verify.refresh(state, req_to_token))
        record.num_refreshed += self._verify.check(reference, state)
        record.num_checked += self._decode.num_elements + self._verify.num_elements
        return self._decode_us[-1] + self._verify_us[-1]

    def times(self) -> PlacementTimes | None:
        """None where it played no step."""
        if not self._decode_us:
            return None
        return PlacementTimes(
            name=self.placement.name,
            timed=self.placement.timed,
            steps=len(self._decode_us),
            decode_us=spread(self._decode_us),
            verify_us=spread(self._verify_us),
            step_us=spread(np.add(self._decode_us, self._verify_us)),
        )


def run(
    requests: Sequence[Request],
    *,
    config: EngineConfig | None = None,
    steps: int = DEFAULT_STEPS,
    device: str = "auto",
    placements: Sequence[Placement | Kind] | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Summary:
    """Plays ``requests`` through the engine stand-in, refreshing and checking every step.

    The placements take turns: of k, step i is refreshed by number i mod k.

    Args:
        requests: The trace, ordered by arrival.
        config: Sizes of the engine; its defaults if None.
        steps: Most steps to play; the replay ends sooner when every request has finished.
        device: ``auto``, ``cpu`` or ``cuda``.
        placements: What refreshes destinations, of a kind all that the device can do; by default
            both kinds.
        on_step: Called after each step with what was played.

    Returns:
        The summary.

    Raises:
        Mismatch: A destination does not hold what it must after a step.
        DeviceError: ``cuda``, or a placement that needs it, was asked for and cannot be had.
        ValueError: ``steps`` is below 1, there are no requests, or a placement is given twice.
    """
    if steps < 1:
        raise ValueError(f"steps: expected 1 or more, got {steps}")
    if not requests:
        raise ValueError("requests: expected at least one")
    config = config or EngineConfig()
    arrays = open_arrays(device)
    chosen = choose(arrays, placements)
    if arrays.ordinal is not None:
        graphfeed.warmup(arrays.ordinal)
    engine = Engine(requests, config)
    begin = time.perf_counter()
    with arrays.on_stream():
        players = _players(chosen, arrays, config)
        record = _play(engine, arrays, players=players, steps=steps, on_step=on_step)
    seconds = time.perf_counter() - begin
    times = tuple(each for player in players if (each := player.times()) is not None)
    return _summarise(
        record, engine, arrays=arrays, times=times, requests=len(requests), seconds=seconds
    )


def _players(
    placements: Sequence[Placement], arrays: Arrays, config: EngineConfig
) -> list[_Player]:
    made = {COPYING: SourceBuilder, GENERATION: KeptState}
    modes = (ForwardMode.DECODE, ForwardMode.TARGET_VERIFY)
    sources = {
        kind: [made[kind](arrays, config, mode=mode) for mode in modes]
        for kind in {placement.kind for placement in placements}
    }
    players = []
    for placement in placements:
        decode, verify = sources[placement.kind]
        players.append(_Player(arrays, config, placement=placement, decode=decode, verify=verify))
    return players


def _play(
    engine: Engine,
    arrays: Arrays,
    *,
    players: Sequence[_Player],
    steps: int,
    on_step: Callable[[Step], None] | None,
) -> _Record:
    blocks = {key: each for player in players for key, each in player.blocks.items()}
    reference = Reference(engine.config, blocks)
    req_to_token = arrays.array(engine.req_to_token)
    record = _Record()
    for step in range(steps):
        state = engine.next_state()
        if state is None:
            break
        arrays.update(req_to_token, engine.req_to_token, writes=engine.writes)
        reference.follow(state)
        player = players[step % len(players)]
        refresh_us = player.play(state, req_to_token, reference=reference, record=record)
        lengths = [request.length for request in state.held]
        record.batch.append(len(lengths))
        record.context.extend(lengths)
        if on_step is not None:
            on_step(
                Step(
                    number=step + 1,
                    trace_ms=engine.now_ms,
                    batch=len(lengths),
                    bs=state.bs,
                    median=float(np.median(lengths)),
                    longest=max(lengths),
                    placement=player.placement.name,
                    refresh_us=refresh_us,
                )
            )
        engine.finish_step()
    return record


def _summarise(
    record: _Record,
    engine: Engine,
    *,
    arrays: Arrays,
    times: tuple[PlacementTimes, ...],
    requests: int,
    seconds: float,
) -> Summary:
    return Summary(
        device=arrays.label,
        steps=len(record.batch),
        decode_destinations=engine.config.draft_backends,
        verify_destinations=1,
        draft_tokens=engine.config.draft_tokens,
        requests=requests,
        requests_finished=engine.num_finished,
        requests_running=len(engine.running),
        inputs_truncated=engine.num_truncated,
        pool_pages=engine.config.pool_pages,
        peak_pages=engine.peak_pages,
        batch=spread(record.batch),
        context=spread(record.context),
        placements=times,
        bytes_refreshed=4 * record.num_refreshed,
        bytes_checked=4 * record.num_checked,
        mismatches=0,
        seconds=seconds,
    )
