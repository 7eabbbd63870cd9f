# SPDX-License-Identifier: Apache-2.0
"""What ends a command with one line for its user."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator


class CommandError(Exception):
    """Printed as one line behind the command's name.

    Attributes:
        status: Exit status: 2 for what the user gave or the machine lacks, 1 for what was found.
    """

    def __init__(self, message: str, *, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def require(module: str, *, extra: str) -> None:
    """Ends the command where a package is missing, with what installs it."""
    if importlib.util.find_spec(module) is None:
        raise CommandError(f"needs {module}: pip install 'graphfeed[{extra}]'")


def expect_at_least(option: str, value: float | None, least: float) -> None:
    """Ends the command where a number that was given is too small."""
    if value is not None and not value >= least:
        raise CommandError(f"{option}: expected {least:g} or more, got {value:g}")


def expect_device(device: str) -> None:
    """Ends the command where ``--device`` names none."""
    if device not in ("auto", "cpu", "cuda"):
        raise CommandError(f"--device: expected auto, cpu or cuda, got {device!r}")


@contextlib.contextmanager
def reported(*kinds: type[Exception]) -> Iterator[None]:
    """Turns exceptions whose text is meant for the user into a line of the command's."""
    try:
        yield
    except kinds as error:
        raise CommandError(one_line(error)) from error


def one_line(error: Exception) -> str:
    """An exception's text on one line; a file's error as ``file: what failed``."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
