# SPDX-License-Identifier: Apache-2.0
"""An array known by its DLPack capsule alone, with members that NumPy would not export."""

from __future__ import annotations

import ctypes

_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_keep = _DELETER(lambda _: None)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class Producer:
    """Exports int32 elements at `address`, as a producer of DLPack 1.0 or newer does."""

    def __init__(
        self,
        address,
        shape,
        strides=None,
        *,
        byte_offset=0,
        device=(1, 0),
        read_only=False,
        lanes=1,
    ):
        numbers = [(ctypes.c_int64 * len(shape))(*part) for part in (shape, strides or ()) if part]
        self.device, self.read_only = device, read_only
        self.exports = 0
        self._alive = numbers
        self._tensor = _Tensor(
            data=address,
            device_type=device[0],
            device_id=device[1],
            ndim=len(shape),
            code=0,
            bits=32,
            lanes=lanes,
            shape=ctypes.cast(numbers[0], ctypes.POINTER(ctypes.c_int64)),
            byte_offset=byte_offset,
        )
        if strides is not None:
            self._tensor.strides = ctypes.cast(numbers[1], ctypes.POINTER(ctypes.c_int64))

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if max_version is not None and max_version[0] >= 1:
            return self._capsule(
                _ManagedVersioned(1, 0, None, _keep, int(self.read_only), self._tensor),
                _VERSIONED_NAME,
            )
        if self.read_only:
            raise BufferError("read-only arrays need DLPack 1.0")
        return self._capsule(_Managed(self._tensor, None, _keep), _NAME)

    def _capsule(self, managed, name):
        self._alive.append(managed)
        self.exports += 1
        return _new_capsule(ctypes.addressof(managed), name, None)


class OldProducer(Producer):
    """A producer from before DLPack 1.0: it knows no versions and no flags."""

    def __dlpack__(self, stream=None):
        return super().__dlpack__()


def exported(array, kind=Producer, **members):
    """Returns a producer of the elements of a NumPy array, which must outlive it."""
    strides = tuple(stride // 4 for stride in array.strides)
    return kind(array.ctypes.data, array.shape, strides, **members)
