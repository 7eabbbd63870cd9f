# SPDX-License-Identifier: Apache-2.0
"""Puts the commands together and turns what ends them into one line and an exit status.

0: done. 1: the command found something wrong. 2: it cannot do what was asked. 130: interrupted.
"""

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import graphfeed
from graphfeed.cli import bench, cache, doctor, replay, verify, warmup
from graphfeed.cli.errors import CommandError, one_line

app = typer.Typer(
    name="graphfeed",
    help="Feeds captured CUDA graphs their next batch's attention metadata: checks and tools.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("doctor")(doctor.doctor)
app.command("verify")(verify.verify)
app.command("replay")(replay.replay)
app.command("bench")(bench.bench)
app.command("warmup")(warmup.warmup)
app.add_typer(cache.app, name="cache")


@app.callback(invoke_without_command=True)
def _graphfeed(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(graphfeed.__version__)
        raise typer.Exit()
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def run(arguments: Sequence[str]) -> int:
    """Runs a command line.

    Args:
        arguments: What stands behind the program's name.

    Returns:
        The exit status.
    """
    name = " ".join(["graphfeed", *_names(arguments)])
    try:
        status = app(args=list(arguments), prog_name="graphfeed", standalone_mode=False)
        sys.stdout.flush()
    except CommandError as error:
        return _say(f"{name}: {error}", error.status)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        return 1
    except OSError as error:
        sys.stdout = io.StringIO()  # what the old one holds would be written again at exit
        what = one_line(error) if error.filename else f"the output: {error.strerror}"
        return _say(f"{name}: {what}", 2)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message().rstrip(".")
        return _say(f"{name}: {message}: see {name} --help", 2)
    return status if isinstance(status, int) else 0


def _names(arguments: Sequence[str]) -> list[str]:
    """The command, and its own command, that begin the arguments."""
    commands = [*app.registered_commands, *app.registered_groups]
    if not arguments or arguments[0] not in [command.name for command in commands]:
        return []
    inner = [command.name for command in cache.app.registered_commands]
    is_inner = arguments[0] == "cache" and len(arguments) > 1 and arguments[1] in inner
    return list(arguments[: 2 if is_inner else 1])


def _say(line: str, status: int) -> int:
    print(line, file=sys.stderr)
    return status
