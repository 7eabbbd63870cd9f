# SPDX-License-Identifier: Apache-2.0
"""Writes a report of comparisons as one HTML file: plots and style are in it, nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import graphfeed
from graphfeed.bench.comparison import Comparison, number, panels_of
from graphfeed.cli.bench_plot import draw_panel
from graphfeed.cli.figure import svg_of

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1b1b1b; background: #fff;
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #ddd;
         vertical-align: top; }
th.number, td.number { text-align: right; white-space: nowrap;
                       font-variant-numeric: tabular-nums; }
.missed { color: #a33; }
svg { width: 100%; height: auto; }
code { background: #f2f2f2; padding: 0 .2rem; }
"""


def write_report(
    path: Path, records: Sequence[dict[str, Any]], compared: Sequence[Comparison]
) -> None:
    """Writes the report.

    Args:
        path: The file.
        records: What was measured, for the lines that say where and how.
        compared: What is shown.
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>graphfeed {escape(graphfeed.__version__)}: measurements</title>",
        f"<style>{_STYLE}</style></head><body>",
        "<h1>graphfeed beside its peers</h1>",
        "<p>Medians, all sides in one run. Ratio: graphfeed's figure over the peer's; below 1 "
        "graphfeed takes less.</p>",
        *_origins(records),
        *(part for panel in panels_of(compared) for part in _section(panel)),
        "</body></html>\n",
    ]
    path.write_text("\n".join(parts), encoding="utf-8")


def _origins(records: Sequence[dict[str, Any]]) -> list[str]:
    origins = dict.fromkeys(
        (record["device"], record["commit"], record["command"], record["date"][:10])
        for record in records
    )
    lines = [
        f"<li>{escape(device)}, {escape(date)}, <code>{escape(command)}</code>, "
        f"{escape(commit)}</li>"
        for device, commit, command, date in origins
    ]
    return ["<ul>", *lines, "</ul>"]


def _section(panel: Sequence[Comparison]) -> list[str]:
    has_limit = any(each.limit is not None for each in panel)
    limit = "<th>limit</th>" if has_limit else ""
    unit = escape(panel[0].unit)
    head = (
        f'<tr><th>case</th><th class="number">graphfeed, {unit}</th><th>beside</th>'
        f'<th class="number">{unit}</th><th class="number">ratio</th>{limit}</tr>'
    )
    rows = [row for each in panel for row in _rows(each, has_limit)]
    return [
        f"<h2>{escape(panel[0].label)}: {escape(panel[0].quantity)}</h2>",
        svg_of(draw_panel(panel)),
        "<table>",
        head,
        *rows,
        "</table>",
    ]


def _rows(comparison: Comparison, has_limit: bool) -> list[str]:
    peers = []
    for peer in comparison.peers:
        ratio = comparison.ratio_to(peer)
        peers.append((peer.name, number(peer.value), "" if ratio is None else f"{ratio:.3f}"))
    rows = []
    for i, (name, value, ratio) in enumerate(peers or [("", "", "")]):
        case, ours = (comparison.case, number(comparison.ours)) if i == 0 else ("", "")
        cells = [
            f"<td>{escape(case)}</td>",
            f'<td class="number">{ours}</td>',
            f"<td>{escape(name)}</td>",
            f'<td class="number">{value}</td>',
            f'<td class="number">{ratio}</td>',
        ]
        if has_limit:
            style = "" if comparison.is_met else ' class="missed"'
            cells.append(f"<td{style}>{escape(comparison.limit_text) if i == 0 else ''}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return rows
