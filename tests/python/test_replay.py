# SPDX-License-Identifier: Apache-2.0
"""The replay: the engine's invariants, every refresh against the reference."""

from __future__ import annotations

import dataclasses

import pytest
from graphfeed.replay import Engine, EngineConfig, Mismatch, Request, run
from graphfeed.replay.arrays import DeviceError, open_arrays
from graphfeed.replay.engine import graph_sizes
from graphfeed.replay.placement import Prepared
from replay_case import ON_CPU, SMALL, make_requests

# Engine


def test_graph_sizes_are_bucketed():
    assert graph_sizes(32) == [1, 2, 4, 8, 16, 24, 32]
    assert graph_sizes(11) == [1, 2, 4, 8, 11]
    assert graph_sizes(1) == [1]


@pytest.mark.parametrize("num_pages", [0, 20])
def test_engine_never_shares_pages_and_gets_all_of_them_back(num_pages):
    config = EngineConfig(max_batch=12, context=1000, num_pages=num_pages, seed=2)
    requests = make_requests(60)
    engine = Engine(requests, config)
    every_page = set(range(1, config.pool_pages + 1))
    seen = set()
    while (state := engine.next_state()) is not None:
        held = [page for request in state.held for page in request.pages]
        rows = [request.row for request in state.held]
        assert sorted(held + engine.free_pages) == sorted(every_page)
        assert len(set(rows)) == len(rows)
        assert 0 not in rows
        for request in state.held:
            seen.add(request.id)
            slots = engine.req_to_token[request.row, : request.length + config.draft_tokens]
            assert len(slots) <= len(request.pages) * config.page_size
            assert all(
                slot == request.pages[token // 64] * 64 + token % 64
                for token, slot in enumerate(slots.tolist())
            )
        engine.finish_step()
    assert set(engine.free_pages) == every_page
    assert sorted(engine.free_rows) == list(range(1, config.max_batch + 1))
    assert seen == set(range(len(requests)))
    assert engine.num_finished == len(requests)
    assert not engine.req_to_token[0].any()


def test_engine_pads_the_batch_to_a_graph_size():
    engine = Engine([Request(0, 10 + index, 50) for index in range(5)], SMALL)
    state = engine.next_state()
    assert state.bs == 8
    assert state.seq_lens.tolist() == [10, 11, 12, 13, 14, 1, 1, 1]
    assert state.req_rows[5:].tolist() == [0, 0, 0]
    assert state.decode.num_splits.shape == (9,)
    assert state.verify.num_splits.shape == (33,)


def test_engine_admits_by_arrival_batch_and_pages():
    late = Engine([Request(0, 8, 9), Request(120, 8, 9)], EngineConfig(context=64, step_ms=50))
    sizes = []
    for _ in range(4):
        sizes.append(len(late.next_state().held))
        late.running[0].remaining = 9
        late.finish_step()
    assert sizes == [1, 1, 1, 2]
    full = Engine([Request(0, 8, 9)] * 3, EngineConfig(max_batch=2, context=64))
    assert len(full.next_state().held) == 2
    short = Engine([Request(0, 100, 9)] * 3, EngineConfig(context=124, num_pages=5))
    assert len(short.next_state().held) == 2


def test_engine_accepts_1_to_n_tokens_a_step():
    engine = Engine([Request(0, 10, 900)] * 8, SMALL)
    steps = []
    before = [request.length for request in engine.next_state().held]
    for _ in range(30):
        engine.finish_step()
        after = [request.length for request in engine.next_state().held]
        steps += [new - old for new, old in zip(after, before)]
        before = after
    assert set(steps) == {1, 2, 3, 4}


def test_engine_truncates_inputs_to_the_context_limit_and_counts_them():
    requests = [Request(0, 5000, 100), Request(0, 900, 100), Request(0, 5, 5000)]
    engine = Engine(requests, SMALL)
    assert [request.length for request in engine.next_state().held] == [900, 900, 1]
    assert engine.num_truncated == 2
    while (state := engine.next_state()) is not None:
        assert state.seq_lens.max() <= SMALL.context
        engine.finish_step()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"max_batch": 0}, "max_batch: expected 1 or more, got 0"),
        ({"context": 1}, "context: expected 2 or more tokens, got 1"),
        ({"draft_backends": 17}, "draft_backends: expected 1 to 16, got 17"),
        ({"page_size": 48}, "page_size: expected a power of two, got 48"),
        ({"step_ms": 0.0}, "step_ms: expected more than 0"),
        ({"context": 640, "num_pages": 10}, "num_pages: one request may need 11 pages, got 10"),
        ({"num_pages": 2**26}, "num_pages: 67108864 pages pass"),
    ],
)
def test_engine_config_refuses_sizes_that_cannot_work(sizes, message):
    with pytest.raises(ValueError, match=message):
        EngineConfig(**sizes)


# Source and reference


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "sizes",
    [
        {"max_batch": 12, "context": 1000},
        {"max_batch": 1, "context": 64, "draft_tokens": 1},
        {"max_batch": 5, "context": 300, "draft_tokens": 6, "num_pages": 9},
        {"max_batch": 9, "context": 130, "page_size": 16, "top_k": 40},
    ],
)
@pytest.mark.parametrize("placement", ON_CPU, ids=lambda each: each.name)
def test_source_and_reference_agree_on_random_states(placement, seed, sizes):
    config = EngineConfig(seed=seed, **sizes)
    requests = make_requests(25, seed=seed, longest=2 * config.context)
    summary = run(requests, config=config, device="cpu", placements=[placement])
    assert summary.requests_finished == len(requests)
    assert summary.mismatches == 0


def test_reference_finds_a_refresh_that_did_nothing():
    idle = dataclasses.replace(
        ON_CPU[0], prepare=lambda graph, first: Prepared(lambda batch: None, graph.captured)
    )
    with pytest.raises(Mismatch) as raised:
        run(make_requests(3), config=SMALL, device="cpu", placements=[idle])
    assert (raised.value.step, raised.value.destination) == (0, "draft 0")


# The job


def test_a_short_replay_has_no_mismatch():
    requests = make_requests(30)
    steps = []
    summary = run(requests, config=SMALL, device="cpu", steps=50, on_step=steps.append)
    assert summary.device == "cpu"
    assert summary.mismatches == 0
    assert summary.steps == 50
    assert [step.number for step in steps] == list(range(1, 51))
    assert {step.placement for step in steps} == {each.name for each in ON_CPU}
    assert all(1 <= step.batch <= step.bs <= 12 for step in steps)
    assert all(1 <= step.median <= step.longest <= 1000 for step in steps)
    assert all(step.refresh_us > 0 for step in steps)
    assert [step.trace_ms for step in steps] == sorted(step.trace_ms for step in steps)
    assert summary.requests_finished + summary.requests_running <= 30
    assert 1 <= summary.batch.p50 <= summary.batch.p99 <= summary.batch.max <= 12
    assert summary.context.max <= 1000
    assert 0 < summary.bytes_refreshed < summary.bytes_checked


@pytest.mark.gpu
def test_a_short_replay_on_a_gpu_has_no_mismatch():
    try:
        label = open_arrays("cuda").label
    except DeviceError as error:
        pytest.skip(str(error))
    summary = run(make_requests(30), config=SMALL, device="cuda", steps=60)
    assert summary.device == label
    assert summary.mismatches == 0


def test_run_refuses_no_steps_and_no_requests():
    with pytest.raises(ValueError, match="steps: expected 1 or more, got 0"):
        run(make_requests(1), steps=0)
    with pytest.raises(ValueError, match="requests: expected at least one"):
        run([])
