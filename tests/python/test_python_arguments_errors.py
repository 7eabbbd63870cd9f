# SPDX-License-Identifier: Apache-2.0
"""What is refused of arguments read in place: kind, whole message, nothing written or pending."""

from __future__ import annotations

import graphfeed
import numpy as np
import pytest
from buffers import Case, Device, Sizes
from dlpack_producer import exported
from eager_copy import DECODE, TARGET_VERIFY
from graphfeed import Metadata
from graphfeed.sglang import fused_metadata_copy_cuda, fused_metadata_copy_multi_cuda
from in_place import Unhelpful, copy_one, is_error_pending, one, refuse
from test_sglang import MULTI_FIELDS, multi, single

pytestmark = pytest.mark.usefixtures("in_place_only")


@pytest.fixture
def place(torch):
    return Device(torch, "cpu")


# Tensors that do not fit


@pytest.mark.parametrize(
    ("make", "kind", "reason"),
    [
        (lambda t: t.tensor(4, dtype=t.int32), ValueError, "expected rank 1, got 0"),
        (lambda t: t.zeros(2, 2, dtype=t.int32), ValueError, "expected rank 1, got 2"),
        (lambda t: t.zeros(2, 2, 1, 1, 2, dtype=t.int32), ValueError, "expected rank 1, got 5"),
        (lambda t: t.zeros(3, dtype=t.int32), ValueError,
         "needs 4 elements, has 3"),
        (lambda t: t.zeros(4, dtype=t.int64), TypeError, "expected int32, got int64"),
        (lambda t: t.zeros(4, dtype=t.bool), TypeError, "expected int32, got bool"),
        (lambda t: t.zeros(4, dtype=t.bfloat16), TypeError, "expected int32, got bfloat16"),
        (lambda t: t.zeros(4, dtype=t.complex64), TypeError, "expected int32, got complex64"),
        (lambda t: t.tensor(4.0), TypeError, "expected int32, got float32"),
    ],
)  # fmt: skip
def test_a_tensor_that_does_not_fit_is_refused_by_name(torch, make, kind, reason):
    tensor, written = make(torch), torch.zeros(4, dtype=torch.int32)
    refuse(lambda: copy_one(tensor, written), kind, f"copy: source: cache_seqlens: {reason}",
           written)  # fmt: skip
    message = f"copy: destination 0: cache_seqlens: {reason}"
    refuse(lambda: copy_one(one(torch), tensor), kind, message)


@pytest.mark.parametrize("make", [
    lambda t: t.ones(4, dtype=t.int32).to_sparse(),
    lambda t: t.zeros(4, dtype=t.int32, device="meta"),
], ids=["sparse", "meta"])  # fmt: skip
def test_a_tensor_without_memory_of_its_own_is_a_type_error(torch, make):
    written = torch.zeros(4, dtype=torch.int32)
    with pytest.raises(TypeError, match=r"^copy: source: cache_seqlens: expected a tensor or None"):
        copy_one(make(torch), written)
    with pytest.raises(TypeError, match=r"^copy: destination 0: cache_seqlens: expected a tensor"):
        copy_one(one(torch), make(torch))
    assert written.tolist() == [0] * 4
    assert not is_error_pending()


# Arguments that are something else


NOT_TENSORS = {
    "ndarray": lambda torch: np.zeros(4, np.int32),
    "list": lambda torch: [1, 2, 3, 4],
    "tuple": lambda torch: (1, 2, 3, 4),
    "int": lambda torch: 7,
    "float": lambda torch: 7.5,
    "bool": lambda torch: True,
    "str": lambda torch: "four",
    "int32": lambda torch: np.int32(4),
    "Producer": lambda torch: exported(np.zeros(4, np.int32)),
    "type": lambda torch: torch.Tensor,
    "Size": lambda torch: torch.Size([4]),
    "Unhelpful": lambda torch: Unhelpful(),
}


@pytest.mark.parametrize("name", NOT_TENSORS)
def test_what_is_not_a_torch_tensor_among_them_is_named(torch, place, name):
    value = NOT_TENSORS[name](torch)
    expected = f"expected a tensor or None, got {type(value).__name__}"
    written = torch.zeros(4, dtype=torch.int32)
    for message, call in {
        "copy: destination 0: cache_seqlens": lambda: copy_one(one(torch), value),
        "copy: source: real_page_table": lambda: graphfeed.copy(
            Metadata(one(torch), real_page_table=value), [Metadata(written)], mode=DECODE, bs=4
        ),
        "copy: live_bound": lambda: copy_one(one(torch), written, live_bound=value),
    }.items():
        refuse(call, TypeError, f"{message}: {expected}", written)
    case = Case(Sizes(DECODE), place=place)
    named = single(case, cu_seqlens_k_dst=value)
    message = f"fused_metadata_copy_cuda: destination 0: cu_seqlens_k: {expected}"
    refuse(lambda: fused_metadata_copy_cuda(**named), TypeError, message)
    case = Case(Sizes(DECODE), MULTI_FIELDS, 3, place=place)
    named = multi(case, flashmla_metadata_dst2=value)
    message = f"fused_metadata_copy_multi_cuda: destination 2: flashmla_metadata: {expected}"
    refuse(lambda: fused_metadata_copy_multi_cuda(**named), TypeError, message)


def test_what_only_says_it_is_a_tensor_is_a_type_error(torch, clean_python):
    code = """
import sys, torch, graphfeed
from unittest import mock
from graphfeed import Metadata
class Proxy:
    __class__ = property(lambda self: torch.Tensor)
for value in (Proxy(), mock.Mock(spec=torch.Tensor)):
    try:
        graphfeed.copy(Metadata(torch.ones(4, dtype=torch.int32)), [Metadata(value)], mode=0, bs=4)
    except TypeError as error:
        print(error)
"""
    shown = clean_python(code, check_stderr=False).strip().split("\n")  # a crash is no exit code 0
    begin = "copy: destination 0: cache_seqlens: expected a tensor or None, got "
    assert shown == [begin + "Proxy", begin + "Mock"]


NOT_INTEGERS = {
    "float": lambda torch: 4.0,
    "str": lambda torch: "4",
    "list": lambda torch: [4],
    "bool": lambda torch: True,
    "float64": lambda torch: np.float64(4),
    "bool_": lambda torch: np.bool_(True),
    "Tensor": lambda torch: torch.tensor(4),
    "ndarray": lambda torch: np.array([4, 4]),
    "Unhelpful": lambda torch: Unhelpful(),
    "object": lambda torch: object(),
}


@pytest.mark.parametrize("kind", NOT_INTEGERS)
@pytest.mark.parametrize(
    "name", ["mode", "bs", "max_seqlen_k", "seqlens_expanded_size", "stream", "rows_per_request",
             "page_size"],
)  # fmt: skip
def test_what_is_not_an_integer_is_named(torch, name, kind):
    value, written = NOT_INTEGERS[kind](torch), torch.zeros(4, dtype=torch.int32)
    got = type(value).__name__
    message = f"copy: {name}: expected an integer, got {got}"
    changed = {"live_bound": one(torch), name: value}
    refuse(lambda: copy_one(one(torch), written, **changed), TypeError, message, written)


@pytest.mark.parametrize("kind", NOT_INTEGERS)
@pytest.mark.parametrize(
    "name", ["forward_mode", "bs", "max_len", "max_seqlen_k", "seqlens_expanded_size"]
)
def test_what_is_not_an_integer_is_named_as_published(torch, place, name, kind):
    value = NOT_INTEGERS[kind](torch)
    mode = TARGET_VERIFY if name == "max_seqlen_k" else DECODE
    case = Case(Sizes(mode), place=place)
    before = [each.bytes() for each in case.destinations]
    got = type(value).__name__
    message = f"fused_metadata_copy_cuda: {name}: expected an integer, got {got}"
    named = single(case, **{name: value})
    refuse(lambda: fused_metadata_copy_cuda(*named.values()), TypeError, message)
    assert [each.bytes() for each in case.destinations] == before


@pytest.mark.parametrize("name", ["mode", "bs"])
def test_none_is_not_an_integer_where_there_is_no_default(torch, name):
    written = torch.zeros(4, dtype=torch.int32)
    with pytest.raises(TypeError, match=f"^copy: {name}: expected an integer, got None"):
        copy_one(one(torch), written, **{name: None})
    assert not written.any()


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64 + 4, 10**40, -(10**40)])
@pytest.mark.parametrize("name", ["mode", "bs", "max_seqlen_k", "stream"])
def test_an_integer_beyond_64_bits_is_refused_by_name(torch, name, value):
    written = torch.zeros(4, dtype=torch.int32)
    with pytest.raises((TypeError, ValueError), match=f"^copy: {name}: expected an? .*integer"):
        copy_one(one(torch), written, **{name: value})
    assert not is_error_pending()
    assert not written.any()


@pytest.mark.parametrize("value", [3, -1, 2**32, -(2**63), 2**63 - 1])
def test_a_mode_out_of_range_is_named_with_its_number(torch, place, value):
    expected = f"expected 0 (decode), 1 (target_verify) or 2 (draft_extend), got {value}"
    written = torch.zeros(4, dtype=torch.int32)
    refuse(lambda: copy_one(one(torch), written, mode=value), ValueError,
           f"copy: mode: {expected}", written)  # fmt: skip
    named = single(Case(Sizes(DECODE), place=place), forward_mode=value)
    message = f"fused_metadata_copy_cuda: forward_mode: {expected}"
    refuse(lambda: fused_metadata_copy_cuda(**named), ValueError, message)


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (fused_metadata_copy_cuda, lambda place: single(Case(Sizes(DECODE), place=place))),
        (
            fused_metadata_copy_multi_cuda,
            lambda place: multi(Case(Sizes(DECODE), MULTI_FIELDS, 3, place=place)),
        ),
    ],
)
def test_missing_and_further_arguments_are_type_errors(place, function, make):
    name, arguments = function.__name__, list(make(place).values())
    for count in (1, 2, len(arguments) - 2, len(arguments) - 1, len(arguments) + 1):
        given = [*arguments, 0][:count]
        message = f"{name}: expected {len(arguments)} arguments, got {count}"
        refuse(lambda given=given: function(*given), TypeError, message)
    last = list(make(place))[-1]
    named = dict(list(make(place).items())[:-1])
    refuse(lambda: function(**named), TypeError, f"{name}: missing argument '{last}'")


def test_another_dtype_is_the_published_runtime_error(torch, place):
    case = Case(Sizes(TARGET_VERIFY), place=place)
    named = single(case)
    named["page_indices_src"] = named["page_indices_src"].long()
    message = "fused_metadata_copy_cuda: source: page_table_1: must have dtype int32, got int64"
    refuse(lambda: fused_metadata_copy_cuda(**named), RuntimeError, message)
