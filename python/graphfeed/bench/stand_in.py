# SPDX-License-Identifier: Apache-2.0
"""What stands in for a model in a captured step: a chain of small kernels, one of which reads the
refreshed lengths, so that a replay's result tells whether the refresh came before it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from subprocess import SubprocessError
from typing import Any

import torch

NUM_KERNELS = 60
# The first of them that reads the metadata; those before may run beside the refresh.
READER = 4
_HIDDEN = 4096  # columns; with 32 rows a kernel takes about 2 us on an H200


def _nothing() -> None:
    pass


class StandIn:
    """NUM_KERNELS elementwise kernels, each waiting for the one before.

    Attributes:
        hidden: [bs, columns] float32. After a step every element is NUM_KERNELS - 1 plus its row's
            length.
    """

    def __init__(self, lengths: torch.Tensor) -> None:
        """`lengths` is a destination's cache_seqlens, [bs] int32, which the model reads."""
        self._lengths = lengths.view(-1, 1)
        shape = (lengths.shape[0], _HIDDEN)
        self._start = torch.zeros(shape, dtype=torch.float32, device=lengths.device)
        self.hidden = torch.empty_like(self._start)

    def run(
        self,
        *,
        first: Callable[[], object] | None = None,
        before_reader: Callable[[], object] = _nothing,
    ) -> None:
        """Launches all kernels on torch's current stream.

        Args:
            first: Launches the first kernel in place of torch.
            before_reader: Called before the kernel that reads the lengths is launched.
        """
        (first or partial(torch.add, self._start, 1, out=self.hidden))()
        for _ in range(1, READER):
            self.hidden.add_(1)
        before_reader()
        self.hidden.add_(self._lengths)
        for _ in range(READER + 1, NUM_KERNELS):
            self.hidden.add_(1)

    def triton_first(self) -> Callable[..., None] | None:
        """The first kernel by Triton, to be called with early=; None where that cannot start early.

        It has run once either way, so that it can be captured.
        """
        if torch.cuda.get_device_capability()[0] < 9:
            return None
        try:
            from graphfeed.bench import early_start

            for early in (False, True):
                early_start.add_one(self._start, self.hidden, early=early)
        except (ImportError, KeyError, RuntimeError, OSError, SubprocessError) as error:
            why = f"{type(error).__name__}: {error}"
            print(f"no kernel of Triton's that starts early: {why}", file=sys.stderr)
            return None
        return partial(early_start.add_one, self._start, self.hidden)

    def require(self, lengths: torch.Tensor, what: str) -> None:
        """Raises AssertionError unless the last step read `lengths`, [bs]."""
        expected = (lengths.view(-1, 1) + (NUM_KERNELS - 1)).to(torch.float32)
        if wrong := int((self.hidden != expected).sum()):
            raise AssertionError(f"{what}: the model read {wrong} other lengths")


def capture(stream: Any, step: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Captures `step`, whose kernels must have run before, and instantiates the graph."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        step()
    graph.instantiate()
    return graph
