# SPDX-License-Identifier: Apache-2.0
"""Calls with torch tensors on the CPU, which native code reads in place."""

from __future__ import annotations

import ctypes

import graphfeed
import pytest
from eager_copy import DECODE
from graphfeed import Metadata

_pending = ctypes.pythonapi.PyErr_Occurred
_pending.restype = ctypes.c_void_p


def is_error_pending():
    """Whether native code has left an exception behind that it did not raise."""
    return _pending() is not None


class Unhelpful:
    """Its members and its number are errors."""

    def __getattr__(self, name):
        raise KeyError(name)

    def __index__(self):
        raise ZeroDivisionError


def one(torch, count=4):
    return torch.arange(1, count + 1, dtype=torch.int32)


def copy_one(source, target, **changed):
    arguments = {"mode": DECODE, "bs": 4, **changed}
    graphfeed.copy(Metadata(source), [Metadata(target)], **arguments)


def refuse(call, kind, message, *untouched):
    before = [tensor.clone() for tensor in untouched]
    with pytest.raises(kind) as caught:
        call()
    assert caught.type is kind
    assert str(caught.value) == message
    assert not is_error_pending()
    assert all((tensor == old).all() for tensor, old in zip(untouched, before))
