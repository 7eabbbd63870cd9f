# SPDX-License-Identifier: Apache-2.0
"""What graphfeed is measured beside: SGLang's own kernel, separate copies, the best device copy."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType

import torch

from graphfeed.bench import cases
from graphfeed.bench.cells import VERIFY, Cell

SEPARATE = "separate copies"
# Where SGLang's releases keep the module, newest first.
_SGLANG_MODULES = (
    "sglang.kernels.ops.attention.dsa.fused_metadata_copy",
    "sglang.kernels.ops.attention.fused_metadata_copy",
    "sglang.jit_kernel.fused_metadata_copy",
)


@dataclass(frozen=True)
class Sglang:
    """SGLang's two functions, as installed here."""

    name: str
    single: Callable[..., None]
    multi: Callable[..., None]


@cache
def sglang() -> Sglang | None:
    """SGLang's kernel, or None where sglang is not installed. A broken install raises."""
    if importlib.util.find_spec("sglang") is None:
        return None
    module = _first_module(_SGLANG_MODULES)
    version = importlib.metadata.version("sglang")
    return Sglang(
        f"sglang {version}", module.fused_metadata_copy_cuda, module.fused_metadata_copy_multi_cuda
    )


def _first_module(names: Sequence[str]) -> ModuleType:
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ModuleNotFoundError(f"none of {', '.join(names)}")


def compile_sglang(peer: Sglang) -> None:
    """Builds, side by side, the variants that are measured, so that no later call compiles."""
    tiny = (Cell(1, 64), Cell(1, 64, 3), Cell(1, 64, next_n=VERIFY[0].next_n))
    all_sets = [cases.Sets(cell, 1, "cuda") for cell in tiny]
    calls = [
        dropin_call(peer.single, peer.multi, sets.cell, sets.sources[0], sets.destinations[0])
        for sets in all_sets
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        for result in [pool.submit(call) for call in calls]:
            result.result()
    torch.cuda.synchronize()


def dropin_call(
    single: Callable[..., None],
    multi: Callable[..., None],
    cell: Cell,
    source: cases.Fields,
    destinations: Sequence[cases.Fields],
) -> Callable[[], None]:
    """The cell's copy through SGLang's signatures, with the arguments SGLang's backends give.

    One destination goes to `single` (18 tensors), three to `multi` (8 + 3 x 8 tensors).
    """
    columns = cell.width
    if len(destinations) == 1:
        tensors = (*_single_fields(source), *_single_fields(destinations[0]))
        return partial(single, *tensors, cell.mode, cell.bs, columns, columns, cell.rows)
    if len(destinations) != 3 or cell.next_n:
        raise ValueError(f"dropin_call: no such call in SGLang: {cell.name}")
    tensors = tuple(t for fields in (source, *destinations) for t in _multi_fields(fields))
    return partial(multi, *tensors, cell.bs, columns, cell.bs)


def num_calls(cell: Cell) -> int:
    """Calls of SGLang's functions that a cell takes: they copy to one destination or to three."""
    return 1 if cell.destinations in (1, 3) else cell.destinations


def name_of(peer: Sglang, cell: Cell) -> str:
    """The peer's name in the rows of a cell."""
    return peer.name + calls_text(cell)


def calls_text(cell: Cell) -> str:
    """What a name has behind it where num_calls() is not 1."""
    count = num_calls(cell)
    return "" if count == 1 else f", {count} calls"


def dropin_calls(
    single: Callable[..., None],
    multi: Callable[..., None],
    cell: Cell,
    source: cases.Fields,
    destinations: Sequence[cases.Fields],
) -> Callable[[], None]:
    """Like dropin_call, for any number of destinations: num_calls() calls."""
    if num_calls(cell) == 1:
        return dropin_call(single, multi, cell, source, destinations)
    each = [dropin_call(single, multi, cell, source, [to]) for to in destinations]

    def call_each() -> None:
        for call in each:
            call()

    return call_each


def _single_fields(fields: cases.Fields) -> tuple[torch.Tensor, ...]:
    # In decode seqlens_expanded is the very tensor cache_seqlens.
    expanded = fields.seqlens_expanded
    return (
        fields.cache_seqlens,
        fields.cu_seqlens_k,
        fields.page_table_1,
        fields.dsa_cache_seqlens,
        fields.cache_seqlens if expanded is None else expanded,
        fields.dsa_cu_seqlens_k,
        fields.real_page_table,
        fields.flashmla_num_splits,
        fields.flashmla_metadata,
    )


def _multi_fields(fields: cases.Fields) -> tuple[torch.Tensor, ...]:
    single = _single_fields(fields)
    return single[:4] + single[5:]


_COPY_SOURCE = """
template <int kAccesses>
__device__ void copy(const uint4* __restrict__ from, uint4* __restrict__ to, long long count) {
  const long long first = (long long)blockIdx.x * blockDim.x * kAccesses + threadIdx.x;
  uint4 values[kAccesses];
#pragma unroll
  for (int i = 0; i < kAccesses; ++i) {
    const long long at = first + (long long)i * blockDim.x;
    if (at < count) values[i] = from[at];
  }
#pragma unroll
  for (int i = 0; i < kAccesses; ++i) {
    const long long at = first + (long long)i * blockDim.x;
    if (at < count) to[at] = values[i];
  }
}
extern "C" __global__ void copy_1(const uint4* from, uint4* to, long long count) {
  copy<1>(from, to, count);
}
extern "C" __global__ void copy_4(const uint4* from, uint4* to, long long count) {
  copy<4>(from, to, count);
}
extern "C" __global__ void empty() {}
"""


@cache
def _cupy_kernel(name: str) -> Callable[..., None]:
    import cupy

    return cupy.RawModule(code=_COPY_SOURCE, options=("--std=c++17",)).get_function(name)


def _cupy_copy(
    kernel_name: str, accesses: int, threads: int, source: torch.Tensor, to: torch.Tensor
) -> None:
    import cupy
    import numpy as np

    count = source.numel() // 4
    blocks = -(-count // (threads * accesses))
    pointers = (np.uint64(source.data_ptr()), np.uint64(to.data_ptr()))
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        _cupy_kernel(kernel_name)((blocks,), (threads,), (*pointers, np.int64(count)))


def empty_kernel() -> None:
    """Launches a kernel of one thread that does nothing on torch's current stream."""
    import cupy

    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        _cupy_kernel("empty")((1,), (1,), ())


def _memcpy_async(source: torch.Tensor, to: torch.Tensor) -> None:
    import cupy

    device_to_device = 3
    num_bytes = source.numel() * source.element_size()
    stream = torch.cuda.current_stream().cuda_stream
    cupy.cuda.runtime.memcpyAsync(
        to.data_ptr(), source.data_ptr(), num_bytes, device_to_device, stream
    )


# Ways to copy one contiguous block; the fastest one is "the best device copy".
DEVICE_COPIES: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {
    "torch copy_": lambda source, to: to.copy_(source),
    "cudaMemcpyAsync": _memcpy_async,
    "16-byte kernel, 1 a thread": partial(_cupy_copy, "copy_1", 1, 256),
    "16-byte kernel, 4 a thread": partial(_cupy_copy, "copy_4", 4, 256),
    "16-byte kernel, 4 a thread, blocks of 1024": partial(_cupy_copy, "copy_4", 4, 1024),
}


class BlockPairs:
    """Pairs of contiguous blocks whose copy reads and writes `bytes_moved` bytes together."""

    def __init__(self, bytes_moved: int, count: int) -> None:
        elements = -(-bytes_moved // 2 // 16) * 4
        shape = (count, -(-elements // 128) * 128)
        source = torch.randint(0, 1 << 20, shape, dtype=torch.int32, device="cuda")
        self.pairs = [
            (s[:elements], d[:elements]) for s, d in zip(source, torch.zeros_like(source))
        ]
        torch.cuda.synchronize()  # they are used on other streams than the one that filled them

    def require_equal(self, what: str) -> None:
        """Raises AssertionError unless every block was copied; clears the destinations."""
        for source, to in self.pairs:
            if not torch.equal(source, to):
                raise AssertionError(f"{what}: the copy is wrong")
            to.zero_()
