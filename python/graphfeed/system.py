# SPDX-License-Identifier: Apache-2.0
"""What this machine has for graphfeed: driver, devices, run-time compiler. Nothing here raises."""

from __future__ import annotations

from typing import NamedTuple

from graphfeed import _library

_cuda_driver = _library.function("cuda_driver")
_runtime_compiler = _library.function("runtime_compiler")


class CudaDevice(NamedTuple):
    """A GPU that the driver shows."""

    name: str
    compute_capability: tuple[int, int]
    architecture: str
    """``sm_90a``: what kernels are compiled for here."""
    no_prebuilt: str
    """Why no kernel embedded in this build serves it; empty where one does."""


class CudaDriver(NamedTuple):
    """The CUDA driver. Versions are CUDA's, 12040 for 12.4."""

    version: int
    """0: none can be loaded."""
    minimum_version: int
    """The oldest that graphfeed can use."""
    problem: str
    """Why it cannot be used, and what to do; empty where it can."""
    devices: list[CudaDevice]
    """By CUDA ordinal; none where there is a problem."""


class RuntimeCompiler(NamedTuple):
    """The NVRTC that a compile would use."""

    version: int
    """13000 for 13.0; 0 where none is found."""
    path: str
    found_by: str
    """What led to the file, for a reader."""
    architectures: list[str]
    """What it compiles for."""
    problem: str
    """What was tried, where none is found."""


def cuda_driver() -> CudaDriver:
    """Loads and initialises the driver as a first use would; makes no context."""
    version, minimum_version, problem, devices = _cuda_driver()
    return CudaDriver(
        version,
        minimum_version,
        problem,
        [
            CudaDevice(name, (major, minor), architecture, no_prebuilt)
            for name, major, minor, architecture, no_prebuilt in devices
        ],
    )


def runtime_compiler() -> RuntimeCompiler:
    """Loads NVRTC as a first compile would."""
    version, path, found_by, architectures, problem = _runtime_compiler()
    return RuntimeCompiler(version, path, found_by, list(architectures), problem)
