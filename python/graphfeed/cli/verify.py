# SPDX-License-Identifier: Apache-2.0
"""``graphfeed verify``: random batches on this machine's GPU against the CPU path."""

import dataclasses
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from graphfeed.cli.errors import expect_at_least, expect_device, reported, require
from graphfeed.cli.options import Device, Json
from graphfeed.cli.terminal import print_json, print_table, progress

if TYPE_CHECKING:
    from graphfeed.verify.run import Summary

_DEFAULT_COUNT = 500


def verify(
    count: Annotated[
        Optional[int],
        typer.Option(metavar="N", help=f"Batches to compare. Default: {_DEFAULT_COUNT}."),
    ] = None,
    seconds: Annotated[
        Optional[float], typer.Option(metavar="S", help="Go on for so long, or for --count.")
    ] = None,
    seed: Annotated[
        Optional[int],
        typer.Option(metavar="N", help="Of the first batch; then one more each. Default: random."),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> int:
    """Compare random batches, copied and generated in every mode, element by element.

    On a GPU with the CPU path's results; without one the CPU path's with an eager reference. The
    first difference ends it, exit status 1, with the command that repeats it.
    """
    require("numpy", extra="cli")
    from graphfeed.verify.run import verify as play

    expect_at_least("--count", count, 1)
    expect_at_least("--seconds", seconds, 0)
    expect_at_least("--seed", seed, 0)
    expect_device(device)
    if count is None and seconds is None:
        count = _DEFAULT_COUNT
    first = secrets.randbelow(2**32) if seed is None else seed
    unit = "second" if count is None else "batch"
    with reported(RuntimeError), progress("verify", unit=unit) as show:
        on_batch = _by_time(show, seconds) if count is None else lambda done, _: show(done, count)
        summary = play(seed=first, count=count, seconds=seconds, device=device, on_batch=on_batch)
    found = summary.difference
    repeat = None
    if found is not None:
        where = "cpu" if summary.device == "cpu" else "cuda"
        repeat = f"graphfeed verify --seed {found.seed} --count 1 --device {where}"
    if as_json:
        print_json({**dataclasses.asdict(summary), "seed": first, "repeat": repeat})
    else:
        print_table({"of": "left", "what": "left"}, _rows(summary, first), headed=False)
        print("differences 0" if repeat is None else f"repeat it with: {repeat}")
    return 0 if found is None else 1


def _by_time(show: Callable[[int, int], None], seconds: float) -> Callable[[int, float], None]:
    """Shows whole seconds, each once."""
    total, shown = max(int(seconds), 1), 0

    def on_batch(done: int, taken: float) -> None:
        nonlocal shown
        if min(int(taken), total) > shown:
            shown = min(int(taken), total)
            show(shown, total)

    return on_batch


def _rows(summary: "Summary", seed: int) -> list[tuple[str, str]]:
    no_gpu = "" if summary.device != "cpu" else ": the CPU path itself, on no GPU"
    calls = ", ".join(f"{count} {name}" for name, count in sorted(summary.calls.items()))
    rows = [
        ("device", summary.device + no_gpu),
        ("beside", summary.beside),
        ("batches", f"{summary.batches} the same, in {summary.seconds:.1f} s, from seed {seed} on"),
        ("calls", calls or "none"),
        ("elements", f"{summary.elements:,} compared, those around the tensors too"),
    ]
    found = summary.difference
    if found is None:
        return rows
    whose = f"destination {found.destination}: " if found.destination >= 0 else ""
    beside = "" if found.is_inside else ", which is beside the tensor"
    difference = (
        f"{whose}{found.field}: row {found.row}, column {found.column}{beside}: expected "
        f"{found.expected}, got {found.got} ({found.num_elements} differ in this tensor)"
    )
    return [*rows, ("batch", found.case), ("difference", difference)]
