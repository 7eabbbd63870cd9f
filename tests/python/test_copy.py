# SPDX-License-Identifier: Apache-2.0
"""graphfeed.copy on NumPy arrays against the eager reference."""

from __future__ import annotations

from itertools import combinations

import graphfeed
import numpy as np
import pytest
from buffers import DENSE, FIELDS, ODD, SENTINEL, SLICED, STRIDED, Case, Layout, Sizes
from eager_copy import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from graphfeed import ForwardMode, Metadata

MODES = (DECODE, TARGET_VERIFY, DRAFT_EXTEND)
OPTIONAL = ("real_page_table", "flashmla_num_splits", "flashmla_metadata")
LAYOUTS = {"dense": DENSE, "sliced": SLICED, "odd": ODD, "strided": STRIDED}
EACH_MODE = pytest.mark.parametrize("mode", MODES)


def without(*absent):
    return tuple(name for name in FIELDS if name not in absent)


def copy_and_compare(case, **changed):
    source, destinations = case.metadata()
    graphfeed.copy(source, destinations, **{**case.sizes.arguments(), **changed})
    case.assert_equals_eager(**changed)


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("absent", [(), OPTIONAL[:1], OPTIONAL[1:], OPTIONAL], ids="-".join)
def test_copy_matches_eager_copy(mode, num_destinations, layout, absent):
    case = Case(Sizes(mode), without(*absent), num_destinations, DENSE, (LAYOUTS[layout],))
    copy_and_compare(case)


@EACH_MODE
@pytest.mark.parametrize("layout", ["sliced", "odd", "strided"])
def test_strided_sources_are_read_in_place(mode, layout):
    copy_and_compare(Case(Sizes(mode), FIELDS, 2, LAYOUTS[layout], (SLICED, ODD)))


@EACH_MODE
def test_each_destination_has_its_own_strides(mode):
    copy_and_compare(Case(Sizes(mode), FIELDS, 8, ODD, tuple(LAYOUTS.values())))


@EACH_MODE
def test_any_subset_of_the_fields_is_copied(mode):
    for size in range(len(FIELDS) + 1):
        for fields in combinations(FIELDS, size):
            copy_and_compare(Case(Sizes(mode), fields, 2, DENSE, (DENSE, ODD)))


@EACH_MODE
@pytest.mark.parametrize("width", [1, 2, 3, 127, 128, 129, 511, 512, 513, 4099])
def test_widths_around_a_block_are_copied_exactly(mode, width):
    sizes = Sizes(mode, width=width, pages=-(-width // 64))
    copy_and_compare(Case(sizes, FIELDS, 3, DENSE, (DENSE, ODD, Layout(lead=2, gap=2))))


@pytest.mark.parametrize(("rows", "width"), [(3, 400_003), (5_003, 7), (70_001, 3)])
def test_large_tables_are_copied_exactly(rows, width):
    sizes = Sizes(TARGET_VERIFY, bs=1, rows=rows, width=width, pages=2)
    copy_and_compare(Case(sizes, without(*OPTIONAL), 2, ODD, (SLICED, ODD)))


def test_forward_mode_names_the_three_modes():
    assert [int(mode) for mode in ForwardMode] == list(MODES)
    assert [mode.name for mode in ForwardMode] == ["DECODE", "TARGET_VERIFY", "DRAFT_EXTEND"]
    case = Case(Sizes(TARGET_VERIFY))
    copy_and_compare(case, mode=ForwardMode.TARGET_VERIFY)


def test_numpy_integers_are_integers():
    case = Case(Sizes(TARGET_VERIFY))
    copy_and_compare(case, bs=np.int64(5), max_seqlen_k=np.int32(30))


@EACH_MODE
def test_max_seqlen_k_is_the_sources_width_by_default(mode):
    case = Case(Sizes(mode), FIELDS, 2, SLICED, (Layout(gap=3, longer=9),))
    copy_and_compare(case, max_seqlen_k=None)


@EACH_MODE
def test_a_narrower_max_seqlen_k_leaves_the_columns_past_it(mode):
    copy_and_compare(Case(Sizes(mode), FIELDS, 2), max_seqlen_k=30)
    copy_and_compare(Case(Sizes(mode), FIELDS, 2), max_seqlen_k=0)


@pytest.mark.parametrize("mode", [TARGET_VERIFY, DRAFT_EXTEND])
@pytest.mark.parametrize("absent", [(), ("seqlens_expanded",)], ids=["own", "dsa"])
def test_expanded_size_is_that_of_a_source_field_by_default(mode, absent):
    case = Case(Sizes(mode), without(*absent), 2, DENSE, (ODD,))
    copy_and_compare(case, seqlens_expanded_size=None)


@EACH_MODE
def test_a_smaller_expanded_size_leaves_the_elements_past_it(mode):
    copy_and_compare(Case(Sizes(mode), FIELDS, 2), seqlens_expanded_size=4)


def test_expanded_size_may_be_anything_in_decode():
    copy_and_compare(Case(Sizes(DECODE)), seqlens_expanded_size=-1)
    copy_and_compare(Case(Sizes(DECODE)), seqlens_expanded_size=10**6)


@pytest.mark.parametrize("mode", [TARGET_VERIFY, DRAFT_EXTEND])
def test_table_rows_are_the_sources_and_need_not_be_expanded_rows(mode):
    copy_and_compare(Case(Sizes(mode, bs=3, expanded=7, rows=4), FIELDS, 2, DENSE, (SLICED,)))


def test_element_0_of_the_prefix_sums_is_never_written():
    for mode in MODES:
        case = Case(Sizes(mode), ("cu_seqlens_k", "dsa_cu_seqlens_k", "cache_seqlens"))
        copy_and_compare(case)
        for name in ("cu_seqlens_k", "dsa_cu_seqlens_k"):
            assert case.destinations[0].tensors[name][0] == SENTINEL


def test_seqlens_expanded_is_not_copied_in_decode():
    source = Metadata(np.arange(4, dtype=np.int32), seqlens_expanded=np.ones(4, np.int32))
    target = Metadata(np.zeros(4, np.int32))  # has no seqlens_expanded, and needs none
    graphfeed.copy(source, [target], mode=DECODE, bs=4)
    assert target.cache_seqlens.tolist() == [0, 1, 2, 3]


@EACH_MODE
def test_an_empty_batch_writes_no_field_of_the_batch(mode):
    sizes = Sizes(mode, bs=0, expanded=0, rows=0)
    fields = without("flashmla_num_splits", "flashmla_metadata")
    case = Case(sizes, fields, 3, DENSE, (ODD, DENSE))
    before = [each.bytes() for each in case.destinations]
    copy_and_compare(case)
    assert [each.bytes() for each in case.destinations] == before


@EACH_MODE
def test_no_field_at_all_is_no_work(mode):
    graphfeed.copy(Metadata(), [Metadata(), Metadata()], mode=mode, bs=3)


@pytest.mark.parametrize("step", [-1, -2, 0], ids=["reversed", "every other reversed", "one value"])
def test_sources_may_have_negative_and_zero_strides(step):
    def strided(array, axis):
        if step == 0:
            first = array[:1] if axis == 0 else array[:, :1]
            return np.broadcast_to(first, array.shape)
        return array[::step] if axis == 0 else array[:, ::step]

    for mode in MODES:
        sizes = Sizes(mode)
        wide = Case(Sizes(mode, bs=10, expanded=20, rows=20, width=74, pages=6, parts=4))
        case = Case(sizes, FIELDS, 2, DENSE, (DENSE, SLICED))
        for name, array in wide.source.tensors.items():
            needed = sizes.shape(name)
            view = strided(array, 0)
            if name in ("page_table_1", "real_page_table"):
                view = strided(view, 1)[:, : needed[-1]]
            view = view[: needed[0]] if name != "flashmla_metadata" else array[::-1]
            case.source.tensors[name] = view
        copy_and_compare(case)


def test_transposed_tables_are_copied_by_their_strides():
    values = np.arange(60, dtype=np.int32).reshape(10, 6)
    memory = np.full((12, 8), SENTINEL, np.int32)
    target = memory.T[1:7, 1:11]
    graphfeed.copy(
        Metadata(page_table_1=values.T), [Metadata(page_table_1=target)], mode=DECODE, bs=6
    )
    assert (target == values.T).all()
    assert (memory == SENTINEL).sum() == memory.size - 60


@pytest.mark.parametrize(
    ("source", "target"),
    [((24,), (24,)), ((3, 8), (24,)), ((24,), (3, 8)), ((3, 8), (30,)), ((6, 4), (3, 8)),
     ((24, 1), (2, 12))],
)  # fmt: skip
def test_flashmla_metadata_is_flat_in_row_major_order(source, target):
    values = np.arange(24, dtype=np.int32).reshape(source)
    memory = np.full(target, SENTINEL, np.int32)
    graphfeed.copy(
        Metadata(flashmla_metadata=values), [Metadata(flashmla_metadata=memory)], mode=DECODE, bs=0
    )
    assert memory.reshape(-1)[:24].tolist() == list(range(24))
    assert (memory.reshape(-1)[24:] == SENTINEL).all()


def test_flashmla_metadata_goes_into_a_column_slice():
    memory = np.full((4, 12), SENTINEL, np.int32)
    for values in (np.arange(24, dtype=np.int32), np.arange(24, dtype=np.int32).reshape(6, 4)):
        memory[:] = SENTINEL
        source, target = Metadata(flashmla_metadata=values), memory[:, 2:10]
        graphfeed.copy(source, [Metadata(flashmla_metadata=target)], mode=DECODE, bs=0)
        assert target[:3].reshape(-1).tolist() == list(range(24))
        assert (memory == SENTINEL).sum() == memory.size - 24


def test_no_elements_of_flashmla_metadata_fit_any_strides():
    memory = np.full((4, 12), SENTINEL, np.int32)
    for values in (memory[:0, :8], memory[:0, 0], np.zeros((0, 8), np.int32)):
        for target in (memory[1:, 2:10], memory[:0, 2:10], memory[0]):
            graphfeed.copy(
                Metadata(flashmla_metadata=values),
                [Metadata(flashmla_metadata=target)],
                mode=DECODE,
                bs=0,
            )
    assert (memory == SENTINEL).all()


# Live bound


@EACH_MODE
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("page_size", [1, 13, 64])
def test_live_bound_leaves_the_columns_past_it(mode, layout, page_size):
    sizes = Sizes(mode, width=300, pages=-(-300 // page_size))
    case = Case(sizes, FIELDS, 3, LAYOUTS[layout], (SLICED, LAYOUTS[layout]))
    bound = np.array([0, 1, 64, 65, 1000], np.int32)
    copy_and_compare(case, live_bound=bound, page_size=page_size)


def test_page_size_is_64_by_default():
    case = Case(Sizes(DECODE, width=300, pages=5))
    copy_and_compare(case, live_bound=np.array([64, 65, 0, 128, 300], np.int32))


def test_a_negative_live_bound_counts_as_zero():
    case = Case(Sizes(DECODE))
    copy_and_compare(case, live_bound=np.array([-1, -(2**31), 3, 2**31 - 1, -5], np.int32))
    assert (case.destinations[0].tensors["page_table_1"][:2] == SENTINEL).all()


@pytest.mark.parametrize("rows_per_request", [1, 2, 3, 4, 100])
def test_rows_share_the_bound_of_their_request(rows_per_request):
    case = Case(Sizes(TARGET_VERIFY, bs=5, rows=10), FIELDS, 2, DENSE, (ODD,))
    bound = np.arange(0, 30, 3, dtype=np.int32)
    copy_and_compare(case, live_bound=bound, rows_per_request=rows_per_request)


def test_live_bound_may_be_strided_or_one_value():
    lengths = np.array([3, 99, 9, 99, 20, 99, 36, 99, 37], np.int32)
    one_value = np.lib.stride_tricks.as_strided(lengths, (5,), (0,))
    for bound in (lengths[::2], lengths[::-2], one_value):
        copy_and_compare(Case(Sizes(DECODE), FIELDS, 2), live_bound=bound)


def test_live_bound_may_be_read_only():
    lengths = np.array([3, 9, 20, 36, 37], np.int32)
    lengths.flags.writeable = False
    for bound in (lengths, np.broadcast_to(lengths[2:3], 5)):
        copy_and_compare(Case(Sizes(DECODE), FIELDS, 2), live_bound=bound)


def test_live_bound_may_be_the_sources_lengths():
    case = Case(Sizes(DECODE))
    lengths = case.source.tensors["cache_seqlens"]
    lengths[:] = [5, 0, 37, 20, 1]
    copy_and_compare(case, live_bound=lengths)


def test_many_bounded_rows_are_copied_exactly():
    sizes = Sizes(TARGET_VERIFY, bs=1_251, rows=5_004, width=9, pages=1)
    bound = (np.arange(1_251, dtype=np.int32) * 7) % 11
    case = Case(sizes, ("page_table_1", "real_page_table"), 2, DENSE, (ODD,))
    copy_and_compare(case, live_bound=bound, page_size=8)


# One buffer in two roles


def test_one_table_may_be_both_page_tables():
    values, target = np.arange(20, dtype=np.int32).reshape(4, 5), np.zeros((4, 7), np.int32)
    graphfeed.copy(
        Metadata(page_table_1=values, real_page_table=values),
        [Metadata(page_table_1=target[:, :5], real_page_table=target[:, :5])],
        mode=DECODE,
        bs=4,
    )
    assert (target[:, :5] == values).all()
    assert not target[:, 5:].any()


def test_one_vector_may_be_both_lengths_in_every_mode():
    for mode in MODES:
        values, target = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
        graphfeed.copy(
            Metadata(cache_seqlens=values, seqlens_expanded=values),
            [Metadata(cache_seqlens=target, seqlens_expanded=target)],
            mode=mode,
            bs=4,
        )
        assert (target == values).all()


def test_a_destination_may_be_named_twice_or_be_the_source():
    values, target = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    both = [Metadata(target), Metadata(target), Metadata(values)]
    graphfeed.copy(Metadata(values), both, mode=DECODE, bs=4)
    assert target.tolist() == values.tolist() == [0, 1, 2, 3]


def test_destinations_may_be_interleaved_column_slices():
    values = np.arange(20, dtype=np.int32).reshape(4, 5)
    memory = np.full((4, 16), SENTINEL, np.int32)
    targets = [Metadata(page_table_1=memory[:, begin : begin + 5]) for begin in (0, 5, 11)]
    graphfeed.copy(Metadata(page_table_1=values), targets, mode=DECODE, bs=4)
    assert (memory[:, 10] == SENTINEL).all()
    for begin in (0, 5, 11):
        assert (memory[:, begin : begin + 5] == values).all()


def test_read_only_sources_are_read():
    case = Case(Sizes(TARGET_VERIFY))
    for array in case.source.tensors.values():
        array.flags.writeable = False
    copy_and_compare(case)


def test_destinations_may_be_any_sequence():
    case = Case(Sizes(DECODE), FIELDS, 2)
    source, destinations = case.metadata()
    graphfeed.copy(source, tuple(destinations), **case.sizes.arguments())
    case.assert_equals_eager()
