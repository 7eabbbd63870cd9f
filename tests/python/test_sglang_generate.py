# SPDX-License-Identifier: Apache-2.0
"""SGLang's generating entry points: their argument lists, and what they fill."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from eager_generate import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from generate_case import GenerateCase
from graphfeed import sglang

OUTPUTS = (
    "cache_seqlens",
    "cu_seqlens_k",
    "page_table_1",
    "seqlens_expanded",
    "dsa_cache_seqlens",
    "dsa_cu_seqlens_k",
    "real_page_table",
)
TOPK, WIDTH, DRAFT = 40, 200, 4
FUNCTIONS = {
    DECODE: sglang.fused_dsa_decode_metadata,
    TARGET_VERIFY: sglang.fused_dsa_target_verify_metadata,
    DRAFT_EXTEND: sglang.fused_dsa_draft_extend_metadata,
}
EACH_MODE = pytest.mark.parametrize("mode", FUNCTIONS)


def case_of(mode, fields=None, **changed):
    """A case whose generation the arguments of `named` ask for."""
    if fields is None:
        fields = [name for name in OUTPUTS if mode != DECODE or name != "seqlens_expanded"]
    changed.setdefault("seq_lens", (3, 0, 199, 64, 65))
    arguments = {"index_topk": TOPK, "max_seqlen_k": WIDTH, **changed.pop("arguments", {})}
    if mode != DECODE:
        arguments["num_draft_tokens"] = DRAFT
    return GenerateCase(mode, fields=tuple(fields), arguments=arguments, width=WIDTH, **changed)


def named(case, **changed):
    """The keyword arguments of the published function."""
    bs, mode = len(case.seq_lens), case.mode
    arguments = dict(case.batch)
    arguments.update(case.destinations[0].tensors)
    for name in ("page_table_1", "real_page_table"):
        arguments.setdefault(name, None)
    arguments.update(bs=bs, dsa_index_topk=TOPK)
    arguments["physical_page_size"] = case.arguments.get("page_size", 64)
    arguments["max_len" if mode == DECODE else "max_seqlen_k"] = WIDTH
    if mode == TARGET_VERIFY:
        arguments["next_n"] = DRAFT
    if mode == DRAFT_EXTEND:
        static = "num_draft_tokens" in arguments
        if static:
            n = int(arguments.pop("num_draft_tokens")[0])
            arguments["extend_seq_lens"] = np.full(bs, n, np.int32)
        arguments.update(
            total_len=case.rows,
            max_extend_len=DRAFT,
            max_total_len=bs * DRAFT,
            static_extend_len=static,
        )
    return {**arguments, **changed}


def by_position(function, arguments):
    parameters = inspect.signature(function).parameters.values()
    return [arguments.get(each.name, each.default) for each in parameters]


def extended(mode):
    return {"num_draft_tokens": DRAFT} if mode == DRAFT_EXTEND else {}


@EACH_MODE
@pytest.mark.parametrize("absent", [None, "page_table_1"])
def test_keywords_fill_what_the_reference_does(mode, absent):
    fields = [n for n in OUTPUTS if n != absent and (mode != DECODE or n != "seqlens_expanded")]
    case = case_of(mode, fields, dtype=np.int64, **extended(mode))
    FUNCTIONS[mode](**named(case))
    case.assert_equals_eager()


@EACH_MODE
def test_positions_are_the_published_ones(mode):
    case = case_of(mode, **extended(mode))
    FUNCTIONS[mode](*by_position(FUNCTIONS[mode], named(case)))
    case.assert_equals_eager()


def test_argument_lists_are_the_published_ones_with_the_pool_behind():
    state = ["seq_lens", "req_pool_indices", "req_to_token"]
    vectors = ["cache_seqlens", "cu_seqlens_k", "page_table_1"]
    expanded = ["seqlens_expanded", "dsa_cache_seqlens", "dsa_cu_seqlens_k", "real_page_table"]
    selection = ["dsa_index_topk", "physical_page_size"]
    behind = ["max_extend_len", "max_total_len", "static_extend_len", "index_kpool"]
    expected = {
        DECODE: state + vectors + expanded[1:] + ["bs", "max_len", *selection, "index_kpool"],
        TARGET_VERIFY: state
        + vectors
        + expanded
        + ["bs", "max_seqlen_k", *selection, "next_n", "paged_mqa_ctx_lens_2d", "index_kpool"],
        DRAFT_EXTEND: [
            *[state[0], "extend_seq_lens", *state[1:], *vectors, *expanded],
            *["bs", "total_len", "max_seqlen_k", *selection, *behind],
        ],
    }
    for mode, function in FUNCTIONS.items():
        assert list(inspect.signature(function).parameters) == expected[mode]


def test_trailing_arguments_may_be_left_out_by_position():
    case = case_of(DECODE)
    sglang.fused_dsa_decode_metadata(
        *by_position(sglang.fused_dsa_decode_metadata, named(case))[:-1]
    )
    case.assert_equals_eager()


def test_rows_of_their_own_number_are_taken_where_they_are_not_static():
    case = case_of(
        DRAFT_EXTEND, extend_seq_lens=(1, 4, 0, 2, 3), arguments={"seqlens_expanded_size": 10}
    )
    sglang.fused_dsa_draft_extend_metadata(**named(case))
    case.assert_equals_eager()


def test_verify_fills_the_context_lengths_of_whole_requests():
    case = case_of(TARGET_VERIFY, (*OUTPUTS, "paged_mqa_ctx_lens_2d"), ctx_blocks=True)
    sglang.fused_dsa_target_verify_metadata(**named(case))
    case.assert_equals_eager()


@EACH_MODE
def test_a_pool_of_tokens_is_selected_as_the_pooled_functions_do(mode):
    case = case_of(mode, arguments={"index_kpool": 4}, **extended(mode))
    FUNCTIONS[mode](**named(case), index_kpool=4)
    case.assert_equals_eager()


@EACH_MODE
def test_pages_of_one_token_are_the_wide_table_alone(mode):
    fields = [n for n in OUTPUTS[:-1] if mode != DECODE or n != "seqlens_expanded"]
    case = case_of(mode, fields, arguments={"page_size": 1}, **extended(mode))
    FUNCTIONS[mode](**named(case))
    case.assert_equals_eager()


@EACH_MODE
def test_an_empty_batch_has_its_heads_written(mode):
    case = case_of(mode, seq_lens=(), **extended(mode))
    FUNCTIONS[mode](**named(case))
    case.assert_equals_eager()


def test_no_row_still_fills_what_each_request_has():
    case = case_of(DRAFT_EXTEND, extend_seq_lens=(0,) * 5, arguments={"seqlens_expanded_size": 0})
    sglang.fused_dsa_draft_extend_metadata(**named(case))
    case.assert_equals_eager()


def test_torch_tensors_are_read_in_place(torch, in_place_only):
    case = case_of(DRAFT_EXTEND, num_draft_tokens=DRAFT, dtype=np.int64)
    arguments = {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in named(case).items()
    }
    sglang.fused_dsa_draft_extend_metadata(**arguments)
    case.assert_equals_eager()


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        (
            {"page_table_1": None, "physical_page_size": 1},
            ValueError,
            "page_table_1: must be given",
        ),
        ({"real_page_table": None}, ValueError, "real_page_table: must be given where"),
        ({"max_len": 201}, ValueError, "req_to_token: needs 7 x 201 elements, has 7 x 200"),
        ({"cache_seqlens": None}, TypeError, "cache_seqlens: expected a tensor, got None"),
        ({"bs": None}, TypeError, "bs: expected an integer, got None"),
        ({"nonsense": 1}, TypeError, "unexpected argument 'nonsense'"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_errors_name_the_function_and_the_argument(changed, kind, message):
    case = case_of(DECODE)
    with pytest.raises(kind) as caught:
        sglang.fused_dsa_decode_metadata(**named(case, **changed))
    assert str(caught.value).startswith("fused_dsa_decode_metadata: " + message)


def test_context_lengths_of_another_width_are_refused():
    case = case_of(TARGET_VERIFY)
    lengths = np.zeros((20, 1), np.int32)
    with pytest.raises(ValueError, match="expected next_n, 4, columns, got 1"):
        sglang.fused_dsa_target_verify_metadata(**named(case), paged_mqa_ctx_lens_2d=lengths)


def test_more_rows_than_there_is_room_for_are_refused():
    case = case_of(DRAFT_EXTEND, num_draft_tokens=DRAFT)
    with pytest.raises(ValueError, match="total_len: must be at most max_total_len, 3, got 20"):
        sglang.fused_dsa_draft_extend_metadata(**named(case, max_total_len=3))


def test_read_only_arrays_are_refused_as_outputs_alone():
    case = case_of(DECODE)
    case.batch["seq_lens"].flags.writeable = False
    sglang.fused_dsa_decode_metadata(**named(case))
    case.assert_equals_eager()
    case.destinations[0].tensors["cache_seqlens"].flags.writeable = False
    with pytest.raises(ValueError, match="cache_seqlens: is read-only"):
        sglang.fused_dsa_decode_metadata(**named(case))


@EACH_MODE
def test_the_page_size_has_its_older_keyword_too(mode):
    case = case_of(mode, **extended(mode))
    arguments = named(case)
    older = {**arguments, "real_page_size": arguments.pop("physical_page_size")}
    del older["physical_page_size"]
    FUNCTIONS[mode](**older)
    case.assert_equals_eager()
    with pytest.raises(TypeError, match="physical_page_size is given twice, as real_page_size too"):
        FUNCTIONS[mode](**older, physical_page_size=64)
