# SPDX-License-Identifier: Apache-2.0
"""Rows of a record, the limits docs/design.md sets them, and what is missed or absent."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from graphfeed.bench import cells


@dataclass(frozen=True)
class Row:
    """One measured case. `ratio` is ours over the peer's, save where a limit says otherwise.

    Attributes:
        budget: Name of the limit this row is held to; empty for a row that only informs.
        case: What was measured.
        value: Ours, in `unit`.
        unit: us, ms, GB/s.
        peer: What it was measured beside, in the same run.
        peer_value: The peer's, in `unit`.
        ratio: See above; None without a peer.
    """

    budget: str
    case: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None


def beside(budget: str, case: str, value: float, unit: str, peer: str, peer_value: float) -> Row:
    """A row whose ratio is ours over the peer's."""
    return Row(budget, case, value, unit, peer, peer_value, value / peer_value)


@dataclass(frozen=True)
class Limit:
    """A limit of docs/design.md.

    Attributes:
        budget: As in the rows.
        cases: Cases that a complete set of records has.
        column: The column of a row that is held to it: ratio or value.
        bound: The limit.
        at_least: True where the column must reach the bound, False where it must not pass it.
    """

    budget: str
    cases: tuple[str, ...]
    column: str
    bound: float
    at_least: bool = False

    def is_met(self, row: Row) -> bool:
        number = getattr(row, self.column)
        if number is None:
            return False
        return (operator.ge if self.at_least else operator.le)(number, self.bound)

    def __str__(self) -> str:
        return f"{self.column} {'>=' if self.at_least else '<='} {self.bound:g}"


def _names(measured: Iterable[cells.Cell]) -> tuple[str, ...]:
    return tuple(cell.name for cell in measured)


_SINGLE = _names(cell for cell in cells.DROPIN if cell.destinations == 1)
_MULTI = _names(cell for cell in cells.DROPIN if cell.destinations == 3)
FIRST_CALL_CASE = cells.Cell(32, 4096, 3).name
STEP_CASES = tuple(
    f"{placement}, {cells.PLAN.name}"
    for placement in ("started early", "forked", "forked, re-pointed")
)

# The limits of what is built.
LIMITS = (
    Limit("host/dropin/single", _SINGLE, "ratio", 0.48),
    Limit("host/dropin/multi", _MULTI, "ratio", 0.48),
    Limit("host/plan/cpp", _names(cells.NATIVE), "ratio", 0.5),
    Limit("host/plan/python_copy", _names([cells.PLAN]), "ratio", 0.15),
    Limit("host/node/repointed", _names(cells.NATIVE), "ratio", 0.15),
    Limit("step/in_graph", STEP_CASES, "value", 1.0),
    Limit("device/copy/small", _names(cells.SMALL), "ratio", 0.45),
    Limit("device/copy/large", _names([cells.LARGE]), "ratio", 0.95, at_least=True),
    Limit("device/copy/live", _names([cells.LIVE]), "ratio", 0.15),
    Limit("host/plan/python_generate", ("decode 32 x 4096",), "ratio", 0.08),
    Limit("device/generate/decode", ("decode 64 x 131072",), "ratio", 0.32),
    Limit(
        "device/generate/verify",
        ("verify n=4 64 x 131072", "verify n=4 128 x 32768"),
        "ratio",
        0.25,
    ),
    Limit("device/generate/worst_cell", ("worst of all cells",), "ratio", 1.0),
    Limit("first_call/empty", (FIRST_CALL_CASE,), "value", 300),
    Limit("first_call/disk", (FIRST_CALL_CASE,), "value", 15),
    Limit("first_call/prebuilt", (FIRST_CALL_CASE,), "value", 5),
)


def check(rows: Sequence[Row], limits: Iterable[Limit] = LIMITS) -> list[str]:
    """One sentence for each limit that is missed and each required case that is absent."""
    complaints = []
    for limit in limits:
        held = [row for row in rows if row.budget == limit.budget]
        for case in limit.cases:
            if not any(row.case == case for row in held):
                complaints.append(f"{limit.budget}: {case}: absent")
        for row in held:
            if not limit.is_met(row):
                number = getattr(row, limit.column)
                came = "nothing" if number is None else f"{number:.3f}"
                complaints.append(f"{limit.budget}: {row.case}: expected {limit}, got {came}")
    return complaints


def write_record(
    path: Path, rows: Sequence[Row], *, device: str, commit: str, command: str, date: str
) -> None:
    """Writes one record: a JSON object that names device, commit and command, one row a line."""
    head = {"device": device, "commit": commit, "command": command, "date": date}
    lines = ",\n  ".join(json.dumps(_rounded(row)) for row in rows)
    text = json.dumps(head, indent=1).removesuffix("\n}") + f',\n "rows": [\n  {lines}\n ]\n}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _rounded(row: Row) -> dict[str, object]:
    return {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in asdict(row).items()
    }


def table(rows: Sequence[Row], limits: Iterable[Limit] = LIMITS) -> str:
    """The rows as aligned text, each with the limit it is held to and whether it meets it."""
    by_budget = {limit.budget: limit for limit in limits}
    lines = [("case", "ours", "unit", "peer", "theirs", "ratio", "limit", "")]
    for row in rows:
        limit = by_budget.get(row.budget)
        lines.append(
            (
                f"{row.budget}: {row.case}" if row.budget else row.case,
                f"{row.value:.2f}",
                row.unit,
                row.peer or "",
                "" if row.peer_value is None else f"{row.peer_value:.2f}",
                "" if row.ratio is None else f"{row.ratio:.3f}",
                "" if limit is None else str(limit),
                "" if limit is None else ("met" if limit.is_met(row) else "MISSED"),
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    numbers = (1, 4, 5)
    return "\n".join(
        "  ".join(
            text.rjust(width) if i in numbers else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )
