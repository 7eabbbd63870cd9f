# SPDX-License-Identifier: Apache-2.0
"""graphfeed's calls for a cell: the drop-in, which SGLang's callers make, and the native ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import graphfeed
import graphfeed.sglang
from graphfeed.bench import peers
from graphfeed.bench.cases import Fields
from graphfeed.bench.cells import Cell


def metadata(fields: Fields) -> graphfeed.Metadata:
    return graphfeed.Metadata(**fields._asdict())


dropin = partial(
    peers.dropin_call,
    graphfeed.sglang.fused_metadata_copy_cuda,
    graphfeed.sglang.fused_metadata_copy_multi_cuda,
)
# Of any number of destinations.
dropins = partial(peers.dropin_calls, *dropin.args)


def native(cell: Cell, source: Fields, destinations: Sequence[Fields]) -> Callable[[], None]:
    live = {} if cell.live is None else {"live_bound": source.cache_seqlens}
    return partial(
        graphfeed.copy,
        metadata(source),
        [metadata(fields) for fields in destinations],
        mode=cell.mode,
        bs=cell.bs,
        **live,
    )


def plan(cell: Cell, source: Fields, destinations: Sequence[Fields]) -> graphfeed.Plan:
    return graphfeed.Plan(
        metadata(source),
        [metadata(fields) for fields in destinations],
        mode=cell.mode,
        bs=cell.bs,
    )
