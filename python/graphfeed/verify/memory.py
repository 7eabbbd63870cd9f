# SPDX-License-Identifier: Apache-2.0
"""Where blocks are allocated: NumPy's memory, or a GPU's by the driver alone, with no framework."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Protocol

import numpy as np

from graphfeed.system import cuda_driver
from graphfeed.verify.block import Block


class DeviceError(RuntimeError):
    """The device asked for cannot be had."""


class Memory(Protocol):
    """Allocates blocks on one device.

    Attributes:
        label: The device, for a reader.
        stream: Raw handle of the stream that calls go to; None on the CPU.
    """

    label: str
    stream: int | None

    def allocate(self, block: Block) -> Any:
        """A copy of the block's allocation."""

    def tensor(self, block: Block, allocation: Any) -> Any:
        """The block's tensor inside it, for graphfeed."""

    def read(self, block: Block, allocation: Any) -> np.ndarray:
        """What the whole allocation holds once the stream has passed all work."""


class HostMemory:
    """NumPy arrays."""

    label = "cpu"
    stream: int | None = None

    def allocate(self, block: Block) -> np.ndarray:
        return block.initial.copy()

    def tensor(self, block: Block, allocation: np.ndarray) -> np.ndarray:
        return block.view(allocation)

    def read(self, block: Block, allocation: np.ndarray) -> np.ndarray:
        return allocation


class CudaMemory:
    """Memory of CUDA device 0, and a stream of its own.

    Raises:
        DeviceError: The driver cannot be used, or shows no device.
    """

    def __init__(self) -> None:
        found = cuda_driver()
        if found.problem or not found.devices:
            raise DeviceError(f"device cuda: {found.problem or 'the driver shows no device'}")
        self.label = f"cuda ({found.devices[0].name})"
        self._driver = ctypes.CDLL("libcuda.so.1")
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)
        self._call("cuStreamCreate", ctypes.byref(stream), 1)  # does not wait for the null stream
        self.stream: int | None = stream.value

    def allocate(self, block: Block) -> _Allocation:
        return _Allocation(self, block.initial)

    def tensor(self, block: Block, allocation: _Allocation) -> Exported:
        size = block.initial.itemsize
        address = allocation.address + block.lead * size
        return Exported(address, block.shape, block.strides, bits=8 * size, device=(2, 0))

    def read(self, block: Block, allocation: _Allocation) -> np.ndarray:
        held = np.empty_like(block.initial)
        self._call("cuStreamSynchronize", ctypes.c_void_p(self.stream))
        self._call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(held.ctypes.data),
            ctypes.c_uint64(allocation.address),
            ctypes.c_size_t(held.nbytes),
        )
        return held

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status != 0:
            raise DeviceError(f"device cuda: {name} failed with CUresult {status}")


class _Allocation:
    """Device memory that starts as a copy of an array and is freed with the object."""

    def __init__(self, memory: CudaMemory, initial: np.ndarray) -> None:
        driver, call = memory._driver, memory._call
        address = ctypes.c_uint64()
        num_bytes = ctypes.c_size_t(max(initial.nbytes, 1))
        call("cuMemAlloc_v2", ctypes.byref(address), num_bytes)
        self.address = address.value
        # Not at exit: the driver may be gone by then.
        weakref.finalize(self, driver.cuMemFree_v2, address).atexit = False
        source = ctypes.c_void_p(initial.ctypes.data)
        call("cuMemcpyHtoD_v2", address, source, ctypes.c_size_t(initial.nbytes))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_keep = _Deleter(lambda _: None)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Exported:
    """Integers at an address, as a producer of DLPack; it must outlive what is made of it."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *,
        bits: int,
        device: tuple[int, int],
    ) -> None:
        """Describes memory that the caller keeps.

        Args:
            address: Of the first element.
            shape: Of one or two dimensions.
            strides: In elements.
            bits: Of an element.
            device: DLPack's device type and number.
        """
        self._device = device
        self._sizes = [(ctypes.c_int64 * len(shape))(*numbers) for numbers in (shape, strides)]
        self._managed = _DLManagedTensor(deleter=_keep)
        self._managed.tensor = _DLTensor(
            data=address,
            device_type=device[0],
            device_id=device[1],
            ndim=len(shape),
            bits=bits,
            lanes=1,
            shape=ctypes.addressof(self._sizes[0]),
            strides=ctypes.addressof(self._sizes[1]),
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        return _new_capsule(ctypes.addressof(self._managed), b"dltensor", None)


def open_memory(device: str) -> Memory:
    """The memory of a device.

    Args:
        device: ``cpu``, ``cuda``, or ``auto``: the GPU where the driver shows one.

    Raises:
        DeviceError: ``cuda`` was asked for and cannot be had.
    """
    if device == "cpu" or (device == "auto" and not cuda_driver().devices):
        return HostMemory()
    return CudaMemory()
