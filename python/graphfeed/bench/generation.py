# SPDX-License-Identifier: Apache-2.0
"""Generation beside SGLang's Triton kernels: device time of the same fields, host time of a run.

Both sides get the same batches through the same signatures (graphfeed.sglang has SGLang's names).
Lengths are random from half the width on, pool rows and tokens random. Each set has a pool and
outputs of its own, so that neither side finds the last replay's in the L2 cache.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType

import torch

import graphfeed
import graphfeed.sglang
from graphfeed.bench import host_copy, peers, report
from graphfeed.bench.groups import Context
from graphfeed.bench.report import Row
from graphfeed.bench.timing import HostCall, capture, device_times

_TOPK = 2048
_PAGE = 64
_MAX_BYTES = 24 << 30  # of all sets
_OUTPUTS = ("cache_seqlens", "cu_seqlens_k", "page_table_1", "seqlens_expanded",
            "dsa_cache_seqlens", "dsa_cu_seqlens_k", "real_page_table")  # fmt: skip
PLAN_RUN = "Plan.run(), generating"


@dataclass(frozen=True)
class Cell:
    """A batch whose metadata is generated.

    Attributes:
        bs: Requests.
        width: Columns of page_table_1 and of req_to_token.
        next_n: Draft tokens a request in target_verify; 0 is decode.
        live: Length of every request; None: random from half the width on.
        wide: Whether page_table_1 is written, or the table of pages alone.
    """

    bs: int
    width: int
    next_n: int = 0
    live: int | None = None
    wide: bool = True

    @property
    def rows(self) -> int:
        return self.bs * max(self.next_n, 1)

    @property
    def name(self) -> str:
        mode = f"verify n={self.next_n}" if self.next_n else "decode"
        live = f", live {self.live}" if self.live is not None else ""
        return f"{mode} {self.bs} x {self.width}{live}{'' if self.wide else ', pages alone'}"

    @property
    def set_bytes(self) -> int:
        pages = math.ceil(self.width / _PAGE)
        table = self.width if self.wide else 0
        return 4 * ((self.bs + 1) * self.width + self.rows * (table + pages + 8))

    def num_sets(self, l2_bytes: int) -> int:
        """So many that what they touch exceeds the L2 cache twice, within _MAX_BYTES."""
        touched = self.set_bytes if self.live is None else self.set_bytes * self.live // self.width
        wanted = math.ceil(4 * l2_bytes / max(touched, 1)) + 1
        return max(2, min(wanted, _MAX_BYTES // self.set_bytes, 400))


DECODE = (Cell(64, 131072),)
VERIFY = (Cell(64, 131072, 4), Cell(128, 32768, 4))
RUN = Cell(32, 4096)
_BATCHES = (1, 8, 32, 128)
OTHERS = (
    *(Cell(bs, width, n) for n in (0, 4) for width in (4096, 32768) for bs in _BATCHES),
    *(Cell(bs, width) for width in (131072, 202758) for bs in (1, 32)),
    *(Cell(32, 32768, n) for n in (2, 6)),
    Cell(32, 202758, live=16384),
    Cell(32, 202758, 4, live=16384),
    Cell(64, 131072, wide=False),
    Cell(8, 32768, wide=False),
)
WORST = "worst of all cells"


@cache
def _triton() -> ModuleType | None:
    if peers.sglang() is None:
        return None
    return importlib.import_module("sglang.kernels.ops.attention.dsa.metadata")


class Batch:
    """One set: an engine's state, and the buffers that either side fills."""

    def __init__(self, cell: Cell, seed: int) -> None:
        random = torch.Generator(device="cuda").manual_seed(seed)
        integers = partial(torch.randint, generator=random, device="cuda")
        low, high = (cell.live, cell.live) if cell.live else (cell.width // 2, cell.width - 8)
        self.cell = cell
        self.seq_lens = integers(low, high + 1, (cell.bs,))
        self.pool_rows = torch.randperm(cell.bs, generator=random, device="cuda") + 1
        shape = (cell.bs + 1, cell.width)
        self.req_to_token = integers(0, 1 << 30, shape, dtype=torch.int32)
        sizes = {
            "cache_seqlens": (cell.bs,),
            "cu_seqlens_k": (cell.bs + 1,),
            "page_table_1": (cell.rows, cell.width),
            "seqlens_expanded": (cell.rows,),
            "dsa_cache_seqlens": (cell.rows,),
            "dsa_cu_seqlens_k": (cell.rows + 1,),
            "real_page_table": (cell.rows, math.ceil(cell.width / _PAGE)),
        }
        if not cell.wide:
            del sizes["page_table_1"]
        if not cell.next_n:
            del sizes["seqlens_expanded"]
        self.outputs = {
            name: torch.full(size, -1, dtype=torch.int32, device="cuda")
            for name, size in sizes.items()
        }

    def call(self, module: ModuleType) -> Callable[[], None]:
        """The call of SGLang's signature in `module`, its own or graphfeed's."""
        o, cell = self.outputs, self.cell
        state = (self.seq_lens, self.pool_rows, self.req_to_token)
        head = (o["cache_seqlens"], o["cu_seqlens_k"], o.get("page_table_1"))
        tail = (o["dsa_cache_seqlens"], o["dsa_cu_seqlens_k"], o["real_page_table"])
        sizes = (cell.bs, cell.width, _TOPK, _PAGE)
        if not cell.next_n:
            return partial(module.fused_dsa_decode_metadata, *state, *head, *tail, *sizes)
        function = module.fused_dsa_target_verify_metadata
        return partial(function, *state, *head, o["seqlens_expanded"], *tail, *sizes, cell.next_n)

    def plan(self) -> graphfeed.Plan:
        batch = graphfeed.BatchState(self.seq_lens, self.pool_rows, self.req_to_token)
        metadata = graphfeed.GeneratedMetadata(**self.outputs)
        cell = self.cell
        mode = graphfeed.ForwardMode.TARGET_VERIFY if cell.next_n else graphfeed.ForwardMode.DECODE
        return graphfeed.Plan.generating(
            batch, [metadata], mode=mode, bs=cell.bs, num_draft_tokens=max(cell.next_n, 1)
        )

    def require(self, what: str) -> None:
        """Raises AssertionError unless the outputs are what eager code makes of the state."""
        n = max(self.cell.next_n, 1)
        lengths = self.seq_lens + self.cell.next_n
        steps = torch.arange(1 - n, 1, device="cuda")
        expanded = (lengths[:, None] + steps).flatten()
        own = expanded.clamp(max=_TOPK)
        zero = lengths.new_zeros(1)
        expected = {
            "cache_seqlens": lengths,
            "cu_seqlens_k": torch.cat((zero, lengths.cumsum(0))),
            "seqlens_expanded": expanded,
            "dsa_cache_seqlens": own,
            "dsa_cu_seqlens_k": torch.cat((zero, own.cumsum(0))),
        }
        for name, values in expected.items():
            if name in self.outputs and not torch.equal(self.outputs[name], values.int()):
                raise AssertionError(f"{what}: {self.cell.name}: {name} is wrong")
        rows = self.req_to_token[self.pool_rows]
        for name, step in (("page_table_1", 1), ("real_page_table", _PAGE)):
            if name not in self.outputs:
                continue
            for i, length in enumerate(lengths.tolist()):
                tokens = rows[i, :length:step] // step
                table = self.outputs[name][i * n : (i + 1) * n, : tokens.shape[0]]
                if not torch.equal(table, tokens.expand(n, -1)):
                    raise AssertionError(f"{what}: {self.cell.name}: {name} is wrong")

    def reset(self) -> None:
        for output in self.outputs.values():
            output.fill_(-1)


def generation(context: Context) -> list[Row]:
    """The budgeted cells, and without --quick all others; then host time of a plan's run."""
    triton = _triton()
    held = dict.fromkeys(DECODE, "device/generate/decode")
    held |= dict.fromkeys(VERIFY, "device/generate/verify")
    cells = dict.fromkeys((*held, *(() if context.quick else OTHERS)))
    rows, worst = [], None
    for cell in cells:
        ours, theirs = _device(context, cell, triton)
        if theirs is None:
            rows.append(Row("", f"device: {cell.name}", ours, "us"))
            continue
        budget = held.get(cell, "")
        case = cell.name if budget else f"device: {cell.name}"
        rows.append(report.beside(budget, case, ours, "us", _peer_name(), theirs))
        if worst is None or ours / theirs > worst[1] / worst[2]:
            worst = (cell, ours, theirs)
    if worst is not None:
        cell, ours, theirs = worst
        peer = f"{_peer_name()}, {cell.name}"
        rows.append(report.beside("device/generate/worst_cell", WORST, ours, "us", peer, theirs))
    return rows + _host_rows(context, triton)


def _peer_name() -> str:
    return f"{peers.sglang().name}, Triton"


def _device(context: Context, cell: Cell, triton: ModuleType | None) -> tuple[float, float | None]:
    """Microseconds of our kernel and of SGLang's, each checked first."""
    sets = [Batch(cell, seed) for seed in range(cell.num_sets(context.l2_bytes))]
    sides = {"ours": graphfeed.sglang} | ({} if triton is None else {"theirs": triton})
    min_calls = 240 if cell.set_bytes < 32 << 20 else 12
    graphs = {}
    torch.cuda.synchronize()
    with torch.cuda.stream(context.stream):
        for name, module in sides.items():
            calls = [batch.call(module) for batch in sets]
            for batch in sets:
                batch.reset()
            calls[0]()
            graphs[name] = capture(calls, stream=context.stream, memory=sets, min_calls=min_calls)
            sets[-1].reset()
            graphs[name].graph.replay()
            sets[0].require(name)
            sets[-1].require(name)
    times = device_times(graphs, stream=context.stream, rounds=min(context.rounds, 15))
    return times["ours"], times.get("theirs")


def _host_rows(context: Context, triton: ModuleType | None) -> list[Row]:
    """A run of a plan on torch's current stream beside SGLang's call, in turns."""
    rows = []
    for cell in (RUN, Cell(RUN.bs, RUN.width, 4)):
        batch = Batch(cell, 1)
        torch.cuda.synchronize()
        with torch.cuda.stream(context.stream):
            plan = batch.plan()
            plan.run()
            batch.require(PLAN_RUN)
            timed = {PLAN_RUN: HostCall(plan.run)}
            timed["drop-in"] = HostCall(batch.call(graphfeed.sglang))
            if triton is not None:
                timed[_peer_name()] = HostCall(batch.call(triton))
            times = host_copy.times(context, timed)
        for name, time in times.items():
            if name == _peer_name():
                continue
            budget = "host/plan/python_generate" if (name, cell) == (PLAN_RUN, RUN) else ""
            case = cell.name if budget else f"host: {name}, {cell.name}"
            if triton is None:
                rows.append(Row("", f"host: {name}, {cell.name}", time.median, "us"))
                continue
            theirs = times[_peer_name()].median
            rows.append(report.beside(budget, case, time.median, "us", _peer_name(), theirs))
    return rows
