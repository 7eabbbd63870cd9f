# SPDX-License-Identifier: Apache-2.0
"""Keeps the batch's state on the device, as an engine does: what a generation reads."""

from __future__ import annotations

import numpy as np

import graphfeed
from graphfeed import ForwardMode
from graphfeed.replay.arrays import SENTINEL, Arrays, Tensor
from graphfeed.replay.engine import BatchState, EngineConfig
from graphfeed.replay.source import rows_of_mode, table_columns


class KeptState:
    """The state that one forward mode's generations read, in the same memory at each step.

    Only running requests are written: past them stand values of earlier, bigger batches, or the
    sentinel. Where padding begins is told on the device, so that it is the generation's to make.
    """

    def __init__(self, arrays: Arrays, config: EngineConfig, *, mode: ForwardMode) -> None:
        """Allocates for the biggest batch.

        Args:
            arrays: Where the tensors live.
            config: Sizes of the engine.
            mode: DECODE or TARGET_VERIFY.
        """
        self.mode = mode
        self.rows_per_request = rows_of_mode(config, mode)
        self._config = config
        self._arrays = arrays
        self._seq_lens = arrays.array(np.full(config.max_batch, SENTINEL, dtype=np.int32))
        self._req_rows = arrays.array(np.full(config.max_batch, SENTINEL, dtype=np.int64))
        self._num_running = arrays.array(np.zeros(1, dtype=np.int32))

    def max_seqlen_k(self, state: BatchState) -> int:
        """Table columns of this step: the longest request's, draft tokens included."""
        return table_columns(self._config, self.mode, state)

    def build(self, state: BatchState, req_to_token: Tensor) -> graphfeed.BatchState:
        """Brings the running requests up to date on the arrays' stream.

        Args:
            state: The step's batch; of its padding only the size is taken.
            req_to_token: int32 [pool + 1, W], where ``arrays`` has its tensors.

        Returns:
            Tensors that the next call overwrites: for a batch size the same memory each time.
        """
        running = slice(len(state.held))
        self._seq_lens[running] = self._arrays.array(state.seq_lens[running])
        self._req_rows[running] = self._arrays.array(state.req_rows[running])
        self._num_running[:] = len(state.held)
        return graphfeed.BatchState(
            seq_lens=self._seq_lens[: state.bs],
            req_pool_indices=self._req_rows[: state.bs],
            req_to_token=req_to_token,
            raw_bs=self._num_running,
        )
