# SPDX-License-Identifier: Apache-2.0
"""Shows how far a replay is: rich's bar, a bare one, or lines if no terminal reads them."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import TextIO

_BAR_WIDTH = 40
_LABEL = "replay"


@contextlib.contextmanager
def progress(stream: TextIO, *, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number of steps done.

    Args:
        stream: Where it is shown. If it is no terminal, it gets a line every tenth of the way and
            no control codes.
        total: Most steps to come; the end may come sooner.
    """
    if not stream.isatty():
        yield lambda done: _line(stream, done, total=total)
    elif importlib.util.find_spec("rich") is None:
        yield lambda done: _bar(stream, done, total=total)
        stream.write("\n")
    else:
        with _rich(stream, total=total) as show:
            yield show


def _line(stream: TextIO, done: int, *, total: int) -> None:
    if done * 10 // total > (done - 1) * 10 // total:
        stream.write(f"{_LABEL}: step {done} of {total}\n")
        stream.flush()


def _bar(stream: TextIO, done: int, *, total: int) -> None:
    filled = done * _BAR_WIDTH // total
    if done == 1 or filled > (done - 1) * _BAR_WIDTH // total:
        bar = "#" * filled + "." * (_BAR_WIDTH - filled)
        stream.write(f"\r{_LABEL} [{bar}] {done}/{total}")
        stream.flush()


@contextlib.contextmanager
def _rich(stream: TextIO, *, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(_LABEL), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=stream)) as bars:
        task = bars.add_task(_LABEL, total=total)
        yield lambda done: bars.update(task, completed=done)
