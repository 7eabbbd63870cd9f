# SPDX-License-Identifier: Apache-2.0
"""graphfeed.copy and the drop-in on a GPU: values, streams, huge tables.

Each tensor has an allocation of its own, with margins that must stay as they were. Nothing here
relies on torch's caching allocator: PYTORCH_NO_CUDA_MEMORY_CACHING=1 lets memcheck see overruns.
"""

from __future__ import annotations

import graphfeed
import numpy as np
import pytest
import tvm_ffi
from buffers import DENSE, FIELDS, ODD, SENTINEL, SLICED, STRIDED, Case, Device, Layout, Sizes
from eager_copy import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from graphfeed import Metadata
from graphfeed.sglang import fused_metadata_copy_cuda, fused_metadata_copy_multi_cuda
from test_sglang import MULTI_FIELDS, multi, single

pytestmark = pytest.mark.gpu

MODES = (DECODE, TARGET_VERIFY, DRAFT_EXTEND)
OPTIONAL = ("real_page_table", "flashmla_num_splits", "flashmla_metadata")
LAYOUTS = {"dense": DENSE, "sliced": SLICED, "odd": ODD, "strided": STRIDED}
EACH_MODE = pytest.mark.parametrize("mode", MODES)
DELAY = 50_000_000  # clock cycles, some 25 ms: longer than any work queued behind it


def without(*absent):
    return tuple(name for name in FIELDS if name not in absent)


@pytest.fixture(scope="module")
def place(torch, warm_kernels):
    return Device(torch)


@pytest.fixture(scope="module")
def side_stream(torch):
    """A stream that does not wait for the NULL stream, nor that for it."""
    return torch.cuda.Stream()


@pytest.fixture
def check(torch, side_stream):
    """Copies on a stream of its own, then compares with the eager copy."""

    def run(case, call=None, **changed):
        torch.cuda.synchronize()
        with torch.cuda.stream(side_stream):
            if call is None:
                arguments = {**case.sizes.arguments(), **changed}
                graphfeed.copy(*case.metadata(), **arguments)
            else:
                call(case)
        side_stream.synchronize()
        case.assert_equals_eager(**changed)

    return run


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("layout", ["sliced", "odd", "strided"])
@pytest.mark.parametrize("absent", [(), OPTIONAL[:1], OPTIONAL[1:], OPTIONAL], ids="-".join)
def test_copy_matches_eager_copy(check, place, mode, num_destinations, layout, absent):
    layouts = (LAYOUTS[layout],)
    check(Case(Sizes(mode), without(*absent), num_destinations, DENSE, layouts, place))


@EACH_MODE
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strided_sources_are_read_in_place(check, place, mode, layout):
    check(Case(Sizes(mode), FIELDS, 4, LAYOUTS[layout], tuple(LAYOUTS.values()), place))


@EACH_MODE
@pytest.mark.parametrize("field", FIELDS)
def test_one_field_alone_is_copied(check, place, mode, field):
    check(Case(Sizes(mode), (field,), 2, DENSE, (SLICED, ODD), place))


@pytest.mark.parametrize("lead", [4, 2, 1])
@pytest.mark.parametrize("width", [1, 4, 127, 512, 515, 4_099])
def test_every_access_width_is_copied_exactly(check, place, lead, width):
    layout = Layout(lead=lead, gap=(-width) % 4 + (4 if lead == 4 else lead))
    sizes = Sizes(TARGET_VERIFY, width=width, pages=-(-width // 64))
    check(Case(sizes, FIELDS, 3, layout, (layout,), place))


@pytest.mark.parametrize("lead", [4, 2, 1])
@pytest.mark.parametrize("width", [32_768, 40_001])
def test_large_tables_are_copied_exactly(check, place, lead, width):
    layout = Layout(lead=lead, gap=4 * lead, longer=4)
    sizes = Sizes(DECODE, bs=64, width=width, pages=-(-width // 64))
    check(Case(sizes, without(*OPTIONAL[1:]), 3, DENSE, (layout, DENSE), place))


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 3, 16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_live_bound_leaves_the_columns_past_it(check, place, torch, mode, num_destinations, layout):
    sizes = Sizes(mode, width=700, pages=11)
    case = Case(sizes, FIELDS, num_destinations, DENSE, (LAYOUTS[layout],), place)
    lengths = [0, 9, 1, 9, 65, 9, 512, 9, 9_999]
    bound = torch.tensor(lengths, dtype=torch.int32, device="cuda")[::2]
    check(case, live_bound=bound)


def test_an_empty_batch_does_nothing(check, place):
    fields = without("flashmla_num_splits", "flashmla_metadata")
    check(Case(Sizes(DECODE, bs=0), fields, 2, DENSE, (ODD,), place))


# The drop-in


def run_single(case):
    fused_metadata_copy_cuda(*single(case).values())


def run_multi(case):
    fused_metadata_copy_multi_cuda(*multi(case).values())


@EACH_MODE
@pytest.mark.parametrize("absent", [(), OPTIONAL[:1], OPTIONAL[1:], OPTIONAL], ids="-".join)
def test_drop_in_single_matches_eager_copy(check, place, mode, absent):
    check(Case(Sizes(mode), without(*absent), 1, DENSE, (SLICED,), place), run_single)


@pytest.mark.parametrize("absent", [(), OPTIONAL[:1], OPTIONAL[1:], OPTIONAL], ids="-".join)
def test_drop_in_multi_matches_eager_copy(check, place, absent):
    fields = without("seqlens_expanded", *absent)
    check(Case(Sizes(DECODE), fields, 3, ODD, (SLICED, ODD, STRIDED), place), run_multi)


def test_drop_in_refuses_another_dtype_as_published(place, torch):
    case = Case(Sizes(DECODE), place=place)
    before = case.destinations[0].bytes()
    named = single(case)
    named["cache_seqlens_src"] = named["cache_seqlens_src"].to(torch.int64)
    with pytest.raises(RuntimeError, match="must have dtype int32"):
        fused_metadata_copy_cuda(**named)
    torch.cuda.synchronize()
    assert case.destinations[0].bytes() == before


# Streams


def run_copy(case, **changed):
    graphfeed.copy(*case.metadata(), **case.sizes.arguments(), **changed)


@pytest.mark.parametrize("call", [run_copy, run_single, run_multi])
def test_work_goes_on_torchs_current_stream(place, torch, side_stream, call):
    fields, count = (MULTI_FIELDS, 3) if call is run_multi else (FIELDS, 1)
    case = Case(Sizes(DECODE), fields, count, place=place)
    fresh = {name: tensor + 7 for name, tensor in case.source.tensors.items()}
    torch.cuda.synchronize()
    with torch.cuda.stream(side_stream):
        torch.cuda._sleep(DELAY)
        for name, tensor in case.source.tensors.items():
            tensor.copy_(fresh[name])
        call(case)  # on another stream it would read the old values
    side_stream.synchronize()
    case.assert_equals_eager()


def test_an_explicit_stream_goes_before_the_current_one(place, torch, side_stream):
    case = Case(Sizes(TARGET_VERIFY), FIELDS, 2, place=place)
    fresh = {name: tensor + 7 for name, tensor in case.source.tensors.items()}
    torch.cuda.synchronize()
    with torch.cuda.stream(side_stream):
        torch.cuda._sleep(DELAY)
        for name, tensor in case.source.tensors.items():
            tensor.copy_(fresh[name])
    run_copy(case, stream=side_stream.cuda_stream)
    side_stream.synchronize()
    case.assert_equals_eager()


def test_tvm_ffi_tensors_need_an_explicit_stream(place, torch, side_stream):
    case = Case(Sizes(DECODE), FIELDS, 2, place=place)
    fresh = {name: tensor + 7 for name, tensor in case.source.tensors.items()}
    source, *destinations = (
        Metadata(**{name: tvm_ffi.from_dlpack(t) for name, t in each.tensors.items()})
        for each in (case.source, *case.destinations)
    )
    torch.cuda.synchronize()
    before = [each.bytes() for each in case.destinations]
    with pytest.raises(
        ValueError, match=r"^copy: stream: the current stream of CUDA arrays of type"
    ):
        graphfeed.copy(source, destinations, **case.sizes.arguments())
    assert [each.bytes() for each in case.destinations] == before
    with torch.cuda.stream(side_stream):
        torch.cuda._sleep(DELAY)
        for name, tensor in case.source.tensors.items():
            tensor.copy_(fresh[name])
    handle = side_stream.cuda_stream
    graphfeed.copy(source, destinations, **case.sizes.arguments(), stream=handle)
    side_stream.synchronize()
    case.assert_equals_eager()


@pytest.mark.parametrize("drop_in", [False, True], ids=["copy", "drop-in"])
def test_cupy_arrays_run_on_cupys_current_stream(torch, warm_kernels, drop_in):
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    source, target = cupy.zeros(1_000, cupy.int32), cupy.full(1_002, SENTINEL, cupy.int32)
    fresh = cupy.arange(1_000, dtype=cupy.int32)
    source[...] = fresh  # compiles what CuPy needs, before the clock runs
    source[...] = 0
    cupy.cuda.runtime.deviceSynchronize()
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
        torch.cuda._sleep(DELAY)
    with stream:
        source[...] = fresh
        if drop_in:
            absent = [None] * 8
            fused_metadata_copy_cuda(source, *absent, target[1:-1], *absent, DECODE, 1_000, 0, 0, 0)
        else:
            graphfeed.copy(Metadata(source), [Metadata(target[1:-1])], mode=DECODE, bs=1_000)
    stream.synchronize()
    assert target.get().tolist() == [SENTINEL, *range(1_000), SENTINEL]


# Refusals


@pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])
def test_a_tensor_on_the_cpu_among_cuda_ones_is_refused(place, torch, pinned):
    case = Case(Sizes(DECODE), FIELDS, 2, place=place)
    before = [each.bytes() for each in case.destinations]
    host = torch.full((5,), SENTINEL, dtype=torch.int32, pin_memory=pinned)
    device = torch.cuda.current_device()
    expected = f"is on cpu, the source is on cuda:{device}"
    table = case.destinations[1].tensors["cache_seqlens"]
    case.destinations[1].tensors["cache_seqlens"] = host
    with pytest.raises(ValueError, match="cache_seqlens") as caught:
        run_copy(case)
    assert str(caught.value) == f"copy: destination 1: cache_seqlens: {expected}"
    case.destinations[1].tensors["cache_seqlens"] = table
    case.source.tensors["cu_seqlens_k"] = torch.zeros(6, dtype=torch.int32)
    with pytest.raises(ValueError, match="cu_seqlens_k") as caught:
        run_copy(case)
    assert str(caught.value) == f"copy: source: cu_seqlens_k: {expected}"
    torch.cuda.synchronize()
    assert [each.bytes() for each in case.destinations] == before
    assert (host == SENTINEL).all()


def test_a_table_narrower_than_the_source_is_refused_before_any_launch(place, torch):
    case = Case(Sizes(DECODE, width=90_007), ("cache_seqlens", "page_table_1"), 2, place=place)
    before = [each.bytes() for each in case.destinations]
    narrow = case.destinations[1].tensors["page_table_1"][:, :90_006]
    case.destinations[1].tensors["page_table_1"] = narrow
    with pytest.raises(ValueError, match="page_table_1") as caught:
        run_copy(case)
    assert str(caught.value) == (
        "copy: destination 1: page_table_1: needs 5 x 90007 elements, has 5 x 90006"
    )
    torch.cuda.synchronize()
    assert [each.bytes() for each in case.destinations] == before


# More than 2^31 elements


def test_a_table_of_more_than_2_to_the_31_elements_is_copied(torch, warm_kernels):
    rows, width, gap = 2_048, 1_048_586, 2
    assert rows * width > 2**31
    needed = 4 * rows * (2 * width + gap)
    if torch.cuda.mem_get_info()[0] < needed + 2**30:
        pytest.skip(f"needs {needed >> 30} GiB of free GPU memory")
    column = torch.arange(width, dtype=torch.int32, device="cuda")
    row = torch.arange(rows, dtype=torch.int32, device="cuda") * 524_287
    source = torch.empty((rows, width), dtype=torch.int32, device="cuda")
    for r in range(rows):  # row by row, so that the test itself needs no 64-bit kernel
        torch.add(column, row[r], out=source[r])
    memory = torch.empty((rows, width + gap), dtype=torch.int32, device="cuda")
    for r in range(rows):
        memory[r].fill_(SENTINEL)
    target = Metadata(page_table_1=memory[:, :width])
    graphfeed.copy(Metadata(page_table_1=source), [target], mode=DECODE, bs=rows)
    for r in (*range(0, rows, 97), 1_023, 1_024, rows - 2, rows - 1):
        assert torch.equal(memory[r, :width], column + row[r]), f"row {r}"
    for r in range(rows):
        assert memory[r, width:].tolist() == [SENTINEL] * gap, f"row {r}"
        assert memory[r, width - 1].item() == np.int32(width - 1 + r * 524_287), f"row {r}"
