# SPDX-License-Identifier: Apache-2.0
"""A kernel of Triton's that may start while the kernel before it runs, and then waits for its end.

Importing this raises ImportError where Triton is absent or has no grid dependency control.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

_BLOCK = 1024


@triton.jit
def _add_one(start, to, count, BLOCK: tl.constexpr):
    gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to + at, tl.load(start + at, mask=at < count) + 1, mask=at < count)


def add_one(start: torch.Tensor, to: torch.Tensor, *, early: bool) -> None:
    """Writes `start` + 1, both dense float32, on torch's current stream.

    Args:
        start: What is read.
        to: What is written.
        early: Launch with programmatic stream serialization. Needs compute capability 9.0.
    """
    count = start.numel()
    _add_one[(triton.cdiv(count, _BLOCK),)](start, to, count, BLOCK=_BLOCK, launch_pdl=early)
