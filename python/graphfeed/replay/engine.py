# SPDX-License-Identifier: Apache-2.0
"""A continuous-batching engine stand-in: requests in, one batch state a step out.

It holds what a serving engine holds for attention metadata: a paged token pool, the table
``req_to_token`` and a running batch padded to the next captured graph size. No model runs;
how many draft tokens a step accepts is drawn from a seeded generator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from graphfeed.replay.trace import Request

NUM_SM_PARTS = 66  # FlashMLA's scheduler parts on a 132-SM GPU
SCHEDULER_COLUMNS = 8
PADDED_LENGTH = 1


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of the stand-in. Lengths in tokens.

    Attributes:
        max_batch: Most requests that run at once.
        context: Most tokens a request may reach; longer inputs are truncated.
        draft_tokens: Draft tokens verified a step (n).
        draft_backends: Destinations of a decode refresh.
        top_k: Tokens sparse attention selects (K).
        page_size: Tokens a page (P), a power of two.
        num_pages: Pages in the pool, page 0 not counted. 0: half of what ``max_batch`` requests of
            ``context`` tokens would need, so that admission is bound by pages at times.
        step_ms: Trace time one step takes.
        seed: Seed of page order, pool rows, accepted tokens and scheduler metadata.
    """

    max_batch: int = 32
    context: int = 32768
    draft_tokens: int = 4
    draft_backends: int = 3
    top_k: int = 2048
    page_size: int = 64
    num_pages: int = 0
    step_ms: float = 50.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_batch", "context", "draft_tokens", "top_k", "page_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if not 1 <= self.draft_backends <= 16:
            raise ValueError(f"draft_backends: expected 1 to 16, got {self.draft_backends}")
        if self.page_size & (self.page_size - 1):
            raise ValueError(f"page_size: expected a power of two, got {self.page_size}")
        if self.context < 2:
            raise ValueError(f"context: expected 2 or more tokens, got {self.context}")
        if not self.step_ms > 0:
            raise ValueError(f"step_ms: expected more than 0, got {self.step_ms}")
        if self.pool_pages < self.table_pages:
            raise ValueError(
                f"num_pages: one request may need {self.table_pages} pages, got {self.num_pages}"
            )
        if (self.pool_pages + 1) * self.page_size > 2**31 - 1:
            raise ValueError(f"num_pages: {self.pool_pages} pages pass 2^31 - 1 token slots")

    @property
    def table_pages(self) -> int:
        """Columns of ``real_page_table``: the context limit and room for the draft tokens."""
        return -(-(self.context + self.draft_tokens) // self.page_size)

    @property
    def table_width(self) -> int:
        """W, columns of ``req_to_token``."""
        return self.table_pages * self.page_size

    @property
    def pool_pages(self) -> int:
        """Pages that requests can hold, page 0 not counted."""
        return self.num_pages or max(self.table_pages, self.max_batch * self.table_pages // 2)


@dataclass
class Running:
    """A request in the batch.

    Attributes:
        id: Place in the trace.
        row: Row of ``req_to_token``, from 1.
        length: Tokens in the pool (s).
        remaining: Output tokens still to come.
        pages: Pages held, in token order.
        reserved: Pages it may hold before it finishes.
    """

    id: int
    row: int
    length: int
    remaining: int
    reserved: int
    pages: list[int] = field(default_factory=list)


class Scheduled(NamedTuple):
    """FlashMLA's scheduler output for one mode: handed over by the engine, copied as given."""

    metadata: np.ndarray  # int32 [NUM_SM_PARTS, SCHEDULER_COLUMNS]
    num_splits: np.ndarray  # int32 [rows + 1]


class Held(NamedTuple):
    """What a state says of one running request."""

    id: int
    row: int
    length: int
    pages: tuple[int, ...]


@dataclass(frozen=True)
class BatchState:
    """One step's batch, padded to a captured graph size.

    Attributes:
        step: Step number, from 0.
        bs: Captured batch size; requests from ``len(held)`` on are padding.
        held: The running requests, in batch order.
        seq_lens: int32 [bs]; ``PADDED_LENGTH`` in padded rows.
        req_rows: int64 [bs]; row 0 in padded rows.
        decode: Scheduler output for ``bs`` rows.
        verify: Scheduler output for ``bs * n`` rows.
    """

    step: int
    bs: int
    held: tuple[Held, ...]
    seq_lens: np.ndarray
    req_rows: np.ndarray
    decode: Scheduled
    verify: Scheduled


class TableWrite(NamedTuple):
    """A part of ``req_to_token`` that changed."""

    row: int
    begin: int
    end: int


def graph_sizes(max_batch: int) -> list[int]:
    """Batch sizes graphs are captured for: 1, 2, 4, then multiples of 8 up to ``max_batch``."""
    sizes = {1, 2, 4, *range(8, max_batch + 1, 8), max_batch}
    return sorted(size for size in sizes if size <= max_batch)


class Engine:
    """Schedules a trace: admission by free rows and pages, one state a step.

    Call ``next_state``, use the state, then ``finish_step``; repeat until the state is None.

    Attributes:
        req_to_token: int32 [max_batch + 1, W]; row 0 is for padding and stays 0. A freed row keeps
            its stale content, as in an engine.
        writes: Parts of ``req_to_token`` changed since the last ``finish_step``.
    """

    def __init__(self, requests: Iterable[Request], config: EngineConfig) -> None:
        self.config = config
        self.running: list[Running] = []
        self.writes: list[TableWrite] = []
        self.num_truncated = 0
        self.num_finished = 0
        self.peak_pages = 0
        self._rng = np.random.default_rng(config.seed)
        self._sizes = graph_sizes(config.max_batch)
        self._waiting = deque(enumerate(requests))
        self._now_ms = 0.0
        self._step = 0
        # Row 0 is padding and page 0 holds its token slots: neither is ever handed out.
        self.free_pages = self._shuffled(config.pool_pages)
        self.free_rows = self._shuffled(config.max_batch)
        self.req_to_token = np.zeros((config.max_batch + 1, config.table_width), dtype=np.int32)

    @property
    def now_ms(self) -> float:
        """Trace time of this step."""
        return self._now_ms

    @property
    def num_waiting(self) -> int:
        """Requests not admitted yet, those still to arrive included."""
        return len(self._waiting)

    def next_state(self) -> BatchState | None:
        """Admits what fits, makes room for the draft tokens and states the batch.

        Returns:
            The step's batch, or None once every request has finished.
        """
        self._admit()
        if not self.running and self._waiting:
            self._now_ms = self._waiting[0][1].arrival_ms
            self._admit()
        if not self.running:
            return None
        for request in self.running:
            self._grow(request, tokens=request.length + self.config.draft_tokens)
        held_pages = self.config.pool_pages - len(self.free_pages)
        self.peak_pages = max(self.peak_pages, held_pages)
        return self._state()

    def finish_step(self) -> None:
        """Accepts 1 to n tokens a request, frees what finished, and moves the clock on."""
        accepted = self._rng.integers(
            1, self.config.draft_tokens, size=len(self.running), endpoint=True
        )
        still_running = []
        for request, num_accepted in zip(self.running, accepted.tolist()):
            tokens = min(num_accepted, request.remaining)
            request.length += tokens
            request.remaining -= tokens
            if request.remaining:
                still_running.append(request)
            else:
                self.free_pages.extend(request.pages)
                self.free_rows.append(request.row)
                self.num_finished += 1
        self.running = still_running
        self.writes.clear()
        self._now_ms += self.config.step_ms
        self._step += 1

    def _shuffled(self, count: int) -> list[int]:
        return (self._rng.permutation(count) + 1).tolist()

    def _admit(self) -> None:
        promised = sum(request.reserved - len(request.pages) for request in self.running)
        while self._waiting and self._waiting[0][1].arrival_ms <= self._now_ms and self.free_rows:
            index, request = self._waiting[0]
            outputs = min(request.output_tokens, self.config.context - 1)
            inputs = min(request.input_tokens, self.config.context - outputs)
            reserved = self._pages_for(inputs + outputs + self.config.draft_tokens)
            if promised + reserved > len(self.free_pages):
                return
            self._waiting.popleft()
            promised += reserved
            self.num_truncated += inputs < request.input_tokens
            self.running.append(
                Running(
                    id=index,
                    row=self.free_rows.pop(),
                    length=inputs,
                    remaining=outputs,
                    reserved=reserved,
                )
            )

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self.config.page_size)

    def _grow(self, request: Running, *, tokens: int) -> None:
        size = self.config.page_size
        begin = len(request.pages)
        count = self._pages_for(tokens) - begin
        if count <= 0:
            return
        pages = [self.free_pages.pop() for _ in range(count)]
        request.pages.extend(pages)
        slots = np.asarray(pages, dtype=np.int32)[:, None] * size + np.arange(size, dtype=np.int32)
        write = TableWrite(row=request.row, begin=begin * size, end=(begin + count) * size)
        self.req_to_token[write.row, write.begin : write.end] = slots.ravel()
        self.writes.append(write)

    def _state(self) -> BatchState:
        count = len(self.running)
        bs = next(size for size in self._sizes if size >= count)
        seq_lens = np.full(bs, PADDED_LENGTH, dtype=np.int32)
        req_rows = np.zeros(bs, dtype=np.int64)
        seq_lens[:count] = [request.length for request in self.running]
        req_rows[:count] = [request.row for request in self.running]
        return BatchState(
            step=self._step,
            bs=bs,
            held=tuple(Held(r.id, r.row, r.length, tuple(r.pages)) for r in self.running),
            seq_lens=seq_lens,
            req_rows=req_rows,
            decode=self._schedule(bs),
            verify=self._schedule(bs * self.config.draft_tokens),
        )

    def _schedule(self, rows: int) -> Scheduled:
        metadata = self._rng.integers(
            0, 2**31 - 1, size=(NUM_SM_PARTS, SCHEDULER_COLUMNS), dtype=np.int32
        )
        num_splits = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(self._rng.integers(1, 4, size=rows), out=num_splits[1:])
        return Scheduled(metadata=metadata, num_splits=num_splits)
