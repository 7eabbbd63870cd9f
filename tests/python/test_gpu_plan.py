# SPDX-License-Identifier: Apache-2.0
"""graphfeed.Plan on a GPU against the eager reference: streams, captures, deletions."""

from __future__ import annotations

import pytest
import tvm_ffi
from buffers import DENSE, FIELDS, ODD, SLICED, STRIDED, Case, Device, Sizes
from eager_copy import DECODE, TARGET_VERIFY
from graphfeed import Metadata, Plan, _plan
from plan_case import EACH_MODE, LAYOUTS, check, other_source, plan_of
from test_gpu_capture import KERNEL_NODE, captured, captured_nodes

pytestmark = pytest.mark.gpu

DELAY = 50_000_000  # clock cycles, some 25 ms: longer than any work queued behind it


@pytest.fixture(scope="module")
def gpu(torch, warm_kernels):
    return Device(torch)


@pytest.fixture(scope="module")
def side_stream(torch):
    """A stream that does not wait for the NULL stream, nor that for it."""
    return torch.cuda.Stream()


def queue_behind_a_delay(torch, stream, buffers):
    """New values reach the tensors of `buffers` late on the stream."""
    fresh = {name: tensor + 7 for name, tensor in buffers.tensors.items()}
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(DELAY)
        for name, tensor in buffers.tensors.items():
            tensor.copy_(fresh[name])


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 3, 16])
def test_gpu_runs_match_eager_copies(gpu, torch, side_stream, mode, num_destinations):
    case = Case(Sizes(mode), FIELDS, num_destinations, SLICED, LAYOUTS, gpu)
    others = [other_source(case, layout) for layout in (DENSE, STRIDED)]
    plan = plan_of(case)
    for stream in (side_stream, torch.cuda.default_stream(), torch.cuda.Stream(), side_stream):
        for source in (case.source, *others):
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                plan.run(source.metadata())
            stream.synchronize()
            check(case, source)
        others[-1].fill(iter(range(50_000, 10**9, 1_000)))
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            plan.run()
        stream.synchronize()
        check(case, others[-1])


@pytest.mark.parametrize("bind", [False, True], ids=["as bound", "with a source"])
@pytest.mark.parametrize("way", ["in place", "through tvm_ffi"])
def test_gpu_work_goes_on_torchs_current_stream(gpu, torch, side_stream, monkeypatch, way, bind):
    if way == "through tvm_ffi":  # as with torch before 2.10
        monkeypatch.setattr(_plan, "is_read_in_place", lambda array: False)
    case = Case(Sizes(DECODE), FIELDS, 3, place=gpu)
    plan = plan_of(case)
    source = case.source.metadata() if bind else None
    for _ in range(3):
        queue_behind_a_delay(torch, side_stream, case.source)
        with torch.cuda.stream(side_stream):
            plan.run(source)  # on another stream it would read the old values
        side_stream.synchronize()
        check(case)


@pytest.mark.parametrize("bind", [False, True], ids=["as bound", "with a source"])
def test_gpu_an_explicit_stream_goes_before_the_current_one(gpu, torch, side_stream, bind):
    case = Case(Sizes(TARGET_VERIFY), FIELDS, 2, place=gpu)
    plan = plan_of(case)
    queue_behind_a_delay(torch, side_stream, case.source)
    plan.run(case.source.metadata() if bind else None, stream=side_stream.cuda_stream)
    side_stream.synchronize()
    check(case)


def test_gpu_tvm_ffi_tensors_need_an_explicit_stream(gpu, torch, side_stream):
    case = Case(Sizes(DECODE), FIELDS, 2, place=gpu)
    source, *destinations = (
        Metadata(**{name: tvm_ffi.from_dlpack(t) for name, t in each.tensors.items()})
        for each in (case.source, *case.destinations)
    )
    plan = Plan(source, destinations, **case.sizes.arguments())
    before = [each.bytes() for each in case.destinations]
    for given in (None, source):
        with pytest.raises(ValueError, match=r"^plan: stream: the current stream of CUDA arrays"):
            plan.run(given)
    assert [each.bytes() for each in case.destinations] == before
    queue_behind_a_delay(torch, side_stream, case.source)
    plan.run(stream=side_stream.cuda_stream)
    side_stream.synchronize()
    check(case)


@EACH_MODE
def test_gpu_a_captured_run_copies_the_sources_new_values(gpu, torch, mode):
    case = Case(Sizes(mode), FIELDS, 3, SLICED, LAYOUTS, gpu)
    other = other_source(case)
    plan = plan_of(case)
    before = [each.bytes() for each in case.destinations]
    with captured(torch) as graph:
        plan.run()
    torch.cuda.synchronize()
    assert [each.bytes() for each in case.destinations] == before  # captured, not run
    for start in (5_000, 9_000):
        case.refill(start)
        graph.replay()
        torch.cuda.synchronize()
        check(case)
        plan.run(other.metadata())  # does not change what the graph reads
        torch.cuda.synchronize()
        check(case, other)


def test_gpu_a_captured_run_is_one_kernel(gpu, torch):
    case = Case(Sizes(DECODE), FIELDS, 3, ODD, LAYOUTS, gpu)
    plan, other = plan_of(case), other_source(case, DENSE).metadata()
    assert captured_nodes(torch, plan.run) == [KERNEL_NODE]
    assert captured_nodes(torch, lambda: plan.run(other)) == [KERNEL_NODE]
    plan.run()
    assert captured_nodes(torch, plan.run) == [KERNEL_NODE]


def test_gpu_runs_and_deletions_on_another_stream_leave_a_capture_usable(gpu, torch, side_stream):
    case, beside = (Case(Sizes(DECODE), FIELDS, 3, place=gpu) for _ in range(2))
    other = other_source(beside)
    inside, outside, deleted = plan_of(case), plan_of(beside), plan_of(beside)
    handle = side_stream.cuda_stream
    deleted.run(stream=handle)
    with captured(torch) as graph:
        outside.run(stream=handle)
        outside.run(other.metadata(), stream=handle)
        inside.run()
        del deleted
        outside.run(stream=handle)
    torch.cuda.synchronize()
    check(beside, other)
    case.refill(5_000)
    graph.replay()
    torch.cuda.synchronize()
    check(case)


def test_gpu_a_plan_deleted_behind_its_run_leaves_the_copy_right(gpu, torch, side_stream):
    case = Case(Sizes(DECODE), FIELDS, 3, place=gpu)
    for _ in range(3):
        plan = plan_of(case)
        queue_behind_a_delay(torch, side_stream, case.source)
        plan.run(stream=side_stream.cuda_stream)
        del plan
        side_stream.synchronize()
        check(case)
