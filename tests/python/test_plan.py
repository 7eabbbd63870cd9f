# SPDX-License-Identifier: Apache-2.0
"""graphfeed.Plan against the eager reference: runs, other sources, refusals, lifetimes, threads."""

from __future__ import annotations

import gc
import re
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import graphfeed
import numpy as np
import pytest
from buffers import DENSE, FIELDS, ODD, SLICED, Case, Device, Host, Sizes, assert_same_memory
from eager_copy import DECODE, DRAFT_EXTEND, TARGET_VERIFY, eager_copy
from graphfeed import ForwardMode, Metadata, Plan, _plan
from plan_case import EACH_MODE, LAYOUTS, check, other_source, plan_of


@pytest.fixture(params=["numpy", "torch"])
def host(request):
    """Allocates on the CPU: NumPy arrays, and torch tensors, which are read in place."""
    return Host() if request.param == "numpy" else Device(pytest.importorskip("torch"), "cpu")


def vector(place, values):
    memory = place.full(len(values), 0)
    memory[...] = place.upload(np.array(values, np.int32))
    return memory


# Runs


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 3, 16])
def test_a_run_copies_what_the_source_holds_now(host, mode, num_destinations):
    case = Case(Sizes(mode), FIELDS, num_destinations, SLICED, LAYOUTS, host)
    before = [each.bytes() for each in case.destinations]
    plan = plan_of(case)
    assert [each.bytes() for each in case.destinations] == before  # made, not run
    for start in (1_000, 5_000, 9_000):
        case.refill(start)
        plan.run()
        check(case)


@EACH_MODE
def test_a_run_with_a_source_copies_from_it_from_then_on(host, mode):
    case = Case(Sizes(mode), FIELDS, 3, DENSE, LAYOUTS, host)
    plan = plan_of(case)
    for layout in (DENSE, *LAYOUTS, DENSE):
        other = other_source(case, layout)
        plan.run(other.metadata())
        check(case, other)
        other.fill(iter(range(20_000, 10**9, 1_000)))
        plan.run()
        check(case, other)
    plan.run(case.source.metadata())
    check(case)


def test_a_source_may_be_narrower_than_the_one_before(host):
    case = Case(Sizes(TARGET_VERIFY), ("page_table_1", "real_page_table"), 2, place=host)
    narrow = {name: tensor[:7, 1:3] for name, tensor in case.source.tensors.items()}
    plan = plan_of(case, max_seqlen_k=None)
    plan.run(Metadata(**narrow))
    eager_copy(narrow, [each.tensors for each in case.expected], mode=TARGET_VERIFY, bs=5)
    assert_same_memory(case.destinations, case.expected)
    plan.run(case.source.metadata())
    check(case)


@EACH_MODE
def test_a_run_reads_the_live_bound_anew(host, mode):
    case = Case(Sizes(mode, width=300, pages=5), FIELDS, 3, ODD, LAYOUTS, host)
    bound = vector(host, [0] * 5)
    plan = plan_of(case, live_bound=bound)
    for lengths in ([0, 1, 64, 65, 300], [300, 2, 65, -1, 12]):
        case.refill(5_000 + lengths[0])
        bound[...] = host.upload(np.array(lengths, np.int32))
        plan.run()
        check(case, live_bound=bound)


def test_rows_share_a_bound_and_pages_have_a_size_as_in_copy(host):
    case = Case(Sizes(TARGET_VERIFY), FIELDS, 2, place=host)
    changed = {"live_bound": vector(host, [9, 0, 31, 37]), "rows_per_request": 3, "page_size": 13}
    plan_of(case, **changed).run()
    check(case, **changed)


@EACH_MODE
def test_an_empty_batch_and_no_field_at_all_are_no_work(host, mode):
    case = Case(Sizes(mode, bs=0, expanded=0, rows=0), FIELDS[:7], 2, place=host)
    before = [each.bytes() for each in case.destinations]
    plan = plan_of(case)
    plan.run()
    plan.run(other_source(case, DENSE).metadata())
    assert [each.bytes() for each in case.destinations] == before
    plan = Plan(Metadata(), [Metadata()], mode=mode, bs=3)
    plan.run()
    plan.run(Metadata())


def test_a_stream_is_not_used_for_cpu_tensors(host):
    case = Case(Sizes(DECODE), place=host)
    plan = plan_of(case)
    for stream in (0, 1, np.int64(7), None):
        case.refill(5_000)
        plan.run(stream=stream)
        check(case)


def test_read_only_sources_are_read():
    case = Case(Sizes(TARGET_VERIFY))
    for array in case.source.tensors.values():
        array.flags.writeable = False
    plan_of(case).run()
    check(case)


def test_an_engines_step_reads_as_in_the_readme():
    lengths = np.array([5, 9], np.int32)
    batch = Metadata(cache_seqlens=lengths, cu_seqlens_k=np.array([0, 5, 14], np.int32))
    graphs = [Metadata(*(np.zeros_like(field) for field in batch[:2])) for _ in range(3)]
    plan = Plan(batch, graphs, mode=ForwardMode.DECODE, bs=2)

    for _ in range(4):  # a step: every request is one token longer
        lengths += 1
        batch.cu_seqlens_k[1:] = lengths.cumsum()
        plan.run()

    assert all(graph.cache_seqlens.tolist() == [9, 13] for graph in graphs)
    assert all(graph.cu_seqlens_k.tolist() == [0, 9, 22] for graph in graphs)


# Refusals


@pytest.mark.parametrize(
    "changed",
    [{"bs": -1}, {"bs": 6}, {"bs": 5.0}, {"mode": 3}, {"mode": None}, {"max_seqlen_k": 38},
     {"seqlens_expanded_size": -2}, {"live_bound": 7}, {"live_bound": np.zeros(4, np.int32)}],
    ids=str,
)  # fmt: skip
def test_what_copy_refuses_is_refused_under_the_plans_name(host, changed):
    case = Case(Sizes(TARGET_VERIFY), FIELDS, 2, place=host)
    arguments = {**case.sizes.arguments(), **changed}
    with pytest.raises((TypeError, ValueError)) as of_copy:
        graphfeed.copy(*case.metadata(), **arguments)
    with pytest.raises(of_copy.type) as of_plan:
        Plan(*case.metadata(), **arguments)
    assert of_plan.type is of_copy.type
    assert str(of_plan.value) == re.sub("^copy: ", "plan: ", str(of_copy.value))
    assert str(of_plan.value).startswith("plan: ")


@pytest.mark.parametrize(
    ("source", "destinations", "message"),
    [
        ({}, [], "plan: source: expected Metadata, got dict"),
        (Metadata(), Metadata(), "plan: destinations: expected a sequence of Metadata, got one "
         "Metadata"),
        (Metadata(), [Metadata(), ()], "plan: destination 1: expected Metadata, got tuple"),
    ],
)  # fmt: skip
def test_what_is_not_metadata_is_a_type_error(source, destinations, message):
    with pytest.raises(TypeError) as caught:
        Plan(source, destinations, mode=DECODE, bs=4)
    assert str(caught.value) == message


def test_read_only_destinations_are_refused():
    case = Case(Sizes(DECODE), FIELDS, 2)
    case.destinations[1].tensors["page_table_1"].flags.writeable = False
    with pytest.raises(ValueError, match="plan: destination 1: page_table_1: is read-only"):
        plan_of(case)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"cu_seqlens_k": np.zeros(6, np.int64)}, TypeError,
         "plan: source: cu_seqlens_k: expected int32, got int64"),
        ({"page_table_1": np.zeros((10, 36), np.int32)}, ValueError,
         "plan: source: page_table_1: needs 10 x 37 elements, has 10 x 36"),
        ({"real_page_table": None}, ValueError, "plan: "),
        ({"cache_seqlens": "five"}, TypeError, "plan: source: cache_seqlens: "),
        (None, TypeError, "plan: source: expected Metadata, got dict"),
    ],
)  # fmt: skip
def test_a_plan_stays_as_it_was_where_a_source_is_refused(host, change, kind, message):
    case = Case(Sizes(TARGET_VERIFY), FIELDS, 2, SLICED, LAYOUTS, host)
    other = other_source(case)
    plan = plan_of(case)
    plan.run()
    check(case)
    refused = {}
    if change is not None:
        change = {
            name: host.upload(value) if isinstance(value, np.ndarray) else value
            for name, value in change.items()
        }
        refused = Metadata(**{**other.tensors, **change})
    before = [each.bytes() for each in case.destinations]
    with pytest.raises(kind) as caught:
        plan.run(refused)
    assert caught.type is kind
    assert str(caught.value).startswith(message)
    assert [each.bytes() for each in case.destinations] == before
    case.refill(9_000)
    plan.run()
    check(case)
    plan.run(other.metadata())
    check(case, other)


@pytest.mark.parametrize("stream", [1.5, "0", object()], ids=["float", "str", "object"])
def test_a_stream_that_is_no_integer_is_a_type_error(host, stream):
    case = Case(Sizes(DECODE), place=host)
    plan = plan_of(case)
    before = case.destinations[0].bytes()
    for source in (None, other_source(case).metadata()):
        with pytest.raises(TypeError, match="plan: stream: expected an integer, got"):
            plan.run(source, stream=stream)
    assert case.destinations[0].bytes() == before
    plan.run()
    check(case)


# Lifetimes


def one_vector(place, start=1):
    return Metadata(vector(place, list(range(start, start + 4))))


def references(*metadata):
    return [weakref.ref(each.cache_seqlens) for each in metadata]


def alive(parts):
    gc.collect()
    return [part() is not None for part in parts]


def test_a_plan_keeps_its_tensors_alive(host):
    source, targets = one_vector(host), [one_vector(host) for _ in range(2)]
    bound = vector(host, [1, 1, 1, 1])
    plan = Plan(source, targets, mode=DECODE, bs=4, live_bound=bound)
    parts = [*references(source, *targets), weakref.ref(bound)]
    del source, targets, bound
    assert alive(parts) == [True] * 4
    plan.run()
    del plan
    assert alive(parts) == [False] * 4


def test_a_plan_keeps_the_source_bound_last_and_no_other(host):
    target = one_vector(host)
    first, second, refused = (one_vector(host, start) for start in (10, 20, 30))
    plan = Plan(first, [target], mode=DECODE, bs=4)
    parts = references(first, second, refused)
    plan.run(second)
    with pytest.raises(ValueError, match="needs 4 elements"):
        plan.run(Metadata(refused.cache_seqlens[:3]))
    del first, second, refused
    assert alive(parts) == [False, True, False]
    plan.run()
    assert target.cache_seqlens.tolist() == [20, 21, 22, 23]


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_deleted_plans_are_freed(host):
    def make(num_plans):
        source, target = one_vector(host), one_vector(host)
        for _ in range(num_plans):
            plan = Plan(source, [target] * 16, mode=DECODE, bs=4)
            plan.run()
            plan.run(source)
        del plan
        gc.collect()
        return resident_bytes()

    before = make(500)
    assert make(2_000) - before < 4 << 20  # kept, they would be some 40 MB


def test_a_process_ends_well_with_plans_alive(clean_python):
    code = """
import numpy as np
from graphfeed import Metadata, Plan
target = np.zeros(4, np.int32)
plan = Plan(Metadata(np.arange(4, dtype=np.int32)), [Metadata(target)], mode=0, bs=4)
plan.cycle = [plan]
plan.run()
print(target.tolist())
"""
    assert clean_python(code) == "[0, 1, 2, 3]\n"


# Threads


def test_threads_run_one_plan_in_turns(host):
    case = Case(Sizes(TARGET_VERIFY, width=700), FIELDS, 3, DENSE, LAYOUTS, host)
    other = other_source(case)
    plan = plan_of(case)
    sources = (case.source.metadata(), other.metadata())

    def work(t):
        for i in range(100):
            plan.run(sources[(t + i) % 2])
            plan.run()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    first = case.destinations[0].tensors["cache_seqlens"][0]
    check(case, other if first == other.tensors["cache_seqlens"][0] else None)


def test_the_source_bound_last_is_kept_whichever_thread_bound_it(host):
    """Another thread binds its source at one line of a run after the other."""
    for at in range(100):
        target, sources = one_vector(host), [one_vector(host, start) for start in (10, 20)]
        plan = Plan(one_vector(host), [target], mode=DECODE, bs=4)
        parts = dict(zip((10, 20), references(*sources)))
        other = threading.Thread(target=plan.run, args=(sources.pop(),))
        lines = count()

        def trace(frame, event, argument, at=at, lines=lines, other=other):
            if event == "line" and frame.f_globals is vars(_plan) and next(lines) == at:
                other.start()
                other.join(0.05)  # it may have to wait for this run
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            plan.run(sources.pop())
        finally:
            sys.settrace(before)
        if other.ident is None:
            break
        other.join()
        assert alive([parts[int(target.cache_seqlens[0])]]) == [True], f"line {at}"
    assert 3 < at < 99


def test_threads_run_plans_of_their_own(host):
    def work(seed):
        mode = (DECODE, TARGET_VERIFY, DRAFT_EXTEND)[seed % 3]
        case = Case(Sizes(mode), FIELDS, 3, ODD, LAYOUTS, host)
        other = other_source(case)
        plan = plan_of(case)
        for start in range(1_000 * seed, 1_000 * seed + 5):
            case.refill(start)
            plan.run(case.source.metadata())
            check(case)
            plan.run(other.metadata())
            check(case, other)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(1, 25)))


def test_says_what_it_does():
    lengths = np.ones(2, np.int32)
    graphs = [Metadata(cache_seqlens=np.zeros(2, np.int32)) for _ in range(3)]
    plan = Plan(Metadata(cache_seqlens=lengths), graphs, mode=ForwardMode.DECODE, bs=2)
    assert repr(plan) == "<graphfeed.Plan, copies to 3 destination(s)>"
    buffers = graphfeed.GeneratedMetadata(cache_seqlens=np.zeros(2, np.int32))
    generating = Plan.generating(graphfeed.BatchState(lengths), [buffers], mode=0, bs=2)
    assert repr(generating) == "<graphfeed.Plan, generates to 1 destination(s)>"
