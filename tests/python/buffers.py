# SPDX-License-Identifier: Apache-2.0
"""Metadata for tests, each tensor inside an allocation that is larger and starts as a sentinel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
from eager_copy import DECODE, eager_copy
from graphfeed import Metadata

SENTINEL = -77_777_777

FIELDS = (
    "cache_seqlens",
    "cu_seqlens_k",
    "page_table_1",
    "seqlens_expanded",
    "dsa_cache_seqlens",
    "dsa_cu_seqlens_k",
    "real_page_table",
    "flashmla_num_splits",
    "flashmla_metadata",
)


@dataclass(frozen=True)
class Sizes:
    """The blocks that a mode copies. rows: of both tables, bs in decode."""

    mode: int
    bs: int = 5
    expanded: int = 10
    rows: int = 10
    width: int = 37
    pages: int = 3
    parts: int = 4

    def shape(self, name):
        last = self.bs if self.mode == DECODE else self.expanded
        rows = self.bs if self.mode == DECODE else self.rows
        return {
            "cache_seqlens": (self.bs,),
            "cu_seqlens_k": (self.bs + 1,),
            "page_table_1": (rows, self.width),
            "seqlens_expanded": (self.expanded,),
            "dsa_cache_seqlens": (last,),
            "dsa_cu_seqlens_k": (last + 1,),
            "real_page_table": (rows, self.pages),
            "flashmla_num_splits": (last + 1,),
            "flashmla_metadata": (self.parts, 8),
        }[name]

    def arguments(self):
        return {
            "mode": self.mode,
            "bs": self.bs,
            "max_seqlen_k": self.width,
            "seqlens_expanded_size": self.expanded,
        }


@dataclass(frozen=True)
class Layout:
    """Where a tensor lies in its allocation; all in elements."""

    lead: int = 4  # before its first element
    gap: int = 0  # between its rows
    step: int = 1  # from one column to the next
    longer: int = 0  # rows and columns it has beyond what is copied


DENSE = Layout()
SLICED = Layout(lead=8, gap=12, longer=4)  # a column slice of a wider buffer, 16-byte aligned
ODD = Layout(lead=3, gap=5, longer=2)
STRIDED = Layout(lead=2, gap=1, step=2, longer=1)


class Host:
    """Allocates NumPy arrays."""

    def full(self, size, value):
        return np.full(size, value, np.int32)

    def upload(self, values):
        return values

    def download(self, memory):
        return memory

    def view(self, memory, shape, strides, offset):
        bytes_of = [4 * stride for stride in strides]
        return np.lib.stride_tricks.as_strided(memory[offset:], shape, bytes_of)


class Device:
    """Allocates torch tensors, on the current CUDA device unless another one is given."""

    def __init__(self, torch, device="cuda"):
        self.torch, self.device = torch, device

    def full(self, size, value):
        return self.torch.full((size,), value, dtype=self.torch.int32, device=self.device)

    def upload(self, values):
        return self.torch.from_numpy(values).to(self.device)

    def download(self, memory):
        return memory.cpu().numpy()

    def view(self, memory, shape, strides, offset):
        return memory.as_strided(shape, strides, offset)


class Buffers:
    """One metadata: the allocations by field, and the tensors inside them."""

    def __init__(self, place, sizes, fields, layout):
        self.place = place
        self.memory = {}
        self.tensors = {}
        for name in fields:
            self._add(name, sizes.shape(name), layout)

    def _add(self, name, shape, layout):
        columns = shape[-1] + (0 if name == "flashmla_metadata" else layout.longer)
        rows = 1 if len(shape) == 1 else shape[0] + layout.longer
        pitch = columns * layout.step + layout.gap
        memory = self.place.full(layout.lead + rows * pitch + 8, SENTINEL)
        shape, strides = (rows, columns), (pitch, layout.step)
        skipped = 2 - len(self._rank(name))
        self.memory[name] = memory
        self.tensors[name] = self.place.view(
            memory, shape[skipped:], strides[skipped:], layout.lead
        )

    @staticmethod
    def _rank(name):
        return (0, 0) if name in ("page_table_1", "real_page_table", "flashmla_metadata") else (0,)

    def fill(self, values):
        """Gives every element of every tensor a value of its own, drawn from the iterator."""
        for tensor in self.tensors.values():
            shape = tuple(tensor.shape)
            start = next(values)
            new = np.arange(start, start + int(np.prod(shape)), dtype=np.int32).reshape(shape)
            tensor[...] = self.place.upload(new)

    def metadata(self):
        return Metadata(**self.tensors)

    def bytes(self):
        """What every allocation holds, to compare with later."""
        return {name: self.place.download(part).tobytes() for name, part in self.memory.items()}


@dataclass
class Case:
    """A source, destinations, and destinations for the reference to write: same layouts."""

    sizes: Sizes
    fields: tuple = FIELDS
    num_destinations: int = 1
    source_layout: Layout = DENSE
    layouts: tuple = (DENSE,)  # of the destinations, in turn
    place: object = field(default_factory=Host)

    def __post_init__(self):
        # No longer: rows of the tables, and columns of real_page_table, are the source's.
        exact = replace(self.source_layout, longer=0)
        self.source = Buffers(self.place, self.sizes, self.fields, exact)
        self.refill(1_000)
        turn = [self.layouts[k % len(self.layouts)] for k in range(self.num_destinations)]
        self.destinations, self.expected = (
            [Buffers(self.place, self.sizes, self.fields, layout) for layout in turn]
            for _ in range(2)
        )

    def refill(self, start):
        """Writes new values into the source, in place."""
        self.source.fill(count(start, 100_000_000))

    def metadata(self):
        """Returns the source and the list of destinations, as graphfeed takes them."""
        return self.source.metadata(), [each.metadata() for each in self.destinations]

    def assert_equals_eager(self, **changed):
        """Runs the reference, then compares whole allocations: the gaps and margins too."""
        arguments = {**self.sizes.arguments(), **changed}
        eager_copy(self.source.tensors, [each.tensors for each in self.expected], **arguments)
        assert_same_memory(self.destinations, self.expected)


def assert_same_memory(actual, expected):
    for k, (got, want) in enumerate(zip(actual, expected)):
        for name in got.memory:
            a, b = (each.place.download(each.memory[name]) for each in (got, want))
            wrong = np.flatnonzero(a != b)
            assert wrong.size == 0, (
                f"destination {k}: {name}: {wrong.size} elements of the allocation differ, first "
                f"at {wrong[0]}: {a[wrong[0]]}, expected {b[wrong[0]]}"
            )
