# SPDX-License-Identifier: Apache-2.0
"""What is measured: batch, table width, destinations and mode of a copy, and the bytes it moves."""

from __future__ import annotations

import math
from dataclasses import dataclass

PAGE_SIZE = 64
# FlashMLA's scheduler metadata on an H200: half of its 132 multiprocessors, 8 columns.
FLASHMLA_SHAPE = (66, 8)
DECODE, TARGET_VERIFY = 0, 1
_ELEMENT_BYTES = 4
_MAX_SETS = 4096


@dataclass(frozen=True)
class Cell:
    """One copy of all fields of a batch.

    Attributes:
        bs: Requests the graph was captured for.
        width: Columns of page_table_1.
        destinations: N, how many captured graphs are refreshed.
        next_n: Draft tokens a request in target_verify; 0 is decode.
        live: Live length of every request where a live bound is given.
    """

    bs: int
    width: int
    destinations: int = 1
    next_n: int = 0
    live: int | None = None

    @property
    def mode(self) -> int:
        return TARGET_VERIFY if self.next_n else DECODE

    @property
    def rows(self) -> int:
        """Rows of both tables; in target_verify also E."""
        return self.bs * max(self.next_n, 1)

    @property
    def pages(self) -> int:
        return math.ceil(self.width / PAGE_SIZE)

    @property
    def name(self) -> str:
        verify = f", verify n={self.next_n}" if self.next_n else ""
        live = f", live {self.live}" if self.live is not None else ""
        return f"bs {self.bs} x {self.width}, N={self.destinations}{verify}{live}"

    @property
    def num_copied_fields(self) -> int:
        return 9 if self.next_n else 8

    @property
    def bytes_moved(self) -> int:
        """Bytes read once from the source plus bytes written to all destinations."""
        live = self.width if self.live is None else min(self.live, self.width)
        tables = self.rows * (live + math.ceil(live / PAGE_SIZE))
        expanded = (3 if self.next_n else 2) * self.rows + self.rows + 1
        vectors = 2 * self.bs + expanded + math.prod(FLASHMLA_SHAPE)
        return _ELEMENT_BYTES * (tables + vectors) * (1 + self.destinations)

    def num_sets(self, l2_bytes: int) -> int:
        """How many source/destination sets to rotate so that they exceed twice the L2 cache."""
        return min(max(math.ceil(2 * l2_bytes / self.bytes_moved) + 1, 2), _MAX_SETS)

    def field_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each field, in the order of graphfeed.Metadata."""
        expanded = {"seqlens_expanded": (self.rows,)} if self.next_n else {}
        return {
            "cache_seqlens": (self.bs,),
            "cu_seqlens_k": (self.bs + 1,),
            "page_table_1": (self.rows, self.width),
            **expanded,
            "dsa_cache_seqlens": (self.rows,),
            "dsa_cu_seqlens_k": (self.rows + 1,),
            "real_page_table": (self.rows, self.pages),
            "flashmla_num_splits": (self.rows + 1,),
            "flashmla_metadata": FLASHMLA_SHAPE,
        }


BATCHES = (1, 8, 32, 128)
WIDTHS = (4096, 32768, 131072)
SMALL = tuple(Cell(bs, 4096, 3) for bs in (1, 8, 32))
LARGE = Cell(64, 131072, 3)
LIVE = Cell(32, 202758, 3, live=16384)
VERIFY = (Cell(32, 4096, next_n=4), Cell(64, 32768, next_n=4))
GRID = tuple(Cell(bs, width, n) for width in WIDTHS for bs in BATCHES for n in (1, 3))
# The drop-in's host time does not depend on the table; its budget is held at these.
DROPIN = tuple(cell for cell in GRID if cell.width == 4096)
NATIVE = tuple(Cell(32, 4096, n) for n in (1, 3, 16))
# The plan from Python is measured beside SGLang's copy into three graphs.
PLAN = Cell(32, 4096, 3)
