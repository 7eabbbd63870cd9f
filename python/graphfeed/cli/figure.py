# SPDX-License-Identifier: Apache-2.0
"""What every plot of the command line has: a figure without a display, and a file it goes to."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from graphfeed.cli.errors import CommandError, one_line, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = (".png", ".svg")
# Told apart by those who do not see red and green, too.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")


def expect_plot(option: str, path: Path | None) -> None:
    """Ends the command where a plot could not be drawn or written to `path`, before any work."""
    if path is None:
        return
    if path.suffix.lower() not in _KINDS:
        raise CommandError(f"{option}: expected a name ending in .png or .svg, got {path}")
    require("matplotlib", extra="plot")
    expect_writable(option, path)


def expect_writable(option: str, path: Path) -> None:
    """Ends the command where the file's directory is not there, or it is one itself."""
    if not path.absolute().parent.is_dir():
        raise CommandError(f"{option}: {path.absolute().parent} is no directory")
    if path.is_dir():
        raise CommandError(f"{option}: {path} is a directory")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that leaves room for all of its texts when it is drawn."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "graphfeed"  # the same file for the same figures
    matplotlib.rcParams["font.size"] = 9
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Writes PNG or SVG, as the name ends; a failure is the command's."""
    try:
        figure.savefig(path, dpi=150, metadata=_metadata(path.suffix))
    except OSError as error:
        raise CommandError(one_line(error)) from error


def svg_of(figure: Figure) -> str:
    """The figure as an ``<svg>`` element."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata=_metadata(".svg"))
    text = drawn.getvalue()
    return text[text.index("<svg") :]


def _metadata(suffix: str) -> dict[str, None] | None:
    """None in SVG, least of all the date: two plots of the same figures are one file."""
    names = ("Creator", "Date", "Format", "Type")
    return dict.fromkeys(names) if suffix.lower() == ".svg" else None
