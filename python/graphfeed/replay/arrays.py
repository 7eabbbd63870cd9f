# SPDX-License-Identifier: Apache-2.0
"""Where a replay's tensors live: NumPy on the CPU, torch with a captured CUDA graph on a GPU.

torch is imported only once a GPU was chosen.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from graphfeed.replay.engine import TableWrite

SENTINEL = -1_234_567_890


class DeviceError(RuntimeError):
    """The device asked for cannot be had."""


Tensor = Any  # numpy.ndarray, or torch.Tensor on a GPU
Captured = Any  # torch.cuda.CUDAGraph, None on the CPU


class Reader(Protocol):
    """Stands in for the model: its graphs read all of some buffers into the same results."""

    def capture(self, refresh: Callable[[], None] | None = None) -> Captured:
        """Captures a graph in which what `refresh` queues comes before the reads.

        With a refresh the graph is kept, so that its nodes can be re-pointed. On the CPU there is
        no graph.
        """

    def read(self, captured: Captured) -> list[np.ndarray]:
        """Replays the graph and returns what it read; on the CPU the buffers themselves."""


class Arrays(Protocol):
    """Memory and array operations of one device.

    Attributes:
        label: The device, for the summary.
        ordinal: CUDA device number, None on the CPU.
        stream: Raw handle of the stream everything runs on, None on the CPU.
        no_nodes: Why nodes of captured graphs cannot be re-pointed here; None where they can.
    """

    label: str
    ordinal: int | None
    stream: int | None
    no_nodes: str | None

    def on_stream(self) -> contextlib.AbstractContextManager[Any]:
        """Context in which array operations run on ``stream``."""

    def array(self, values: np.ndarray) -> Tensor:
        """A tensor with these values; on the CPU the very same memory."""

    def arange(self, count: int) -> Tensor:
        """int64 [count]: 0, 1, 2, ..."""

    def buffer(self, count: int) -> Tensor:
        """int32 [count] in an allocation of its own, filled with ``SENTINEL``."""

    def update(self, table: Tensor, host: np.ndarray, *, writes: Sequence[TableWrite]) -> None:
        """Brings the written parts of ``host`` into ``table``, made by ``array(host)``."""

    def reader(self, buffers: Sequence[Tensor]) -> Reader:
        """A reader of all of ``buffers``."""


class CpuArrays:
    """NumPy arrays."""

    ordinal: int | None = None
    stream: int | None = None

    def __init__(self, label: str = "cpu") -> None:
        self.label = label
        self.no_nodes: str | None = f"needs a GPU, and this is {label}"

    def on_stream(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def array(self, values: np.ndarray) -> np.ndarray:
        return values

    def arange(self, count: int) -> np.ndarray:
        return np.arange(count)

    def buffer(self, count: int) -> np.ndarray:
        return np.full(count, SENTINEL, dtype=np.int32)

    def update(self, table: np.ndarray, host: np.ndarray, *, writes: Sequence[TableWrite]) -> None:
        """Nothing to do: ``array`` returned ``host`` itself."""

    def reader(self, buffers: Sequence[np.ndarray]) -> Reader:
        return _CpuReader(buffers)


class _CpuReader:
    def __init__(self, buffers: Sequence[np.ndarray]) -> None:
        self._buffers = list(buffers)

    def capture(self, refresh: Callable[[], None] | None = None) -> Captured:
        if refresh is not None:
            raise DeviceError("device cpu: captures no graph")
        return None

    def read(self, captured: Captured) -> list[np.ndarray]:
        return self._buffers


class CudaArrays:
    """torch tensors on the current CUDA device, on a stream of their own.

    Buffers come straight from the driver, not from torch's pool, so that a write past one is seen
    by compute-sanitizer.

    Raises:
        DeviceError: torch is not installed or sees no GPU.
    """

    def __init__(self) -> None:
        if importlib.util.find_spec("torch") is None:
            raise DeviceError("device cuda: torch is not installed")
        import torch

        if not torch.cuda.is_available():
            raise DeviceError(f"device cuda: torch {torch.__version__} sees no usable GPU")
        torch.cuda.init()
        self._torch = torch
        self.ordinal: int | None = torch.cuda.current_device()
        self._device = torch.device("cuda", self.ordinal)
        self._torch_stream = torch.cuda.Stream(self._device)
        self.label = f"cuda ({torch.cuda.get_device_name(self._device)})"
        self.stream: int | None = self._torch_stream.cuda_stream
        self.no_nodes: str | None = None
        if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"):
            self.no_nodes = f"torch {torch.__version__} keeps no captured graph"

    def on_stream(self) -> contextlib.AbstractContextManager[Any]:
        return self._torch.cuda.stream(self._torch_stream)

    def array(self, values: np.ndarray) -> Tensor:
        return self._torch.from_numpy(values).to(self._device)

    def arange(self, count: int) -> Tensor:
        return self._torch.arange(count, device=self._device)

    def buffer(self, count: int) -> Tensor:
        memory = _DriverAllocation(count)
        return self._torch.as_tensor(memory, device=self._device).fill_(SENTINEL)

    def update(self, table: Tensor, host: np.ndarray, *, writes: Sequence[TableWrite]) -> None:
        for row, begin, end in writes:
            table[row, begin:end] = self.array(host[row, begin:end])

    def reader(self, buffers: Sequence[Tensor]) -> Reader:
        results = [self.buffer(buffer.numel()) for buffer in buffers]
        return _CudaReader(buffers, results=results, stream=self._torch_stream)


class _CudaReader:
    def __init__(self, buffers: Sequence[Tensor], *, results: list[Tensor], stream: Any) -> None:
        import torch

        self._torch = torch
        self._buffers = list(buffers)
        self._results = results
        self._hosts = [torch.empty_like(each, device="cpu", pin_memory=True) for each in results]
        self._stream = stream

    def capture(self, refresh: Callable[[], None] | None = None) -> Captured:
        cuda = self._torch.cuda
        kept = {} if refresh is None else {"keep_graph": True}
        graph = cuda.CUDAGraph(**kept)
        gc.collect()  # a buffer freed while the stream captures would end the capture
        with cuda.graph(graph, stream=self._stream):
            if refresh is not None:
                refresh()
            for result, buffer in zip(self._results, self._buffers):
                result.copy_(buffer)
        return graph

    def read(self, captured: Captured) -> list[np.ndarray]:
        captured.replay()
        for host, result in zip(self._hosts, self._results):
            host.copy_(result, non_blocking=True)
        self._stream.synchronize()
        return [host.numpy() for host in self._hosts]


class _DriverAllocation:
    """int32 [count] from cuMemAlloc in the current context, freed with the object."""

    def __init__(self, count: int) -> None:
        driver = ctypes.CDLL("libcuda.so.1")
        address = ctypes.c_uint64()
        status = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * count))
        if status != 0:
            raise RuntimeError(f"cuMemAlloc of {4 * count} bytes failed with CUresult {status}")
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "<i4",
            "data": (address.value, False),
            "strides": None,
            "version": 3,
        }
        # Not at exit: the driver may be gone by then.
        weakref.finalize(self, driver.cuMemFree_v2, ctypes.c_uint64(address.value)).atexit = False


def open_arrays(device: str) -> Arrays:
    """The arrays of a device.

    Args:
        device: ``cpu``, ``cuda``, or ``auto``: the GPU where there is one that torch can use.

    Raises:
        DeviceError: ``cuda`` was asked for and cannot be had.
        ValueError: No such device.
    """
    if device == "cpu":
        return CpuArrays()
    if device == "cuda":
        return CudaArrays()
    if device != "auto":
        raise ValueError(f"device: expected auto, cpu or cuda, got {device!r}")
    if not _gpu_present():
        return CpuArrays()
    try:
        return CudaArrays()
    except DeviceError as error:
        return CpuArrays(label=f"cpu (a GPU is present; {error})")


def _gpu_present() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return (
        driver.cuInit(0) == 0
        and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
        and count.value > 0
    )
