# SPDX-License-Identifier: Apache-2.0
"""``graphfeed bench``: graphfeed's times beside its peers', measured here or read from records."""

import contextlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

import graphfeed
from graphfeed.cli.errors import CommandError, expect_device, one_line, reported, require
from graphfeed.cli.figure import expect_plot, expect_writable, save_figure
from graphfeed.cli.options import Device, Json
from graphfeed.cli.terminal import print_json, print_table, progress
from graphfeed.system import cuda_driver

if TYPE_CHECKING:
    from graphfeed.bench.comparison import Comparison
    from graphfeed.bench.groups import Context, Group

Record = dict[str, Any]  # of benchmarks/results: device, commit, command, date, rows


def bench(
    only: Annotated[
        Optional[str],
        typer.Option(metavar="REGEX", help="Groups whose name this finds."),
    ] = None,
    list_groups: Annotated[
        bool, typer.Option("--list", help="List the groups and measure nothing.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions and cases.")] = False,
    source: Annotated[
        Optional[Path],
        typer.Option("--from", metavar="DIR", help="Show the records there, measure nothing."),
    ] = None,
    device: Device = "auto",
    plot: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Draw all cases; .png or .svg.")
    ] = None,
    html: Annotated[
        Optional[Path],
        typer.Option(metavar="FILE", help="Write one report that needs no other file."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure graphfeed beside SGLang (where installed), separate copies and device copies.

    On a GPU it needs torch; without one it measures the CPU path and says so. A group that fails is
    named, exit status 1.
    """
    require("numpy", extra="cli")
    expect_device(device)
    expect_plot("--plot", plot)
    if html is not None:
        require("matplotlib", extra="plot")
        expect_writable("--html", html)
    failures: list[str] = []
    if source is not None:
        records = _read(source)
    else:
        is_cuda = _is_cuda(device)
        groups = _select(only, quick, is_cuda)
        if list_groups:
            print("\n".join(group.name for group in groups))
            return 0
        records, failures = _measure(groups, quick, is_cuda)
    compared = _compare(records)
    if as_json:
        print_json({"records": records, "failures": failures})
    else:
        _print(records, compared)
    if plot is not None:
        from graphfeed.cli.bench_plot import draw_bench

        save_figure(draw_bench(compared, title=_title(records)), plot)
    if html is not None:
        from graphfeed.cli.bench_html import write_report

        with reported(OSError):
            write_report(html, records, compared)
    for failure in failures:
        print(f"graphfeed bench: failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _read(folder: Path) -> list[Record]:
    from graphfeed.bench.records import UnreadableError, read_records

    if not folder.is_dir():
        raise CommandError(f"--from: {folder} is no directory")
    with reported(UnreadableError, OSError):
        records = read_records(folder)
    if not any(record["rows"] for record in records):
        raise CommandError(f"--from: {folder} holds no records (*.json of benchmarks/run)")
    return records


def _is_cuda(device: str) -> bool:
    found = cuda_driver()
    if device == "cpu" or (device == "auto" and not found.devices):
        return False
    if found.problem:
        raise CommandError(f"--device cuda: {found.problem}")
    from graphfeed.bench.measure import find_obstacle

    if obstacle := find_obstacle():
        raise CommandError(
            f"{found.devices[0].name} is here, but {obstacle}: pip install torch, or --device cpu"
        )
    return True


def _select(only: Optional[str], quick: bool, is_cuda: bool) -> "list[Group]":
    from graphfeed.bench.groups import CPU_GROUPS, GROUPS, select

    known = GROUPS if is_cuda else CPU_GROUPS
    try:
        chosen = list(select(only, quick=quick, groups=known))
    except re.error as error:
        raise CommandError(f"--only: {only!r} is no regular expression: {error}") from error
    if not chosen:
        names = ", ".join(group.name for group in known)
        raise CommandError(f"--only: {only!r} finds none of {names}")
    return chosen


def _measure(groups: "list[Group]", quick: bool, is_cuda: bool) -> tuple[list[Record], list[str]]:
    from dataclasses import asdict

    from graphfeed.bench import measure

    head = {
        "device": measure.device_name() if is_cuda else measure.cpu_name(),
        "commit": f"graphfeed {graphfeed.__version__}",
        "command": "graphfeed bench --quick" if quick else "graphfeed bench",
    }
    records, failures = [], []
    # What the cases say is not the result.
    with contextlib.redirect_stdout(sys.stderr), progress("bench", unit="group") as show:
        context = _context(quick, is_cuda)
        for done, group in enumerate(groups, start=1):
            measured = measure.measure_group(group, context)
            if measured.failure is not None:
                failures.append(measured.sentence)
            else:
                rows = [asdict(row) for row in measured.rows]
                records.append({**head, "date": measured.date, "rows": rows})
            show(done, len(groups))
    if not records:
        raise CommandError(f"nothing was measured: {'; '.join(failures)}", status=1)
    return records, failures


def _context(quick: bool, is_cuda: bool) -> "Context":
    from graphfeed.bench import measure

    if not is_cuda:
        print("no GPU is used: this is the CPU path beside NumPy", file=sys.stderr)
        return measure.make_cpu_context(quick=quick)
    try:
        return measure.make_context(
            quick=quick, bin_dir=None, say=lambda line: print(line, file=sys.stderr)
        )
    except Exception as error:  # SGLang's import and compile may raise anything
        kind = type(error).__name__
        raise CommandError(f"SGLang's kernels: {kind}: {one_line(error)}", status=1) from error


def _compare(records: list[Record]) -> "list[Comparison]":
    from graphfeed.bench.comparison import compare
    from graphfeed.bench.records import rows_of

    return compare([row for record in records for row in rows_of(record)])


def _print(records: list[Record], compared: "list[Comparison]") -> None:
    from graphfeed.bench.comparison import number, panels_of

    print(_title(records))
    rows: list[tuple[str, ...] | str] = []
    for panel in panels_of(compared):
        rows.append(f"{panel[0].label}: {panel[0].quantity}")
        for each in panel:
            ours = f"{number(each.ours)} {each.unit}"
            peers = [(p.name, number(p.value), _ratio(each.ratio_to(p))) for p in each.peers]
            for i, peer in enumerate(peers or [("", "", "")]):
                rows.append((each.case, ours, *peer) if i == 0 else ("", "", *peer))
    sides = ("left", "right", "left", "right", "right")
    print_table(dict(zip(("case", "graphfeed", "beside", "", "ratio"), sides)), rows)


def _ratio(ratio: Optional[float]) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _title(records: list[Record]) -> str:
    origins = dict.fromkeys(f"{each['device']}, {each['date'][:10]}" for each in records)
    return "; ".join(origins)
