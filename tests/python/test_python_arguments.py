# SPDX-License-Identifier: Apache-2.0
"""torch tensors read in place from the tuple of arguments: values, kinds, references."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import graphfeed
import numpy as np
import pytest
from buffers import DENSE, FIELDS, ODD, SENTINEL, SLICED, STRIDED, Case, Device, Sizes
from dlpack_producer import exported
from eager_copy import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from graphfeed import ForwardMode, Metadata, _arrays, _copy, _library
from graphfeed.sglang import fused_metadata_copy_cuda
from in_place import Unhelpful, copy_one, is_error_pending, one, refuse
from test_sglang import MULTI_CALLS, OPTIONAL, SINGLE_CALLS, multi, single, without

pytestmark = pytest.mark.usefixtures("in_place_only")

EACH_MODE = pytest.mark.parametrize("mode", [DECODE, TARGET_VERIFY, DRAFT_EXTEND])
LAYOUTS = (SLICED, ODD, STRIDED, DENSE)


@pytest.fixture
def place(torch):
    return Device(torch, "cpu")


# Values


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("absent", [(), OPTIONAL[:1], OPTIONAL[1:], FIELDS[:2]], ids="-".join)
def test_copy_matches_eager_copy(place, mode, num_destinations, absent):
    for source_layout in LAYOUTS:
        case = Case(Sizes(mode), without(*absent), num_destinations, source_layout, LAYOUTS, place)
        graphfeed.copy(*case.metadata(), **case.sizes.arguments())
        case.assert_equals_eager()


@EACH_MODE
@pytest.mark.parametrize("call", SINGLE_CALLS)
def test_single_matches_eager_copy(place, mode, call):
    for absent in ((), OPTIONAL[:1], OPTIONAL[1:], OPTIONAL):
        case = Case(Sizes(mode), without(*absent), 1, ODD, (SLICED,), place)
        assert SINGLE_CALLS[call](single(case)) is None
        case.assert_equals_eager()


@pytest.mark.parametrize("call", MULTI_CALLS)
def test_multi_matches_eager_copy(place, call):
    for absent in ((), OPTIONAL[:1], OPTIONAL[1:], OPTIONAL):
        case = Case(Sizes(DECODE), without("seqlens_expanded", *absent), 3, ODD, LAYOUTS, place)
        assert MULTI_CALLS[call](multi(case)) is None
        case.assert_equals_eager()


@EACH_MODE
def test_live_bound_leaves_the_columns_past_it(torch, place, mode):
    case = Case(Sizes(mode, width=300, pages=43), FIELDS, 3, ODD, LAYOUTS, place)
    bound = torch.tensor([0, 9, 65, 9, 300, 9, 1, 9, 9_999], dtype=torch.int32)[::2]
    changed = {"live_bound": bound, "page_size": 7}
    if mode != DECODE:
        changed["rows_per_request"] = 3
    graphfeed.copy(*case.metadata(), **case.sizes.arguments(), **changed)
    case.assert_equals_eager(**changed)


def test_defaults_are_those_of_copy(place):
    case = Case(Sizes(TARGET_VERIFY), FIELDS, 2, place=place)
    graphfeed.copy(*case.metadata(), mode=TARGET_VERIFY, bs=5)
    case.assert_equals_eager()


@pytest.mark.parametrize(
    "integer", [int, np.int32, np.int64, np.uint8, lambda value: np.asarray(value)[()]]
)
def test_any_kind_of_integer_is_one(place, integer):
    case = Case(Sizes(TARGET_VERIFY), FIELDS, 1, place=place)
    arguments = {name: integer(value) for name, value in case.sizes.arguments().items()}
    graphfeed.copy(*case.metadata(), **arguments, stream=integer(0))
    case.assert_equals_eager()
    case = Case(Sizes(DRAFT_EXTEND), FIELDS, 1, place=place)
    named = {name: integer(value) if isinstance(value, int) else value
             for name, value in single(case, max_len=9).items()}  # fmt: skip
    fused_metadata_copy_cuda(**named)
    case.assert_equals_eager()


def test_a_mode_may_be_a_member_of_forward_mode(torch):
    written = torch.zeros(4, dtype=torch.int32)
    copy_one(one(torch), written, mode=ForwardMode.DRAFT_EXTEND)
    assert written.tolist() == [1, 2, 3, 4]


# Kinds of tensors


def test_parameters_and_subclasses_are_tensors(torch):
    class Mine(torch.Tensor):
        pass

    kinds = (
        lambda tensor: torch.nn.Parameter(tensor, requires_grad=False),
        lambda tensor: torch.nn.Buffer(tensor) if hasattr(torch.nn, "Buffer") else tensor,
        lambda tensor: tensor.as_subclass(Mine),
        lambda tensor: tensor.detach(),
    )
    for kind in kinds:
        written = torch.full((6,), SENTINEL, dtype=torch.int32)
        copy_one(kind(one(torch)), kind(written[1:5]))
        assert written.tolist() == [SENTINEL, 1, 2, 3, 4, SENTINEL]


def test_views_are_read_and_written_at_their_offset(torch):
    memory = torch.arange(40, dtype=torch.int32)
    written = torch.full((5, 9), SENTINEL, dtype=torch.int32)
    source = Metadata(page_table_1=memory.as_strided((3, 4), (1, 5), 7))
    graphfeed.copy(source, [Metadata(page_table_1=written[1:4, 2:6])], mode=DECODE, bs=3)
    assert written[1:4, 2:6].tolist() == memory.as_strided((3, 4), (1, 5), 7).tolist()
    written[1:4, 2:6] = SENTINEL
    assert (written == SENTINEL).all()


def test_an_expanded_tensor_is_a_source_and_no_destination(torch):
    written = torch.zeros(4, dtype=torch.int32)
    copy_one(torch.full((1,), 7, dtype=torch.int32).expand(4), written)
    assert written.tolist() == [7] * 4
    single_element = torch.zeros(1, dtype=torch.int32)
    message = "copy: destination 0: cache_seqlens: its elements overlap each other (strides 0 x 0)"
    refuse(lambda: copy_one(written, single_element.expand(4)), ValueError, message, single_element)


def test_tensors_without_elements_may_be_copied(torch):
    nothing = torch.zeros(0, dtype=torch.int32)
    copy_one(nothing, nothing, bs=0)
    copy_one(nothing, one(torch), bs=0)
    message = "copy: destination 0: cache_seqlens: needs 4 elements, has 0"
    refuse(lambda: copy_one(one(torch), nothing), ValueError, message)


def test_gradients_neither_matter_nor_change_the_message(torch):
    with torch.enable_grad():
        written = torch.zeros(4, dtype=torch.int32)
        wanting = torch.zeros(4, requires_grad=True)
        leaf = torch.nn.Parameter(torch.zeros(4))
        for tensor in (wanting, leaf, wanting * 2):
            message = "copy: source: cache_seqlens: expected int32, got float32"
            refuse(lambda t=tensor: copy_one(t, written), TypeError, message, written)
            assert tensor.requires_grad
        copy_one(one(torch), written)
    with torch.inference_mode():
        copy_one(torch.ones(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32))
    assert written.tolist() == [1, 2, 3, 4]
    assert written._version == 0


# What is kept of the arguments: nothing


def counted_calls(torch):
    """Returns objects whose references are counted, and calls that end well and badly."""
    source, target = one(torch), torch.zeros(4, dtype=torch.int32)
    bound, table = one(torch), torch.zeros(4, 4, dtype=torch.int32)
    stranger, size = np.zeros(4, np.int32), 10**6
    huge = 10**30
    calls = [
        lambda: copy_one(source, target),
        lambda: copy_one(source, target, live_bound=bound, page_size=7, stream=0),
        lambda: copy_one(source, target, bs=size),
        lambda: copy_one(source, target, bs=huge),
        lambda: copy_one(source, target, live_bound=stranger),
        lambda: copy_one(source, stranger),
        lambda: copy_one(source, table),
        lambda: copy_one(source, target, mode=Unhelpful()),
        lambda: fused_metadata_copy_cuda(
            source, *[None] * 8, target, *[None] * 8, DECODE, 4, 0, 0, 0
        ),
        lambda: fused_metadata_copy_cuda(
            source, *[None] * 8, stranger, *[None] * 8, DECODE, 4, 0, 0, 0
        ),
        lambda: fused_metadata_copy_cuda(source, target, bound),
    ]
    classes = [type(each) for each in (source, stranger, huge, calls)]
    objects = [source, target, bound, table, stranger, size, huge, *classes, Unhelpful]
    return objects, calls


def test_reference_counts_are_as_before(torch):
    objects, calls = counted_calls(torch)
    ended_badly = 0
    for call in calls:
        for repeat in range(20):
            if repeat == 1:  # the first call may fill caches
                gc.collect()
                before = [sys.getrefcount(each) for each in objects]
            try:
                call()
            except (TypeError, ValueError):
                ended_badly += repeat > 0
            assert not is_error_pending()
        gc.collect()
        after = [sys.getrefcount(each) for each in objects]
        assert [new - old for new, old in zip(after, before)] == [0] * len(objects)
    assert ended_badly == 19 * 8


def test_tensors_are_freed_with_their_last_reference(torch):
    source, target = one(torch), torch.zeros(4, dtype=torch.int32)
    parts = [weakref.ref(each) for each in (source, target, source.untyped_storage())]
    copy_one(source, target)
    with pytest.raises(ValueError, match="bs"):
        copy_one(source, target, bs=-1)
    del source, target
    gc.collect()
    assert [part() for part in parts] == [None] * 3


def test_errors_are_not_sticky(torch):
    for _ in range(3):
        written = torch.zeros(4, dtype=torch.int32)
        refuse(lambda w=written: copy_one(one(torch), w, bs=-1), ValueError,
               "copy: bs: must not be negative, got -1", written)  # fmt: skip
        refuse(lambda w=written: copy_one(one(torch), w, bs=4.0), TypeError,
               "copy: bs: expected an integer, got float", written)  # fmt: skip
        copy_one(one(torch), written)
        assert written.tolist() == [1, 2, 3, 4]


def test_threads_copy_at_once(place):
    def work(seed):
        for mode in (DECODE, TARGET_VERIFY, DRAFT_EXTEND):
            case = Case(Sizes(mode), FIELDS, 3, ODD, LAYOUTS, place)
            case.refill(1_000 * seed)
            graphfeed.copy(*case.metadata(), **case.sizes.arguments())
            case.assert_equals_eager()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(1, 25)))


# The way in


def test_every_torch_tensor_is_read_in_place(torch):
    class Mine(torch.Tensor):
        pass

    tensor = one(torch)
    parameter = torch.nn.Parameter(tensor, requires_grad=False)
    for each in (tensor, parameter, tensor.as_subclass(Mine), tensor[1:]):
        assert _arrays.is_read_in_place(each)
    for each in (None, [tensor], tensor.numpy(), exported(tensor.numpy())):
        assert not _arrays.is_read_in_place(each)


def test_an_older_torch_goes_through_tvm_ffi(torch, monkeypatch):
    calls = []
    monkeypatch.setattr(_arrays, "_read_in_place", {})
    monkeypatch.delattr(torch.Tensor, "__dlpack_c_exchange_api__")
    monkeypatch.setattr(_copy, "_copy", lambda *args: calls.append(args))
    assert not _arrays.is_read_in_place(one(torch))
    source, target = one(torch), torch.zeros(4, dtype=torch.int32)
    copy_one(source, target)
    assert [len(args) for args in calls] == [27]
    assert calls[0][9] is source
    assert calls[0][18] is target


def test_an_interface_of_another_version_is_refused_and_the_known_one_kept(torch):
    native = _library.function("set_tensor_class")
    unknown = ctypes.create_string_buffer(256)  # version 0.0, no functions
    written = torch.zeros(4, dtype=torch.int32)
    copy_one(one(torch), written)
    assert native(ctypes.addressof(unknown), id(object)) is False
    copy_one(one(torch) * 2, written)
    assert written.tolist() == [2, 4, 6, 8]
