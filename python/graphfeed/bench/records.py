# SPDX-License-Identifier: Apache-2.0
"""Reads records of measurements, and names what their rows were held to, for readers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from graphfeed.bench.report import Row

# In the order of a table: what was measured, and what of it. A budget that is not here follows
# under its own name.
LABELS = {
    "host/dropin/single": "drop-in, 1 destination: host time a call",
    "host/dropin/multi": "drop-in, 3 destinations: host time a call",
    "host/plan/cpp": "plan, from C++: host time a run",
    "host/plan/python_copy": "plan, from Python, 3 destinations: host time a run",
    "host/node/repointed": "node in a graph, from C++: host time to re-point it",
    "step/in_graph": "node in a model's graph, from C++, 3 destinations: time added to a step",
    "device/copy/small": "small batch: device time",
    "device/copy/large": "large table: device time",
    "device/copy/live": "live bound: device time",
    "device/generate/decode": "generation, decode: device time",
    "device/generate/verify": "generation, verify: device time",
    "device/generate/worst_cell": "generation, the worst of all cells: device time",
    "host/plan/python_generate": "generation, plan from Python: host time a run",
    "first_call/empty": "first call, empty cache",
    "first_call/disk": "first call, kernel on disk",
    "first_call/prebuilt": "first call, kernel prebuilt",
}
# The record's ratio is the peer's time over ours.
THEIRS_OVER_OURS = ("device/copy/large",)


class UnreadableError(Exception):
    """A record, or a file that is to hold its figures, is not what can be used."""


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder, by file name.

    Raises:
        UnreadableError: A file is not a record.
    """
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if missing := {"device", "commit", "command", "date", "rows"} - record.keys():
                raise ValueError(f"it has no {', '.join(sorted(missing))}")
            for row in rows_of(record):
                _check(row)
        except (ValueError, AttributeError, TypeError) as error:
            raise UnreadableError(f"{path} is not a record: {error}") from error
        records.append(record)
    return records


def rows_of(record: dict[str, Any]) -> list[Row]:
    """The rows of a record."""
    return [Row(**row) for row in record["rows"]]


def _check(row: Row) -> None:
    texts, figures = (row.budget, row.case, row.unit), (row.value, row.peer_value, row.ratio)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"expected texts, got {texts}")
    if not all(figure is None or math.isfinite(figure) for figure in figures):
        raise ValueError(f"expected figures, got {figures}")
