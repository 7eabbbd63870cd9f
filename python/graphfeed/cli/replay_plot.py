# SPDX-License-Identifier: Apache-2.0
"""Draws a replay over the trace's time: batch size, context, and microseconds a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphfeed.cli.figure import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from graphfeed.replay import Step


def draw_replay(steps: Sequence[Step], *, title: str) -> Figure:
    """Three panels above each other, over one axis of time.

    Args:
        steps: In the order in which they were played.
        title: A line above the panels.
    """
    figure = new_figure(9, 7.5)
    batch, context, times = figure.subplots(3, 1, sharex=True)
    seconds = [step.trace_ms / 1e3 for step in steps]
    figure.suptitle(title)

    batch.step(seconds, [s.bs for s in steps], where="post", color=COLOURS[6], label="captured for")
    batch.step(seconds, [s.batch for s in steps], where="post", color=COLOURS[0], label="running")
    batch.set_ylabel("batch size (requests)")

    context.plot(seconds, [s.longest for s in steps], color=COLOURS[5], label="longest")
    context.plot(seconds, [s.median for s in steps], color=COLOURS[0], label="median")
    context.set_ylabel("context (tokens a request)")

    _draw_times(times, steps)
    times.set_ylabel("host time (us a step)")
    times.set_xlabel("trace time (s)")
    for axes in (batch, context, times):
        if axes is not times:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.margins(x=0.01)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.align_ylabels()
    return figure


def _draw_times(axes: Axes, steps: Sequence[Step]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    names = list(dict.fromkeys(step.placement for step in steps))
    for i, name in enumerate(names):
        own = [step for step in steps if step.placement == name]
        axes.plot(
            [step.trace_ms / 1e3 for step in own],
            [step.refresh_us for step in own],
            color=COLOURS[i % len(COLOURS)],
            label=name,
            linestyle="none",
            marker=".",
            markersize=5,
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_formatter(NullFormatter())
