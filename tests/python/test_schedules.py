# SPDX-License-Identifier: Apache-2.0
"""The eager scheduler metadata is what the published kernels wrote on a GPU."""

import numpy as np
import pytest
from schedules import (
    FLASHMLA,
    PAGED_MQA,
    draw_lengths,
    flashmla_metadata,
    hash_of,
    paged_mqa_schedule,
    read_golden,
    sparse_tokens,
)


def lengths_of(case):
    return draw_lengths(case["batch"], case["kind"], case["limit"], case["seed"])


@pytest.mark.parametrize("revision", PAGED_MQA)
def test_eager_paged_mqa_schedule_is_what_the_published_kernel_wrote(revision):
    cases = read_golden(revision)
    assert len(cases) >= 500
    for case, outputs in cases:
        lengths = lengths_of(case)
        back = np.arange(case["next_n"])[::-1]
        assert hash_of(np.maximum(lengths[:, None] - back, 0)) == case["input_hash"], case
        schedule = paged_mqa_schedule(
            revision,
            lengths,
            next_n=case["next_n"],
            split_kv=case["split_kv"],
            num_sms=case["num_sms"],
        )
        if case["full"]:
            assert schedule.ravel().tolist() == outputs["schedule"].tolist(), case
        assert hash_of(schedule) == case["output_hash"], case


@pytest.mark.parametrize("revision", FLASHMLA)
def test_eager_flashmla_metadata_is_what_the_published_kernel_wrote(revision):
    cases = read_golden(revision)
    assert len(cases) >= 1000
    for case, outputs in cases:
        dense = case["topk"] == -1
        lengths = lengths_of(case) if dense or case["has_topk_length"] else None
        extra = None
        if case["has_extra_topk_length"]:
            extra = draw_lengths(case["batch"], case["kind"], case["extra_topk"], case["seed"] + 1)
        given = [array for array in (lengths, extra) if array is not None]
        assert hash_of(*given) == case["input_hash"], case
        if dense:
            tokens = lengths.tolist()
        else:
            tokens = sparse_tokens(
                revision,
                rows=case["batch"],
                block_size=case["block_size"],
                topk=case["topk"],
                topk_length=lengths,
                extra_topk=case["extra_topk"],
                extra_topk_length=extra,
            )
        metadata, num_splits = flashmla_metadata(
            revision,
            tokens,
            block_size=case["block_size"],
            overhead=case["overhead"],
            num_sm_parts=case["num_sm_parts"],
        )
        if case["full"]:
            assert metadata.ravel().tolist() == outputs["metadata"].tolist(), case
            assert num_splits.tolist() == outputs["num_splits"].tolist(), case
        assert hash_of(metadata, num_splits) == case["output_hash"], case
