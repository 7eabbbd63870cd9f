# SPDX-License-Identifier: Apache-2.0
"""``graphfeed verify``: what it compares, what it finds, and that what it says repeats it."""

from __future__ import annotations

import ctypes
import shlex

import graphfeed
import numpy as np
import pytest
from command import Command
from graphfeed.verify import case as cases
from graphfeed.verify.block import SENTINEL, Layout, holding, sentinels
from graphfeed.verify.memory import Exported

CPU = ("--device", "cpu")


@pytest.fixture
def command(capsys):
    return Command(capsys)


def corrupt(monkeypatch, function, *, seed, pick):
    """Makes the calls of one seed flip an element behind the real call.

    Args:
        pick: Gives the array and the index of the element, from the destinations.
    """
    real_draw, real = cases.draw, getattr(graphfeed, function)
    current = []

    def draw(number, **named):
        current[:] = [number]
        return real_draw(number, **named)

    def call(source, destinations, **named):
        real(source, destinations, **named)
        if current == [seed]:
            array, index = pick(destinations)
            array[index] ^= 1

    monkeypatch.setattr("graphfeed.verify.run.draw", draw)
    monkeypatch.setattr(graphfeed, function, call)


def first_seed(function, accept):
    """The first seed whose case is of this kind and called, not planned."""
    for seed in range(1000):
        case = cases.draw(seed, schedules=False)
        if case.function == function and not case.is_planned and accept(case):
            return seed
    raise AssertionError("no such case")


def test_every_mode_and_function_is_drawn_and_is_right(command):
    result = command("verify", *CPU, "--count", 120, "--seed", 3, "--json")
    assert result.status == 0
    facts = result.json
    assert (facts["batches"], facts["seed"], facts["difference"]) == (120, 3, None)
    modes = ("decode", "target_verify", "draft_extend")
    assert set(facts["calls"]) == {f"{f} {m}" for f in ("copy", "generate") for m in modes}
    assert sum(facts["calls"].values()) == 120
    assert facts["elements"] > 100_000
    assert "verify: batch 120 of 120" in result.err


def test_drawn_cases_have_many_destinations_layouts_bounds_and_plans():
    drawn = [cases.draw(seed, schedules=True) for seed in range(300)]
    assert {len(case.destinations) for case in drawn} == {1, 2, 3, 4, 5, 16}
    assert any(case.live_bound is not None for case in drawn)
    assert {case.is_planned for case in drawn} == {True, False}
    assert any("paged_mqa" in case.arguments for case in drawn)
    inputs = {name for case in drawn for name in case.inputs}
    assert {"raw_bs", "extend_seq_lens", "num_draft_tokens"} <= inputs
    fields = {name for case in drawn for each in case.destinations for name in each}
    assert fields == {*graphfeed.Metadata._fields, *graphfeed.GeneratedMetadata._fields}


def test_without_a_gpu_the_output_says_what_is_compared(command):
    out = command("verify", *CPU, "--count", 2).out
    said = " ".join(out.split())
    assert said.startswith("device cpu: the CPU path itself, on no GPU beside an eager reference")
    assert out.endswith("differences 0\n")


@pytest.mark.parametrize("function", ["copy", "generate"])
def test_a_wrong_element_is_reported_with_what_repeats_it(command, monkeypatch, function):
    seed = first_seed(
        function,
        lambda case: (
            len(case.destinations) >= 2
            and "page_table_1" in case.destinations[1]
            and case.destinations[1]["page_table_1"].shape > (2, 3)
        ),
    )
    corrupt(monkeypatch, function, seed=seed, pick=lambda each: (each[1].page_table_1, (2, 3)))
    result = command("verify", *CPU, "--count", 9, "--seed", max(seed - 2, 0))
    assert result.status == 1
    said = " ".join(result.out.split())
    assert f"batch {function}, " in said
    assert "difference destination 1: page_table_1: row 2, column 3: expected " in said
    repeat = f"graphfeed verify --seed {seed} --count 1 --device cpu"
    assert result.out.endswith(f"\nrepeat it with: {repeat}\n")
    again = command(*shlex.split(repeat)[1:], "--json")
    assert again.status == 1
    difference = again.json["difference"]
    assert (difference["seed"], difference["destination"], difference["field"]) == (
        seed,
        1,
        "page_table_1",
    )
    assert (difference["row"], difference["column"], difference["is_inside"]) == (2, 3, True)
    assert difference["expected"] ^ difference["got"] == 1
    assert difference["num_elements"] == 1


def test_a_write_beside_a_tensor_is_a_difference(command, monkeypatch):
    def has_gaps(case):
        block = case.destinations[0].get("cache_seqlens")
        return block is not None and block.lead > 0

    seed = first_seed("copy", has_gaps)

    real = graphfeed.copy

    def call(source, destinations, **named):
        real(source, destinations, **named)
        before = destinations[0].cache_seqlens.ctypes.data - 4
        ctypes.c_int32.from_address(before).value = 5

    monkeypatch.setattr(graphfeed, "copy", call)
    result = command("verify", *CPU, "--count", 1, "--seed", seed, "--json")
    assert result.status == 1
    assert result.json["difference"]["is_inside"] is False
    assert (result.json["difference"]["expected"], result.json["difference"]["got"]) == (
        SENTINEL,
        5,
    )


def test_a_time_bounds_the_batches(command):
    result = command("verify", *CPU, "--seconds", 0.2, "--json")
    assert result.status == 0
    assert result.json["batches"] >= 1
    assert result.json["seconds"] >= 0.2


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--count", "0"], "--count: expected 1 or more, got 0"),
        (["--seed", "-1"], "--seed: expected 0 or more, got -1"),
        (["--seconds", "-2"], "--seconds: expected 0 or more, got -2"),
        (["--device", "gpu"], "--device: expected auto, cpu or cuda, got 'gpu'"),
    ],
)
def test_bad_options_are_refused(command, options, line):
    assert command.refused("verify", *options).startswith(f"graphfeed verify: {line}")


def test_a_gpu_that_is_not_there_is_refused(command, clean_python):
    code = """
import sys
from graphfeed.cli.app import run
sys.stderr = sys.stdout
print(run(["verify", "--device", "cuda"]))
"""
    shown = clean_python(code, CUDA_VISIBLE_DEVICES="").splitlines()
    assert len(shown) == 2
    assert shown[0].startswith("graphfeed verify: device cuda: ")
    assert shown[1] == "2"


def test_elements_are_told_by_row_and_column():
    block = sentinels((2, 3), Layout(lead=4, gap=5, step=2))
    memory = np.arange(block.initial.size, dtype=np.int32)
    view = block.view(memory)
    for row in range(2):
        for column in range(3):
            assert block.place_of(int(view[row, column])) == (row, column, True)
    assert block.place_of(int(view[1, 2]) + 1).is_inside is False
    assert block.place_of(3).is_inside is False
    line = holding(np.arange(4, dtype=np.int64), Layout(lead=2))
    assert [line.place_of(i) for i in (2, 5)] == [(0, 0, True), (0, 3, True)]
    assert not line.place_of(6).is_inside
    assert not line.place_of(1).is_inside


def test_exported_memory_is_copied_where_it_lies():
    source = np.arange(40, dtype=np.int32)
    target = np.full(60, SENTINEL, np.int32)
    strided = Exported(source.ctypes.data + 4, (2, 5), (9, 2), bits=32, device=(1, 0))
    sliced = Exported(target.ctypes.data + 12, (2, 6), (20, 1), bits=32, device=(1, 0))
    graphfeed.copy(
        graphfeed.Metadata(page_table_1=strided),
        [graphfeed.Metadata(page_table_1=sliced)],
        mode=graphfeed.ForwardMode.DECODE,
        bs=2,
    )
    expected = np.full(60, SENTINEL, np.int32)
    expected[3:8], expected[23:28] = source[1:11:2], source[10:20:2]
    assert target.tolist() == expected.tolist()


@pytest.mark.gpu
def test_this_machines_gpu_gives_the_cpu_paths_results(command):
    result = command("verify", "--device", "cuda", "--count", 150, "--seed", 1, "--json")
    assert result.status == 0, result.out
    assert result.json["device"].startswith("cuda (")
    assert result.json["beside"] == "graphfeed's CPU path"
    assert result.json["batches"] == 150
