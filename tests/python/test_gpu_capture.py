# SPDX-License-Identifier: Apache-2.0
"""The copy as a node of a captured CUDA graph: replays, the number of nodes, a first use."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json

import graphfeed
import pytest
from buffers import FIELDS, ODD, SLICED, STRIDED, Case, Device, Sizes
from eager_copy import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from graphfeed import Metadata
from graphfeed.sglang import fused_metadata_copy_cuda, fused_metadata_copy_multi_cuda
from test_sglang import MULTI_FIELDS, multi, single

pytestmark = pytest.mark.gpu

EACH_MODE = pytest.mark.parametrize("mode", [DECODE, TARGET_VERIFY, DRAFT_EXTEND])
LAYOUTS = (SLICED, ODD, STRIDED)
KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@pytest.fixture(scope="module")
def place(torch, warm_kernels):
    return Device(torch)


def run_copy(case, **changed):
    graphfeed.copy(*case.metadata(), **{**case.sizes.arguments(), **changed})


def run_single(case):
    fused_metadata_copy_cuda(**single(case))


def run_multi(case):
    fused_metadata_copy_multi_cuda(*multi(case).values())


@contextlib.contextmanager
def captured(torch):
    """Captures what is queued inside into the graph it yields."""
    gc.collect()  # a tensor freed inside would end the capture where torch does not cache memory
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        yield graph


def replay_and_check(torch, case, call, **changed):
    before = [each.bytes() for each in case.destinations]
    with captured(torch) as graph:
        call(case)
    torch.cuda.synchronize()
    assert [each.bytes() for each in case.destinations] == before  # captured, not run
    for start in (5_000, 9_000):
        case.refill(start)
        graph.replay()
        torch.cuda.synchronize()
        case.assert_equals_eager(**changed)


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 2, 3, 8, 16])
def test_a_replay_copies_the_sources_new_values(place, torch, mode, num_destinations):
    case = Case(Sizes(mode), FIELDS, num_destinations, SLICED, LAYOUTS, place)
    replay_and_check(torch, case, run_copy)


@EACH_MODE
def test_a_replay_reads_the_live_bound_anew(place, torch, mode):
    case = Case(Sizes(mode, width=300, pages=5), FIELDS, 3, ODD, LAYOUTS, place)
    bound = torch.zeros(5, dtype=torch.int32, device="cuda")
    with captured(torch) as graph:
        run_copy(case, live_bound=bound)
    for lengths in ([0, 1, 64, 65, 300], [300, 2, 65, 0, 12]):
        case.refill(5_000 + lengths[0])
        bound.copy_(torch.tensor(lengths, dtype=torch.int32))
        graph.replay()
        torch.cuda.synchronize()
        case.assert_equals_eager(live_bound=bound)


@EACH_MODE
def test_a_replay_of_the_drop_in_copies_the_sources_new_values(place, torch, mode):
    case = Case(Sizes(mode), FIELDS, 1, SLICED, (SLICED,), place)
    replay_and_check(torch, case, run_single)


def test_a_replay_of_the_multi_drop_in_copies_the_sources_new_values(place, torch):
    case = Case(Sizes(DECODE), MULTI_FIELDS, 3, SLICED, LAYOUTS, place)
    replay_and_check(torch, case, run_multi)


# One launch


def captured_nodes(torch, call):
    """Returns the type of every node that `call` adds to a graph, as the driver tells."""
    driver = ctypes.CDLL("libcuda.so.1")
    stream = torch.cuda.Stream()
    handle, graph, count = ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p(), ctypes.c_size_t()
    torch.cuda.synchronize()
    assert driver.cuStreamBeginCapture_v2(handle, RELAXED) == 0
    try:
        with torch.cuda.stream(stream):
            call()
    finally:
        ended = driver.cuStreamEndCapture(handle, ctypes.byref(graph))
    assert ended == 0
    try:
        assert driver.cuGraphGetNodes(graph, None, ctypes.byref(count)) == 0
        nodes = (ctypes.c_void_p * count.value)()
        if count.value:
            assert driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)) == 0
        types = [ctypes.c_int(-1) for _ in nodes]
        for node, kind in zip(nodes, types):
            assert driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
    finally:
        driver.cuGraphDestroy(graph)
    return [kind.value for kind in types]


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 3, 16])
def test_a_copy_is_one_kernel(place, torch, mode, num_destinations):
    case = Case(Sizes(mode), FIELDS, num_destinations, ODD, LAYOUTS, place)
    assert captured_nodes(torch, lambda: run_copy(case)) == [KERNEL_NODE]
    bound = torch.full((5,), 20, dtype=torch.int32, device="cuda")
    assert captured_nodes(torch, lambda: run_copy(case, live_bound=bound)) == [KERNEL_NODE]


@EACH_MODE
def test_a_drop_in_call_is_one_kernel(place, torch, mode):
    case = Case(Sizes(mode), FIELDS, 1, ODD, (STRIDED,), place)
    assert captured_nodes(torch, lambda: run_single(case)) == [KERNEL_NODE]


def test_a_multi_drop_in_call_is_one_kernel(place, torch):
    case = Case(Sizes(DECODE), MULTI_FIELDS, 3, ODD, LAYOUTS, place)
    assert captured_nodes(torch, lambda: run_multi(case)) == [KERNEL_NODE]


def test_a_refused_copy_and_an_empty_one_are_no_node(place, torch):
    case = Case(Sizes(DECODE, bs=0), ("cache_seqlens", "page_table_1"), 2, place=place)
    assert captured_nodes(torch, lambda: run_copy(case)) == []

    def refused():
        with pytest.raises(ValueError, match="bs"):
            run_copy(case, bs=-1)

    assert captured_nodes(torch, refused) == []


def test_cupy_streams_can_be_captured(warm_kernels):
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    source, target = cupy.zeros(100, cupy.int32), cupy.zeros(100, cupy.int32)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        stream.begin_capture()
        try:
            graphfeed.copy(Metadata(source), [Metadata(target)], mode=DECODE, bs=100)
        finally:
            graph = stream.end_capture()
        source[...] = cupy.arange(100, dtype=cupy.int32)
        graph.launch(stream)
        stream.synchronize()
    assert target.get().tolist() == list(range(100))


# First use

FIRST_USE = """
import json
import graphfeed, torch
from graphfeed import Metadata
from graphfeed.sglang import fused_metadata_copy_cuda

source = torch.arange(8, dtype=torch.int32, device="cuda")
refused, beside, elsewhere = (torch.zeros_like(source) for _ in range(3))
other = torch.cuda.Stream()

def copy(target, **arguments):
    graphfeed.copy(Metadata(source), [Metadata(target)], mode=0, bs=8, **arguments)

def values(*tensors):
    torch.cuda.synchronize()
    return [tensor.tolist() for tensor in tensors]

torch.cuda.synchronize()
messages = []
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    try:
        copy(refused)
    except RuntimeError as error:
        messages.append(str(error))
    try:
        fused_metadata_copy_cuda(source, *[None] * 8, refused, *[None] * 8, 0, 8, 0, 0, 0)
    except RuntimeError as error:
        messages.append(str(error))
    beside.copy_(source)
    copy(elsewhere, stream=other.cuda_stream)  # a first use on a stream that is not captured
    copy(refused)  # loaded now
before = values(refused, beside, elsewhere)
graph.replay()
print(json.dumps([messages, before, values(refused, beside, elsewhere)]))
"""


def test_a_first_use_in_a_capture_is_refused_and_the_capture_goes_on(clean_python):
    shown = clean_python(FIRST_USE, check_stderr=False)
    messages, before, after = json.loads(shown.strip().split("\n")[-1])
    assert before == [[0] * 8, [0] * 8, list(range(8))]
    assert after == [list(range(8))] * 3
    for message, function in zip(messages, ("copy", "fused_metadata_copy_cuda")):
        assert message.startswith(f"{function}: kernel copy<1, dense> is not loaded on cuda:0 ")
        assert "call warmup() (graphfeed.warmup in Python) before capturing" in message
    assert len(messages) == 2
