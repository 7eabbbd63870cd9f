# SPDX-License-Identifier: Apache-2.0
"""``graphfeed replay``: the demo's job on any trace, its summary, its plot, its errors."""

from __future__ import annotations

import re
import xml.etree.ElementTree

import pytest
from command import Command
from graphfeed.replay import PLACEMENTS
from replay_case import ON_CPU, corrupted

SHORT = ("--device", "cpu", "--steps", "20", "--context", "2048", "--max-batch", "8")


@pytest.fixture
def command(capsys):
    return Command(capsys)


def test_the_excerpt_is_played_and_ends_with_mismatches_0(command):
    result = command("replay", *SHORT)
    assert result.status == 0
    lines = result.out.splitlines()
    assert lines[-1] == "mismatches 0"
    assert "steps        20 (20 decode to 3 destinations, 20 target_verify n=4 to 1)" in lines
    first = next(i for i, line in enumerate(lines) if line.startswith("us a step"))
    assert [line.split()[0] for line in lines[first + 1 : first + 7]] == [
        *(each.name for each in ON_CPU),
        "refreshed",
    ]
    percentiles = [lines[first].index(name) + 3 for name in ("p50", "p90", "p99")]
    for line in lines[first + 1 : first + 6]:
        assert all(re.search(r" [0-9]+[.][0-9]$", line[:end]) for end in percentiles)
    assert "replay: step 20 of 20\n" in result.err
    assert "\r" not in result.out + result.err


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_trace_of_three_columns_is_played(command, tmp_path, kind):
    path = tmp_path / f"trace.{kind}"
    if kind == "csv":
        path.write_text("arrival_ms,input_tokens,output_tokens\n0,100,9\n5,70,3\n")
    else:
        row = '{"arrival_ms": %d, "input_tokens": %d, "output_tokens": %d}\n'
        path.write_text(row % (0, 100, 9) + row % (5, 70, 3))
    facts = command("replay", path, *SHORT, "--json").json
    assert (facts["requests"], facts["requests_finished"], facts["mismatches"]) == (2, 2, 0)


def test_sizes_and_destinations_are_the_options(command):
    options = ("--draft-tokens", "3", "--destinations", "5", "--pages", "500")
    facts = command("replay", *SHORT, *options, "--json").json
    assert (facts["mismatches"], facts["steps"], facts["draft_tokens"]) == (0, 20, 3)
    assert (facts["decode_destinations"], facts["pool_pages"]) == (5, 500)
    assert facts["batch"]["max"] <= 8
    assert [(each["name"], each["steps"]) for each in facts["placements"]] == [
        (each.name, 4) for each in ON_CPU
    ]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--placement", "plan"], ["plan"]),
        (["--placement", "plan,copies"], ["plan", "copies"]),
        (["--placement", "plan", "--placement", "copy,plan"], ["plan", "copy"]),
        (["--placement", "copying"], ["copies", "copy", "plan"]),
        (["--placement", "generation"], ["generate", "generate-plan"]),
        (["--placement", "copy,generation,generate"], ["copy", "generate", "generate-plan"]),
    ],
    ids=" ".join,
)
def test_the_placements_asked_for_are_played(command, options, names):
    placements = command("replay", *SHORT, *options, "--json").json["placements"]
    assert [each["name"] for each in placements] == names


@pytest.mark.parametrize("name", ["graph", "generate-graph"])
def test_a_graph_without_a_gpu_is_refused(command, name):
    said = command.refused("replay", *SHORT, "--placement", f"copy,{name}")
    assert said == f"graphfeed replay: placement {name}: needs a GPU, and this is cpu"


def test_an_unknown_placement_is_refused(command):
    names = ", ".join([*PLACEMENTS, "copying", "generation"])
    said = command.refused("replay", *SHORT, "--placement", "copy,eager")
    assert said == f"graphfeed replay: --placement: expected some of {names}, got 'eager'"


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_mismatch_is_named_and_exits_1(command, monkeypatch, extra):
    wrong = corrupted(
        PLACEMENTS["copy"],
        nth=4,
        name="draft 2",
        place=lambda d: (d.metadata.page_table_1, (3, 17)),
    )
    monkeypatch.setitem(PLACEMENTS, "copy", wrong)
    result = command("replay", *SHORT, "--placement", "copy", *extra)
    assert result.status == 1
    said = "mismatch: step 4: copy: destination draft 2: page_table_1: row 3, column 17: "
    assert f"graphfeed replay: {said}" in result.err
    if extra:
        mismatch = result.json["mismatch"]
        assert (mismatch["placement"], mismatch["field"]) == ("copy", "page_table_1")
    else:
        assert result.out == ""


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--steps", "0"], "--steps: expected 1 or more, got 0"),
        (["--seed", "-1"], "--seed: expected 0 or more, got -1"),
        (["--context", "1"], "--context: expected 2 or more tokens, got 1"),
        (["--max-batch", "0"], "--max-batch: expected 1 or more, got 0"),
        (["--destinations", "17"], "--destinations: expected 1 to 16, got 17"),
        (["--pages", "1"], "--pages: one request may need 513 pages, got 1"),
        (["--device", "tpu"], "--device: expected auto, cpu or cuda, got 'tpu'"),
        (["--plot", "out.pdf"], "--plot: expected a name ending in .png or .svg, got out.pdf"),
        (["--plot", "/absent/out.png"], "--plot: /absent is no directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_refused(command, options, line):
    assert command.refused("replay", *options) == f"graphfeed replay: {line}"


def test_a_trace_that_cannot_be_read_is_refused(command, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("arrival_ms,input_tokens,output_tokens\n1,x,3\n")
    said = command.refused("replay", path)
    assert said == f"graphfeed replay: {path}:2: input_tokens: expected a number, got 'x'"
    said = command.refused("replay", tmp_path / "absent.csv")
    assert (
        said
        == f"graphfeed replay: {tmp_path}/absent.csv: cannot be read: No such file or directory"
    )
    assert "cannot be read" in command.refused("replay", tmp_path)


def test_a_plot_names_its_axes_with_units(command, tmp_path):
    pytest.importorskip("matplotlib")
    assert command("replay", *SHORT, "--plot", tmp_path / "out.svg").status == 0
    text = (tmp_path / "out.svg").read_text(encoding="utf-8")
    xml.etree.ElementTree.fromstring(text)
    for label in (
        "trace time (s)",
        "batch size (requests)",
        "context (tokens a request)",
        "host time (us a step)",
        *(each.name for each in ON_CPU),
    ):
        assert f"<!-- {label.replace('--', '')} -->" in text
    assert command("replay", *SHORT, "--plot", tmp_path / "out.png").status == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
