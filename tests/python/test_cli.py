# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: its commands, its errors, pipes, signals, what it needs."""

from __future__ import annotations

import signal
import subprocess
import sys

import graphfeed
import pytest
from command import Command, in_a_process
from graphfeed.system import runtime_compiler

COMMANDS = {"doctor", "verify", "replay", "bench", "warmup", "cache"}


@pytest.fixture
def command(capsys):
    return Command(capsys)


def test_help_lists_the_commands_and_no_command_is_an_error(command):
    shown = command()
    assert shown.status == 2
    assert command("--help") == (0, shown.out, "")
    listed = shown.out[shown.out.index("Commands:") :].splitlines()[1:]
    assert {line.split()[0] for line in listed if line[2:3].strip()} == COMMANDS


def test_version_is_the_packages(command):
    assert command("--version") == (0, f"{graphfeed.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["refresh"], "graphfeed: No such command 'refresh'"),
        (["doctor", "--fast"], "graphfeed doctor: No such option: --fast"),
        (["cache", "list"], "graphfeed cache: No such command 'list'"),
        (["warmup", "--out", "x"], "graphfeed warmup: Missing option '--arch'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_is_one_line_that_names_the_command(command, arguments, line):
    said = command.refused(*arguments)
    assert said.startswith(line)
    assert said.endswith(f"see {line.partition(':')[0]} --help")


def test_import_needs_neither_typer_nor_rich_and_the_command_says_what_does(clean_python):
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("typer", "click", "rich"):
            raise ImportError(name)
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("typer", "rich") else real(name)
sys.meta_path.insert(0, Refuse())
import graphfeed, graphfeed.cache, graphfeed.system
from graphfeed.cli import main
sys.stderr = sys.stdout
try:
    main()
except SystemExit as exit:
    print(exit.code)
"""
    assert clean_python(code) == (
        "graphfeed: the command line needs typer and rich: pip install 'graphfeed[cli]'\n2\n"
    )


def test_a_closed_pipe_ends_a_command_quietly():
    process = in_a_process("doctor")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) != 0


def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "graphfeed", "doctor"],
            env={"PYTHONPATH": ":".join(filter(None, sys.path))},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "graphfeed doctor: the output: No space left on device\n"


@pytest.mark.parametrize("columns", ["60", "120"])
def test_tables_stay_within_the_columns_there_are(columns):
    process = in_a_process("doctor", env={"COLUMNS": columns, "CUDA_VISIBLE_DEVICES": ""})
    out, err = process.communicate(timeout=60)
    widths = [len(line) for line in out.splitlines()]
    assert err == ""
    assert max(widths[:-1]) <= int(columns)
    assert not any(line.endswith(" ") for line in out.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [["warmup", "--arch", "sm_80"], ["verify", "--seconds", "60"], ["replay"]],
    ids=lambda arguments: arguments[0],
)
def test_an_interrupt_ends_a_command_quietly(tmp_path, arguments):
    if arguments[0] == "warmup":
        if problem := runtime_compiler().problem:
            pytest.skip(problem.partition("\n")[0])
        arguments = [*arguments, "--out", tmp_path / "out"]
    process = in_a_process(*arguments)
    label = process.stderr.readline().partition(":")[0]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stdout.read() == ""
    assert all(line.startswith(f"{label}: ") for line in process.stderr.read().splitlines())
