# SPDX-License-Identifier: Apache-2.0
"""The batches and widths that no limit names, and target_verify: host and device time."""

from __future__ import annotations

from graphfeed.bench import cells
from graphfeed.bench.device_copy import copy_rows
from graphfeed.bench.groups import Context
from graphfeed.bench.host_copy import dropin_rows
from graphfeed.bench.report import Row


def grid(context: Context) -> list[Row]:
    """One destination and three; each cell beside SGLang's own copy and separate copies."""
    rows = []
    for cell in (*cells.GRID, *cells.VERIFY):
        if cell not in cells.DROPIN:
            rows += dropin_rows(context, cell, "")
        if cell not in cells.SMALL:
            rows += copy_rows(context, cell, "")
    return rows
