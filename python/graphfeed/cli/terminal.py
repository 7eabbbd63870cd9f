# SPDX-License-Identifier: Apache-2.0
"""How commands speak: results on standard output, progress on standard error, JSON where asked."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_ACROSS = "\ue000"  # no text has it: marks where a heading comes


def print_json(value: Any) -> None:
    """Prints one JSON document."""
    print(json.dumps(value, indent=2))


def print_table(
    columns: dict[str, str], rows: list[tuple[str | Text, ...] | str], *, headed: bool = True
) -> None:
    """Prints a table within the terminal's width; text that is too long goes on in its column.

    Args:
        columns: Headings, each with how its text is aligned: ``left`` or ``right``.
        rows: Texts, taken as they are; a text alone is a heading across all columns.
        headed: Print the headings.
    """
    table = Table(
        box=None,
        pad_edge=False,
        show_header=headed,
        header_style="bold",
        padding=(0, 2, 0, 0),
    )
    for heading, side in columns.items():
        table.add_column(heading, justify=side, overflow="fold", no_wrap=side == "right")
    across = {f"{_ACROSS}{i}": row for i, row in enumerate(rows) if isinstance(row, str)}
    for i, row in enumerate(rows):
        cells = (f"{_ACROSS}{i}",) if isinstance(row, str) else row
        table.add_row(*cells)
    # As text first: the spaces that fill up the last column are of no use to anyone.
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    lines = (line.rstrip() for line in captured.get().rstrip("\n").split("\n"))
    print("\n".join(f"\n{across[line]}" if line in across else line for line in lines))


@contextlib.contextmanager
def progress(label: str, *, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function to call with the number of units done and of all, on standard error.

    What is no terminal gets a line every tenth of the way, and no control codes.

    Args:
        label: What is going on.
        unit: What is counted, in the singular.
    """
    stream = sys.stderr
    if not stream.isatty():
        yield lambda done, total: _line(label, done, total=total, unit=unit)
        return
    amount = f"{unit} {{task.completed:.0f}} of {{task.total:.0f}}"
    columns = (TextColumn(label), BarColumn(), TextColumn(amount), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=stream), transient=True) as bars:
        task = bars.add_task(label, total=1, visible=False)
        yield lambda done, total: bars.update(task, completed=done, total=total, visible=True)


def _line(label: str, done: int, *, total: int, unit: str) -> None:
    if done * 10 // total > (done - 1) * 10 // total:
        print(f"{label}: {unit} {done} of {total}", file=sys.stderr, flush=True)
