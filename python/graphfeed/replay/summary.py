# SPDX-License-Identifier: Apache-2.0
"""What a replay did, and how it is told to a reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Percentiles by nearest rank: values that occurred."""

    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class PlacementTimes:
    """Host time of one placement's steps, in us.

    Time of the calls that refresh, on the CPU of the work itself as well. For ``graph`` it is that
    of re-pointing alone, for ``generate-graph`` that of nothing: the work is in the model graph,
    whose replay every placement pays and none counts. Plans and graphs are made before, uncounted,
    at the first step of a batch size. Not counted either is what a refresh reads: for a copy the
    metadata, built anew at each step, for a generation the batch's state alone. ``copies`` and
    ``copy`` fill table rows up to the longest request's length, the others up to their own. Caches
    are cold: the check of the whole buffers runs between calls, so this is more than a benchmark's
    loop shows.

    Attributes:
        name: The placement.
        timed: What the times are of, in words.
        steps: Steps it refreshed.
        decode_us: Time of a decode refresh.
        verify_us: Time of a target_verify refresh.
        step_us: Time of a step's two refreshes.
    """

    name: str
    timed: str
    steps: int
    decode_us: Spread
    verify_us: Spread
    step_us: Spread


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
        placements: The placements, in the order in which they took turns at the steps; without one
            whose turn never came.
        bytes_refreshed: Bytes written into destinations.
        bytes_checked: Bytes of destinations compared, those around the refreshed blocks included.
        mismatches: Wrong elements found, over all placements; a replay that returns found none.
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
    placements: tuple[PlacementTimes, ...]
    bytes_refreshed: int
    bytes_checked: int
    mismatches: int
    seconds: float


def spread(values: Sequence[float]) -> Spread:
    """The percentiles of at least one value."""
    ordered = np.sort(np.asarray(values))

    def rank(percent: int) -> float:
        return ordered[-(-len(ordered) * percent // 100) - 1].item()

    return Spread(p50=rank(50), p90=rank(90), p99=rank(99), max=rank(100))


def describe(summary: Summary) -> str:
    """The summary in lines for a reader; the last one is ``mismatches 0``."""
    return "\n".join(
        (
            f"device       {summary.device}",
            f"steps        {summary.steps} ({summary.steps} decode to "
            f"{summary.decode_destinations} destinations, {summary.steps} target_verify n="
            f"{summary.draft_tokens} to {summary.verify_destinations})",
            f"requests     {summary.requests_finished} finished, {summary.requests_running} "
            f"running, {summary.requests} in the trace, {summary.inputs_truncated} truncated",
            f"pages        {summary.peak_pages} of {summary.pool_pages} in use at most",
            f"batch        {_percentiles(summary.batch)}",
            f"context      {_percentiles(summary.context)}",
            f"us a step       {'p50':>9}{'p90':>9}{'p99':>9}   host time of the calls, caches cold",
            *(_times(each) for each in summary.placements),
            f"refreshed    {summary.bytes_refreshed / 1e9:.2f} GB",
            f"checked      {summary.bytes_checked / 1e9:.2f} GB, guards included, in "
            f"{summary.seconds:.1f} s",
            f"mismatches {summary.mismatches}",
        )
    )


def _times(times: PlacementTimes) -> str:
    of = times.step_us
    figures = f"{of.p50:9.1f}{of.p90:9.1f}{of.p99:9.1f}"
    return f"  {times.name:<14}{figures}   {times.timed}"


def _percentiles(spread: Spread) -> str:
    return f"p50 {spread.p50}, p90 {spread.p90}, p99 {spread.p99}, max {spread.max}"
