# SPDX-License-Identifier: Apache-2.0
"""How arrays are handed to native code, and what DLPack does not carry: streams and read-only.

torch tensors are read in place from the tuple of arguments, on torch's current stream, where torch
has DLPack's exchange interface (2.10 on); making a DLPack object of each would cost more than the
call. Every other array goes through TVM FFI.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Container, Sequence
from typing import Any

import tvm_ffi

from graphfeed import _library

_CPU_DEVICES = (1, 3)  # DLPack: host memory, pinned host memory
_FLAGS_OFFSET = 24  # of DLManagedTensorVersioned
_READ_ONLY = 1

_frameworks: dict[type, str] = {}
_read_in_place: dict[type, bool] = {}
known_in_place = _read_in_place.get  # by type: what is_read_in_place() has said of it

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def framework(array: Any) -> str:
    """Returns the package an array's class, or a class it derives from, comes from."""
    kind = type(array)
    root = _frameworks.get(kind)
    if root is None:
        modules = [base.__module__.partition(".")[0] for base in kind.__mro__]
        known = [module for module in modules if module in ("torch", "cupy", "jax", "jaxlib")]
        root = _frameworks[kind] = known[0] if known else modules[0]
    return root


def is_read_in_place(array: Any) -> bool:
    """Returns whether `array` is a torch tensor that native code can read in place."""
    kind = type(array)
    known = _read_in_place.get(kind)
    if known is None:
        known = _read_in_place[kind] = framework(array) == "torch" and _set_tensor_class()
    return known


def _set_tensor_class() -> bool:
    tensor_class = sys.modules["torch"].Tensor
    capsule = getattr(tensor_class, "__dlpack_c_exchange_api__", None)
    if capsule is None or sys.implementation.name != "cpython":
        return False
    api = _get_pointer(capsule, b"dlpack_exchange_api")
    return _library.function("set_tensor_class", keep_gil=True)(api, id(tensor_class))


def call_through_tvm_ffi(
    function: str,
    native: Callable[..., None],
    args: tuple,
    names: list[str],
    arrays: Sequence[int],
    written: Container[int],
) -> None:
    """Calls `native` with `args`, of which those at `arrays` may be any framework's.

    Those at `written` are destinations.

    Raises:
        TypeError: `args` are not as many as `names`.
        ValueError: A destination is read-only, or an array is on a CUDA device
            and its framework has no current stream.
    """
    if len(args) != len(names):
        raise TypeError(f"{function}: expected {len(names)} arguments, got {len(args)}")
    first = next((args[i] for i in arrays if args[i] is not None), None)
    for i in arrays:
        dtype = foreign_dtype(args[i])
        if dtype is not None:
            raise RuntimeError(f"{function}: {names[i]}: must have dtype int32, got {dtype}")
    for i in arrays:
        if i in written and is_read_only(args[i]):
            raise ValueError(f"{function}: {names[i]}: is read-only")
    passed = [passable(arg) if i in arrays else arg for i, arg in enumerate(args)]
    stream = stream_of(function, first)
    if stream is None:
        native(*passed)
        return
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", first.__dlpack_device__()[1]), stream):
        native(*passed)


def stream_of(function: str, array: Any) -> int | None:
    """Returns the stream on which `array`'s framework is working.

    None for CPU memory, and for torch, whose stream TVM FFI finds itself.

    Raises:
        ValueError: The array is on a CUDA device and its framework has no current stream.
    """
    if framework(array) == "torch":
        return None
    if framework(array) == "cupy":
        with array.device:  # CuPy has a current stream for each device
            return sys.modules["cupy"].cuda.get_current_stream().ptr
    device = getattr(array, "__dlpack_device__", None)
    if device is None or device()[0] in _CPU_DEVICES:
        return None
    calls = {
        "generate": "graphfeed.generate",
        "plan": "Plan.run",
        "plan: fork": "Plan.fork",
        "plan: join": "Branch.join",
    }
    is_generated = function.startswith("fused_dsa_")
    call = calls.get(function, "graphfeed.generate" if is_generated else "graphfeed.copy")
    raise ValueError(
        f"{function}: stream: the current stream of CUDA arrays of type {type(array).__name__} "
        f"is not known: call {call} with stream="
    )


def stream_without_arguments(function: str, array: Any) -> int | None:
    """Like `stream_of`, for a call that passes no tensor in which TVM FFI could find torch's."""
    if framework(array) == "torch" and array.is_cuda:
        return sys.modules["torch"].cuda.current_stream(array.device).cuda_stream
    return stream_of(function, array)


def is_read_only(array: Any) -> bool:
    """Returns whether `array` may not be written: NumPy's flag, JAX's promise, DLPack's flag."""
    if array is None or framework(array) in ("torch", "cupy", "tvm_ffi"):
        return False
    writeable = getattr(getattr(array, "flags", None), "writeable", None)
    if writeable is not None:
        return not writeable
    if framework(array) in ("jax", "jaxlib"):
        return True
    return hasattr(array, "__dlpack__") and _exports_read_only(array)


def foreign_dtype(array: Any) -> str | None:
    """Returns the element type of a NumPy array that DLPack has no name for, else None."""
    dtype = getattr(array, "dtype", None)
    kind = getattr(dtype, "kind", None)
    if kind is None or (kind in "biufc" and dtype.isnative):
        return None
    return str(dtype)


def passable(array: Any) -> Any:
    """Returns `array`, or a view of it where TVM FFI could not take the array itself."""
    if framework(array) == "cupy":
        # -1: do not make a stream wait on another; the work goes on CuPy's current one.
        return tvm_ffi.from_dlpack(array.__dlpack__(stream=-1))
    if framework(array) in ("jax", "jaxlib") or not hasattr(array, "__dlpack__"):
        return array
    if is_read_only(array):
        return tvm_ffi.from_dlpack(array.__dlpack__(max_version=(1, 0)))
    return array


def passable_at(place: str, array: Any, *, expected: str = "int32") -> Any:
    """Like `passable`; refuses, by its place, an array whose elements DLPack cannot carry.

    Raises:
        TypeError: It is one.
    """
    dtype = foreign_dtype(array)
    if dtype is not None:
        raise TypeError(f"{place}: expected {expected}, got {dtype}")
    return passable(array)


def _exports_read_only(array: Any) -> bool:
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer from before DLPack 1.0, which had no flags
        return False
    if "dltensor_versioned" not in repr(capsule):
        return False
    address = _get_pointer(capsule, b"dltensor_versioned")
    return bool(ctypes.c_uint64.from_address(address + _FLAGS_OFFSET).value & _READ_ONLY)
