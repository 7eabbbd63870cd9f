#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's table of measurements, made from the records in benchmarks/results/.

Prints it; --write puts it into the README, between its two markers; --check does not print but
exits 1 where what the README has there is something else. Exit 2: a record or the README cannot be
read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphfeed.bench.records import LABELS, THEIRS_OVER_OURS, UnreadableError, read_records

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
EMPTY = "No record yet: `benchmarks/run` makes them on a GPU."


def table(records: Sequence[dict[str, Any]]) -> str:
    """Every row that is held to a budget, then what it was measured on."""
    held = [record for record in records if any(row["budget"] for row in record["rows"])]
    rows = [row for record in held for row in record["rows"] if row["budget"]]
    if not rows:
        return EMPTY
    order = [*LABELS, *sorted({row["budget"] for row in rows} - LABELS.keys())]
    rows.sort(key=lambda row: order.index(row["budget"]))
    lines = ["| | case | graphfeed | beside | ratio |", "|---|---|---:|---|---:|"]
    previous = None
    for row in rows:
        label = LABELS.get(row["budget"], row["budget"])
        shown = "" if label == previous else label
        lines.append(f"| {shown} | {row['case']} | {_value(row)} | {_peer(row)} | {_ratio(row)} |")
        previous = label
    return "\n".join([*lines, "", *_origins(held)])


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _value(row: dict[str, Any]) -> str:
    return f"{_number(row['value'])} {row['unit']}"


def _peer(row: dict[str, Any]) -> str:
    if row["peer_value"] is None:
        return ""
    return f"{_number(row['peer_value'])} {row['unit']}, {row['peer']}"


def _ratio(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return ""
    inverted = " (theirs / ours)" if row["budget"] in THEIRS_OVER_OURS else ""
    return f"{row['ratio']:.3f}{inverted}"


def _origins(records: Sequence[dict[str, Any]]) -> list[str]:
    keys = ("device", "commit", "command", "date")
    origins = {tuple(record[key][:10] if key == "date" else record[key] for key in keys): None
               for record in records}  # fmt: skip
    return [
        f"{device}, commit `{commit[:12]}{'-dirty' if commit.endswith('-dirty') else ''}`, "
        f"{date}, by `{command}`."
        for device, commit, command, date in origins
    ]


def split(readme: str) -> tuple[str, str, str]:
    """What is before, between and after the markers.

    Raises:
        UnreadableError: A marker is missing, or there twice, or the end comes first.
    """
    for marker in (BEGIN, END):
        if readme.count(marker) != 1:
            raise UnreadableError(f"the README has {marker} {readme.count(marker)} times, not once")
    if readme.index(END) < readme.index(BEGIN):
        raise UnreadableError(f"the README has {END} before {BEGIN}")
    before, rest = readme.split(BEGIN)
    between, after = rest.split(END)
    return before, between.strip("\n"), after


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="exit 1 where the README differs")
    action.add_argument("--write", action="store_true", help="put the table into the README")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results", metavar="DIR")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        made = table(read_records(options.results))
        if not (options.check or options.write):
            print(made)
            return 0
        before, between, after = split(options.readme.read_text(encoding="utf-8"))
    except (UnreadableError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    if options.write:
        text = f"{before}{BEGIN}\n{made}\n{END}{after}"
        options.readme.write_text(text, encoding="utf-8")
        return 0
    if between == made:
        return 0
    print(
        f"{parser.prog}: {options.readme} and the records in {options.results} differ: "
        "benchmarks/readme_table.py --write",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
