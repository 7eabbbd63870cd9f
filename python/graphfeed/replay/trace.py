# SPDX-License-Identifier: Apache-2.0
"""Reads a request trace: what arrived when, with how many tokens in and out.

A trace is CSV with a header, or JSON lines; both carry ``arrival_ms``, ``input_tokens`` and
``output_tokens`` (other columns are ignored). Every defect is one line with file and line number.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

COLUMNS = ("arrival_ms", "input_tokens", "output_tokens")

EXCERPT = Path(__file__).parent / "data" / "mooncake_conversation_excerpt.csv"


class Request(NamedTuple):
    """One request of a trace. Times in milliseconds from the trace's start, sizes in tokens."""

    arrival_ms: float
    input_tokens: int
    output_tokens: int


class TraceError(ValueError):
    """A trace that cannot be read; the message starts with file and line."""


def read_trace(path: str | Path) -> list[Request]:
    """Reads a trace file, CSV or JSON lines, and orders it by arrival.

    Args:
        path: The file. It is JSON lines if its name ends in ``.jsonl``, else CSV with a header.

    Returns:
        At least one request, ordered by ``arrival_ms`` (the file's order among equals).

    Raises:
        TraceError: The file cannot be opened or decoded, is empty, or has a bad row.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = (
                _json_rows(lines, path=path)
                if path.suffix == ".jsonl"
                else _csv_rows(lines, path=path)
            )
            requests = [_request(row, where=f"{path}:{number}") for number, row in rows]
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is not UTF-8 text") from error
    if not requests:
        raise TraceError(f"{path}: holds no requests")
    return sorted(requests, key=lambda request: request.arrival_ms)


def _csv_rows(lines: Iterable[str], *, path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    reader = csv.reader(lines)
    header: list[str] | None = None
    try:
        for row in reader:
            if not row:
                continue
            if header is None:
                header = [name.strip() for name in row]
                missing = [name for name in COLUMNS if name not in header]
                if missing:
                    raise TraceError(
                        f"{path}:{reader.line_num}: header has no column {', '.join(missing)} "
                        f"(expected {','.join(COLUMNS)})"
                    )
            elif len(row) != len(header):
                raise TraceError(
                    f"{path}:{reader.line_num}: expected {len(header)} columns, got {len(row)}"
                )
            else:
                yield reader.line_num, dict(zip(header, row))
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: is not CSV: {error}") from error


def _json_rows(lines: Iterable[str], *, path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{path}:{number}: is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TraceError(f"{path}:{number}: expected an object, got {type(row).__name__}")
        missing = [name for name in COLUMNS if name not in row]
        if missing:
            raise TraceError(f"{path}:{number}: has no {', '.join(missing)}")
        yield number, row


def _request(row: Mapping[str, object], *, where: str) -> Request:
    arrival, inputs, outputs = (_number(row[name], where=f"{where}: {name}") for name in COLUMNS)
    if arrival < 0:
        raise TraceError(f"{where}: arrival_ms: expected 0 or more, got {row['arrival_ms']}")
    for name, tokens in (("input_tokens", inputs), ("output_tokens", outputs)):
        if tokens < 1 or tokens != int(tokens):
            raise TraceError(f"{where}: {name}: expected a whole number from 1, got {row[name]}")
    return Request(arrival_ms=arrival, input_tokens=int(inputs), output_tokens=int(outputs))


def _number(value: object, *, where: str) -> float:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise TraceError(f"{where}: expected a number, got {value!r}")
