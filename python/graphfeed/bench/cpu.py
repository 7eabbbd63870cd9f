# SPDX-License-Identifier: Apache-2.0
"""The CPU path beside separate NumPy operations: what a machine without a GPU can measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import graphfeed
from graphfeed import BatchState, ForwardMode, GeneratedMetadata, Metadata, Plan
from graphfeed.bench import report
from graphfeed.bench.cells import PAGE_SIZE, Cell
from graphfeed.bench.groups import Context
from graphfeed.bench.report import Row
from graphfeed.bench.timing import HostCall, host_times

SEPARATE = "separate NumPy copies"
OPERATIONS = "separate NumPy operations"
_CELLS = (Cell(1, 4096, 3), Cell(32, 4096, 3), Cell(32, 32768, 3))
_TOPK = 2048
_LAUNCHES = 64  # of a HostCall: few calls a batch, since each takes long


def copy(context: Context) -> list[Row]:
    """A copy to 3 destinations, called and planned."""
    rows = []
    for cell in _CELLS[:2] if context.quick else _CELLS:
        random = np.random.default_rng(1)
        shapes = cell.field_shapes()
        source = Metadata(
            **{name: random.integers(0, 1 << 20, s, np.int32) for name, s in shapes.items()}
        )
        destinations = [Metadata(*map(_like, source)) for _ in range(cell.destinations)]
        named = {"mode": cell.mode, "bs": cell.bs}
        plan = Plan(source, destinations, **named)
        calls = {
            "copy": lambda s=source, d=destinations, n=named: graphfeed.copy(s, d, **n),
            "plan": plan.run,
            SEPARATE: lambda s=source, d=destinations: _copy_separately(s, d),
        }
        rows += _rows(context, cell.name, calls, destinations, SEPARATE)
    return rows


def generate(context: Context) -> list[Row]:
    """A generation to one destination, called and planned."""
    rows = []
    for cell in _CELLS[:2] if context.quick else _CELLS:
        random = np.random.default_rng(1)
        shape = (cell.bs + 1, cell.width)
        batch = BatchState(
            seq_lens=random.integers(cell.width // 2, cell.width, cell.bs),
            req_pool_indices=random.permutation(cell.bs) + 1,
            req_to_token=random.integers(0, 1 << 20, shape, np.int32),
        )
        shapes = {**cell.field_shapes(), "seqlens_expanded": (cell.bs,)}
        names = [name for name in shapes if not name.startswith("flashmla")]
        target = GeneratedMetadata(**{name: np.zeros(shapes[name], np.int32) for name in names})
        named = {"mode": ForwardMode.DECODE, "bs": cell.bs, "index_topk": _TOPK}
        plan = Plan.generating(batch, [target], **named)
        calls = {
            "generate": lambda b=batch, t=target, n=named: graphfeed.generate(b, [t], **n),
            "plan that generates": plan.run,
            OPERATIONS: lambda b=batch, t=target: _generate_separately(b, t),
        }
        case = f"decode {cell.bs} x {cell.width}"
        rows += _rows(context, case, calls, [target], OPERATIONS)
    return rows


def _rows(
    context: Context,
    case: str,
    calls: dict[str, Callable[[], object]],
    destinations: Sequence[tuple],
    peer: str,
) -> list[Row]:
    """Each call beside the peer, all checked to have the same results first."""
    results = {name: _results(call, destinations) for name, call in calls.items()}
    for name, result in results.items():
        if any((a != b).any() for a, b in zip(result, results[peer])):
            raise AssertionError(f"{name}: {case}: not what {peer} give")
    times = host_times(
        {name: HostCall(call, _LAUNCHES) for name, call in calls.items()},
        synchronize=lambda: None,
        batches=context.batches,
    )
    theirs = times.pop(peer).median
    return [
        report.beside("", f"{name}, on the CPU: {case}", time.median, "us", peer, theirs)
        for name, time in times.items()
    ]


def _results(call: Callable[[], object], destinations: Sequence[tuple]) -> list[np.ndarray]:
    """What a call leaves in destinations that hold zeros before."""
    fields = [field for each in destinations for field in each if field is not None]
    for field in fields:
        field.fill(0)
    call()
    return [field.copy() for field in fields]


def _like(field: np.ndarray | None) -> np.ndarray | None:
    return None if field is None else np.zeros_like(field)


def _copy_separately(source: Metadata, destinations: Sequence[Metadata]) -> None:
    heads = (Metadata._fields.index("cu_seqlens_k"), Metadata._fields.index("dsa_cu_seqlens_k"))
    for destination in destinations:
        for i, (values, target) in enumerate(zip(source, destination)):
            if values is not None:
                first = 1 if i in heads else 0
                target[first:] = values[first:]


def _generate_separately(batch: BatchState, target: GeneratedMetadata) -> None:
    lengths = batch.seq_lens
    selected = np.minimum(lengths, _TOPK)
    target.cache_seqlens[:] = target.seqlens_expanded[:] = lengths
    target.dsa_cache_seqlens[:] = selected
    target.cu_seqlens_k[1:] = lengths.cumsum()
    target.dsa_cu_seqlens_k[1:] = selected.cumsum()
    for row, (length, pool_row) in enumerate(zip(lengths, batch.req_pool_indices)):
        tokens = batch.req_to_token[pool_row, :length]
        pages = tokens[::PAGE_SIZE] // PAGE_SIZE
        target.page_table_1[row, :length] = tokens
        target.real_page_table[row, : pages.size] = pages
