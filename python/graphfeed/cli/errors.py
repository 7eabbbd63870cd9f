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
