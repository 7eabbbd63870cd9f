# SPDX-License-Identifier: Apache-2.0
"""``graphfeed cache``: what lies in a directory of compiled kernels, and whether it is whole."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Optional

import typer

import graphfeed
from graphfeed.cache import CacheEntry, CacheState, cache_state, clear_cache
from graphfeed.cli.errors import CommandError, reported
from graphfeed.cli.options import Json
from graphfeed.cli.terminal import print_json, print_table

app = typer.Typer(
    help="List, clear or check a directory of compiled kernels.",
    no_args_is_help=False,
    rich_markup_mode=None,
)

_Directory = Annotated[
    Optional[Path],
    typer.Option("--dir", metavar="DIR", help="Default: the cache directory in use."),
]


@app.command("ls")
def ls(directory: _Directory = None, as_json: Json = False) -> None:
    """List the compiled kernels: architecture, name, bytes, age."""
    state = cache_state(_chosen(directory))
    if as_json:
        print_json(_facts(state))
        return
    _print_entries(state, {"age": "right"}, _age)
    print(_summary(state))


@app.command("clear")
def clear(directory: _Directory = None, as_json: Json = False) -> None:
    """Remove graphfeed's compiled kernels from the directory, and nothing else."""
    with reported(RuntimeError):
        removed = clear_cache(_chosen(directory))
    if as_json:
        print_json(_facts(removed))
        return
    print(f"removed {_summary(removed)}")


@app.command("check")
def check(directory: _Directory = None, as_json: Json = False) -> int:
    """Read every compiled kernel as a use would. Exit status 1 where one would not be taken.

    A directory of root's is judged as one that GRAPHFEED_CACHE_PATH names.
    """
    chosen = _chosen(directory)
    state = cache_state(chosen, read_only=chosen != graphfeed.cache_directory(), read=True)
    defects = [entry for entry in state.entries if entry.defect]
    if as_json:
        print_json(_facts(state))
    else:
        _print_entries(state, {"state": "left"}, lambda entry: entry.defect or "ok")
        print(_summary(state) + (f"; {len(defects)} unusable" if defects else ""))
        if state.problem:
            print(f"not used: {state.problem}")
    return 1 if defects or state.problem else 0


def _chosen(directory: Optional[Path]) -> str:
    if directory is None:
        chosen = graphfeed.cache_directory()
        if not chosen:
            raise CommandError("kernels are kept in memory only: name a directory with --dir")
        return chosen
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise CommandError(f"--dir: {directory} {what}")
    return str(directory.resolve())


def _print_entries(
    state: CacheState, extra: dict[str, str], more: Callable[[CacheEntry], str]
) -> None:
    if not state.entries:
        return
    columns = {"architecture": "left", "kernel": "left", "bytes": "right", **extra}
    rows = [
        (entry.architecture, Path(entry.path).name[:12], f"{entry.bytes:,}", more(entry))
        for entry in state.entries
    ]
    print_table(columns, rows)


def _summary(state: CacheState) -> str:
    num_bytes = sum(entry.bytes for entry in state.entries)
    missing = "" if state.exists else ", which does not exist"
    return f"{len(state.entries)} kernels, {num_bytes:,} bytes, in {state.directory}{missing}"


def _age(entry: CacheEntry) -> str:
    seconds = max(0, int(time.time()) - entry.modified)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _facts(state: CacheState) -> dict[str, object]:
    return {**state._asdict(), "entries": [entry._asdict() for entry in state.entries]}
