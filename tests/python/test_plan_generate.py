# SPDX-License-Identifier: Apache-2.0
"""Plans that generate: what they read at each run, what they refuse. On the CPU but for the end."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import Device, Host
from eager_generate import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from generate_case import ODD_LAYOUTS, GenerateCase
from graphfeed import BatchState, GeneratedMetadata, Metadata, Plan

EACH_MODE = pytest.mark.parametrize("mode", [DECODE, TARGET_VERIFY, DRAFT_EXTEND])
LENGTHS = ((1, 64, 65, 0, 200), (7, 130, 3, 4, 5), (9, 9, 9, 9, 9))


def case_of(mode, place=None):
    return GenerateCase(
        mode,
        arguments={"num_draft_tokens": 3, "page_size": 16},
        num_destinations=3,
        layouts=ODD_LAYOUTS,
        dtype=np.int64,
        place=place or Host(),
    )


def plan_of(case, **changed):
    args, named = case.call()
    return Plan.generating(*args, **named, **changed)


@pytest.fixture(params=["numpy", "torch"])
def place(request):
    if request.param == "numpy":
        return Host()
    return Device(pytest.importorskip("torch"), "cpu")


@EACH_MODE
def test_each_run_reads_the_batch_anew(mode, place):
    case = case_of(mode, place)
    plan = plan_of(case)
    for lengths in LENGTHS:
        case.change(seq_lens=lengths)
        plan.run()
        case.assert_equals_eager()


@EACH_MODE
def test_another_batch_is_read_from_then_on(mode, place):
    case = case_of(mode, place)
    plan = plan_of(case)
    case.batch["seq_lens"] = place.upload(case.host["seq_lens"].copy())
    case.change(seq_lens=(11, 12, 13, 14, 15))
    plan.run(BatchState(**case.batch))
    case.assert_equals_eager()
    case.change(seq_lens=(21, 22, 23, 24, 25))
    plan.run()
    case.assert_equals_eager()


def test_the_report_is_written_at_each_run():
    case = case_of(DECODE)
    report = np.zeros(3, np.int64)
    plan = plan_of(case, report=report)
    case.change(seq_lens=(5, -6, 7, 8, 9))
    plan.run()
    assert report.tolist() == [1, 1, -6]


def test_a_plan_names_itself_and_what_it_refuses(place):
    case = case_of(DECODE, place)
    plan = plan_of(case)
    (batch, destinations), named = case.call()
    with pytest.raises(TypeError, match=r"^plan: batch: expected BatchState, got Metadata$"):
        plan.run(Metadata(batch.seq_lens))
    with pytest.raises(ValueError, match=r"^plan: seq_lens: needs 5 elements, has 4$"):
        plan.run(batch._replace(seq_lens=batch.seq_lens[:4]))
    short = [GeneratedMetadata(cache_seqlens=destinations[0].cache_seqlens[:3])]
    with pytest.raises(ValueError, match=r"^plan: destination 0: cache_seqlens: needs 5 elem"):
        Plan.generating(batch, short, **named)
    plan.run()
    case.assert_equals_eager()


def test_a_destination_that_moved_is_named(place):
    case = case_of(DECODE, place)
    plan = plan_of(case)
    destinations = [each.metadata() for each in case.destinations]
    plan.check(destinations)
    destinations[1] = destinations[0]
    with pytest.raises(ValueError, match=r"^plan: destination 1: cache_seqlens: "):
        plan.check(destinations)


def test_a_plan_that_copies_takes_no_batch():
    lengths = np.array([5, 9], np.int32)
    plan = Plan(Metadata(lengths), [Metadata(np.zeros(2, np.int32))], mode=DECODE, bs=2)
    with pytest.raises(TypeError, match=r"^plan: source: expected Metadata, got BatchState$"):
        plan.run(BatchState(lengths))


@pytest.mark.gpu
@EACH_MODE
def test_runs_and_replays_on_a_gpu_read_the_batch_anew(torch, warm_kernels, mode):
    case = case_of(mode, Device(torch))
    plan = plan_of(case)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.run()
    for lengths in LENGTHS:
        for run in (plan.run, graph.replay):
            case.change(seq_lens=[each + (run == plan.run) for each in lengths])
            run()
            torch.cuda.synchronize()
            case.assert_equals_eager()


@pytest.mark.gpu
def test_a_captured_node_is_pointed_at_another_batch_on_a_gpu(torch, warm_kernels):
    case = case_of(TARGET_VERIFY, Device(torch))
    plan = plan_of(case)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        plan.run()
    node = plan.node(graph)
    case.batch["seq_lens"] = case.place.upload(case.host["seq_lens"].copy())
    case.change(seq_lens=(11, 12, 13, 14, 15))
    node.repoint(BatchState(**case.batch))
    graph.replay()
    torch.cuda.synchronize()
    case.assert_equals_eager()
