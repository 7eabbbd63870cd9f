# SPDX-License-Identifier: Apache-2.0
"""Builds one step's source metadata from the batch state, as an engine does ahead of a replay.

Plain array operations that NumPy and torch spell alike; the formulas are those of DeepSeek Sparse
Attention's decode and target_verify modes.
"""

from __future__ import annotations

from graphfeed import ForwardMode, Metadata
from graphfeed.replay.arrays import Arrays, Tensor
from graphfeed.replay.engine import BatchState, EngineConfig


class SourceBuilder:
    """Source metadata of one forward mode, written into the same memory each step.

    Sources are slices of bigger buffers: table rows keep the full width as their stride.
    """

    def __init__(self, arrays: Arrays, config: EngineConfig, *, mode: ForwardMode) -> None:
        """Allocates for the biggest batch.

        Args:
            arrays: Where the tensors live.
            config: Sizes of the engine.
            mode: DECODE or TARGET_VERIFY.
        """
        self.mode = mode
        self._arrays = arrays
        self._config = config
        self.rows_per_request = rows_of_mode(config, mode)
        bs, n = config.max_batch, self.rows_per_request
        self._cache_seqlens = arrays.buffer(bs)
        self._cu_seqlens_k = arrays.buffer(bs + 1)
        self._seqlens_expanded = arrays.buffer(bs * n)
        self._dsa_cache_seqlens = arrays.buffer(bs * n)
        self._dsa_cu_seqlens_k = arrays.buffer(bs * n + 1)
        self._tokens = arrays.buffer(bs * n * config.table_width)
        self._pages = arrays.buffer(bs * n * config.table_pages)

    def max_seqlen_k(self, state: BatchState) -> int:
        """Table columns of this step: the longest request's, draft tokens included."""
        return table_columns(self._config, self.mode, state)

    def build(
        self, state: BatchState, req_to_token: Tensor, *, full_width: bool = False
    ) -> Metadata:
        """Computes the metadata on the arrays' stream.

        Args:
            state: The step's padded batch.
            req_to_token: int32 [pool + 1, W], where ``arrays`` has its tensors.
            full_width: Hand over tables of the same width at every step, which past the longest
                request hold what earlier steps left; else they end there.

        Returns:
            Tensors that the next call overwrites: all but the scheduler's are the same memory each
            time.
        """
        bs, n = state.bs, self.rows_per_request
        rows = bs * n
        seq_lens = self._arrays.array(state.seq_lens)
        cache_seqlens = self._cache_seqlens[:bs]
        seqlens_expanded = self._seqlens_expanded[:rows]
        if self.mode is ForwardMode.TARGET_VERIFY:
            scheduled = state.verify
            cache_seqlens[:] = seq_lens + n
            seqlens_expanded[:] = (seq_lens[:, None] + self._arrays.arange(n) + 1).reshape(-1)
        else:
            scheduled = state.decode
            cache_seqlens[:] = seq_lens
            seqlens_expanded[:] = seq_lens
        dsa_cache_seqlens = self._dsa_cache_seqlens[:rows]
        dsa_cache_seqlens[:] = seqlens_expanded.clip(max=self._config.top_k)
        page_table_1, real_page_table = self._tables(state, req_to_token, full_width=full_width)
        return Metadata(
            cache_seqlens=cache_seqlens,
            cu_seqlens_k=_prefix_sums(cache_seqlens, out=self._cu_seqlens_k[: bs + 1]),
            page_table_1=page_table_1,
            seqlens_expanded=seqlens_expanded,
            dsa_cache_seqlens=dsa_cache_seqlens,
            dsa_cu_seqlens_k=_prefix_sums(
                dsa_cache_seqlens, out=self._dsa_cu_seqlens_k[: rows + 1]
            ),
            real_page_table=real_page_table,
            flashmla_num_splits=self._arrays.array(scheduled.num_splits),
            flashmla_metadata=self._arrays.array(scheduled.metadata),
        )

    def _tables(
        self, state: BatchState, req_to_token: Tensor, *, full_width: bool
    ) -> tuple[Tensor, Tensor]:
        bs, n, config = state.bs, self.rows_per_request, self._config
        tokens = req_to_token[self._arrays.array(state.req_rows), : self.max_seqlen_k(state)]
        pages = tokens[:, :: config.page_size] // config.page_size
        tables = []
        for values, buffer, width in (
            (tokens, self._tokens, config.table_width),
            (pages, self._pages, config.table_pages),
        ):
            columns = values.shape[1]
            buffer.reshape(config.max_batch, n, width)[:bs, :, :columns] = values[:, None]
            end = width if full_width else columns
            tables.append(buffer.reshape(-1, width)[: bs * n, :end])
        return tables[0], tables[1]


def rows_of_mode(config: EngineConfig, mode: ForwardMode) -> int:
    """Table rows a request: n in target_verify, else 1."""
    return config.draft_tokens if mode is ForwardMode.TARGET_VERIFY else 1


def table_columns(config: EngineConfig, mode: ForwardMode, state: BatchState) -> int:
    """Tokens of the step's longest request, in target_verify with its draft tokens."""
    longest = int(state.seq_lens.max())
    return longest + config.draft_tokens if mode is ForwardMode.TARGET_VERIFY else longest


def _prefix_sums(lengths: Tensor, *, out: Tensor) -> Tensor:
    out[:1] = 0
    out[1:] = lengths.cumsum(0)
    return out
