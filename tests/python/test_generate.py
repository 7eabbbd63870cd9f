# SPDX-License-Identifier: Apache-2.0
"""graphfeed.generate on the CPU: values, arguments, errors."""

from __future__ import annotations

import graphfeed
import numpy as np
import pytest
from eager_generate import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from generate_case import FIELDS, ODD_LAYOUTS, GenerateCase
from graphfeed import BatchState, GeneratedMetadata, _library

MODES = (DECODE, TARGET_VERIFY, DRAFT_EXTEND)
EACH_MODE = pytest.mark.parametrize("mode", MODES)


def run(case, **changed):
    args, named = case.call()
    graphfeed.generate(*args, **named, **changed)


def test_fields_are_those_of_the_native_schema():
    assert list(GeneratedMetadata._fields) == list(_library.function("generated_field_names")())


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 3, 16])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_generation_matches_the_reference(mode, num_destinations, dtype):
    case = GenerateCase(
        mode,
        arguments={"num_draft_tokens": 2, "index_topk": 50, "page_size": 16, "index_kpool": 4},
        num_destinations=num_destinations,
        layouts=ODD_LAYOUTS,
        dtype=dtype,
    )
    run(case)
    case.assert_equals_eager()


def test_rows_of_their_own_number_match_the_reference():
    case = GenerateCase(
        DRAFT_EXTEND,
        extend_seq_lens=(2, 0, -3, 5, 1),
        arguments={"seqlens_expanded_size": 11},
        num_destinations=2,
    )
    run(case)
    case.assert_equals_eager()


@EACH_MODE
def test_padding_leaves_no_stale_length(mode):
    case = GenerateCase(mode, arguments={"num_draft_tokens": 6}, raw_bs=5)
    run(case)
    case.assert_equals_eager()
    case.change(raw_bs=2)
    run(case)
    case.assert_equals_eager()


@pytest.mark.parametrize("n", [0, 1, 3])
def test_draft_tokens_may_be_read_from_a_tensor(n):
    case = GenerateCase(DRAFT_EXTEND, arguments={"num_draft_tokens": 3}, num_draft_tokens=n)
    run(case)
    case.assert_equals_eager()


def test_context_lengths_may_be_those_of_whole_requests():
    case = GenerateCase(TARGET_VERIFY, arguments={"num_draft_tokens": 4}, ctx_blocks=True)
    run(case)
    case.assert_equals_eager()


@EACH_MODE
def test_an_empty_batch_has_its_heads_written(mode):
    case = GenerateCase(mode, seq_lens=())
    run(case)
    case.assert_equals_eager()


@EACH_MODE
@pytest.mark.parametrize("name", FIELDS)
def test_one_field_alone_is_written(mode, name):
    case = GenerateCase(mode, arguments={"num_draft_tokens": 2}, fields=(name,))
    run(case)
    case.assert_equals_eager()


def test_a_width_bounds_every_row():
    case = GenerateCase(DECODE, arguments={"max_seqlen_k": 100})
    run(case)
    case.assert_equals_eager()


def test_the_report_names_the_first_value_that_is_taken_as_another():
    case = GenerateCase(DECODE, seq_lens=(5, 6, -7, -8))
    report = np.full(3, 99, np.int64)
    run(case, report=report)
    assert report.tolist() == [1, 2, -7]
    case.change(seq_lens=(5, 6, 7, 8), req_pool_indices=(0, 7, 0, -1))
    run(case, report=report)
    assert report.tolist() == [2, 1, 7]
    case.change(req_pool_indices=0)
    run(case, report=report)
    assert report.tolist() == [0, 0, 0]


def test_torch_tensors_are_read_in_place(torch):
    case = GenerateCase(TARGET_VERIFY, arguments={"num_draft_tokens": 2}, dtype=np.int64)
    (batch, destinations), named = case.call()
    batch = BatchState(*(None if each is None else torch.from_numpy(each) for each in batch))
    destinations = [
        GeneratedMetadata(
            *(None if each is None else torch.from_numpy(each) for each in destination)
        )
        for destination in destinations
    ]
    graphfeed.generate(batch, destinations, **named)
    case.assert_equals_eager()


def refuse(kind, message, batch, destinations, **named):
    before = [None if each is None else each.copy() for each in destinations[0]]
    with pytest.raises(kind) as caught:
        graphfeed.generate(batch, destinations, **{"mode": DECODE, "bs": 2, **named})
    assert str(caught.value) == message
    assert all(a is None or (a == b).all() for a, b in zip(destinations[0], before))


LENGTHS = np.array([5, 9], np.int32)


def zeros(*shape, dtype=np.int32):
    return np.zeros(shape, dtype)


def test_errors_name_function_destination_and_field():
    batch = BatchState(LENGTHS)
    one = GeneratedMetadata(cache_seqlens=zeros(2))
    refuse(
        TypeError,
        "generate: destination 0: cache_seqlens: expected int32, got int64",
        batch,
        [GeneratedMetadata(cache_seqlens=zeros(2, dtype=np.int64))],
    )
    refuse(
        TypeError,
        "generate: seq_lens: expected int32 or int64, got float32",
        BatchState(zeros(2, dtype=np.float32)),
        [one],
    )
    refuse(
        ValueError,
        "generate: destination 1: cu_seqlens_k: needs 3 elements, has 2",
        batch,
        [one, GeneratedMetadata(cu_seqlens_k=zeros(2))],
    )
    refuse(
        ValueError,
        "generate: destination 0: cache_seqlens: overlaps seq_lens, which is read",
        batch,
        [GeneratedMetadata(cache_seqlens=LENGTHS)],
    )
    refuse(
        ValueError,
        "generate: req_pool_indices: is missing, destination 0 has page_table_1",
        batch,
        [GeneratedMetadata(page_table_1=zeros(2, 4))],
    )
    refuse(
        ValueError,
        "generate: page_size: must be a power of two up to 2^30, got 48",
        batch,
        [one],
        page_size=48,
    )
    refuse(
        TypeError,
        "generate: report: expected int64, got int32",
        batch,
        [one],
        report=zeros(3),
    )


def test_read_only_arrays_are_refused_as_outputs_and_taken_as_inputs():
    frozen = zeros(2)
    frozen.flags.writeable = False
    refuse(
        ValueError,
        "generate: destination 1: cache_seqlens: is read-only",
        BatchState(LENGTHS),
        [GeneratedMetadata(cache_seqlens=zeros(2)), GeneratedMetadata(cache_seqlens=frozen)],
    )
    report = zeros(3, dtype=np.int64)
    report.flags.writeable = False
    refuse(
        ValueError,
        "generate: report: is read-only",
        BatchState(LENGTHS),
        [GeneratedMetadata(cache_seqlens=zeros(2))],
        report=report,
    )
    target = np.full(2, 7, np.int32)
    graphfeed.generate(BatchState(frozen), [GeneratedMetadata(target)], mode=DECODE, bs=2)
    assert target.tolist() == [0, 0]


def test_what_is_no_batch_or_no_destination_is_refused_by_name():
    one = GeneratedMetadata(cache_seqlens=zeros(2))
    refuse(TypeError, "generate: batch: expected BatchState, got ndarray", LENGTHS, [one])
    with pytest.raises(TypeError, match=r"^generate: destinations: expected a sequence of "):
        graphfeed.generate(BatchState(LENGTHS), one, mode=DECODE, bs=2)
    with pytest.raises(TypeError, match=r"^generate: destination 0: expected GeneratedMetadata, "):
        graphfeed.generate(BatchState(LENGTHS), [zeros(2)], mode=DECODE, bs=2)
    with pytest.raises(TypeError, match=r"^generate: seq_lens: expected a tensor, got "):
        graphfeed.generate(BatchState(None), [one], mode=DECODE, bs=2)
    with pytest.raises(TypeError, match=r"^generate: bs: expected an integer, got "):
        graphfeed.generate(BatchState(LENGTHS), [one], mode=DECODE, bs="2")
