# SPDX-License-Identifier: Apache-2.0
"""Runs the command line in this process, and in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

pytest.importorskip("typer")

from graphfeed.cli.app import run


class Result(NamedTuple):
    """What a command left."""

    status: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Command:
    """Runs commands in this process, so that what they use can be replaced."""

    def __init__(self, capsys):
        self._capsys = capsys

    def __call__(self, *arguments):
        self._capsys.readouterr()
        status = run([str(each) for each in arguments])
        captured = self._capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err
        assert "Traceback" not in captured.err
        return Result(status, captured.out, captured.err)

    def refused(self, *arguments, status=2):
        """The one line of a command that cannot do what was asked."""
        result = self(*arguments)
        assert (result.status, result.out) == (status, "")
        assert result.err.count("\n") == 1, result.err
        return result.err.rstrip("\n")


def in_a_process(*arguments, **named):
    """Like subprocess.Popen, of ``python -m graphfeed``."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        **named.pop("env", {}),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "graphfeed", *map(str, arguments)],
        env={name: value for name, value in environment.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **named,
    )
