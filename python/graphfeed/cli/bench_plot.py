# SPDX-License-Identifier: Apache-2.0
"""Draws comparisons as bars: a panel for each thing measured, graphfeed beside its peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphfeed.bench.comparison import Comparison, number, panels_of
from graphfeed.cli.figure import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS = "graphfeed"
_INCHES_A_BAR = 0.21
_INCHES_A_PANEL = 0.95  # its title, its axis and the gap below
_FAMILIES = ("sglang", "separate", "empty kernel", "best device copy")


def draw_bench(compared: Sequence[Comparison], *, title: str) -> Figure:
    """Every panel in one figure, in two columns of about the same height where there are many."""
    panels = panels_of(compared)
    columns = [panels] if len(panels) < 4 else _halved(panels)
    height = max(sum(map(_height, column)) for column in columns)
    figure = new_figure(8.5 * len(columns), height + 0.5)
    figure.suptitle(title)
    for part, column in zip(figure.subfigures(1, len(columns), squeeze=False)[0], columns):
        heights = [_height(panel) for panel in column]
        rest = height - sum(heights)
        grid = part.add_gridspec(
            len(column) + (rest > 0), 1, height_ratios=[*heights, rest] if rest > 0 else heights
        )
        for place, panel in enumerate(column):
            axes = part.add_subplot(grid[place])
            axes.set_title(panel[0].label, loc="left", fontsize=10, fontweight="bold")
            _draw_panel(axes, panel)
    return figure


def draw_panel(panel: Sequence[Comparison]) -> Figure:
    """One panel as a figure of its own, without a title."""
    figure = new_figure(8.5, _height(panel))
    _draw_panel(figure.subplots(), panel)
    return figure


def _draw_panel(axes: Axes, panel: Sequence[Comparison]) -> None:
    values, names, colours, places = [], [], [], []
    place = 0.0
    for each in panel:
        bars = [(OURS, each.ours), *((peer.name, peer.value) for peer in each.peers)]
        for i, (name, value) in enumerate(bars):
            short = name.partition(" (")[0]
            names.append(f"{each.case}   {short}" if i == 0 else short)
            colours.append(_colour(name))
            values.append(value)
            places.append(place)
            place += 1.0
        place += 0.6
    drawn = axes.barh(places, values, height=0.85, color=colours)
    axes.bar_label(drawn, [number(value) for value in values], padding=3, fontsize=8)
    axes.set_yticks(places, names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(place - 0.6 - 0.4, -0.6)
    axes.set_xlim(min(0, *values) * 1.12, max(0, *values) * 1.12)
    axes.set_xlabel(f"{panel[0].quantity} ({panel[0].unit})")
    axes.set_ylabel("case")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _height(panel: Sequence[Comparison]) -> float:
    bars = sum(1 + len(each.peers) for each in panel)
    return _INCHES_A_PANEL + _INCHES_A_BAR * (bars + 0.6 * len(panel))


def _colour(name: str) -> str:
    if name == OURS:
        return COLOURS[0]
    at = next((i for i, family in enumerate(_FAMILIES) if name.startswith(family)), 4)
    return (COLOURS[1], COLOURS[2], COLOURS[6], COLOURS[3], COLOURS[4])[at]


def _halved(panels: list[list[Comparison]]) -> list[list[list[Comparison]]]:
    """The panels in their order, cut where both parts are closest in height."""

    def taller(cut: int) -> float:
        return max(sum(map(_height, panels[:cut])), sum(map(_height, panels[cut:])))

    cut = min(range(1, len(panels)), key=taller)
    return [panels[:cut], panels[cut:]]
