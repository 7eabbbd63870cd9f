# SPDX-License-Identifier: Apache-2.0
"""A batch to generate from, and destinations inside larger allocations that start as a sentinel."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from buffers import SENTINEL, SLICED, Host, Layout, assert_same_memory
from eager_generate import DECODE, DRAFT_EXTEND, eager_generate
from graphfeed import BatchState, GeneratedMetadata

SCHEDULES = ("paged_mqa_schedule", "flashmla_metadata", "flashmla_num_splits")
FIELDS = tuple(name for name in GeneratedMetadata._fields if name not in SCHEDULES)
TABLES = ("page_table_1", "real_page_table", "pooled_page_table")
WIDE = ("paged_mqa_ctx_lens_2d", *TABLES)


class Outputs:
    """One destination: allocations by field, and the tensors inside them."""

    def __init__(self, place, shapes, layout):
        self.place = place
        self.memory = {}
        self.tensors = {}
        for name, shape in shapes.items():
            # Context lengths say by their number of columns what they are.
            longer = 0 if name == "paged_mqa_ctx_lens_2d" else layout.longer
            columns = shape[-1] + longer
            rows = 1 if len(shape) == 1 else shape[0] + layout.longer
            pitch = columns * layout.step + layout.gap
            memory = place.full(layout.lead + rows * pitch + 8, SENTINEL)
            skipped = 2 - len(shape)
            self.memory[name] = memory
            self.tensors[name] = place.view(
                memory, (rows, columns)[skipped:], (pitch, layout.step)[skipped:], layout.lead
            )

    def metadata(self):
        return GeneratedMetadata(**self.tensors)


@dataclass
class GenerateCase:
    """seq_lens, extend_seq_lens and the numbers are as `generate` takes them."""

    mode: int
    seq_lens: tuple = (3, 0, 199, 64, 65)
    extend_seq_lens: tuple | None = None
    arguments: dict = field(default_factory=dict)  # of generate(), beyond mode and bs
    raw_bs: int | None = None  # in a tensor
    num_draft_tokens: int | None = None  # in a tensor
    pool: int = 7
    width: int = 200
    fields: tuple = FIELDS
    ctx_blocks: bool = False
    num_destinations: int = 1
    layouts: tuple = (SLICED,)
    dtype: type = np.int32
    place: object = field(default_factory=Host)
    seed: int = 0

    def __post_init__(self):
        random = np.random.default_rng(self.seed)
        bs = len(self.seq_lens)
        self.host = {
            "seq_lens": np.array(self.seq_lens, self.dtype),
            "req_pool_indices": random.integers(0, self.pool, bs).astype(self.dtype),
            "req_to_token": random.integers(0, 2**30, (self.pool, self.width), np.int32),
        }
        if self.extend_seq_lens is not None:
            self.host["extend_seq_lens"] = np.array(self.extend_seq_lens, self.dtype)
        for name in ("raw_bs", "num_draft_tokens"):
            if getattr(self, name) is not None:
                self.host[name] = np.array([getattr(self, name)], np.int32)
        self.batch = {name: self.place.upload(value.copy()) for name, value in self.host.items()}
        layouts = [self.layouts[k % len(self.layouts)] for k in range(self.num_destinations)]
        self.destinations = [Outputs(self.place, self.shapes(), layout) for layout in layouts]
        self.expected = [Outputs(Host(), self.shapes(), layout) for layout in layouts]

    @property
    def rows(self):
        bs, n = len(self.seq_lens), self.arguments.get("num_draft_tokens", 1)
        if self.mode == DRAFT_EXTEND:
            return self.arguments.get("seqlens_expanded_size", bs * n)
        return bs if self.mode == DECODE else bs * n

    def shapes(self):
        bs, rows = len(self.seq_lens), self.rows
        page = self.arguments.get("page_size", 64)
        pools = page * self.arguments.get("index_kpool", 1)
        blocks = (bs, self.arguments.get("num_draft_tokens", 1))
        shapes = {
            "cache_seqlens": (bs,),
            "cu_seqlens_k": (bs + 1,),
            "page_table_1": (rows, self.width),
            "seqlens_expanded": (rows,),
            "dsa_cache_seqlens": (rows,),
            "dsa_cu_seqlens_k": (rows + 1,),
            "real_page_table": (rows, -(-self.width // page)),
            "paged_mqa_ctx_lens_2d": blocks if self.ctx_blocks else (rows, 1),
            "pooled_cache_seqlens": (rows,),
            "pooled_page_table": (rows, -(-self.width // pools)),
        }
        return {name: shapes[name] for name in self.fields}

    def change(self, **values):
        """Writes other values into the batch's tensors, in place."""
        for name, value in values.items():
            self.host[name][...] = value
            self.batch[name][...] = self.place.upload(self.host[name].copy())

    def call(self):
        """Returns the arguments of ``graphfeed.generate``."""
        destinations = [each.metadata() for each in self.destinations]
        return (BatchState(**self.batch), destinations), {
            "mode": self.mode,
            "bs": len(self.seq_lens),
            **self.arguments,
        }

    def assert_equals_eager(self, **changed):
        """Runs the reference, then compares whole allocations: the gaps and margins too."""
        arguments = {"mode": self.mode, "bs": len(self.seq_lens), **self.arguments, **changed}
        eager_generate(self.host, [each.tensors for each in self.expected], **arguments)
        assert_same_memory(self.destinations, self.expected)


ODD_LAYOUTS = (SLICED, Layout(lead=3, gap=5, longer=2), Layout(lead=2, gap=1, step=2, longer=1))
