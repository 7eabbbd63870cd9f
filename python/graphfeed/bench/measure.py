# SPDX-License-Identifier: Apache-2.0
"""Measures groups on this machine: what hinders it, what they share, what came of each."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from graphfeed.bench.groups import Context, Group
from graphfeed.bench.report import Row


@dataclass(frozen=True)
class Measured:
    """What came of a group.

    Attributes:
        group: Its name.
        date: When it began, in UTC.
        seconds: Time it took.
        rows: None where it failed.
        failure: What it raised.
    """

    group: str
    date: str
    seconds: float
    rows: list[Row] = field(default_factory=list)
    failure: Exception | None = None

    @property
    def sentence(self) -> str:
        """The failure in a line."""
        return f"{self.group}: {type(self.failure).__name__}: {self.failure}"


def find_obstacle() -> str | None:
    """Why nothing can be measured on a GPU here, in one line; None where it can."""
    try:
        import torch
    except ModuleNotFoundError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "no CUDA device"


def make_context(*, quick: bool, bin_dir: Path | None, say: Callable[[str], object]) -> Context:
    """The context of this machine's GPU; SGLang's kernels are compiled for it.

    Args:
        quick: As in Context.
        bin_dir: As in Context.
        say: Told what takes time, and what will be absent.
    """
    import torch

    from graphfeed.bench import peers

    properties = torch.cuda.get_device_properties(0)
    peer = peers.sglang()
    if peer is None:
        say("sglang is not installed: no rows beside it")
    else:
        say(f"compiling {peer.name}'s kernels")
        peers.compile_sglang(peer)
    return Context(torch.cuda.Stream(), properties.L2_cache_size, quick, bin_dir)


def make_cpu_context(*, quick: bool) -> Context:
    """The context of this machine's processor."""
    return Context(None, 0, quick, None)


def measure_group(group: Group, context: Context) -> Measured:
    """Measures a group; what it raises is kept."""
    start = datetime.now(timezone.utc)
    rows: list[Row] = []
    failure = None
    try:
        rows = group.measure(context)
    except Exception as error:
        failure = error
    if context.stream is not None:
        import torch

        torch.cuda.empty_cache()
    seconds = (datetime.now(timezone.utc) - start).total_seconds()
    return Measured(group.name, start.isoformat(timespec="seconds"), seconds, rows, failure)


def device_name() -> str:
    """The GPU's."""
    import torch

    return torch.cuda.get_device_name(0)


def cpu_name() -> str:
    """The processor's, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"CPU, {next(names, platform.machine())}"
