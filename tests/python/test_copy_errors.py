# SPDX-License-Identifier: Apache-2.0
"""Every refusal of docs/design.md as Python sees it: kind, whole message, nothing written."""

from __future__ import annotations

import graphfeed
import numpy as np
import pytest
from buffers import DENSE, FIELDS, ODD, SLICED, Case, Sizes
from dlpack_producer import Producer, exported
from eager_copy import DECODE, TARGET_VERIFY
from graphfeed import Metadata

SOURCE = -1
ADDRESS = 4096  # of memory that a check must never reach

strided = np.lib.stride_tricks.as_strided


def make_case():
    return Case(Sizes(TARGET_VERIFY), FIELDS, 2, DENSE, (SLICED, ODD))


def replaced(place, field, new):
    """Returns a change to a case: the tensor of one field becomes new(tensor), or is dropped."""

    def change(case):
        tensors = case.source.tensors if place == SOURCE else case.destinations[place].tensors
        tensors[field] = new(tensors[field])
        if tensors[field] is None:
            del tensors[field]
        return {}

    return change


def called_with(**arguments):
    return lambda case: arguments


def becomes(place, field, other_place, other_field, select=lambda tensor: tensor):
    """Returns a change: one tensor becomes (a part of) another's memory."""

    def change(case):
        of = lambda k: case.source.tensors if k == SOURCE else case.destinations[k].tensors  # noqa: E731
        of(place)[field] = select(of(other_place)[other_field])
        return {}

    return change


def bounded(new, **arguments):
    return lambda case: {"live_bound": new(np.arange(5, dtype=np.int32)), **arguments}


def misaligned(tensor):
    return np.frombuffer(bytearray(4 * tensor.size + 1), np.int32, offset=1, count=tensor.size)


def read_only(tensor):
    tensor.flags.writeable = False
    return tensor


def on(device):
    return lambda tensor: exported(tensor, device=device)


def at(address, *shape_and_strides):
    return lambda tensor: Producer(address, *shape_and_strides)


TYPE_ERRORS = {
    "destination 1: page_table_1: expected int32, got int64": replaced(
        1, "page_table_1", lambda a: a.astype(np.int64)
    ),
    "destination 0: cache_seqlens: expected int32, got float32": replaced(
        0, "cache_seqlens", lambda a: a.astype(np.float32)
    ),
    "source: seqlens_expanded: expected int32, got uint32": replaced(
        SOURCE, "seqlens_expanded", lambda a: a.astype(np.uint32)
    ),
    "source: flashmla_metadata: expected int32, got int16": replaced(
        SOURCE, "flashmla_metadata", lambda a: a.astype(np.int16)
    ),
    "source: flashmla_num_splits: expected int32, got int32x4": replaced(
        SOURCE, "flashmla_num_splits", lambda a: exported(a, lanes=4)
    ),
    "live_bound: expected int32, got int64": bounded(lambda a: a.astype(np.int64)),
    "bs: expected an integer, got float": called_with(bs=5.0),
    "max_seqlen_k: expected an integer, got float": called_with(max_seqlen_k=37.0),
    "seqlens_expanded_size: expected an integer, got float": called_with(
        seqlens_expanded_size=10.0
    ),
    "mode: expected an integer, got None": called_with(mode=None),
    "page_size: expected an integer, got None": bounded(lambda a: a, page_size=None),
    "source: page_table_1: expected a tensor or None, got int": replaced(
        SOURCE, "page_table_1", lambda a: 7
    ),
    "destination 1: page_table_1: expected a tensor or None, got float": replaced(
        1, "page_table_1", lambda a: 7.0
    ),
    "live_bound: expected a tensor or None, got int": bounded(lambda a: 5),
}

VALUE_ERRORS = {
    "mode: expected 0 (decode), 1 (target_verify) or 2 (draft_extend), got 3": called_with(mode=3),
    "mode: expected 0 (decode), 1 (target_verify) or 2 (draft_extend), got -1": called_with(
        mode=-1
    ),
    "mode: expected 0 (decode), 1 (target_verify) or 2 (draft_extend), got 4294967297": called_with(
        mode=2**32 + 1
    ),
    "mode: expected 0 (decode), 1 (target_verify) or 2 (draft_extend), got "
    "-9223372036854775808": called_with(mode=-(2**63)),
    "bs: must not be negative, got -1": called_with(bs=-1),
    "max_seqlen_k: must not be negative, got -2": called_with(max_seqlen_k=-2),
    "seqlens_expanded_size: must not be negative, got -3": called_with(seqlens_expanded_size=-3),
    # Device and size
    "destination 1: page_table_1: is on cuda:0, the source is on cpu": replaced(
        1, "page_table_1", on((2, 0))
    ),
    "source: cu_seqlens_k: is on cuda:3, the source is on cpu": replaced(
        SOURCE, "cu_seqlens_k", on((2, 3))
    ),
    "destination 0: cache_seqlens: is on DLPack device 10:1, expected cpu or cuda": replaced(
        0, "cache_seqlens", on((10, 1))
    ),
    "live_bound: is on cuda:0, the source is on cpu": bounded(on((2, 0))),
    "destination 0: real_page_table: has a negative size, -4": replaced(
        0, "real_page_table", at(ADDRESS, (-4, 3))
    ),
    "source: cache_seqlens: has a null data pointer": replaced(
        SOURCE, "cache_seqlens", at(None, (5,))
    ),
    "source: flashmla_metadata: has more than 2^48 elements": replaced(
        SOURCE, "flashmla_metadata", at(ADDRESS, (2**40, 2**40))
    ),
    "source: page_table_1: its strides span more than 2^48 elements": replaced(
        SOURCE, "page_table_1", at(ADDRESS, (10, 37), (2**60, 1))
    ),
    "destination 0: seqlens_expanded: its data is not aligned to 4 bytes": replaced(
        0, "seqlens_expanded", misaligned
    ),
    # Rank
    "destination 0: cache_seqlens: expected rank 1, got 2": replaced(
        0, "cache_seqlens", lambda a: a.reshape(1, -1)
    ),
    "source: cache_seqlens: expected rank 1, got 0": replaced(
        SOURCE, "cache_seqlens", lambda a: np.array(5, np.int32)
    ),
    "destination 1: page_table_1: expected rank 2, got 1": replaced(
        1, "page_table_1", lambda a: a[0]
    ),
    "destination 1: flashmla_metadata: expected rank 2, got 3": replaced(
        1, "flashmla_metadata", lambda a: np.zeros((2, 4, 8), np.int32)
    ),
    "live_bound: expected rank 1, got 2": bounded(lambda a: a.reshape(5, 1)),
    # Too few elements, rows or columns
    "destination 1: page_table_1: needs 10 x 37 elements, has 12 x 35": replaced(
        1, "page_table_1", lambda a: a[:, :35]
    ),
    "destination 0: page_table_1: needs 10 x 37 elements, has 9 x 41": replaced(
        0, "page_table_1", lambda a: a[:9]
    ),
    "source: page_table_1: needs 10 x 38 elements, has 10 x 37": called_with(max_seqlen_k=38),
    "destination 0: real_page_table: needs 10 x 3 elements, has 14 x 2": replaced(
        0, "real_page_table", lambda a: a[:, :2]
    ),
    "source: real_page_table: needs 10 x 3 elements, has 4 x 3": replaced(
        SOURCE, "real_page_table", lambda a: a[:4]
    ),
    "source: cache_seqlens: needs 6 elements, has 5": called_with(bs=6),
    "destination 0: cu_seqlens_k: needs 6 elements, has 5": replaced(
        0, "cu_seqlens_k", lambda a: a[:5]
    ),
    "destination 1: dsa_cu_seqlens_k: needs 11 elements, has 10": replaced(
        1, "dsa_cu_seqlens_k", lambda a: a[:10]
    ),
    "destination 1: flashmla_num_splits: needs 11 elements, has 10": replaced(
        1, "flashmla_num_splits", lambda a: a[:10]
    ),
    "source: seqlens_expanded: needs 11 elements, has 10": called_with(seqlens_expanded_size=11),
    "destination 0: flashmla_metadata: needs 32 elements, has 24": replaced(
        0, "flashmla_metadata", lambda a: a[:3]
    ),
    "source: flashmla_metadata: its 32 elements do not fill the strided rows of 6 columns of a "
    "destination": replaced(0, "flashmla_metadata", lambda a: a[:, :6]),
    "destination 1: flashmla_metadata: has strided rows of 4 columns, others have rows of 8": (
        replaced(1, "flashmla_metadata", lambda a: np.zeros((9, 6), np.int32)[:, :4])
    ),
    "live_bound: needs 5 elements, has 4": bounded(lambda a: a[:4]),
    **{
        f"{name}: must be from 1 to 2^31 - 1, got {value}": bounded(lambda a: a, **{name: value})
        for name in ("page_size", "rows_per_request")
        for value in (0, -1, 2**31, 2**32 + 1, -(2**63))
    },
    "rows_per_request: must be given where the tables' 10 rows are not a multiple of bs, 3": (
        bounded(lambda a: a, bs=3)
    ),
    # One side only
    "destination 1: real_page_table: is missing, the source has it": replaced(
        1, "real_page_table", lambda a: None
    ),
    "source: flashmla_metadata: is missing, destination 0 has it": replaced(
        SOURCE, "flashmla_metadata", lambda a: None
    ),
    # Overlaps
    "destination 0: cache_seqlens: overlaps source: cu_seqlens_k without being the same block of "
    "the same source": becomes(0, "cache_seqlens", SOURCE, "cu_seqlens_k"),
    "destination 1: page_table_1: overlaps source: page_table_1 without being the same block of "
    "the same source": becomes(
        1,
        "page_table_1",
        SOURCE,
        "page_table_1",
        lambda a: strided(a.reshape(-1)[1:], (10, 37), (148, 4)),
    ),
    "destination 0: cu_seqlens_k: overlaps destination 1: cache_seqlens without being the same "
    "block of the same source": becomes(1, "cache_seqlens", 0, "cu_seqlens_k"),
    "destination 1: page_table_1: overlaps destination 0: page_table_1 without being the same "
    "block of the same source": becomes(1, "page_table_1", 0, "page_table_1", lambda a: a[1:, 4:]),
    "destination 1: dsa_cache_seqlens: overlaps destination 1: seqlens_expanded without being the "
    "same block of the same source": becomes(1, "dsa_cache_seqlens", 1, "seqlens_expanded"),
    "live_bound: overlaps destination 1: seqlens_expanded": lambda case: {
        "live_bound": case.destinations[1].tensors["seqlens_expanded"]
    },
    "destination 1: cache_seqlens: its elements overlap each other (strides 0 x 0)": replaced(
        1, "cache_seqlens", lambda a: strided(a, (5,), (0,))
    ),
    "destination 1: page_table_1: its elements overlap each other (strides 36 x 1)": replaced(
        1, "page_table_1", lambda a: strided(a, (10, 37), (144, 4))
    ),
    # Read-only
    "destination 1: flashmla_num_splits: is read-only": replaced(
        1, "flashmla_num_splits", read_only
    ),
    "destination 0: page_table_1: is read-only": replaced(0, "page_table_1", read_only),
}


def refuse(case, kind, message, **changed):
    """Calls copy, which must say exactly `message`, and checks that no destination has changed."""
    before = [each.bytes() for each in case.destinations]
    source, destinations = case.metadata()
    with pytest.raises(kind) as caught:
        graphfeed.copy(source, destinations, **{**case.sizes.arguments(), **changed})
    assert caught.type is kind
    assert str(caught.value) == message
    assert [each.bytes() for each in case.destinations] == before


@pytest.mark.parametrize("message", TYPE_ERRORS, ids=str)
def test_a_wrong_type_is_a_type_error(message):
    case = make_case()
    refuse(case, TypeError, f"copy: {message}", **TYPE_ERRORS[message](case))


@pytest.mark.parametrize("message", VALUE_ERRORS, ids=str)
def test_anything_else_is_a_value_error(message):
    case = make_case()
    refuse(case, ValueError, f"copy: {message}", **VALUE_ERRORS[message](case))


@pytest.mark.parametrize("count", [0, 17, 40])
def test_destinations_are_1_to_16(count):
    case = Case(Sizes(TARGET_VERIFY), FIELDS, count)
    refuse(case, ValueError, f"copy: destinations: expected 1 to 16, got {count}")


def test_expanded_size_must_be_given_where_no_field_tells_it():
    case = Case(Sizes(TARGET_VERIFY), ("cache_seqlens", "flashmla_num_splits"))
    message = (
        "copy: seqlens_expanded_size: must be given where the source has neither seqlens_expanded "
        "nor dsa_cache_seqlens"
    )
    refuse(case, ValueError, message, seqlens_expanded_size=None)


@pytest.mark.parametrize("place", [SOURCE, 0])
def test_a_field_that_the_mode_ignores_must_be_int32_too(place):
    case = Case(Sizes(DECODE))
    replaced(place, "seqlens_expanded", lambda a: a.astype(np.int64))(case)
    name = "source" if place == SOURCE else "destination 0"
    refuse(case, TypeError, f"copy: {name}: seqlens_expanded: expected int32, got int64")


@pytest.mark.parametrize(("source", "target"), [(163_842, 163_840), (90_007, 90_006)])
def test_a_table_narrower_than_the_source_is_refused_by_both_widths(source, target):
    wide, narrow = np.ones((2, source), np.int32), np.zeros((3, target), np.int32)
    with pytest.raises(ValueError, match="page_table_1") as caught:
        graphfeed.copy(
            Metadata(page_table_1=wide), [Metadata(page_table_1=narrow[:2])], mode=DECODE, bs=2
        )
    assert str(caught.value) == (
        f"copy: destination 0: page_table_1: needs 2 x {source} elements, has 2 x {target}"
    )
    assert not narrow.any()


def test_a_row_step_that_makes_columns_meet_is_an_overlap():
    memory = np.zeros(64, np.int32)
    left, right = (strided(memory[begin:], (4, 5), (32, 4)) for begin in (0, 4))
    values = Metadata(page_table_1=np.ones((4, 5), np.int32))
    with pytest.raises(ValueError, match=r"^copy: destination 1: page_table_1: overlaps dest"):
        graphfeed.copy(
            values,
            [Metadata(page_table_1=left), Metadata(page_table_1=right)],
            mode=DECODE,
            bs=4,
        )
    assert not memory.any()


# Arguments that are not what they should be at all

ONE = Metadata(np.zeros(3, np.int32))
MISTAKEN = {
    "destinations: one Metadata": (ONE, ONE, "copy: destinations: "),
    "destinations: None": (ONE, None, "copy: destinations: "),
    "destinations: string": (ONE, "destination", "copy: destination 0: expected Metadata, got str"),
    "destinations: number": (ONE, 3, "copy: destinations: "),
    "destination: None": (ONE, [ONE, None], "copy: destination 1: "),
    "destination: tensor": (ONE, [ONE[0]], "copy: destination 0: "),
    "destination: string": (ONE, ["ninechars"], "copy: destination 0: "),
    "destination: short tuple": (ONE, [ONE[:1]], "copy: destination 0: "),
    "destinations: fields shifted": (ONE, [(*ONE, None), ONE[:8]], "copy: destination 0: "),
    "source: None": (None, [ONE], "copy: source: "),
    "source: string": ("ninechars", [ONE], "copy: source: "),
    "source: tensor": (ONE[0], [ONE], "copy: source: "),
}


@pytest.mark.parametrize("name", MISTAKEN)
def test_what_is_not_metadata_is_a_type_error_that_names_it(name):
    source, destinations, begin = MISTAKEN[name]
    with pytest.raises(TypeError) as caught:
        graphfeed.copy(source, destinations, mode=DECODE, bs=3)
    assert str(caught.value).startswith(begin)


@pytest.mark.parametrize("value", ["text", [1, 2, 3], {}, np.int32(5)], ids=repr)
def test_what_is_not_a_tensor_is_a_type_error_that_names_it(value):
    with pytest.raises(TypeError, match=r"^copy: source: cache_seqlens: expected a tensor or None"):
        graphfeed.copy(Metadata(value), [ONE], mode=DECODE, bs=3)
    name = r"^copy: destination 1: cache_seqlens: expected a tensor or None"
    with pytest.raises(TypeError, match=name):
        graphfeed.copy(ONE, [ONE, Metadata(value)], mode=DECODE, bs=3)


@pytest.mark.parametrize("argument", ["mode", "bs", "max_seqlen_k", "seqlens_expanded_size",
                                      "stream", "live_bound", "page_size"])  # fmt: skip
def test_a_string_is_a_type_error_that_names_the_argument(argument):
    case = make_case()
    before = [each.bytes() for each in case.destinations]
    arguments = {**case.sizes.arguments(), "live_bound": np.arange(5, dtype=np.int32)}
    with pytest.raises(TypeError, match=f"^copy: {argument}: expected an? "):
        graphfeed.copy(*case.metadata(), **{**arguments, argument: "3"})
    assert [each.bytes() for each in case.destinations] == before


def test_errors_are_not_sticky():
    case = make_case()
    refuse(case, ValueError, "copy: bs: must not be negative, got -1", bs=-1)
    graphfeed.copy(*case.metadata(), **case.sizes.arguments())
    case.assert_equals_eager()
