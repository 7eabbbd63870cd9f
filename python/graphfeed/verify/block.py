# SPDX-License-Identifier: Apache-2.0
"""A tensor inside a bigger allocation, whose every element is known: a stray write shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SENTINEL = -77_777_777


class Layout(NamedTuple):
    """Where a tensor lies in its allocation; all in elements."""

    lead: int = 0
    """Before its first element."""
    gap: int = 0
    """Between its rows."""
    step: int = 1
    """From one column to the next."""
    longer: int = 0
    """Rows and columns it has beyond what is written."""


class Place(NamedTuple):
    """An element by its row and column in a tensor, which it may lie beside."""

    row: int
    column: int
    is_inside: bool


@dataclass(frozen=True)
class Block:
    """A tensor and its allocation.

    Attributes:
        initial: The whole allocation, as it is before anything is written.
        shape: Of the tensor: [columns] or [rows, columns].
        strides: In elements, of each dimension.
        lead: Elements before the tensor's first.
    """

    initial: np.ndarray
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    lead: int

    def view(self, memory: np.ndarray) -> np.ndarray:
        """The tensor inside a copy of the allocation."""
        strides = [memory.itemsize * stride for stride in self.strides]
        return np.lib.stride_tricks.as_strided(memory[self.lead :], self.shape, strides)

    def place_of(self, index: int) -> Place:
        """Where in the tensor the allocation's element `index` lies."""
        pitch, step = (self.strides[0] if len(self.shape) == 2 else 0), self.strides[-1]
        offset = index - self.lead
        row, rest = divmod(offset, pitch) if pitch else (0, offset)
        column, between = divmod(rest, step) if step else (rest, 0)
        rows, columns = self.shape if len(self.shape) == 2 else (1, self.shape[0])
        is_inside = between == 0 and 0 <= row < rows and 0 <= column < columns
        return Place(row, column, is_inside)


def sentinels(shape: tuple[int, ...], layout: Layout, *, longer_columns: bool = True) -> Block:
    """A destination for `shape`, in an allocation that is all sentinel."""
    columns = shape[-1] + (layout.longer if longer_columns else 0)
    rows = 1 if len(shape) == 1 else shape[0] + layout.longer
    whole = (rows, columns)[2 - len(shape) :]
    pitch = columns * layout.step + layout.gap
    initial = np.full(layout.lead + rows * pitch + 8, SENTINEL, np.int32)
    return Block(initial, whole, (pitch, layout.step)[2 - len(shape) :], layout.lead)


def holding(values: np.ndarray, layout: Layout = Layout()) -> Block:  # noqa: B008
    """A source that holds `values`, in an allocation that is all sentinel around them."""
    block = sentinels(values.shape, layout._replace(longer=0))
    initial = block.initial.astype(values.dtype)
    block = Block(initial, block.shape, block.strides, block.lead)
    block.view(initial)[...] = values
    return block
