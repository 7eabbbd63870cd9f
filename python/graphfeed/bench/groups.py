# SPDX-License-Identifier: Apache-2.0
"""The groups of cases, by name, and what they share while they run."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphfeed.bench.report import Row


@dataclass(frozen=True)
class Context:
    """Where and how thoroughly to measure.

    Attributes:
        stream: A torch stream other than the default one, which everything runs on; None on a CPU.
        l2_bytes: Size of the device's L2 cache.
        quick: Fewer repetitions and only the cases that a limit requires.
        bin_dir: Folder of the C++ benchmark programs; None: without their rows.
    """

    stream: Any
    l2_bytes: int
    quick: bool
    bin_dir: Path | None

    @property
    def batches(self) -> int:
        return 20 if self.quick else 100

    @property
    def rounds(self) -> int:
        return 10 if self.quick else 30

    @property
    def step_rounds(self) -> int:
        return 400 if self.quick else 2000

    @property
    def jitter_steps(self) -> int:
        return 2000 if self.quick else 10_000


@dataclass(frozen=True)
class Group:
    """Cases that are measured, and recorded in one file, together."""

    name: str
    module: str
    function: str
    budgets: tuple[str, ...] = ()
    in_quick: bool = True

    @property
    def file_name(self) -> str:
        return self.name.replace("/", "_") + ".json"

    def measure(self, context: Context) -> list[Row]:
        module = importlib.import_module(f"graphfeed.bench.{self.module}")
        return getattr(module, self.function)(context)


GROUPS = (
    Group("host/dropin", "host_copy", "dropin", ("host/dropin/single", "host/dropin/multi")),
    Group("host/native", "host_copy", "native"),
    Group("host/plan", "host_plan", "plan", ("host/plan/cpp", "host/plan/python_copy")),
    Group("host/node", "host_node", "node", ("host/node/repointed",)),
    Group("step", "step", "step", ("step/in_graph",)),
    Group("device/copy/small", "device_copy", "small", ("device/copy/small",)),
    Group("device/copy/large", "device_copy", "large", ("device/copy/large",)),
    Group("device/copy/live", "device_copy", "live", ("device/copy/live",)),
    Group(
        "generate",
        "generation",
        "generation",
        (
            "host/plan/python_generate",
            "device/generate/decode",
            "device/generate/verify",
            "device/generate/worst_cell",
        ),
    ),
    Group(
        "first_call",
        "first_call",
        "first_calls",
        ("first_call/empty", "first_call/disk", "first_call/prebuilt"),
    ),
    Group("grid", "grid", "grid", in_quick=False),
)


# What a machine without a GPU measures.
CPU_GROUPS = (Group("cpu/copy", "cpu", "copy"), Group("cpu/generate", "cpu", "generate"))


def select(
    pattern: str | None, *, quick: bool, groups: Sequence[Group] = GROUPS
) -> Sequence[Group]:
    """The groups whose name the regular expression finds; all (that quick allows) without one."""
    if pattern is not None:
        return [group for group in groups if re.search(pattern, group.name)]
    return [group for group in groups if group.in_quick or not quick]
