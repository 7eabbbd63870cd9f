# SPDX-License-Identifier: Apache-2.0
"""The drop-in: SGLang's names, order, spellings, widths and errors, on NumPy arrays."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from buffers import DENSE, FIELDS, ODD, SENTINEL, SLICED, STRIDED, Case, Sizes
from dlpack_producer import exported
from eager_copy import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from graphfeed.sglang import fused_metadata_copy_cuda, fused_metadata_copy_multi_cuda

# As published; python/sglang/jit_kernel/fused_metadata_copy.py with dsa_ for its older nsa_.
SINGLE_NAMES = (
    "cache_seqlens_src cu_seqlens_k_src page_indices_src dsa_cache_seqlens_src "
    "seqlens_expanded_src dsa_cu_seqlens_k_src real_page_table_src flashmla_num_splits_src "
    "flashmla_metadata_src cache_seqlens_dst cu_seqlens_k_dst page_table_1_dst "
    "dsa_cache_seqlens_dst seqlens_expanded_dst dsa_cu_seqlens_k_dst real_page_table_dst "
    "flashmla_num_splits_dst flashmla_metadata_dst forward_mode bs max_len max_seqlen_k "
    "seqlens_expanded_size"
)
MULTI_NAMES = (
    "cache_seqlens_src cu_seqlens_k_src page_indices_src dsa_cache_seqlens_src "
    "dsa_cu_seqlens_k_src real_page_table_src flashmla_num_splits_src flashmla_metadata_src "
    "cache_seqlens_dst0 cu_seqlens_k_dst0 page_table_1_dst0 dsa_cache_seqlens_dst0 "
    "dsa_cu_seqlens_k_dst0 real_page_table_dst0 flashmla_num_splits_dst0 flashmla_metadata_dst0 "
    "cache_seqlens_dst1 cu_seqlens_k_dst1 page_table_1_dst1 dsa_cache_seqlens_dst1 "
    "dsa_cu_seqlens_k_dst1 real_page_table_dst1 flashmla_num_splits_dst1 flashmla_metadata_dst1 "
    "cache_seqlens_dst2 cu_seqlens_k_dst2 page_table_1_dst2 dsa_cache_seqlens_dst2 "
    "dsa_cu_seqlens_k_dst2 real_page_table_dst2 flashmla_num_splits_dst2 flashmla_metadata_dst2 "
    "bs max_len seqlens_expanded_size"
)
SINGLE, MULTI = ([*names.split()] for names in (SINGLE_NAMES, MULTI_NAMES))
OPTIONAL = ("real_page_table", "flashmla_num_splits", "flashmla_metadata")
EACH_MODE = pytest.mark.parametrize("mode", [DECODE, TARGET_VERIFY, DRAFT_EXTEND])


def without(*absent):
    return tuple(name for name in FIELDS if name not in absent)


def tensor_arguments(case, names):
    """Returns the tensors of `case` under the published names, None for absent ones."""
    places = {"src": case.source, "dst": case.destinations[0]}
    places.update({f"dst{k}": each for k, each in enumerate(case.destinations)})
    arguments = {}
    for name in names:
        field, _, place = name.rpartition("_")
        if place in places:
            field = "page_table_1" if field == "page_indices" else field
            arguments[name] = places[place].tensors.get(field)
    return arguments


def single(case, **changed):
    sizes = case.sizes
    arguments = {
        **tensor_arguments(case, SINGLE),
        "forward_mode": sizes.mode,
        "bs": sizes.bs,
        "max_len": sizes.width if sizes.mode == DECODE else -1,
        "max_seqlen_k": -1 if sizes.mode == DECODE else sizes.width,
        "seqlens_expanded_size": sizes.expanded,
        **changed,
    }
    return {name: arguments[name] for name in SINGLE}


def multi(case, **changed):
    sizes = case.sizes
    arguments = {
        **tensor_arguments(case, MULTI),
        "bs": sizes.bs,
        "max_len": sizes.width,
        "seqlens_expanded_size": sizes.bs,
        **changed,
    }
    return {name: arguments[name] for name in MULTI}


MULTI_FIELDS = without("seqlens_expanded")


def multi_case(fields=MULTI_FIELDS, **layouts):
    return Case(Sizes(DECODE), fields, 3, **layouts)


def older(arguments):
    return {name.replace("dsa_", "nsa_"): value for name, value in arguments.items()}


SINGLE_CALLS = {
    "positional": lambda named: fused_metadata_copy_cuda(*named.values()),
    "keywords": lambda named: fused_metadata_copy_cuda(**named),
    "older keywords": lambda named: fused_metadata_copy_cuda(**older(named)),
    "mixed": lambda named: fused_metadata_copy_cuda(
        *list(named.values())[:3], **dict(reversed(list(named.items())[3:]))
    ),
}
MULTI_CALLS = {
    "positional": lambda named: fused_metadata_copy_multi_cuda(*named.values()),
    "keywords": lambda named: fused_metadata_copy_multi_cuda(**named),
    "older keywords": lambda named: fused_metadata_copy_multi_cuda(**older(named)),
    "mixed": lambda named: fused_metadata_copy_multi_cuda(
        *list(named.values())[:8], **dict(reversed(list(named.items())[8:]))
    ),
}


@pytest.mark.parametrize(
    ("function", "names"),
    [(fused_metadata_copy_cuda, SINGLE), (fused_metadata_copy_multi_cuda, MULTI)],
)
def test_signature_is_the_published_one(function, names):
    assert (len(SINGLE), len(MULTI)) == (23, 35)
    parameters = inspect.signature(function).parameters.values()
    assert [parameter.name for parameter in parameters] == names
    for parameter in parameters:
        assert parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert parameter.default is inspect.Parameter.empty
    assert function.__doc__
    assert function.__module__.startswith("graphfeed.sglang.")


@EACH_MODE
@pytest.mark.parametrize("call", SINGLE_CALLS)
@pytest.mark.parametrize("absent", [(), OPTIONAL[:1], OPTIONAL[1:], OPTIONAL], ids="-".join)
def test_single_matches_eager_copy(mode, call, absent):
    case = Case(Sizes(mode), without(*absent), 1, DENSE, (SLICED,))
    assert SINGLE_CALLS[call](single(case)) is None
    case.assert_equals_eager()


@pytest.mark.parametrize("call", MULTI_CALLS)
@pytest.mark.parametrize("absent", [(), OPTIONAL[:1], OPTIONAL[1:], OPTIONAL], ids="-".join)
def test_multi_matches_eager_copy(call, absent):
    fields = without("seqlens_expanded", *absent)
    case = multi_case(fields, layouts=(DENSE, SLICED, ODD))
    assert MULTI_CALLS[call](multi(case)) is None
    case.assert_equals_eager()


@EACH_MODE
def test_strided_sources_are_read_in_place(mode):
    case = Case(Sizes(mode), FIELDS, 1, STRIDED, (ODD,))
    fused_metadata_copy_cuda(**single(case))
    case.assert_equals_eager()
    case = multi_case(source_layout=ODD, layouts=(STRIDED, DENSE))
    fused_metadata_copy_multi_cuda(**multi(case))
    case.assert_equals_eager()


def test_element_0_of_the_prefix_sums_is_never_written():
    case, three = Case(Sizes(TARGET_VERIFY)), multi_case()
    fused_metadata_copy_cuda(**single(case))
    fused_metadata_copy_multi_cuda(**multi(three))
    for each in (*case.destinations, *three.destinations):
        assert each.tensors["cu_seqlens_k"][0] == SENTINEL
        assert each.tensors["dsa_cu_seqlens_k"][0] == SENTINEL


@pytest.mark.parametrize(
    ("mode", "max_len", "max_seqlen_k", "width"),
    [
        (DECODE, 30, 7, 30),
        (DECODE, 30, -1, 30),
        (TARGET_VERIFY, 30, 7, 7),
        (TARGET_VERIFY, -1, 7, 7),
        (DRAFT_EXTEND, 30, 7, 7),
        (DRAFT_EXTEND, -1, 7, 7),
        (DRAFT_EXTEND, 30, 0, 30),
        (DRAFT_EXTEND, 30, -1, 30),
        (DRAFT_EXTEND, 0, 0, 0),
    ],
)
def test_each_mode_takes_its_width_from_the_published_argument(mode, max_len, max_seqlen_k, width):
    case = Case(Sizes(mode), FIELDS, 1, DENSE, (ODD,))
    fused_metadata_copy_cuda(**single(case, max_len=max_len, max_seqlen_k=max_seqlen_k))
    case.assert_equals_eager(max_seqlen_k=width)


@pytest.mark.parametrize("size", [-1, 0, 3, 10**9])
def test_decode_ignores_seqlens_expanded_and_its_size(size):
    case = Case(Sizes(DECODE))
    fused_metadata_copy_cuda(**single(case, seqlens_expanded_size=size))
    case.assert_equals_eager()
    assert (case.destinations[0].tensors["seqlens_expanded"] == SENTINEL).all()
    case = Case(Sizes(DECODE))
    fused_metadata_copy_cuda(**single(case, seqlens_expanded_dst=None))
    case = multi_case()
    fused_metadata_copy_multi_cuda(**multi(case, seqlens_expanded_size=size))
    case.assert_equals_eager()


def test_one_table_may_be_both_page_tables():
    case = multi_case(without("seqlens_expanded", "real_page_table"), layouts=(SLICED,))
    same = {"real_page_table_src": case.source.tensors["page_table_1"]}
    for k, each in enumerate(case.destinations):
        same[f"real_page_table_dst{k}"] = each.tensors["page_table_1"]
    fused_metadata_copy_multi_cuda(**multi(case, **same))
    case.assert_equals_eager()


def test_an_empty_batch_does_nothing():
    fields = without("seqlens_expanded", "flashmla_num_splits", "flashmla_metadata")
    case = Case(Sizes(DECODE, bs=0, width=0), fields, 3)
    before = [each.bytes() for each in case.destinations]
    fused_metadata_copy_multi_cuda(**multi(case))
    fused_metadata_copy_cuda(**single(case))
    assert [each.bytes() for each in case.destinations] == before


# Errors


def refuse(call, named, case, kind, message):
    before = [each.bytes() for each in case.destinations]
    with pytest.raises(kind) as caught:
        call(named)
    assert caught.type is kind
    assert str(caught.value) == message
    assert [each.bytes() for each in case.destinations] == before


@pytest.mark.parametrize("call", SINGLE_CALLS)
@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("cache_seqlens_src", "source: cache_seqlens"),
        ("page_indices_src", "source: page_table_1"),
        ("dsa_cache_seqlens_dst", "destination 0: dsa_cache_seqlens"),
        ("flashmla_metadata_dst", "destination 0: flashmla_metadata"),
    ],
)
def test_another_dtype_is_the_published_runtime_error(call, name, where):
    case = Case(Sizes(TARGET_VERIFY))
    named = single(case)
    named[name] = named[name].astype(np.int64)
    message = f"fused_metadata_copy_cuda: {where}: must have dtype int32, got int64"
    refuse(SINGLE_CALLS[call], named, case, RuntimeError, message)


def test_another_dtype_is_the_published_runtime_error_in_multi():
    for k in range(3):
        case = multi_case()
        named = multi(case)
        named[f"cu_seqlens_k_dst{k}"] = named[f"cu_seqlens_k_dst{k}"].astype(np.float32)
        message = (
            f"fused_metadata_copy_multi_cuda: destination {k}: cu_seqlens_k: must have dtype "
            "int32, got float32"
        )
        refuse(MULTI_CALLS["keywords"], named, case, RuntimeError, message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"forward_mode": 3}, "forward_mode: expected 0 (decode), 1 (target_verify) or 2 "
                              "(draft_extend), got 3"),
        ({"forward_mode": -1}, "forward_mode: expected 0 (decode), 1 (target_verify) or 2 "
                               "(draft_extend), got -1"),
        ({"forward_mode": 2**32}, "forward_mode: expected 0 (decode), 1 (target_verify) or 2 "
                                  "(draft_extend), got 4294967296"),
        ({"bs": -1}, "bs: must not be negative, got -1"),
        ({"max_seqlen_k": 38}, "source: page_table_1: needs 10 x 38 elements, has 10 x 37"),
        ({"max_seqlen_k": -1}, "max_seqlen_k: must not be negative, got -1"),
        ({"real_page_table_dst": None}, "destination 0: real_page_table: is missing, the source "
                                        "has it"),
        ({"seqlens_expanded_src": None}, "source: seqlens_expanded: is missing, destination 0 "
                                         "has it"),
    ],
)  # fmt: skip
def test_other_errors_are_those_of_copy_under_the_published_name(changed, message):
    case = Case(Sizes(TARGET_VERIFY))
    message = f"fused_metadata_copy_cuda: {message}"
    refuse(SINGLE_CALLS["keywords"], single(case, **changed), case, ValueError, message)


@pytest.mark.parametrize(
    ("mode", "widths", "name", "got"),
    [
        (DECODE, {"max_len": -1}, "max_len", -1),
        (DECODE, {"max_len": -(2**63), "max_seqlen_k": 37}, "max_len", -(2**63)),
        (TARGET_VERIFY, {"max_seqlen_k": -2, "max_len": 37}, "max_seqlen_k", -2),
        (DRAFT_EXTEND, {"max_seqlen_k": -1, "max_len": -3}, "max_len", -3),
        (DRAFT_EXTEND, {"max_seqlen_k": 0, "max_len": -3}, "max_len", -3),
    ],
)
def test_a_negative_width_is_named_as_published(mode, widths, name, got):
    case = Case(Sizes(mode))
    message = f"fused_metadata_copy_cuda: {name}: must not be negative, got {got}"
    refuse(SINGLE_CALLS["positional"], single(case, **widths), case, ValueError, message)


def test_a_negative_width_is_named_as_published_in_multi():
    case = multi_case()
    message = "fused_metadata_copy_multi_cuda: max_len: must not be negative, got -5"
    refuse(MULTI_CALLS["keywords"], multi(case, max_len=-5), case, ValueError, message)


def test_multi_refuses_a_third_destination_narrower_than_the_source():
    case = multi_case()
    named = multi(case)
    named["page_table_1_dst2"] = named["page_table_1_dst2"][:, :35]
    message = (
        "fused_metadata_copy_multi_cuda: destination 2: page_table_1: needs 5 x 37 elements, has "
        "5 x 35"
    )
    refuse(MULTI_CALLS["positional"], named, case, ValueError, message)


def test_read_only_destinations_are_refused_and_read_only_sources_read():
    case = Case(Sizes(TARGET_VERIFY))
    for array in case.source.tensors.values():
        array.flags.writeable = False
    fused_metadata_copy_cuda(**single(case))
    case.assert_equals_eager()
    case.destinations[0].tensors["page_table_1"].flags.writeable = False
    message = "fused_metadata_copy_cuda: page_table_1_dst: is read-only"
    refuse(SINGLE_CALLS["positional"], single(case), case, ValueError, message)


@pytest.mark.parametrize(("call", "make", "names"), [
    (fused_metadata_copy_cuda, lambda: single(Case(Sizes(DECODE))), SINGLE),
    (fused_metadata_copy_multi_cuda, lambda: multi(multi_case()), MULTI),
])  # fmt: skip
def test_missing_and_unexpected_arguments_are_named(call, make, names):
    name = call.__name__
    for missing in names:
        named = {key: value for key, value in make().items() if key != missing}
        with pytest.raises(TypeError, match=f"^{name}: missing argument '{missing}'$"):
            call(**named)
    with pytest.raises(TypeError, match=f"^{name}: unexpected argument 'page_size'$"):
        call(**make(), page_size=1)
    for count in (0, 1, 3, len(names) - 2, len(names) - 1, len(names) + 1):
        given = [*make().values(), 0][:count]
        message = f"^{name}: expected {len(names)} arguments, got {count}$"
        with pytest.raises(TypeError, match=message):
            call(*given)
        with pytest.raises(TypeError, match=message):
            call(*[None] * count)
    with pytest.raises(TypeError, match=f"^{name}: missing argument '{names[3]}'$"):
        call(*list(make().values())[:3], **{names[4]: None})


@pytest.mark.parametrize(
    ("call", "make"),
    [
        (fused_metadata_copy_cuda, lambda: single(Case(Sizes(DECODE)))),
        (fused_metadata_copy_multi_cuda, lambda: multi(multi_case())),
    ],
)
def test_an_argument_given_twice_is_refused(call, make):
    named = make()
    with pytest.raises(TypeError, match=f"^{call.__name__}: "):
        call(*named.values(), bs=1)
    message = "dsa_cache_seqlens_src is given twice, as nsa_cache_seqlens_src too"
    with pytest.raises(TypeError, match=f"^{call.__name__}: {message}$"):
        call(**named, nsa_cache_seqlens_src=named["dsa_cache_seqlens_src"])


@pytest.mark.parametrize("name", ["forward_mode", "bs", "max_len", "seqlens_expanded_size"])
def test_an_integer_argument_must_be_an_integer(name):
    case = Case(Sizes(DECODE))
    message = f"fused_metadata_copy_cuda: {name}: expected an integer, got float"
    refuse(SINGLE_CALLS["keywords"], single(case, **{name: 1.0}), case, TypeError, message)


@pytest.mark.parametrize("absent", [(), ("cache_seqlens_src", "cache_seqlens_dst")], ids=str)
def test_cuda_arrays_whose_stream_is_not_known_are_refused_by_name(absent):
    case = Case(Sizes(DECODE, bs=0), without("flashmla_num_splits", "flashmla_metadata"))
    named = single(case)
    for name, array in named.items():
        if isinstance(array, np.ndarray):
            named[name] = None if name in absent else exported(array, device=(2, 0))
    with pytest.raises(ValueError, match="fused_metadata_copy_cuda") as caught:
        fused_metadata_copy_cuda(**named)
    assert str(caught.value) == (
        "fused_metadata_copy_cuda: stream: the current stream of CUDA arrays of type Producer is "
        "not known: call graphfeed.copy with stream="
    )
