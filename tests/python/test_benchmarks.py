# SPDX-License-Identifier: Apache-2.0
"""The parts of benchmarks/ that measure nothing: cells, percentiles, limits, records, command."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from graphfeed.bench import cells, groups, report, timing  # noqa: E402
from graphfeed.bench.cells import Cell  # noqa: E402
from graphfeed.bench.report import Limit, Row  # noqa: E402

RUN = ROOT / "benchmarks" / "run"
LIMITS = (
    Limit("host/a", ("small", "big"), "ratio", 0.7),
    Limit("device/b", ("big",), "ratio", 0.95, at_least=True),
    Limit("first/c", ("cold",), "value", 300),
)
MET = [
    Row("host/a", "small", 7.0, "us", "peer", 10.0, 0.7),
    Row("host/a", "big", 6.0, "us", "peer", 10.0, 0.6),
    Row("device/b", "big", 10.0, "us", "peer", 9.5, 0.95),
    Row("first/c", "cold", 300.0, "ms"),
    Row("", "informs", 1e9, "us", "peer", 1.0, 1e9),
]


def run(*arguments):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "GRAPHFEED_COMMIT": "test"}
    return subprocess.run(
        [sys.executable, RUN, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("samples", "percent", "expected"),
    [
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([4.0, 1.0, 2.0, 3.0], 50, 2.5),
        ([5.0], 99, 5.0),
        (list(range(101)), 99, 99),
        ([0.0, 10.0], 0, 0.0),
        ([0.0, 10.0], 100, 10.0),
    ],
)
def test_percentile_interpolates_between_neighbours(samples, percent, expected):
    assert timing.percentile(samples, percent) == pytest.approx(expected)


def test_percentile_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one sample"):
        timing.percentile([], 50)


@pytest.mark.parametrize("launches", [1, 8, 24, 144, 5000])
def test_batches_leave_room_in_the_launch_queue(launches):
    batch = timing.HostCall(lambda: None, launches).batch
    assert batch >= 1
    assert batch == 1 or batch * launches <= 512


def test_host_calls_take_turns_and_drain_after_each_batch():
    events = []
    calls = {
        "one": timing.HostCall(lambda: events.append("one"), 256),
        "two": timing.HostCall(lambda: events.append("two"), 512),
    }
    times = timing.host_times(calls, synchronize=lambda: events.append("drain"), batches=2)
    turn = ["one", "one", "drain", "two", "drain"]
    assert events == turn * (len(events) // len(turn))
    assert set(times) == {"one", "two"}
    assert all(time.median <= time.p99 for time in times.values())


def test_bytes_of_a_decode_copy_are_its_fields_read_once_and_written_to_each_destination():
    cell = Cell(2, 130, 3)
    # Lengths and prefix sums twice, both tables, num_splits, scheduler metadata.
    elements = 2 + 2 + 2 * 130 + 2 + 2 + 2 * 3 + 3 + 66 * 8
    assert cell.bytes_moved == 4 * elements * (1 + 3)


def test_bytes_of_a_verify_copy_count_expanded_rows():
    cell = Cell(2, 64, 1, next_n=4)
    # Lengths and prefix sums of 2 requests, three vectors of 8 rows, tables, num_splits, metadata.
    elements = 2 + 2 + 3 * 8 + 8 * 64 + 8 * 1 + 9 + 66 * 8
    assert cell.bytes_moved == 4 * elements * 2


def test_bytes_of_a_live_copy_stop_at_the_bound():
    live = Cell(2, 4096, 3, live=100)
    whole = Cell(2, 4096, 3)
    skipped = 2 * (4096 - 100) + 2 * (64 - 2)
    assert whole.bytes_moved - live.bytes_moved == 4 * skipped * 4


def test_field_shapes_agree_with_the_bytes_moved():
    for cell in (*cells.GRID, *cells.VERIFY, cells.LARGE):
        elements = 0
        for shape in cell.field_shapes().values():
            product = 1
            for extent in shape:
                product *= extent
            elements += product
        # Element 0 of both prefix sums is not copied.
        assert cell.bytes_moved == 4 * (elements - 2) * (1 + cell.destinations)


@pytest.mark.parametrize("cell", [*cells.GRID, *cells.VERIFY, cells.LARGE, cells.LIVE])
def test_rotated_sets_exceed_the_cache_twice(cell):
    l2_bytes = 60 << 20
    assert cell.num_sets(l2_bytes) >= 2
    assert cell.num_sets(l2_bytes) * cell.bytes_moved > 2 * l2_bytes


def test_check_accepts_rows_at_their_limits():
    assert report.check(MET, LIMITS) == []


@pytest.mark.parametrize(
    ("index", "change", "complaint"),
    [
        (0, {"ratio": 0.701}, "host/a: small: expected ratio <= 0.7, got 0.701"),
        (2, {"ratio": 0.949}, "device/b: big: expected ratio >= 0.95, got 0.949"),
        (3, {"value": 300.5}, "first/c: cold: expected value <= 300, got 300.500"),
        (1, {"ratio": None}, "host/a: big: expected ratio <= 0.7, got nothing"),
    ],
)
def test_check_names_the_limit_that_is_missed(index, change, complaint):
    rows = list(MET)
    rows[index] = dataclasses.replace(rows[index], **change)
    assert report.check(rows, LIMITS) == [complaint]


@pytest.mark.parametrize("index", range(4))
def test_check_names_the_case_that_is_absent(index):
    rows = [row for i, row in enumerate(MET) if i != index]
    absent = MET[index]
    assert report.check(rows, LIMITS) == [f"{absent.budget}: {absent.case}: absent"]


def test_check_holds_every_row_of_a_budget_not_only_the_required_ones():
    extra = Row("host/a", "another", 9.0, "us", "peer", 10.0, 0.9)
    assert report.check([*MET, extra], LIMITS) == [
        "host/a: another: expected ratio <= 0.7, got 0.900"
    ]


def test_every_limit_is_measured_by_one_group():
    budgets = [budget for group in groups.GROUPS for budget in group.budgets]
    assert sorted(budgets) == sorted(limit.budget for limit in report.LIMITS)


def test_groups_write_different_files():
    names = [group.file_name for group in groups.GROUPS]
    assert len(set(names)) == len(names)


def test_select_finds_groups_by_expression_and_quick_keeps_those_with_limits():
    assert [group.name for group in groups.select("^device/copy/l", quick=False)] == [
        "device/copy/large",
        "device/copy/live",
    ]
    quick = groups.select(None, quick=True)
    assert {budget for group in quick for budget in group.budgets} == {
        limit.budget for limit in report.LIMITS
    }


def test_only_host_measures_plans_too():
    names = [group.name for group in groups.select("host", quick=False)]
    assert names == ["host/dropin", "host/native", "host/plan", "host/node"]


LAUNCH_BENCHMARK = """#!/bin/sh
echo '{"case": "empty kernel launch", "median_us": 4.0, "p99_us": 8.0}'
for n in 1 3 16; do
  for function in graphfeed::copy Plan::run "Plan::run(source)" GraphNode::repoint; do
    echo '{"case": "'"$function, bs 32 x 4096, N=$n"'", "median_us": 1.0, "p99_us": 2.0}'
  done
done
"""


def test_rows_of_plans_in_cpp_are_those_that_their_limit_requires(tmp_path):
    pytest.importorskip("torch")
    from graphfeed.bench import host_copy, host_plan

    program = tmp_path / "launch_benchmark"
    program.write_text(LAUNCH_BENCHMARK)
    program.chmod(0o755)
    context = groups.Context(None, 0, True, tmp_path)
    rows = host_plan.cpp_rows(host_copy.cpp_times(context), host_plan.CPP_BUDGETS)
    (limit,) = (limit for limit in report.LIMITS if limit.budget == "host/plan/cpp")
    assert report.check(rows, [limit]) == []
    held = [row for row in rows if row.budget]
    assert [row.case for row in held] == list(limit.cases)
    assert {(row.peer, row.ratio) for row in held} == {("empty kernel launch, C++", 0.25)}
    informs = [row.case for row in rows if not row.budget]
    assert "host: C++ Plan::run p99, bs 32 x 4096, N=3" in informs
    assert "host: C++ Plan::run(source), bs 32 x 4096, N=16" in informs
    assert len(informs) == 3 * 3


def test_rows_of_nodes_in_cpp_are_those_that_their_limit_requires(tmp_path):
    pytest.importorskip("torch")
    from graphfeed.bench import host_copy, host_node, host_plan

    program = tmp_path / "launch_benchmark"
    program.write_text(LAUNCH_BENCHMARK)
    program.chmod(0o755)
    times = host_copy.cpp_times(groups.Context(None, 0, True, tmp_path))
    rows = host_plan.cpp_rows(times, host_node.CPP_BUDGETS)
    (limit,) = (limit for limit in report.LIMITS if limit.budget == "host/node/repointed")
    assert [row.case for row in rows if row.budget] == list(limit.cases)
    assert report.check(rows, [limit]) == [
        f"host/node/repointed: {case}: expected ratio <= 0.15, got 0.250" for case in limit.cases
    ]


def test_the_python_plan_is_held_for_three_destinations_only():
    pytest.importorskip("torch")
    from graphfeed.bench import host_plan

    (limit,) = (limit for limit in report.LIMITS if limit.budget == "host/plan/python_copy")
    names = (host_plan.OURS, host_plan.OURS_FROM, host_plan.OURS_ALTERNATING)
    times = dict.fromkeys(names, timing.HostTime(1.0, 3.0)) | {"peer": timing.HostTime(10.0, 12.0)}
    rows = [row for cell in cells.NATIVE for row in host_plan.python_rows(cell, times)]
    assert report.check(rows, [limit]) == []
    assert [row.case for row in rows if row.budget] == list(limit.cases)
    assert len(rows) == 3 * 3 * 2
    del times["peer"]
    alone = [row for cell in cells.NATIVE for row in host_plan.python_rows(cell, times)]
    assert not any(row.budget or row.peer for row in alone)
    assert len(alone) == 3 * 3


def test_no_rows_of_plans_in_cpp_where_the_program_is_not_built(tmp_path):
    pytest.importorskip("torch")
    from graphfeed.bench import host_copy, host_plan

    times = host_copy.cpp_times(groups.Context(None, 0, True, tmp_path))
    assert host_plan.cpp_rows(times, host_plan.CPP_BUDGETS) == []


def test_record_names_device_commit_and_command_and_has_one_row_a_line(tmp_path):
    path = tmp_path / "results" / "record.json"
    report.write_record(path, MET, device="H200", commit="abc", command="run", date="today")
    text = path.read_text()
    record = json.loads(text)
    assert {key: record[key] for key in record if key != "rows"} == {
        "device": "H200",
        "commit": "abc",
        "command": "run",
        "date": "today",
    }
    columns = {"budget", "case", "value", "unit", "peer", "peer_value", "ratio"}
    assert [set(row) for row in record["rows"]] == [columns] * len(MET)
    assert [Row(**row) for row in record["rows"]] == MET
    assert sum(line.startswith("  {") for line in text.splitlines()) == len(MET)


def test_record_without_rows_is_still_an_object(tmp_path):
    report.write_record(tmp_path / "r.json", [], device="d", commit="c", command="r", date="t")
    assert json.loads((tmp_path / "r.json").read_text())["rows"] == []


def test_table_marks_what_is_met_and_missed():
    rows = [MET[0], dataclasses.replace(MET[2], ratio=0.5), MET[4]]
    lines = report.table(rows, LIMITS).splitlines()
    assert len(lines) == 4
    assert lines[1].endswith("met")
    assert lines[2].endswith("MISSED")
    assert lines[3].rstrip() == lines[3]
    assert len({line.index("us") for line in lines[1:]}) == 1


def test_run_without_a_gpu_says_so_in_one_line_and_records_nothing(tmp_path):
    result = run("--check", "--out", str(tmp_path / "results"))
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "nothing measured" in result.stderr
    assert not (tmp_path / "results").exists()


def test_run_ends_quietly_where_nobody_reads_on():
    command = f"{sys.executable} {RUN} --list | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert result.stdout == "host/dropin\n"
    assert result.stderr == ""


def test_run_lists_groups_and_limits_without_a_gpu():
    result = run("--list")
    assert result.returncode == 0
    assert "host/dropin/multi: ratio <= 0.48: bs 1 x 4096, N=3; " in result.stdout
    sizes = "; ".join(f"bs 32 x 4096, N={n}" for n in (1, 3, 16))
    assert f"host/plan\n  host/plan/cpp: ratio <= 0.5: {sizes}\n" in result.stdout
    assert "  host/plan/python_copy: ratio <= 0.15: bs 32 x 4096, N=3\n" in result.stdout
    assert f"host/node\n  host/node/repointed: ratio <= 0.15: {sizes}\n" in result.stdout
    placements = ("started early", "forked", "forked, re-pointed")
    steps = "; ".join(f"{node}, bs 32 x 4096, N=3" for node in placements)
    assert f"step\n  step/in_graph: value <= 1: {steps}\n" in result.stdout
    assert "  first_call/prebuilt: value <= 5: bs 32 x 4096, N=3\n" in result.stdout
