# SPDX-License-Identifier: Apache-2.0
"""How benchmarks/ times steps and calls that take turns, by a clock that only the calls move, and
what it makes of the times; its steps run on the CPU here, where a capture is the call itself.
"""

import contextlib
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from graphfeed.bench import cells, groups, report, timing
from graphfeed.bench.timing import HostCall, Step, StepTimes

(LIMIT,) = (limit for limit in report.LIMITS if limit.budget == "step/in_graph")


@pytest.fixture
def spend(monkeypatch):
    """Moves the clock by so many microseconds."""
    now = [0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter_ns=lambda: now[0]))

    def spend(us):
        now[0] += int(us * 1000)

    return spend


def test_calls_in_turn_begin_again_behind_the_last():
    made = []
    call = timing.in_turn([lambda: made.append("a"), lambda: made.append("b")])
    for _ in range(5):
        call()
    assert made == ["a", "b", "a", "b", "a"]


def test_what_comes_after_a_call_is_not_timed(spend):
    calls = {
        "plain": HostCall(lambda: spend(3)),
        "followed": HostCall(lambda: spend(5), after=lambda: spend(100)),
    }
    times = timing.host_times(calls, synchronize=lambda: spend(1000), batches=2)
    assert times == {"plain": timing.HostTime(3, 3), "followed": timing.HostTime(5, 5)}


def test_a_step_is_timed_from_its_first_call_to_the_drain(spend):
    steps = {
        "whole": Step(lambda: spend(2), lambda: spend(3)),
        "replay": Step(None, lambda: spend(3)),
    }
    times = timing.step_times(steps, synchronize=lambda: spend(4), rounds=6)
    assert times["whole"] == StepTimes([2] * 6, [5] * 6, [9] * 6)
    assert times["replay"] == StepTimes([0] * 6, [3] * 6, [7] * 6)


def test_steps_take_turns_in_an_order_that_changes():
    events = []
    steps = {name: Step(None, lambda name=name: events.append(name)) for name in "abc"}
    timing.step_times(steps, synchronize=lambda: events.append("drain"), rounds=20)
    assert events[0::2] == ["drain"] * len(events[0::2])
    made = events[1::2]
    rounds = [tuple(made[i : i + 3]) for i in range(0, len(made), 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert set(rounds) == set(itertools.permutations("abc"))


@pytest.fixture
def step():
    pytest.importorskip("torch")
    from graphfeed.bench import step

    return step


def times_of(ends, *, refresh=(0.0, 0.0, 0.0), host=2.0):
    return StepTimes(list(refresh), [host] * len(ends), list(ends))


def test_added_time_is_the_median_of_differences_within_a_round(step):
    times = {
        step.ALONE: times_of([100, 200, 300]),
        step.STATIC: times_of([101, 250, 300.5]),  # medians differ by 50
        step.REPOINTED: times_of([150, 200.9, 300.9]),
        "peer": times_of([110, 210, 310], host=8.0),
    }
    rows = step.step_rows(cells.PLAN, times, dict.fromkeys(times, step.ALONE), "peer")
    assert not any(row.budget for row in rows)  # from Python they inform only
    by_case = {row.case: row for row in rows}
    static = f"step: {step.STATIC}: {{}}, {cells.PLAN.name}"
    repointed = f"step: {step.REPOINTED}: {{}}, {cells.PLAN.name}"
    added = [by_case[each.format("added")] for each in (static, repointed)]
    assert [row.value for row in added] == pytest.approx([1, 0.9])
    assert {(row.peer, row.peer_value) for row in added} == {("peer", 10)}
    assert by_case[static.format("end to end")].value == 250
    assert by_case[static.format("host calls")].ratio == 0.25
    assert f"step: {step.ALONE}: added, {cells.PLAN.name}" not in by_case
    assert by_case[f"step: peer: added, {cells.PLAN.name}"].peer is None


def test_steps_without_a_peer_stand_alone(step):
    times = {step.ALONE: times_of([1, 2, 3]), step.STATIC: times_of([2, 3, 4])}
    rows = step.step_rows(cells.NATIVE[0], times, dict.fromkeys(times, step.ALONE), None)
    assert not any(row.peer for row in rows)


VARIANTS = ("serial", "started early", "started early, re-pointed", "forked", "forked, re-pointed")
BRANCHED = "graph alone, with a branch of one empty kernel"


def step_benchmark(step, folder):
    """A program that prints what step_benchmark does, and with --quick the cell PLAN only."""

    def line(variant, cell, base, added):
        numbers = {"median_us": 100.0, "p99_us": 120.0, "in_stream_us": 90.0}
        in_stream = None if base is None else added / 2
        return json.dumps(
            {"variant": variant, "cell": cell.name, "base": base, "added_us": added}
            | {"in_stream_added_us": in_stream, **numbers}
        )

    def lines(cell):
        yield line(step.ALONE, cell, None, None)
        yield line(BRANCHED, cell, step.ALONE, 2.5)
        for variant in VARIANTS:
            yield line(variant, cell, step.ALONE, 0.75)
            if variant.startswith("forked"):
                yield line(variant, cell, BRANCHED, -1.75)

    quick = "\n".join(lines(cells.PLAN))
    whole = "\n".join(each for cell in cells.NATIVE for each in lines(cell))
    program = folder / "step_benchmark"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --quick ] && cat <<Q && exit\n{quick}\nQ\ncat <<W\n{whole}\nW\n'
    )
    program.chmod(0o755)


def test_rows_of_steps_in_cpp_are_held_where_their_limit_requires(step, tmp_path):
    from graphfeed.bench import host_copy

    step_benchmark(step, tmp_path)
    context = groups.Context(None, 0, False, tmp_path)
    rows = step.cpp_rows(host_copy.cpp_lines(context, "step_benchmark"))
    held = [row for row in rows if row.budget]
    assert [(row.case, row.value) for row in held] == [(case, 0.75) for case in LIMIT.cases]
    assert report.check(rows, [LIMIT]) == []
    by_case = {row.case: row.value for row in rows}
    assert len(by_case) == len(rows)
    assert by_case["step: C++ serial: added, bs 32 x 4096, N=3"] == 0.75
    assert by_case["step: C++ forked: added, bs 32 x 4096, N=16"] == 0.75
    beside_branch = by_case[f"step: C++ forked: added to {BRANCHED}, bs 32 x 4096, N=3"]
    assert beside_branch == -1.75
    in_stream = "added in a stream that never drains"
    assert by_case[f"step: C++ forked: {in_stream}, bs 32 x 4096, N=3"] == 0.375
    alone = {case: value for case, value in by_case.items() if f"C++ {step.ALONE}:" in case}
    assert sorted(alone.values()) == [90, 90, 90, 100, 100, 100, 120, 120, 120]


def test_the_limit_is_missed_where_the_program_of_steps_is_not_built(step, tmp_path):
    from graphfeed.bench import host_copy

    context = groups.Context(None, 0, True, tmp_path)
    rows = step.cpp_rows(host_copy.cpp_lines(context, "step_benchmark"))
    assert report.check(rows, [LIMIT]) == [f"step/in_graph: {case}: absent" for case in LIMIT.cases]


def test_jitter_is_how_far_p99_of_the_refresh_is_from_its_median(step):
    spread = [1.0] * 51 + [3.0] * 50
    times = {
        "peer": times_of([], refresh=[1.0] * 51 + [9.0] * 50),
        step.RUN: times_of([], refresh=spread),
    }
    theirs, ours = step.jitter_rows(cells.PLAN, times, "peer")
    assert (theirs.value, theirs.peer) == (8, None)
    assert (ours.value, ours.peer_value, ours.ratio) == (2, 8, 0.25)
    (alone,) = step.jitter_rows(cells.PLAN, {step.RUN: times_of([], refresh=spread)}, None)
    assert (alone.value, alone.peer) == (2, None)


class OnCpu(groups.Context):
    step_rounds = 2
    jitter_steps = 2


@pytest.fixture
def context(step, monkeypatch, tmp_path):
    """Steps on CPU tensors: a capture is the call, and its node that of the plan."""
    import torch
    from graphfeed.bench import calls, cases, peers, stand_in

    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    sets = cases.Sets
    monkeypatch.setattr(
        cases, "Sets", lambda cell, count, device, seed=1: sets(cell, count, "cpu", seed)
    )
    monkeypatch.setattr(
        stand_in, "capture", lambda stream, call: SimpleNamespace(replay=call, call=call)
    )
    plan = calls.plan

    def plan_with_node(*arguments):
        made = plan(*arguments)
        node = SimpleNamespace(repoint=made.run)
        return SimpleNamespace(run=made.run, fork=made.fork, node=lambda graph: node)

    monkeypatch.setattr(calls, "plan", plan_with_node)
    ours = peers.Sglang("sglang", calls.dropin.args[0], calls.dropin.args[1])
    monkeypatch.setattr(peers, "sglang", lambda: ours)
    step_benchmark(step, tmp_path)
    return OnCpu(SimpleNamespace(synchronize=lambda: None), 0, True, tmp_path)


def test_steps_of_every_variant_are_right_and_meet_what_their_limit_requires(step, context):
    rows = step.step(context)
    assert [row.case for row in rows if row.budget] == list(LIMIT.cases)
    assert sum("jitter" in row.case for row in rows) == 4
    names = {row.case.split(": ")[1] for row in rows if row.case.startswith("step: ")}
    assert {name for name in names if name.startswith("C++ ")} == {
        f"C++ {name}" for name in (step.ALONE, BRANCHED, *VARIANTS)
    }
    names = {name for name in names if not name.startswith("C++ ")}
    before = {"separate copies", "sglang", step.DROPIN, step.RUN}
    assert names == {step.ALONE, *before, step.STATIC, step.REPOINTED, step.FORKED}


def test_a_step_that_leaves_the_old_source_is_not_timed(step, context, monkeypatch):
    from graphfeed.bench import calls

    plan = calls.plan

    def stale(*arguments):
        made = plan(*arguments)
        made.node = lambda graph: SimpleNamespace(repoint=lambda source: None)
        return made

    monkeypatch.setattr(calls, "plan", stale)
    with pytest.raises(AssertionError, match="re-pointed: the model read"):
        step.step(context)


def test_a_step_that_writes_elsewhere_is_not_timed(step, context, monkeypatch):
    from graphfeed.bench import cases

    copy = cases.eager_copy

    def late(cell, source, destinations):
        copy(cell, source, destinations)
        destinations[0].cu_seqlens_k[0] += 1

    make = step._Bench._before

    def wrong(bench, replay):
        monkeypatch.setattr(cases, "eager_copy", late)
        return make(bench, replay)

    monkeypatch.setattr(step._Bench, "_before", wrong)
    with pytest.raises(AssertionError, match="separate copies: bs 32 x 4096, N=3: 1 wrong"):
        step.step(context)
