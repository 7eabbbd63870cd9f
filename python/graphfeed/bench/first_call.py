# SPDX-License-Identifier: Apache-2.0
"""Time of the first copy of a fresh process: cache empty, cache filled, kernels prebuilt.

Each measurement is a process of its own: `python -m graphfeed.bench.first_call SIDE` initialises
torch and the CUDA context, imports SIDE, makes the tensors, and times the first call to its
completion.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from graphfeed.bench import cells, report
from graphfeed.bench.groups import Context
from graphfeed.bench.report import FIRST_CALL_CASE, Row
from graphfeed.bench.timing import median

_CELL = cells.Cell(32, 4096, 3)
_CACHE_VARIABLE = {"graphfeed": "GRAPHFEED_CACHE_DIR", "sglang": "SGLANG_JIT_CACHE_DIR"}


def first_calls(context: Context) -> list[Row]:
    """Empty cache, the same cache again, kernels prebuilt; SGLang's own first calls beside.

    The last is absent where the build holds no kernels.
    """
    import graphfeed
    from graphfeed.bench import peers

    repetitions = 1 if context.quick else 3
    empty, disk = _empty_and_filled("graphfeed", repetitions)
    times = {"first_call/empty": empty, "first_call/disk": disk}
    if graphfeed.prebuilt_kernels().architectures:
        times["first_call/prebuilt"] = _prebuilt(repetitions)
    peer = peers.sglang()
    if peer is None or context.quick:
        return [Row(budget, FIRST_CALL_CASE, ms, "ms") for budget, ms in times.items()]
    peer_empty, peer_disk = _empty_and_filled("sglang", 1)
    beside = {"first_call/empty": peer_empty}  # others have their kernel at hand, as its cache does
    return [
        report.beside(budget, FIRST_CALL_CASE, ms, "ms", peer.name, beside.get(budget, peer_disk))
        for budget, ms in times.items()
    ]


def _empty_and_filled(side: str, repetitions: int) -> tuple[float, float]:
    empty, filled = [], []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as cache:
            empty.append(_run_process(side, cache))
            filled.append(_run_process(side, cache))
    return median(empty), median(filled)


def _prebuilt(repetitions: int) -> float:
    return median([_run_process("graphfeed", "", prebuilt=True) for _ in range(repetitions)])


def _run_process(side: str, cache: str, *, prebuilt: bool = False) -> float:
    path = os.pathsep.join(filter(None, sys.path))
    # CUDA_CACHE_DISABLE: the compiler's own cache on disk would answer instead of it.
    environment = os.environ | {
        _CACHE_VARIABLE[side]: cache,
        "GRAPHFEED_PREBUILT": str(int(prebuilt)),
        "PYTHONPATH": path,
        "CUDA_CACHE_DISABLE": "1",
    }
    command = [sys.executable, "-m", "graphfeed.bench.first_call", side]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])["ms"]


def _call_of(side: str) -> Callable[..., Callable[[], object]]:
    from graphfeed.bench import peers

    if side == "graphfeed":
        from graphfeed.bench import calls

        return calls.native
    peer = peers.sglang()
    if peer is None:
        raise ModuleNotFoundError("sglang is not installed")
    return lambda *cell_and_tensors: peers.dropin_call(peer.single, peer.multi, *cell_and_tensors)


def main(side: str) -> None:
    """Prints {"ms": ...}, the time of this process' first call."""
    import torch

    from graphfeed.bench import cases

    torch.cuda.init()
    sets = cases.Sets(_CELL, 1, "cuda")
    expected = sets.expected()
    call = _call_of(side)(_CELL, sets.sources[0], sets.destinations[0])
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        milliseconds = (time.perf_counter() - start) * 1e3
    sets.require(expected, f"{side}'s first call")
    print(json.dumps({"ms": milliseconds}))


if __name__ == "__main__":
    main(sys.argv[1])
