# SPDX-License-Identifier: Apache-2.0
"""Static buffers: blocks in over-allocated, sentinel-filled memory, so that a stray write shows."""

from __future__ import annotations

from dataclasses import dataclass

from graphfeed import GeneratedMetadata, Metadata
from graphfeed.replay.arrays import Arrays, Tensor
from graphfeed.replay.engine import NUM_SM_PARTS, SCHEDULER_COLUMNS, EngineConfig

# Elements left and right of a table inside its buffer, one pair a destination: the row strides
# differ, and the third one is odd, so that its rows start at every alignment.
_TABLE_MARGINS = ((4, 4), (64, 36), (3, 2), (8, 4))
_LIST_MARGINS = (4, 8)


@dataclass(frozen=True)
class Block:
    """A tensor inside a bigger flat int32 buffer: what lies around it must never change.

    Attributes:
        shape: Of the tensor: [columns] or [rows, columns].
        above: Buffer rows before it, and as many after it.
        left: Elements before it in each row.
        right: Elements after it in each row.
        zero_head: Element 0 is 0 from capture on, and no refresh writes it.
    """

    shape: tuple[int, ...]
    above: int
    left: int
    right: int
    zero_head: bool = False

    @property
    def stride(self) -> int:
        """Elements from one row to the next."""
        return self.left + self.shape[-1] + self.right

    @property
    def buffer_shape(self) -> tuple[int, int]:
        """The whole buffer as rows of ``stride`` elements."""
        rows = self.shape[0] if len(self.shape) == 2 else 1
        return rows + 2 * self.above, self.stride

    def view(self, buffer: Tensor) -> Tensor:
        """The tensor inside ``buffer``, no copy."""
        columns = slice(self.left, self.left + self.shape[-1])
        table = buffer.reshape(self.buffer_shape)[:, columns]
        return table[self.above : self.above + self.shape[0]] if len(self.shape) == 2 else table[0]

    def start(self, buffer: Tensor) -> None:
        """Brings ``buffer``, full of the sentinel, to where capture leaves it."""
        if self.zero_head:
            self.view(buffer)[:1] = 0


def destination_blocks(
    config: EngineConfig, *, rows_per_request: int, index: int, generated: bool
) -> dict[str, Block]:
    """Blocks of one destination's fields, sized for the biggest captured batch.

    Args:
        config: Sizes of the engine.
        rows_per_request: Table rows a request: 1 in decode, n in target_verify.
        index: Which destination; it selects the row strides.
        generated: The fields of ``GeneratedMetadata``, but for the pooled ones, in place of those
            of ``Metadata``.
    """
    bs = config.max_batch
    rows = bs * rows_per_request
    left, right = _TABLE_MARGINS[index % len(_TABLE_MARGINS)]

    def listed(count: int, *, zero_head: bool = False) -> Block:
        before, after = _LIST_MARGINS
        return Block((count,), above=0, left=before, right=after, zero_head=zero_head)

    def table(columns: int, *, rows: int = rows) -> Block:
        return Block((rows, columns), above=1, left=left, right=right)

    blocks = {
        "cache_seqlens": listed(bs),
        "cu_seqlens_k": listed(bs + 1, zero_head=not generated),
        "page_table_1": table(config.table_width),
        "seqlens_expanded": listed(rows),
        "dsa_cache_seqlens": listed(rows),
        "dsa_cu_seqlens_k": listed(rows + 1, zero_head=not generated),
        "real_page_table": table(config.table_pages),
    }
    if generated:
        return {**blocks, "paged_mqa_ctx_lens_2d": table(rows_per_request, rows=bs)}
    return {
        **blocks,
        "flashmla_num_splits": listed(rows + 1),
        "flashmla_metadata": Block((NUM_SM_PARTS, SCHEDULER_COLUMNS), above=1, left=0, right=0),
    }


class Destination:
    """One captured graph's static buffers for one attention backend.

    Attributes:
        name: As mismatches name it.
        blocks: Where each field's tensor sits in its buffer.
        buffers: The whole flat buffers, one a field.
        metadata: The tensors that ``graphfeed.copy`` or ``graphfeed.generate`` fills.
    """

    def __init__(
        self,
        name: str,
        *,
        arrays: Arrays,
        config: EngineConfig,
        rows_per_request: int,
        index: int,
        generated: bool,
    ) -> None:
        """Allocates the buffers; ``name`` apart, as ``destination_blocks``."""
        self.name = name
        self.blocks = blocks = destination_blocks(
            config, rows_per_request=rows_per_request, index=index, generated=generated
        )
        self.buffers = {
            field: arrays.buffer(block.buffer_shape[0] * block.buffer_shape[1])
            for field, block in blocks.items()
        }
        views = {field: block.view(self.buffers[field]) for field, block in blocks.items()}
        for field, block in blocks.items():
            block.start(self.buffers[field])
        self.metadata = GeneratedMetadata(**views) if generated else Metadata(**views)
