# SPDX-License-Identifier: Apache-2.0
"""Where compiled kernels come from and are kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, Union

from graphfeed import _library

_Path = Union[str, "os.PathLike[str]"]

_warmup = _library.function("warmup")
_prebuilt = _library.function("kernels_prebuilt")
_prebuilt_set = _library.function("prebuilt_kernels")
_compiled = _library.function("kernels_compiled")
_disk_hits = _library.function("kernel_disk_hits")
_loaded = _library.function("kernels_loaded")
_cache_directory = _library.function("cache_directory")
_reset_failures = _library.function("reset_failures")


class KernelStats(NamedTuple):
    """What this process has done for its kernels so far."""

    prebuilt: int
    """Kernels taken from those embedded in this build."""
    disk_hits: int
    """Kernels read from a cache directory."""
    compiled: int
    """Kernels compiled by NVRTC."""
    loaded: int
    """Kernels loaded on a device, wherever they came from."""


class PrebuiltKernels(NamedTuple):
    """The kernels embedded in this build, which need no compiler where they run."""

    architectures: list[str]
    """``sm_80`` serves every 8.x; empty in a build without."""
    compiler: str
    """What compiled them, such as ``NVRTC 12.9``."""
    minimum_driver: int
    """The oldest driver that runs them, as a CUDA version: 12040 for 12.4."""


def set_kernel_options(
    *,
    cache_directory: _Path | None = None,
    read_only_directories: Sequence[_Path] | None = None,
    nvrtc_path: _Path | None = None,
    max_cache_bytes: int | None = None,
    prebuilt: bool | None = None,
) -> None:
    """Replaces the options for kernels that are not loaded yet; call it before the first use.

    Args:
        cache_directory: Where compiled kernels are kept, ``""`` for memory only. Default:
            ``GRAPHFEED_CACHE_DIR``, else ``$XDG_CACHE_HOME/graphfeed``, else
            ``$HOME/.cache/graphfeed``, else memory only.
        read_only_directories: Further caches that are read and never written. Default:
            ``GRAPHFEED_CACHE_PATH``, colon-separated.
        nvrtc_path: The libnvrtc to load. Default: ``GRAPHFEED_NVRTC``, else one already loaded,
            else the first found in site-packages, ``CUDA_HOME`` or by the loader.
        max_cache_bytes: Upper bound of what is kept in ``cache_directory``. Default: 64 MiB.
        prebuilt: Whether the kernels embedded in this build may serve. Default: yes, unless
            ``GRAPHFEED_PREBUILT`` is 0.

    Raises:
        TypeError: ``read_only_directories`` is one path and not a sequence.
        ValueError: ``max_cache_bytes`` is negative.
    """
    if isinstance(read_only_directories, (str, bytes)):
        raise TypeError(
            "set_kernel_options: read_only_directories: expected a sequence of paths, got one"
        )
    if max_cache_bytes is not None and max_cache_bytes < 0:
        raise ValueError(
            f"set_kernel_options: max_cache_bytes: must not be negative, got {max_cache_bytes}"
        )
    _library.set_kernel_options(
        None if cache_directory is None else os.fspath(cache_directory),
        None
        if read_only_directories is None
        else os.pathsep.join(os.fspath(directory) for directory in read_only_directories),
        None if nvrtc_path is None else os.fspath(nvrtc_path),
        _library.NVRTC_HINTS,
        max_cache_bytes,
        prebuilt,
    )


def warmup(device: int = 0) -> None:
    """Loads every kernel for CUDA device ``device``, compiling what is not embedded nor cached.

    Call it once before capturing: a first use inside a stream capture is refused.

    Raises:
        ValueError: There is no such device.
        RuntimeError: No driver, or a kernel that is neither embedded nor cached and cannot be
            compiled; the message says why.
    """
    _warmup(device)


def reset_failures() -> None:
    """Forgets remembered failures, so that the next use compiles or loads again."""
    _reset_failures()


def kernel_stats() -> KernelStats:
    """Returns the counts of this process."""
    return KernelStats(_prebuilt(), _disk_hits(), _compiled(), _loaded())


def prebuilt_kernels() -> PrebuiltKernels:
    """Returns what this build holds; with it no compute capability it names needs NVRTC."""
    architectures, compiler, minimum_driver = _prebuilt_set()
    return PrebuiltKernels(list(architectures), compiler, minimum_driver)


def cache_directory() -> str:
    """Returns the cache directory in use, ``""`` where kernels are kept in memory only."""
    return _cache_directory()
