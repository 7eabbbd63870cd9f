# SPDX-License-Identifier: Apache-2.0
"""Branches, nodes and programmatic starts where there is no GPU: in order, or refused by name."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
from buffers import DENSE, FIELDS, Case, Device, Host, Sizes
from eager_copy import DECODE
from graphfeed import Branch, Metadata
from plan_case import EACH_MODE, LAYOUTS, check, other_source, plan_of


@pytest.fixture(params=["numpy", "torch"])
def host(request):
    """Allocates on the CPU: NumPy arrays, and torch tensors, which are read in place."""
    return Host() if request.param == "numpy" else Device(pytest.importorskip("torch"), "cpu")


class KeptGraph:
    """What graphfeed asks of torch.cuda.CUDAGraph(keep_graph=True)."""

    executable = None

    def raw_cuda_graph(self):
        return 16

    def raw_cuda_graph_exec(self):
        if self.executable is None:
            raise RuntimeError("not instantiated")
        return self.executable

    def instantiate(self):
        self.executable = 32


class DroppedGraph:
    """torch.cuda.CUDAGraph() after its capture."""

    def raw_cuda_graph(self):
        raise RuntimeError("torch's own words")


@EACH_MODE
def test_a_fork_and_a_programmatic_run_are_runs_on_the_cpu(host, mode):
    case = Case(Sizes(mode), FIELDS, 3, DENSE, LAYOUTS, host)
    plan = plan_of(case)
    for start in (1_000, 5_000):
        case.refill(start)
        branch = plan.fork()
        assert isinstance(branch, Branch)
        check(case)
        branch.join()
        case.refill(start + 1)
        plan.run(programmatic=True)
        check(case)
    other = other_source(case)
    plan.run(other.metadata(), programmatic=True)
    check(case, other)
    plan.fork(stream=1, programmatic=True).join(stream=2)  # streams are not used
    check(case, other)


def test_a_branch_keeps_its_plan(host):
    case = Case(Sizes(DECODE), place=host)
    branch = plan_of(case).fork()
    gc.collect()
    branch.join()
    check(case)


@pytest.mark.parametrize("graph", [(16, 32), KeptGraph()], ids=["handles", "torch"])
def test_a_plan_that_was_not_captured_has_no_node(host, graph):
    plan = plan_of(Case(Sizes(DECODE), place=host))
    plan.run()
    with pytest.raises(ValueError, match=r"^plan: node: the plan has not run while a stream was"):
        plan.node(graph)


def test_a_graph_that_torch_dropped_is_refused(host):
    plan = plan_of(Case(Sizes(DECODE), place=host))
    with pytest.raises(ValueError, match=r"^plan: node: graph: torch did not keep it") as raised:
        plan.node(DroppedGraph())
    assert "capture into torch.cuda.CUDAGraph(keep_graph=True)" in str(raised.value)
    assert str(raised.value.__cause__) == "torch's own words"


def test_null_handles_are_refused(host):
    plan = plan_of(Case(Sizes(DECODE), place=host))
    for graph, name in [((0, 32), "graph"), ((16, 0), "graph_exec")]:
        with pytest.raises(ValueError, match=f"^plan: node: {name}: is null$"):
            plan.node(graph)


@pytest.mark.parametrize("graph", [None, 16, (16,), (16, None), "graph", np.zeros(2)], ids=str)
def test_what_is_no_graph_is_a_type_error(host, graph):
    plan = plan_of(Case(Sizes(DECODE), place=host))
    expected = "plan: node: graph: expected a torch.cuda.CUDAGraph or a pair of integers, got "
    with pytest.raises(TypeError) as raised:
        plan.node(graph)
    assert str(raised.value) == expected + type(graph).__name__


def test_refused_nodes_leave_nothing_behind(host):
    plan = plan_of(Case(Sizes(DECODE), place=host))
    before = sys.getrefcount(plan)
    for _ in range(3):
        with pytest.raises(ValueError, match=r"^plan: node: "):
            plan.node((16, 32))
    gc.collect()
    assert sys.getrefcount(plan) == before


def test_a_source_that_is_no_metadata_is_a_type_error(host):
    plan = plan_of(Case(Sizes(DECODE), place=host))
    with pytest.raises(TypeError, match=r"^plan: source: expected Metadata, got dict$"):
        plan.run({}, programmatic=True)
    with pytest.raises(TypeError, match=r"^plan: source: cache_seqlens: "):
        plan.run(Metadata(cache_seqlens="five"), programmatic=True)
