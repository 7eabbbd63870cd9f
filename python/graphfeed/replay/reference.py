# SPDX-License-Identifier: Apache-2.0
"""The independent reference: what every element of every destination must hold.

It works on the scheduler's page lists and lengths, never on the source tensors or on
``req_to_token``, and keeps a copy of each destination's whole buffer, so that what lies around and
past the refreshed block is checked as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from graphfeed.replay.arrays import SENTINEL
from graphfeed.replay.destination import Block
from graphfeed.replay.engine import BatchState, EngineConfig

_COMPARED_AT_ONCE = 1 << 16  # elements; the temporaries stay in cache


class Mismatch(Exception):
    """A destination does not hold what it must.

    Row and column count from the destination tensor's first element, so they are negative, or past
    its sizes, where something around it changed; a tensor of one dimension has row 0 only.

    Attributes:
        step: Step number, from 0.
        placement: What refreshed the destination.
        destination: Name of the destination.
        field: Name of the metadata tensor.
        row: Row of the first wrong element.
        column: Column of the first wrong element.
        expected: What it must hold.
        got: What it holds.
        num_elements: Wrong elements in this tensor, this one included.
    """

    def __init__(
        self,
        *,
        step: int,
        placement: str,
        destination: str,
        field: str,
        row: int,
        column: int,
        expected: int,
        got: int,
        num_elements: int,
    ) -> None:
        self.step = step
        self.placement = placement
        self.destination = destination
        self.field = field
        self.row = row
        self.column = column
        self.expected = expected
        self.got = got
        self.num_elements = num_elements
        super().__init__(
            f"step {step}: {placement}: destination {destination}: {field}: row {row}, column "
            f"{column}: expected {expected}, got {got} ({num_elements} wrong in this tensor)"
        )


class Key(NamedTuple):
    """A destination: each placement has its own."""

    placement: str
    destination: str


class Reference:
    """Expected content of all destinations, kept up to date step by step."""

    def __init__(
        self, config: EngineConfig, destinations: Mapping[Key, Mapping[str, Block]]
    ) -> None:
        """Starts from destinations as captured: the sentinel, and 0 where no refresh writes a head.

        Args:
            config: Sizes of the engine.
            destinations: The blocks of each destination's fields.
        """
        self._config = config
        self._blocks = destinations
        self._expected = {
            key: {
                field: np.full(math.prod(block.buffer_shape), SENTINEL, dtype=np.int32)
                for field, block in blocks.items()
            }
            for key, blocks in destinations.items()
        }
        for key, blocks in destinations.items():
            for field, block in blocks.items():
                block.start(self._expected[key][field])
        pool_rows = config.max_batch + 1
        self._page_of = np.zeros((pool_rows, config.table_pages), dtype=np.int32)
        self._slot_of = np.zeros((pool_rows, config.table_pages * config.page_size), dtype=np.int32)
        self._known: dict[int, tuple[int, int]] = {}  # row -> request id, pages seen

    def follow(self, state: BatchState) -> None:
        """Takes over the pages that requests were given since the last step."""
        size = self._config.page_size
        for request in state.held:
            known_id, count = self._known.get(request.row, (-1, 0))
            first = count if known_id == request.id else 0
            for place, page in enumerate(request.pages[first:], start=first):
                self._page_of[request.row, place] = page
                self._slot_of[request.row, place * size : (place + 1) * size] = range(
                    page * size, (page + 1) * size
                )
            self._known[request.row] = (request.id, len(request.pages))

    def expect_decode(self, key: Key, state: BatchState, *, live: bool) -> int:
        """Expects a destination to be refreshed for decode.

        Args:
            key: The destination.
            state: The step's batch.
            live: Table rows are refreshed to their own request's length, else all to the longest's.

        Returns:
            Elements refreshed.
        """
        lengths = _padded_lengths(state)
        selected = [min(length, self._config.top_k) for length in lengths]
        return (
            self._expect(key, "cache_seqlens", lengths)
            + self._expect(key, "cu_seqlens_k", list(accumulate(lengths)), at=1)
            + self._expect(key, "dsa_cache_seqlens", selected)
            + self._expect(key, "dsa_cu_seqlens_k", list(accumulate(selected)), at=1)
            + self._expect(key, "flashmla_num_splits", state.decode.num_splits)
            + self._expect(key, "flashmla_metadata", state.decode.metadata)
            + self._expect_tables(key, state, repeat=1, columns=_columns(lengths, live=live))
        )

    def expect_verify(self, key: Key, state: BatchState, *, live: bool) -> int:
        """Expects a destination to be refreshed for target_verify.

        Args:
            key: The destination.
            state: The step's batch.
            live: Table rows are refreshed to their own request's length, else all to the longest's.

        Returns:
            Elements refreshed.
        """
        n = self._config.draft_tokens
        lengths = _padded_lengths(state)
        with_drafts = [length + n for length in lengths]
        expanded = [length + 1 + draft for length in lengths for draft in range(n)]
        selected = [min(length, self._config.top_k) for length in expanded]
        return (
            self._expect(key, "cache_seqlens", with_drafts)
            + self._expect(key, "cu_seqlens_k", list(accumulate(with_drafts)), at=1)
            + self._expect(key, "seqlens_expanded", expanded)
            + self._expect(key, "dsa_cache_seqlens", selected)
            + self._expect(key, "dsa_cu_seqlens_k", list(accumulate(selected)), at=1)
            + self._expect(key, "flashmla_num_splits", state.verify.num_splits)
            + self._expect(key, "flashmla_metadata", state.verify.metadata)
            + self._expect_tables(key, state, repeat=n, columns=_columns(with_drafts, live=live))
        )

    def expect_generated(self, key: Key, state: BatchState, *, num_drafts: int) -> int:
        """Expects a destination to be generated: other fields, and heads of prefix sums as well.

        Args:
            key: The destination.
            state: The step's batch.
            num_drafts: n in target_verify, 0 in decode.

        Returns:
            Elements generated.
        """
        totals = [length + num_drafts for length in _padded_lengths(state)]
        # Query t of q sees what lies before it and itself: all but the q - t - 1 behind it.
        behind = range(max(num_drafts, 1))[::-1]
        seen = [total - later for total in totals for later in behind]
        selected = [min(length, self._config.top_k) for length in seen]
        contexts = np.array([[total] * len(behind) for total in totals])
        return (
            self._expect(key, "cache_seqlens", totals)
            + self._expect(key, "cu_seqlens_k", [0, *accumulate(totals)])
            + self._expect(key, "seqlens_expanded", seen)
            + self._expect(key, "dsa_cache_seqlens", selected)
            + self._expect(key, "dsa_cu_seqlens_k", [0, *accumulate(selected)])
            + self._expect(key, "paged_mqa_ctx_lens_2d", contexts)
            + self._expect_tables(key, state, repeat=len(behind), columns=totals)
        )

    def check(self, key: Key, *, step: int, got: Mapping[str, np.ndarray]) -> None:
        """Compares whole buffers, guard elements included.

        Args:
            key: The destination.
            step: Step number, for the message.
            got: The flat buffers by field name.

        Raises:
            Mismatch: The first wrong element.
        """
        for field, expected in self._expected[key].items():
            index = _first_difference(expected, got[field])
            if index is None:
                continue
            block = self._blocks[key][field]
            row, column = divmod(index, block.stride)
            raise Mismatch(
                step=step,
                placement=key.placement,
                destination=key.destination,
                field=field,
                row=row - block.above,
                column=column - block.left,
                expected=int(expected[index]),
                got=int(got[field][index]),
                num_elements=int(np.count_nonzero(expected != got[field])),
            )

    def view(self, key: Key, field: str) -> np.ndarray:
        """What the tensor itself must hold, in the memory that ``check`` compares."""
        return self._blocks[key][field].view(self._expected[key][field])

    def _expect(
        self, key: Key, field: str, values: Sequence[int] | np.ndarray, *, at: int = 0
    ) -> int:
        self.view(key, field)[at : at + len(values)] = values
        return np.size(values)

    def _expect_tables(
        self, key: Key, state: BatchState, *, repeat: int, columns: Sequence[int]
    ) -> int:
        tokens = self.view(key, "page_table_1")
        pages = self.view(key, "real_page_table")
        num_elements = 0
        for place, width in enumerate(columns):
            row = state.held[place].row if place < len(state.held) else 0
            rows = slice(place * repeat, (place + 1) * repeat)
            num_pages = math.ceil(width / self._config.page_size)
            tokens[rows, :width] = self._slot_of[row, :width]
            pages[rows, :num_pages] = self._page_of[row, :num_pages]
            num_elements += repeat * (width + num_pages)
        return num_elements


def _padded_lengths(state: BatchState) -> list[int]:
    return [request.length for request in state.held] + [1] * (state.bs - len(state.held))


def _columns(lengths: list[int], *, live: bool) -> list[int]:
    return lengths if live else [max(lengths)] * len(lengths)


def _first_difference(expected: np.ndarray, got: np.ndarray) -> int | None:
    for begin in range(0, expected.size, _COMPARED_AT_ONCE):
        part = slice(begin, begin + _COMPARED_AT_ONCE)
        different = expected[part] != got[part]
        if different.any():
            return begin + int(different.argmax())
    return None
