# SPDX-License-Identifier: Apache-2.0
"""What a refresh reads, and what the reference expects of it, in numbers written out here."""

from __future__ import annotations

import dataclasses

import pytest
from graphfeed import ForwardMode
from graphfeed.replay import Engine, EngineConfig, Request
from graphfeed.replay.arrays import SENTINEL, CpuArrays
from graphfeed.replay.destination import destination_blocks
from graphfeed.replay.kept_state import KeptState
from graphfeed.replay.reference import Key, Reference
from graphfeed.replay.source import SourceBuilder


def test_source_holds_the_published_formulas():
    config = EngineConfig(max_batch=4, context=200, draft_tokens=2, top_k=70)
    engine = Engine([Request(0, 69, 50), Request(0, 3, 50), Request(0, 130, 50)], config)
    state = engine.next_state()
    arrays = CpuArrays()
    decode = SourceBuilder(arrays, config, mode=ForwardMode.DECODE)
    verify = SourceBuilder(arrays, config, mode=ForwardMode.TARGET_VERIFY)
    source = decode.build(state, engine.req_to_token)
    assert source.cache_seqlens.tolist() == [69, 3, 130, 1]
    assert source.cu_seqlens_k.tolist() == [0, 69, 72, 202, 203]
    assert source.dsa_cache_seqlens.tolist() == [69, 3, 70, 1]
    assert source.dsa_cu_seqlens_k.tolist() == [0, 69, 72, 142, 143]
    assert source.page_table_1.shape == (4, 130)
    assert source.real_page_table[2].tolist() == list(state.held[2].pages[:3])
    source = verify.build(state, engine.req_to_token)
    assert source.cache_seqlens.tolist() == [71, 5, 132, 3]
    assert source.seqlens_expanded.tolist() == [70, 71, 4, 5, 131, 132, 2, 3]
    assert source.dsa_cache_seqlens.tolist() == [70, 70, 4, 5, 70, 70, 2, 3]
    assert source.dsa_cu_seqlens_k.tolist() == [0, 70, 140, 144, 149, 219, 289, 291, 294]
    assert source.page_table_1.shape == (8, 132)
    assert (source.page_table_1[4] == source.page_table_1[5]).all()
    assert source.page_table_1[5, 131] == state.held[2].pages[2] * 64 + 3
    assert not source.page_table_1[6:].any()


def test_kept_state_writes_the_running_requests_alone():
    config = EngineConfig(max_batch=8, context=200)
    engine = Engine([Request(0, 69 + index, 50) for index in range(5)], config)
    state = engine.next_state()
    kept = KeptState(CpuArrays(), config, mode=ForwardMode.TARGET_VERIFY)
    batch = kept.build(state, engine.req_to_token)
    assert batch.seq_lens.tolist() == [69, 70, 71, 72, 73, SENTINEL, SENTINEL, SENTINEL]
    assert batch.req_pool_indices[:5].tolist() == [request.row for request in state.held]
    assert batch.req_pool_indices[5:].tolist() == [SENTINEL] * 3
    assert batch.raw_bs.tolist() == [5]
    assert batch.req_to_token is engine.req_to_token
    assert kept.max_seqlen_k(state) == 77
    smaller = dataclasses.replace(state, bs=4, held=state.held[:3])
    again = kept.build(smaller, engine.req_to_token)
    assert again.seq_lens.tolist() == [69, 70, 71, 72]  # the last is padding
    assert again.seq_lens.ctypes.data == batch.seq_lens.ctypes.data
    assert batch.raw_bs.tolist() == [3]


@pytest.mark.parametrize(
    ("num_drafts", "expected"),
    [
        (
            0,
            {
                "cache_seqlens": [69, 130, 69, 1],
                "cu_seqlens_k": [0, 69, 199, 268, 269],
                "seqlens_expanded": [69, 130, 69, 1],
                "dsa_cache_seqlens": [69, 70, 69, 1],
                "dsa_cu_seqlens_k": [0, 69, 139, 208, 209],
                "paged_mqa_ctx_lens_2d": [[69], [130], [69], [1]],
            },
        ),
        (
            2,
            {
                "cache_seqlens": [71, 132, 71, 3],
                "cu_seqlens_k": [0, 71, 203, 274, 277],
                "seqlens_expanded": [70, 71, 131, 132, 70, 71, 2, 3],
                "dsa_cache_seqlens": [70, 70, 70, 70, 70, 70, 2, 3],
                "dsa_cu_seqlens_k": [0, 70, 140, 210, 280, 350, 420, 422, 425],
                "paged_mqa_ctx_lens_2d": [[71, 71], [132, 132], [71, 71], [3, 3]],
            },
        ),
    ],
    ids=["decode", "target_verify"],
)
def test_reference_expects_the_published_formulas_of_a_generation(num_drafts, expected):
    config = EngineConfig(max_batch=4, context=200, draft_tokens=2, top_k=70)
    state = Engine([Request(0, 69, 50), Request(0, 130, 50)] * 2, config).next_state()
    state = dataclasses.replace(state, held=state.held[:3])  # the fourth is padding
    key, rows = Key("generate", "one"), max(num_drafts, 1)
    blocks = destination_blocks(config, rows_per_request=rows, index=2, generated=True)
    reference = Reference(config, {key: blocks})
    assert reference.view(key, "cu_seqlens_k")[0] == SENTINEL
    reference.follow(state)
    num_elements = reference.expect_generated(key, state, num_drafts=num_drafts)
    for name, values in expected.items():
        assert reference.view(key, name).tolist() == values, name
    tokens, pages = reference.view(key, "page_table_1"), reference.view(key, "real_page_table")
    total, held, last = 130 + num_drafts, state.held[1].pages, 2 * rows - 1
    assert tokens[last, total - 1] == held[2] * 64 + total - 129
    assert (tokens[last, total:] == SENTINEL).all()
    assert pages[last].tolist() == [*held[:3], SENTINEL]
    assert pages[-1].tolist() == [0, SENTINEL, SENTINEL, SENTINEL]
    written = [reference.view(key, name) != SENTINEL for name in blocks]
    assert num_elements == sum(each.sum() for each in written)
