# SPDX-License-Identifier: Apache-2.0
"""Draws a random batch from a seed: its mode, sizes, layouts, values, and how it is called."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphfeed
from graphfeed import BatchState, ForwardMode, GeneratedMetadata, Metadata, Plan
from graphfeed.verify.block import Block, Layout, holding, sentinels
from graphfeed.verify.eager_copy import eager_copy
from graphfeed.verify.eager_generate import eager_generate

Tensors = dict[str, Any]  # by field or member

_MAX_ELEMENTS = 1 << 19  # of all destinations' widest tables together
_LONGEST = 2**31 - 1
_SCHEDULES = ("paged_mqa_schedule", "flashmla_metadata", "flashmla_num_splits")
_GENERATED = tuple(name for name in GeneratedMetadata._fields if name not in _SCHEDULES)


@dataclass(frozen=True)
class Case:
    """A call on tensors that are yet to be allocated.

    Attributes:
        function: ``copy`` or ``generate``.
        inputs: What is read, by field of the source or member of the batch state.
        live_bound: Of a copy.
        destinations: What is written, by field.
        arguments: The call's others.
        is_planned: Bind a plan and run that, in place of a call.
    """

    function: str
    inputs: dict[str, Block]
    live_bound: Block | None
    destinations: list[dict[str, Block]]
    arguments: dict[str, Any]
    is_planned: bool

    def __str__(self) -> str:
        mode = ForwardMode(self.arguments["mode"]).name.lower()
        count = len(self.destinations)
        how = "by a plan, " if self.is_planned else ""
        plural = "" if count == 1 else "s"
        return (
            f"{self.function}, {how}{mode}, bs {self.arguments['bs']}, {count} destination{plural}"
        )

    def call(
        self,
        inputs: Tensors,
        live_bound: Any,
        destinations: Sequence[Tensors],
        stream: int | None,
    ) -> None:
        """Makes the call by graphfeed."""
        named = dict(self.arguments)
        if self.function == "copy":
            operands = Metadata(**inputs), [Metadata(**each) for each in destinations]
            call, bind = graphfeed.copy, Plan
            if live_bound is not None:
                named["live_bound"] = live_bound
        else:
            operands = BatchState(**inputs), [GeneratedMetadata(**each) for each in destinations]
            call, bind = graphfeed.generate, Plan.generating
        if self.is_planned:
            bind(*operands, **named).run(stream=stream)
        else:
            call(*operands, **named, stream=stream)

    def call_eagerly(
        self, inputs: Tensors, live_bound: Any, destinations: Sequence[Tensors]
    ) -> None:
        """Makes the same results out of NumPy arrays by the eager reference."""
        if self.function == "copy":
            eager_copy(inputs, destinations, live_bound=live_bound, **self.arguments)
        else:
            eager_generate(inputs, destinations, **self.arguments)


def draw(seed: int, *, schedules: bool) -> Case:
    """The case of a seed, always the same.

    Args:
        seed: 0 or more.
        schedules: Generations may make scheduler metadata too, which the eager reference does not.
    """
    random = np.random.default_rng(seed)
    if random.random() < 0.5:
        return _draw_copy(random)
    return _draw_generation(random, schedules=schedules)


def _draw_copy(random: np.random.Generator) -> Case:
    mode = int(random.integers(3))
    bs, n = _draw_batch(random), int(random.integers(1, 7))
    rows = bs if mode == ForwardMode.DECODE else bs * n
    count, page = _draw_count(random), int(2 ** random.integers(0, 7))
    width = _draw_width(random, rows * count)
    beyond = int(random.integers(0, 3))  # columns the source has and the copy leaves
    expanded = int(random.integers(0, bs * n + 1))
    last = bs if mode == ForwardMode.DECODE else expanded
    shapes: dict[str, tuple[int, ...]] = {
        "cache_seqlens": (bs,),
        "cu_seqlens_k": (bs + 1,),
        "page_table_1": (rows, width),
        "seqlens_expanded": (expanded,),
        "dsa_cache_seqlens": (last,),
        "dsa_cu_seqlens_k": (last + 1,),
        "real_page_table": (rows, math.ceil(width / page)),
        "flashmla_num_splits": (last + 1,),
        "flashmla_metadata": (int(random.integers(1, 70)), 8),
    }
    shapes = {name: shapes[name] for name in _draw_fields(random, Metadata._fields)}
    inputs = {}
    for name, shape in shapes.items():
        wider = (rows, width + beyond) if name == "page_table_1" else shape
        inputs[name] = holding(_draw_values(random, wider), _draw_layout(random))
    bound = None
    if bs and random.random() < 0.5:
        lengths = random.integers(-2, width + 9, bs).astype(np.int32)
        bound = holding(lengths, Layout(lead=int(random.integers(4))))
    layouts = [_draw_layout(random) for _ in range(count)]
    return Case(
        function="copy",
        inputs=inputs,
        live_bound=bound,
        destinations=[_outputs(shapes, layout, exact=("flashmla_metadata",)) for layout in layouts],
        arguments={
            "mode": mode,
            "bs": bs,
            "max_seqlen_k": width,
            "seqlens_expanded_size": expanded,
            "page_size": page,
        },
        is_planned=bool(random.random() < 0.4),
    )


def _draw_generation(random: np.random.Generator, *, schedules: bool) -> Case:
    mode = int(random.integers(3))
    bs, n = _draw_batch(random), int(random.integers(1, 7))
    count = _draw_count(random)
    page, kpool = int(2 ** random.integers(0, 7)), int(2 ** random.integers(0, 4))
    arguments: dict[str, Any] = {
        "mode": mode,
        "bs": bs,
        "num_draft_tokens": n,
        "index_topk": int(random.integers(1, 3000)),
        "page_size": page,
        "index_kpool": kpool,
        "seq_len_fill": int(random.integers(0, 5)),
    }
    rows = bs if mode == ForwardMode.DECODE else bs * n
    if mode == ForwardMode.DRAFT_EXTEND:
        rows = arguments["seqlens_expanded_size"] = int(random.integers(0, bs * n + 3))
    width = _draw_width(random, rows * count)
    inputs = _draw_state(random, mode, bs, n, width)
    as_blocks = mode == ForwardMode.TARGET_VERIFY and random.random() < 0.5
    shapes: dict[str, tuple[int, ...]] = {
        "cache_seqlens": (bs,),
        "cu_seqlens_k": (bs + 1,),
        "page_table_1": (rows, width),
        "seqlens_expanded": (rows,),
        "dsa_cache_seqlens": (rows,),
        "dsa_cu_seqlens_k": (rows + 1,),
        "real_page_table": (rows, math.ceil(width / page)),
        "paged_mqa_ctx_lens_2d": (bs, n) if as_blocks else (rows, 1),
        "pooled_cache_seqlens": (rows,),
        "pooled_page_table": (rows, math.ceil(width / (page * kpool))),
    }
    shapes = {name: shapes[name] for name in _draw_fields(random, _GENERATED)}
    exact = ("paged_mqa_ctx_lens_2d", *_SCHEDULES)
    layouts = [_draw_layout(random) for _ in range(count)]
    is_planned = bool(random.random() < 0.4)
    if schedules and random.random() < 0.5:  # last: all else is the same with and without
        shapes.update(_draw_schedules(random, arguments, rows, n if as_blocks else 1))
    return Case(
        function="generate",
        inputs=inputs,
        live_bound=None,
        destinations=[_outputs(shapes, layout, exact=exact) for layout in layouts],
        arguments=arguments,
        is_planned=is_planned,
    )


def _draw_state(
    random: np.random.Generator, mode: int, bs: int, n: int, width: int
) -> dict[str, Block]:
    dtype = np.int32 if random.random() < 0.5 else np.int64
    pool = int(random.integers(1, bs + 3))
    lengths = random.integers(0, width + 9, bs)
    strange = random.random(bs) < 0.1
    lengths[strange] = random.choice([-(2**31), -1, _LONGEST - 3, _LONGEST], int(strange.sum()))
    state = {
        "seq_lens": holding(lengths.astype(dtype)),
        "req_pool_indices": holding(random.integers(-1, pool + 1, bs).astype(dtype)),
        "req_to_token": holding(
            random.integers(0, 2**30, (pool, width), np.int32),
            Layout(lead=int(random.integers(4)), gap=int(random.integers(4))),
        ),
    }
    if random.random() < 0.5:
        state["raw_bs"] = holding(random.integers(-1, bs + 2, 1).astype(np.int32))
    if mode == ForwardMode.DRAFT_EXTEND:
        how = random.random()
        if how < 0.4:
            state["extend_seq_lens"] = holding(random.integers(-1, n + 2, bs).astype(dtype))
        elif how < 0.7:
            state["num_draft_tokens"] = holding(random.integers(-1, n + 2, 1).astype(np.int32))
    return state


def _draw_schedules(
    random: np.random.Generator, arguments: dict[str, Any], rows: int, next_n: int
) -> dict[str, tuple[int, ...]]:
    sms, parts = int(random.integers(1, 150)), int(random.integers(1, 80))
    revision = str(random.choice(["477618c", "7f2a703", "54e2261"]))
    arguments["paged_mqa"] = graphfeed.PagedMqaScheduler(
        revision, num_sms=sms, arch=90 if revision == "54e2261" else 0, next_n=next_n
    )
    arguments["flashmla"] = graphfeed.FlashMlaScheduler(
        str(random.choice(["1408756", "9241ae3"])),
        num_sm_parts=parts,
        topk=int(random.choice([0, 2048])),
    )
    return {
        "paged_mqa_schedule": (sms + 1, 2),
        "flashmla_metadata": (parts, 8),
        "flashmla_num_splits": (rows + 1,),
    }


def _outputs(
    shapes: dict[str, tuple[int, ...]], layout: Layout, *, exact: tuple[str, ...]
) -> dict[str, Block]:
    """Blocks for the shapes; those named in `exact` say something by their size."""
    plain = Layout(lead=4)
    return {
        name: sentinels(shape, plain if name in exact else layout) for name, shape in shapes.items()
    }


def _draw_batch(random: np.random.Generator) -> int:
    return int(random.integers(0, 5) if random.random() < 0.4 else random.integers(1, 49))


def _draw_count(random: np.random.Generator) -> int:
    return int(random.choice([1, 1, 2, 3, 3, 4, 5, 16]))


def _draw_width(random: np.random.Generator, rows: int) -> int:
    """Columns of a table of so many rows, over all destinations."""
    widest = max(1, min(5000, _MAX_ELEMENTS // max(rows, 1)))
    narrow = min(130, widest)
    return int(random.integers(1, (narrow if random.random() < 0.5 else widest) + 1))


def _draw_layout(random: np.random.Generator) -> Layout:
    if random.random() < 0.3:
        return Layout(lead=4)
    return Layout(
        lead=int(random.integers(0, 9)),
        gap=int(random.integers(0, 13)),
        step=int(random.choice([1, 1, 1, 2])),
        longer=int(random.integers(0, 4)),
    )


def _draw_fields(random: np.random.Generator, names: Sequence[str]) -> list[str]:
    if random.random() < 0.6:
        return list(names)
    chosen = random.random(len(names)) < 0.5
    chosen[int(random.integers(len(names)))] = True
    return [name for name, is_chosen in zip(names, chosen) if is_chosen]


def _draw_values(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.integers(-(2**31), 2**31, shape, np.int64).astype(np.int32)
