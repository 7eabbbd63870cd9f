# SPDX-License-Identifier: Apache-2.0
"""Plans inside torch's captured graphs on a GPU: nodes re-pointed, branches, early starts."""

from __future__ import annotations

import contextlib
import gc

import pytest
from buffers import DENSE, FIELDS, STRIDED, Case, Device, Sizes
from eager_copy import DECODE, TARGET_VERIFY
from graphfeed import _plan
from plan_case import EACH_MODE, LAYOUTS, check, other_source, plan_of

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu(torch, warm_kernels):
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        pytest.skip("needs torch.cuda.CUDAGraph(keep_graph=True)")
    return Device(torch)


@pytest.fixture
def early(torch):
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs compute capability 9.0")


@contextlib.contextmanager
def captured(torch, *, keep_graph=True):
    """Captures what is queued inside into the graph it yields."""
    gc.collect()  # a tensor freed inside would end the capture where torch does not cache memory
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=keep_graph)
    with torch.cuda.graph(graph):
        yield graph


def replay_and_check(torch, graph, case, source=None):
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    check(case, source)


@EACH_MODE
@pytest.mark.parametrize("way", ["in place", "through tvm_ffi"])
def test_gpu_a_node_copies_from_the_source_it_was_pointed_at(gpu, torch, monkeypatch, mode, way):
    if way == "through tvm_ffi":  # as with torch before 2.10
        monkeypatch.setattr(_plan, "is_read_in_place", lambda array: False)
    case = Case(Sizes(mode), FIELDS, 3, DENSE, LAYOUTS, gpu)
    others = [other_source(case, layout) for layout in (DENSE, STRIDED, DENSE)]
    plan = plan_of(case)
    with captured(torch) as graph:
        plan.run()
    node = plan.node(graph)  # before the first replay: it is instantiated here
    replay_and_check(torch, graph, case)
    for source in (*others, case.source):
        node.repoint(source.metadata())
        replay_and_check(torch, graph, case, source)
        source.fill(iter(range(50_000, 10**9, 1_000)))
        replay_and_check(torch, graph, case, source)
    node.repoint(others[1].metadata())
    plan.run()  # the plan's own source is not changed
    torch.cuda.synchronize()
    check(case)


def test_gpu_a_graph_that_was_replayed_is_not_instantiated_again(gpu, torch):
    case = Case(Sizes(DECODE), FIELDS, 2, place=gpu)
    plan = plan_of(case)
    with captured(torch) as graph:
        plan.run()
    replay_and_check(torch, graph, case)
    executable = graph.raw_cuda_graph_exec()
    first, second = plan.node(graph), plan.node((graph.raw_cuda_graph(), executable))
    assert graph.raw_cuda_graph_exec() == executable
    for node in (first, second, first):
        source = other_source(case)
        node.repoint(source.metadata())
        replay_and_check(torch, graph, case, source)


def test_gpu_a_graph_instantiated_again_is_refused(gpu, torch):
    case = Case(Sizes(DECODE), FIELDS, 2, place=gpu)
    plan, source = plan_of(case), other_source(case)
    with captured(torch) as graph:
        plan.run()
    node = plan.node(graph)
    executable = graph.raw_cuda_graph_exec()
    graph.instantiate()
    if graph.raw_cuda_graph_exec() != executable:  # else the handle came back, and is good
        with pytest.raises(RuntimeError, match=r"^plan: node: graph: was instantiated again since"):
            node.repoint(source.metadata())
    plan.node(graph).repoint(source.metadata())
    replay_and_check(torch, graph, case, source)
    graph.reset()
    with pytest.raises(RuntimeError):
        node.repoint(source.metadata())


def test_gpu_graphs_without_a_node_are_refused_by_name(gpu, torch):
    case = Case(Sizes(DECODE), FIELDS, 2, place=gpu)
    plan = plan_of(case)
    with captured(torch) as other:
        case.source.tensors["cache_seqlens"].add_(1)
    with pytest.raises(ValueError, match=r"^plan: node: the plan has not run while a stream was"):
        plan.node(other)
    with captured(torch, keep_graph=False) as dropped:
        plan.run()
    with pytest.raises(ValueError, match=r"capture into torch\.cuda\.CUDAGraph\(keep_graph=True\)"):
        plan.node(dropped)
    with pytest.raises(ValueError, match=r"^plan: node: graph: the plan was captured into another"):
        plan.node(other)


def test_gpu_a_refused_source_leaves_the_node_as_it_was(gpu, torch):
    case = Case(Sizes(TARGET_VERIFY), FIELDS, 2, place=gpu)
    plan, other = plan_of(case), other_source(case)
    with captured(torch) as graph:
        plan.run()
    node = plan.node(graph)
    node.repoint(other.metadata())
    wrong = case.source.metadata()._replace(cu_seqlens_k=case.source.tensors["cu_seqlens_k"].long())
    with pytest.raises(TypeError, match=r"^plan: source: cu_seqlens_k: expected int32, got int64$"):
        node.repoint(wrong)
    replay_and_check(torch, graph, case, other)


def test_gpu_a_node_keeps_graph_plan_and_source_alive(gpu, torch):
    case = Case(Sizes(DECODE), FIELDS, 2, place=gpu)
    plan = plan_of(case)
    with captured(torch) as graph:
        plan.run()
    node = plan.node(graph)
    del plan
    source = other_source(case)
    node.repoint(source.metadata())
    gc.collect()
    replay_and_check(torch, graph, case, source)
    del graph
    gc.collect()
    node.repoint(case.source.metadata())  # its executable is still there


def test_gpu_a_forked_copy_is_joined_by_what_follows(gpu, torch):
    case = Case(Sizes(DECODE), FIELDS, 3, place=gpu)
    plan, other = plan_of(case), other_source(case)
    lengths = case.destinations[0].tensors["cache_seqlens"]
    beside, after = torch.zeros_like(lengths), torch.zeros_like(lengths)

    def step():
        branch = plan.fork()
        beside.add_(1)
        branch.join()
        torch.mul(lengths, 2, out=after)

    step()  # warms up in order
    with captured(torch) as graph:
        step()
    node = plan.node(graph)
    for source in (case.source, other):
        node.repoint(source.metadata())
        replay_and_check(torch, graph, case, source)
        assert torch.equal(after, lengths * 2)
    assert beside.tolist() == [3] * len(beside)


def test_gpu_a_branch_is_joined_in_its_capture_only(gpu, torch):
    case = Case(Sizes(DECODE), FIELDS, 1, place=gpu)
    plan = plan_of(case)
    with captured(torch) as graph:
        branch = plan.fork()
        case.source.tensors["cache_seqlens"].add_(0)
    with pytest.raises(ValueError, match=r"^plan: join: the stream is not in the capture"):
        branch.join()
    replay_and_check(torch, graph, case)


@pytest.mark.parametrize("capture", [False, True], ids=["launched", "captured"])
def test_gpu_early_starts_read_what_the_kernel_before_wrote(gpu, torch, early, capture):
    sizes = Sizes(DECODE, bs=32, width=8192, pages=128)
    first, second = (Case(sizes, FIELDS, 1, place=gpu) for _ in range(2))
    second.source = first.destinations[0]
    plans = plan_of(first), plan_of(second)

    def chain():
        plans[0].run()
        plans[1].run(programmatic=True)

    call = chain
    if capture:
        with captured(torch) as graph:
            chain()
        call = graph.replay
    for start in range(1_000, 9_000, 1_000):
        first.refill(start)
        torch.cuda.synchronize()
        call()
        torch.cuda.synchronize()
        check(first)
        check(second)
