# SPDX-License-Identifier: Apache-2.0
"""Directories of compiled kernels: looking at one, filling one for an image, emptying one."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple, Union

from graphfeed import _library

_Path = Union[str, "os.PathLike[str]"]

_cache_state = _library.function("cache_state")
_clear_cache = _library.function("clear_cache")
_fill_cache = _library.function("fill_cache")
_num_kernels = _library.function("num_kernels")


class CacheEntry(NamedTuple):
    """A compiled kernel in a directory."""

    architecture: str
    path: str
    bytes: int
    modified: int
    """Seconds since 1970."""
    defect: str
    """Why a use would not take it; empty where one would, or where nobody read it."""


class CacheState(NamedTuple):
    """A directory of compiled kernels."""

    directory: str
    """Absolute, without symbolic links."""
    exists: bool
    problem: str
    """Why it is not used, such as that it belongs to another user; empty where it is."""
    entries: list[CacheEntry]
    """By architecture and name."""


class FilledCache(NamedTuple):
    """What `fill_cache` did."""

    compiled: int
    present: int
    """Kernels that were there already."""


def cache_state(directory: _Path, *, read_only: bool = False, read: bool = False) -> CacheState:
    """Returns what is in a directory.

    Args:
        directory: It need not exist.
        read_only: Judge it as one of ``read_only_directories``, which root may own.
        read: Read every entry to its end, to name its defect.

    Raises:
        ValueError: ``directory`` is empty.
    """
    return _state(_cache_state(os.fspath(directory), read_only, read))


def clear_cache(directory: _Path) -> CacheState:
    """Removes graphfeed's entries and unfinished ones, and nothing else.

    Returns:
        What was removed.

    Raises:
        ValueError: ``directory`` is empty.
        RuntimeError: A file cannot be removed; the message names it.
    """
    return _state(_clear_cache(os.fspath(directory)))


def fill_cache(
    architecture: str,
    directory: _Path,
    *,
    on_kernel: Callable[[int, int], object] | None = None,
) -> FilledCache:
    """Compiles every kernel for an architecture into a directory; no GPU is needed.

    It is for images: ``GRAPHFEED_CACHE_PATH`` names it where it is used, by the same NVRTC. What is
    made is readable by everyone.

    Args:
        architecture: Such as ``sm_90a``.
        directory: Made where it does not exist.
        on_kernel: Called after each kernel with the number done and of all, on this thread; what it
            raises ends the call.

    Raises:
        ValueError: ``architecture`` is none, or ``directory`` is empty.
        RuntimeError: There is no NVRTC, it does not know the architecture, or the directory cannot
            be written.
    """
    path, total = os.fspath(directory), _num_kernels()
    compiled = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        kernels = [threads.submit(_fill_cache, architecture, path, i) for i in range(total)]
        try:
            for done, kernel in enumerate(as_completed(kernels), start=1):
                compiled += kernel.result()
                if on_kernel is not None:
                    on_kernel(done, total)
        finally:
            threads.shutdown(cancel_futures=True)
    return FilledCache(compiled, total - compiled)


def _state(packed: Any) -> CacheState:
    directory, exists, problem, entries = packed
    return CacheState(directory, exists, problem, [CacheEntry(*entry) for entry in entries])
