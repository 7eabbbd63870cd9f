# SPDX-License-Identifier: Apache-2.0
"""Feeds a captured CUDA graph its next batch's attention metadata, in one launch."""

from graphfeed._capture import Branch, GraphNode
from graphfeed._copy import ForwardMode, Metadata, Tensor, copy
from graphfeed._generate import BatchState, GeneratedMetadata, generate
from graphfeed._kernels import (
    KernelStats,
    PrebuiltKernels,
    cache_directory,
    kernel_stats,
    prebuilt_kernels,
    reset_failures,
    set_kernel_options,
    warmup,
)
from graphfeed._library import version
from graphfeed._plan import Plan
from graphfeed._schedulers import FlashMlaScheduler, PagedMqaScheduler

__version__ = version()

__all__ = [
    "BatchState",
    "Branch",
    "FlashMlaScheduler",
    "ForwardMode",
    "GeneratedMetadata",
    "GraphNode",
    "KernelStats",
    "Metadata",
    "PagedMqaScheduler",
    "Plan",
    "PrebuiltKernels",
    "Tensor",
    "cache_directory",
    "copy",
    "generate",
    "kernel_stats",
    "prebuilt_kernels",
    "reset_failures",
    "set_kernel_options",
    "warmup",
]
