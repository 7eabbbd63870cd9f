# SPDX-License-Identifier: Apache-2.0
"""Stands in for the captured model: static buffers, and the graphs that read them.

A placement refreshes the buffers for a batch; what the replayed graph read is checked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from graphfeed import ForwardMode
from graphfeed.replay.arrays import Arrays, Captured
from graphfeed.replay.destination import Destination
from graphfeed.replay.engine import BatchState, EngineConfig
from graphfeed.replay.kept_state import KeptState
from graphfeed.replay.placement import GENERATION, Batch, Placement, Prepared
from graphfeed.replay.reference import Key, Reference
from graphfeed.replay.source import SourceBuilder


class ModelGraph:
    """One forward mode's destinations, refreshed by one placement.

    Attributes:
        mode: DECODE or TARGET_VERIFY.
        destinations: The static buffers.
        metadata: Their tensors.
        num_elements: Elements of all buffers.
        config: Sizes of the engine.
        rows_per_request: Table rows a request: n in target_verify, 1 in decode.
        stream: Raw handle of the stream everything runs on, None on the CPU.
        captured: The graph that reads all buffers, and refreshes none.
    """

    def __init__(
        self,
        arrays: Arrays,
        config: EngineConfig,
        *,
        placement: Placement,
        source: SourceBuilder | KeptState,
        names: Sequence[str],
    ) -> None:
        """Allocates for the biggest batch.

        Args:
            arrays: Where the tensors live.
            config: Sizes of the engine.
            placement: What refreshes the destinations.
            source: Gives what to refresh from.
            names: Of the destinations.
        """
        self.mode = source.mode
        self.config = config
        self.rows_per_request = source.rows_per_request
        self.stream = arrays.stream
        self._placement = placement
        self._source = source
        first = 0 if self.mode is ForwardMode.DECODE else config.draft_backends
        self.destinations = [
            Destination(
                name,
                arrays=arrays,
                config=config,
                rows_per_request=self.rows_per_request,
                index=first + index,
                generated=placement.kind is GENERATION,
            )
            for index, name in enumerate(names)
        ]
        self.metadata = [destination.metadata for destination in self.destinations]
        buffers = [buffer for each in self.destinations for buffer in each.buffers.values()]
        self.num_elements = sum(math.prod(buffer.shape) for buffer in buffers)
        self._reader = arrays.reader(buffers)
        self.captured = self._reader.capture()
        self._prepared: dict[int, Prepared] = {}  # by captured batch size
        self._replayed = self.captured

    def capture(self, refresh: Callable[[], None]) -> Captured:
        """Captures a graph in which what ``refresh`` queues comes before the reads."""
        return self._reader.capture(refresh)

    def refresh(self, state: BatchState, req_to_token: Any) -> float:
        """Makes the source ready and refreshes every destination.

        Returns:
            Host time of the placement's calls in us.
        """
        if isinstance(self._source, KeptState):
            source = self._source.build(state, req_to_token)
        else:
            source = self._source.build(state, req_to_token, full_width=self._placement.live)
        batch = Batch(
            source=source,
            bs=state.bs,
            rows=state.bs * self.rows_per_request,
            max_seqlen_k=self._source.max_seqlen_k(state),
        )
        if state.bs not in self._prepared:
            self._prepared[state.bs] = self._placement.prepare(self, batch)
        prepared = self._prepared[state.bs]
        self._replayed = prepared.captured
        begin = time.perf_counter()
        prepared.refresh(batch)
        return (time.perf_counter() - begin) * 1e6

    def check(self, reference: Reference, state: BatchState) -> int:
        """Replays the graph and compares what it read.

        Returns:
            Elements that the refresh wrote.

        Raises:
            Mismatch: The first wrong element.
        """
        read = iter(self._reader.read(self._replayed))
        num_refreshed = 0
        for destination in self.destinations:
            got = {name: next(read) for name in destination.buffers}
            key = Key(self._placement.name, destination.name)
            num_refreshed += self._expect(reference, key, state)
            reference.check(key, step=state.step, got=got)
        return num_refreshed

    def _expect(self, reference: Reference, key: Key, state: BatchState) -> int:
        verify = self.mode is ForwardMode.TARGET_VERIFY
        if self._placement.kind is GENERATION:
            return reference.expect_generated(
                key, state, num_drafts=self.config.draft_tokens if verify else 0
            )
        expect = reference.expect_verify if verify else reference.expect_decode
        return expect(key, state, live=self._placement.live)
