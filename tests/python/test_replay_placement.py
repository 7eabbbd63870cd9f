# SPDX-License-Identifier: Apache-2.0
"""Placements: each refreshes all it must and is checked; what does not work is refused."""

from __future__ import annotations

import graphfeed
import pytest
from graphfeed.replay import COPYING, GENERATION, PLACEMENTS, Mismatch, Request, run
from graphfeed.replay.arrays import CpuArrays, DeviceError, open_arrays
from graphfeed.replay.placement import choose
from replay_case import ON_CPU, SMALL, corrupted, make_requests

EACH = pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=lambda each: each.name)
# Destination, field and index into its tensor; row and column as the mismatch names them.
PLACES = {
    None: [
        ("draft 1", "page_table_1", (3, 17), 3, 17),
        ("draft 2", "cache_seqlens", 2, 0, 2),
        ("draft 0", "cu_seqlens_k", 0, 0, 0),
        ("draft 0", "seqlens_expanded", 1, 0, 1),
        ("draft 0", "page_table_1", None, -1, -4),  # the buffer's first element
        ("verify", "real_page_table", (9, 1), 9, 1),
        ("verify", "page_table_1", (-1, -1), 47, 1023),
    ],
    COPYING: [("verify", "flashmla_metadata", (65, 7), 65, 7)],
    GENERATION: [
        ("verify", "paged_mqa_ctx_lens_2d", (3, 2), 3, 2),
        ("draft 2", "paged_mqa_ctx_lens_2d", (-1, 0), 11, 0),
        ("verify", "dsa_cu_seqlens_k", 0, 0, 0),
    ],
}


def corrupted_at_each_place(placements):
    return pytest.mark.parametrize(
        ("placement", "destination", "field", "index", "row", "column"),
        [
            pytest.param(each, *place, id=f"{each.name}-{place[0]}-{place[1]}-{place[2]}")
            for each in placements
            for place in PLACES[None] + PLACES[each.kind]
        ],
    )


def assert_named(placement, destination, field, index, row, column, *, device):
    def place(each):
        if index is None:
            return each.buffers[field], 0
        return getattr(each.metadata, field), index

    wrong = corrupted(placement, nth=7, name=destination, place=place)
    with pytest.raises(Mismatch) as raised:
        run([Request(0, 200, 100)] * 4, config=SMALL, device=device, placements=[wrong])
    found = raised.value
    assert (found.step, found.placement) == (7, placement.name)
    where = (destination, field, row, column)
    assert (found.destination, found.field, found.row, found.column) == where
    assert found.got == found.expected ^ 1
    assert found.num_elements == 1
    assert str(found).startswith(
        f"step 7: {placement.name}: destination {destination}: {field}: row {row}, column "
        f"{column}: expected {found.expected}, got {found.got}"
    )


@pytest.fixture
def gpu():
    try:
        return open_arrays("cuda")
    except DeviceError as error:
        pytest.skip(str(error))


@corrupted_at_each_place(ON_CPU)
def test_a_corrupted_element_is_named(placement, destination, field, index, row, column):
    assert_named(placement, destination, field, index, row, column, device="cpu")


@pytest.mark.gpu
@corrupted_at_each_place(PLACEMENTS.values())
def test_a_corrupted_element_on_a_gpu_is_read_by_the_replayed_graph(
    gpu, placement, destination, field, index, row, column
):
    if placement.needs_nodes and gpu.no_nodes is not None:
        pytest.skip(gpu.no_nodes)
    assert_named(placement, destination, field, index, row, column, device="cuda")


@pytest.mark.gpu
@EACH
def test_a_placement_on_a_gpu_follows_the_batch_through_every_size(gpu, placement):
    if placement.needs_nodes and gpu.no_nodes is not None:
        pytest.skip(gpu.no_nodes)
    summary = run(make_requests(40), config=SMALL, device="cuda", placements=[placement])
    assert summary.requests_finished == 40
    assert summary.mismatches == 0


def test_placements_take_turns():
    order = ("plan", "copies")
    summary = run(
        make_requests(9),
        config=SMALL,
        device="cpu",
        steps=5,
        placements=[PLACEMENTS[name] for name in order],
    )
    assert [(each.name, each.steps) for each in summary.placements] == [("plan", 3), ("copies", 2)]
    for each in summary.placements:
        assert 0 < each.step_us.p50 <= each.step_us.p90 <= each.step_us.p99 <= each.step_us.max


def test_a_placement_whose_turn_never_came_has_no_times():
    summary = run(make_requests(9), config=SMALL, device="cpu", steps=2)
    assert [each.name for each in summary.placements] == ["copies", "copy"]


def test_a_plan_is_made_once_for_a_batch_size_and_mode(monkeypatch):
    made, bound = [], []

    class Counted(graphfeed.Plan):
        def __init__(self, *args, mode, bs, **keywords):
            made.append((mode, bs))
            super().__init__(*args, mode=mode, bs=bs, **keywords)

        def run(self, source=None, **keywords):
            bound.append(source is not None)
            super().run(source, **keywords)

    monkeypatch.setattr(graphfeed, "Plan", Counted)
    summary = run(make_requests(40), config=SMALL, device="cpu", placements=[PLACEMENTS["plan"]])
    assert summary.mismatches == 0
    assert len(set(made)) == len(made) > 4
    assert len(bound) == 2 * summary.steps
    assert bound.count(False) == len(made)  # at first, the source it was made with


def test_a_generating_plan_is_made_once_for_a_batch_size_and_mode_and_passed_nothing(monkeypatch):
    made, runs = [], []

    class Counted(graphfeed.Plan):
        @classmethod
        def generating(cls, *args, mode, bs, **keywords):
            made.append((mode, bs))
            return super().generating(*args, mode=mode, bs=bs, **keywords)

        def run(self, *args, stream):
            runs.append(args)
            super().run(*args, stream=stream)

    monkeypatch.setattr(graphfeed, "Plan", Counted)
    asked = [PLACEMENTS["generate-plan"]]
    summary = run(make_requests(40), config=SMALL, device="cpu", placements=asked)
    assert summary.mismatches == 0
    assert len(set(made)) == len(made) > 4
    assert runs == [()] * (2 * summary.steps)


def test_generation_is_one_call_a_mode_and_step_from_state_in_the_same_memory(monkeypatch):
    calls, generate = [], graphfeed.generate

    def counted(batch, destinations, *, mode, **keywords):
        calls.append((mode, len(destinations), batch.seq_lens.ctypes.data))
        generate(batch, destinations, mode=mode, **keywords)

    monkeypatch.setattr(graphfeed, "generate", counted)
    asked = [PLACEMENTS["generate"]]
    summary = run(make_requests(40), config=SMALL, device="cpu", placements=asked)
    assert len(calls) == 2 * summary.steps
    assert {call[:2] for call in calls} == {
        (graphfeed.ForwardMode.DECODE, 3),
        (graphfeed.ForwardMode.TARGET_VERIFY, 1),
    }
    assert len(set(calls)) == 2


def test_a_device_plays_what_it_can_by_default():
    assert choose(CpuArrays(), None) == ON_CPU


def test_a_kind_is_all_of_it_that_the_device_can_do():
    assert choose(CpuArrays(), [GENERATION]) == ON_CPU[3:]
    assert choose(CpuArrays(), [ON_CPU[1], COPYING]) == [ON_CPU[1], ON_CPU[0], ON_CPU[2]]
    able = CpuArrays()
    able.no_nodes = None
    names = [each.name for each in choose(able, [GENERATION])]
    assert names == ["generate", "generate-plan", "generate-graph"]


@pytest.mark.gpu
def test_a_gpu_plays_every_placement_by_default(gpu):
    names = [each.name for each in PLACEMENTS.values() if not each.needs_nodes or not gpu.no_nodes]
    summary = run(make_requests(9), config=SMALL, device="cuda", steps=8)
    assert [each.name for each in summary.placements] == names


@pytest.mark.parametrize("name", ["graph", "generate-graph"])
def test_what_the_device_cannot_do_is_refused(name):
    with pytest.raises(DeviceError, match=f"^placement {name}: needs a GPU, and this is cpu$"):
        run(make_requests(1), device="cpu", placements=[PLACEMENTS[name]])


@pytest.mark.parametrize(("asked", "got"), [([], "none"), (ON_CPU[:1] * 2, "copies, copies")])
def test_no_placement_and_one_given_twice_are_refused(asked, got):
    expected = f"^placements: expected one or more, each once, got {got}$"
    with pytest.raises(ValueError, match=expected):
        run(make_requests(1), device="cpu", placements=asked)
