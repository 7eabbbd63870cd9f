# SPDX-License-Identifier: Apache-2.0
"""What DLPack does not carry: whose array it is, on which stream, and whether it may be written."""

from __future__ import annotations

import pickle
import re
import sys
import types
from copy import copy as shallow_copy
from copy import deepcopy

import graphfeed
import numpy as np
import pytest
import tvm_ffi
from dlpack_producer import OldProducer, Producer, exported
from eager_copy import DECODE, TARGET_VERIFY
from graphfeed import Metadata, Plan, copy
from graphfeed._arrays import framework, is_read_in_place, is_read_only, passable, stream_of
from graphfeed.sglang import fused_metadata_copy_cuda

CUDA = (2, 0)


def array_class(module, base=object, **members):
    """Returns a class as if it were defined in `module`."""
    return type("Array", (base,), {"__module__": module, **members})


def values(count=4):
    return np.arange(1, count + 1, dtype=np.int32)


# Framework


def test_framework_is_the_package_of_the_class():
    assert framework(values()) == "numpy"
    assert framework(tvm_ffi.from_dlpack(values())) == "tvm_ffi"
    assert framework(None) == "builtins"
    assert framework(array_class("torch")()) == "torch"
    assert framework(array_class("cupy._core.core")()) == "cupy"
    assert framework(array_class("jaxlib._jax")()) == "jaxlib"
    assert framework(array_class("torchvision.tensors")()) == "torchvision"


def test_framework_of_a_subclass_is_that_of_its_base():
    parameter = array_class("sglang.layers", array_class("torch.nn.parameter"))
    assert framework(parameter()) == "torch"
    assert framework(array_class("mine", array_class("cupy"))()) == "cupy"
    assert framework(array_class("mine", np.ndarray)(3)) == "mine"


# Read-only


def test_numpy_tells_by_its_flag():
    array = values()
    assert not is_read_only(array)
    assert is_read_only(np.broadcast_to(array, (2, 4)))
    array.flags.writeable = False
    assert is_read_only(array)
    assert is_read_only(array[1:])


def test_jax_arrays_are_read_only_and_absent_ones_are_not():
    assert is_read_only(array_class("jaxlib._jax")())
    assert is_read_only(array_class("jax", flags=None)())
    assert not is_read_only(None)
    assert not is_read_only(array_class("torch")())
    assert not is_read_only(array_class("cupy")())


def test_a_versioned_producer_tells_by_its_dlpack_flag():
    assert is_read_only(exported(values(), read_only=True))
    assert not is_read_only(exported(values()))


def test_a_producer_from_before_dlpack_1_is_taken_for_writable():
    assert not is_read_only(exported(values(), OldProducer))


def test_a_read_only_producer_is_refused_as_a_destination_and_read_as_a_source():
    read, written = values(), np.zeros(4, np.int32)
    graphfeed.copy(Metadata(exported(read, read_only=True)), [Metadata(written)], mode=DECODE, bs=4)
    assert written.tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"^copy: destination 1: cache_seqlens: is read-only$"):
        graphfeed.copy(
            Metadata(np.zeros(4, np.int32)),
            [Metadata(written), Metadata(exported(read, read_only=True))],
            mode=DECODE,
            bs=4,
        )
    assert written.tolist() == read.tolist() == [1, 2, 3, 4]


def test_passable_leaves_writable_arrays_alone():
    for array in (values(), exported(values()), array_class("torch")(), None):
        assert passable(array) is array
    array = values()
    array.flags.writeable = False
    assert tvm_ffi.from_dlpack(passable(array)).shape == (4,)


# DLPack's members


@pytest.mark.parametrize("kind", [Producer, OldProducer])
def test_byte_offset_counts_and_absent_strides_mean_dense(kind):
    memory, written = np.arange(40, dtype=np.int32), np.zeros((3, 4), np.int32)
    source = kind(memory.ctypes.data, (3, 4), None, byte_offset=12)
    target = exported(written, kind)
    graphfeed.copy(
        Metadata(page_table_1=source), [Metadata(page_table_1=target)], mode=DECODE, bs=3
    )
    assert written.tolist() == memory[3:15].reshape(3, 4).tolist()


def test_a_dlpack_destination_is_written_at_its_byte_offset():
    memory = np.zeros(8, np.int32)
    target = Producer(memory.ctypes.data, (4,), (1,), byte_offset=8)
    graphfeed.copy(Metadata(values()), [Metadata(target)], mode=DECODE, bs=4)
    assert memory.tolist() == [0, 0, 1, 2, 3, 4, 0, 0]


def test_tvm_ffi_tensors_on_the_cpu_need_no_stream():
    written = np.zeros(4, np.int32)
    target = tvm_ffi.from_dlpack(written)
    graphfeed.copy(Metadata(tvm_ffi.from_dlpack(values())), [Metadata(target)], mode=DECODE, bs=4)
    assert written.tolist() == [1, 2, 3, 4]


def test_pinned_host_memory_is_cpu_memory():
    written = np.zeros(4, np.int32)
    target = exported(written, device=(3, 0))
    graphfeed.copy(Metadata(values()), [Metadata(target)], mode=DECODE, bs=4)
    assert written.tolist() == [1, 2, 3, 4]


# Reading in place


def test_only_torch_tensors_are_read_in_place():
    for array in (values(), exported(values()), tvm_ffi.from_dlpack(values()), None, [1], 1):
        assert not is_read_in_place(array)
    assert not is_read_in_place(array_class("cupy._core.core")())
    assert not is_read_in_place(array_class("torchvision.tensors")())


def test_torch_without_the_exchange_interface_is_not_read_in_place(monkeypatch):
    old = types.SimpleNamespace(Tensor=array_class("torch"))
    monkeypatch.setitem(sys.modules, "torch", old)
    assert not is_read_in_place(old.Tensor())


# Stream


def test_cpu_arrays_have_no_stream():
    assert stream_of("copy", values()) is None
    assert stream_of("copy", None) is None
    assert stream_of("copy", exported(values(), device=(3, 0))) is None
    assert stream_of("copy", tvm_ffi.from_dlpack(values())) is None


def test_cupy_is_asked_for_its_current_stream(monkeypatch):
    class Device:
        current = 0

        def __enter__(self):
            Device.current = 1

        def __exit__(self, *_):
            Device.current = 0

    def get_current_stream():
        return types.SimpleNamespace(ptr=0x1234 + Device.current)

    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(get_current_stream=get_current_stream))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    array = array_class("cupy._core.core", device=Device())()
    assert stream_of("copy", array) == 0x1235, "the stream of the array's device"
    assert Device.current == 0


def test_cuda_arrays_whose_stream_is_not_known_need_one():
    class DeviceArray(Producer):
        pass

    written = np.zeros(4, np.int32)
    source = exported(values(), DeviceArray, device=CUDA)
    target = Metadata(exported(written, DeviceArray, device=CUDA))
    with pytest.raises(ValueError, match="stream") as caught:
        graphfeed.copy(Metadata(source), [target], mode=DECODE, bs=4)
    assert str(caught.value) == (
        "copy: stream: the current stream of CUDA arrays of type DeviceArray is not known: call "
        "graphfeed.copy with stream="
    )
    assert not written.any()


def test_the_stream_rule_looks_past_absent_fields():
    table = np.zeros((1, 4), np.int32)
    source = Metadata(page_table_1=exported(table, device=CUDA))
    message = r"^copy: stream: the current stream of CUDA arrays of type Producer is not known: "
    with pytest.raises(ValueError, match=message):
        graphfeed.copy(source, [source], mode=DECODE, bs=1)


def test_an_explicit_stream_is_enough():
    nothing = Metadata(exported(values(), device=CUDA))  # an empty batch: no kernel, no driver
    graphfeed.copy(nothing, [nothing], mode=DECODE, bs=0, stream=7)


def test_numpy_among_cuda_arrays_is_refused_by_device():
    source, written = exported(values(), device=(2, 1)), np.zeros(4, np.int32)
    message = r"^copy: destination 0: cache_seqlens: is on cpu, the source is on cuda:1$"
    with pytest.raises(ValueError, match=message):
        graphfeed.copy(Metadata(source), [Metadata(written)], mode=DECODE, bs=4, stream=7)
    assert not written.any()


@pytest.mark.parametrize("dtype", [">i4", object, "U4", "datetime64[s]"])
def test_a_numpy_type_that_dlpack_cannot_carry_is_named(dtype):
    strange = np.zeros(2, np.int32).astype(dtype)
    fine = Metadata(np.zeros(2, np.int32))
    shown = re.escape(str(strange.dtype))
    refused = Metadata(strange)
    with pytest.raises(
        TypeError, match=f"^copy: source: cache_seqlens: expected int32, got {shown}$"
    ):
        copy(refused, [fine], mode=0, bs=2)
    message = f"^copy: destination 1: cache_seqlens: expected int32, got {shown}$"
    with pytest.raises(TypeError, match=message):
        copy(fine, [fine, refused], mode=0, bs=2)
    with pytest.raises(TypeError, match=f"^copy: live_bound: expected int32, got {shown}$"):
        copy(fine, [fine], mode=0, bs=2, live_bound=strange)
    with pytest.raises(TypeError, match=f"^plan: destination 0: cache_seqlens: .* got {shown}$"):
        Plan(fine, [fine], mode=0, bs=2).check([refused])
    message = f"^fused_metadata_copy_cuda: cu_seqlens_k_dst: must have dtype int32, got {shown}$"
    with pytest.raises(RuntimeError, match=message):
        fused_metadata_copy_cuda(
            *(fine[0], *[None] * 8), *(fine[0], strange, *[None] * 7), 0, 2, 0, 0, 2
        )


def test_a_read_only_field_that_is_not_written_hides_no_other():
    def read_only(*shape):
        array = np.zeros(shape, np.int32)
        array.flags.writeable = False
        return array

    def both():
        return Metadata(
            seqlens_expanded=np.ones(2, np.int32), dsa_cache_seqlens=np.ones(2, np.int32)
        )

    ignored = both()._replace(seqlens_expanded=read_only(2))
    refused = ignored._replace(dsa_cache_seqlens=read_only(2))
    copy(both(), [ignored], mode=DECODE, bs=2)
    message = r"^(copy|plan): destination 1: dsa_cache_seqlens: is read-only$"
    with pytest.raises(ValueError, match=message):
        copy(both(), [ignored, refused], mode=DECODE, bs=2)
    with pytest.raises(ValueError, match=message):
        Plan(both(), [ignored, refused], mode=DECODE, bs=2)
    assert refused.dsa_cache_seqlens.tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"^copy: destination 0: seqlens_expanded: is read-only$"):
        copy(both(), [ignored], mode=TARGET_VERIFY, bs=2)


def test_a_plan_has_one_owner():
    plan = Plan(Metadata(np.ones(2, np.int32)), [Metadata(np.ones(2, np.int32))], mode=DECODE, bs=2)
    for duplicate in (shallow_copy, deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"^plan: cannot be copied or pickled"):
            duplicate(plan)
