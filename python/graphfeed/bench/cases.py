# SPDX-License-Identifier: Apache-2.0
"""Source and destination tensors of a cell, many sets of them, and what a copy must leave."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from graphfeed.bench.cells import Cell

SENTINEL = -7
# Fields start where torch's allocator would put them: 512-byte aligned.
_ALIGN_ELEMENTS = 128
_TOKEN_IDS = 1 << 20


class Fields(NamedTuple):
    """One set of metadata tensors, in the order of graphfeed.Metadata."""

    cache_seqlens: torch.Tensor
    cu_seqlens_k: torch.Tensor
    page_table_1: torch.Tensor
    seqlens_expanded: torch.Tensor | None
    dsa_cache_seqlens: torch.Tensor
    dsa_cu_seqlens_k: torch.Tensor
    real_page_table: torch.Tensor
    flashmla_num_splits: torch.Tensor
    flashmla_metadata: torch.Tensor


class Sets:
    """`count` sets, each one source and the cell's destinations, with random sources.

    All sources are views of one arena and all destinations of another, so that a comparison of
    arenas sees every element, stray writes between the fields too.

    Attributes:
        cell: The cell they were made for.
        sources: One Fields a set.
        destinations: One tuple of Fields a set.
    """

    def __init__(self, cell: Cell, count: int, device: str, seed: int = 1) -> None:
        self.cell = cell
        elements = _set_elements(cell)
        torch.manual_seed(seed)
        self._source = torch.randint(
            1, _TOKEN_IDS, (count, elements), dtype=torch.int32, device=device
        )
        self._destination = torch.full(
            (count * cell.destinations, elements), SENTINEL, dtype=torch.int32, device=device
        )
        self.sources = _views(cell, self._source)
        _fill_lengths(cell, _stacked_views(cell, self._source))
        flat = _views(cell, self._destination)
        n = cell.destinations
        self.destinations = [tuple(flat[i : i + n]) for i in range(0, len(flat), n)]
        if device == "cuda":
            torch.cuda.synchronize()  # they are used on other streams than the one that filled them

    def __len__(self) -> int:
        return len(self.sources)

    def reset(self) -> None:
        """Fills every destination with the sentinel."""
        self._destination.fill_(SENTINEL)

    def expected(
        self, cell: Cell | None = None, sources: Sequence[Fields] | None = None
    ) -> torch.Tensor:
        """What the destinations hold after eager copies of every set; leaves them reset.

        Args:
            cell: Copy as this cell says; default: the one the sets were made for.
            sources: Copy these, one a set; default: the sets' own.
        """
        self.reset()
        for source, destinations in zip(sources or self.sources, self.destinations):
            eager_copy(cell or self.cell, source, destinations)
        expected = self._destination.clone()
        self.reset()
        return expected

    def require(self, expected: torch.Tensor, what: str) -> None:
        """Raises AssertionError unless the destinations hold `expected`; leaves them reset."""
        wrong = int((self._destination != expected).sum())
        self.reset()
        if wrong:
            raise AssertionError(f"{what}: {self.cell.name}: {wrong} wrong elements")

    def require_call(self, call: Callable[[], object], expected: torch.Tensor, what: str) -> None:
        """Like require, after resetting and one call."""
        self.reset()
        call()
        self.require(expected, what)


def eager_copy(cell: Cell, source: Fields, destinations: Sequence[Fields]) -> None:
    """The copy as separate tensor operations; the reference of every benchmark, and a peer."""
    bs, rows, width, pages = cell.bs, cell.rows, cell.width, cell.pages
    if cell.live is not None:
        width = min(cell.live, width)
        pages = math.ceil(width / 64)
    for to in destinations:
        to.cache_seqlens[:bs].copy_(source.cache_seqlens[:bs])
        to.cu_seqlens_k[1 : bs + 1].copy_(source.cu_seqlens_k[1 : bs + 1])
        to.page_table_1[:rows, :width].copy_(source.page_table_1[:, :width])
        if cell.next_n:
            to.seqlens_expanded[:rows].copy_(source.seqlens_expanded[:rows])
        to.dsa_cache_seqlens[:rows].copy_(source.dsa_cache_seqlens[:rows])
        to.dsa_cu_seqlens_k[1 : rows + 1].copy_(source.dsa_cu_seqlens_k[1 : rows + 1])
        to.real_page_table[:rows, :pages].copy_(source.real_page_table[:, :pages])
        to.flashmla_num_splits[: rows + 1].copy_(source.flashmla_num_splits[: rows + 1])
        to.flashmla_metadata.copy_(source.flashmla_metadata)


def _offsets(cell: Cell) -> tuple[dict[str, int], int]:
    offsets, end = {}, 0
    for field, shape in cell.field_shapes().items():
        offsets[field] = end
        end += -(-math.prod(shape) // _ALIGN_ELEMENTS) * _ALIGN_ELEMENTS
    return offsets, end


def _set_elements(cell: Cell) -> int:
    return _offsets(cell)[1]


def _stacked_views(cell: Cell, arena: torch.Tensor) -> dict[str, torch.Tensor]:
    offsets, _ = _offsets(cell)
    return {
        field: arena[:, offsets[field] : offsets[field] + math.prod(shape)].view(-1, *shape)
        for field, shape in cell.field_shapes().items()
    }


def _views(cell: Cell, arena: torch.Tensor) -> list[Fields]:
    stacked = {field: view.unbind(0) for field, view in _stacked_views(cell, arena).items()}
    absent = (None,) * arena.shape[0]
    columns = (stacked.get(field, absent) for field in Fields._fields)
    return [Fields(*row) for row in zip(*columns)]


def _fill_lengths(cell: Cell, source: dict[str, torch.Tensor]) -> None:
    """Makes the lengths what an engine has: at least half the table, or exactly the live bound."""
    lengths = source["cache_seqlens"]
    if cell.live is None:
        lengths.remainder_(max(cell.width // 2, 1)).add_(cell.width // 2)
    else:
        lengths.fill_(cell.live)
    source["cu_seqlens_k"][:, 1:] = lengths.cumsum(1)
    dsa = source["dsa_cache_seqlens"]
    dsa.clamp_(max=2048)
    source["dsa_cu_seqlens_k"][:, 1:] = dsa.cumsum(1)
