# SPDX-License-Identifier: Apache-2.0
"""benchmarks/readme_table.py: what it makes of records, and that the README has the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import readme_table  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def row(budget="", case="bs 1", value=5.0, peer="peer 1.0", peer_value=10.0, ratio=0.5, unit="us"):
    return {
        "budget": budget,
        "case": case,
        "value": value,
        "unit": unit,
        "peer": peer,
        "peer_value": peer_value,
        "ratio": ratio,
    }


def record(*rows, **head):
    given = {
        "device": "GPU X",
        "commit": COMMIT,
        "command": "benchmarks/run",
        "date": "2026-12-01T10:00:00+00:00",
    }
    return {**given, **head, "rows": list(rows)}


@pytest.fixture
def place(tmp_path):
    """A README and a folder of records, and the program run on them."""
    readme, results = tmp_path / "README.md", tmp_path / "results"
    results.mkdir()

    class Place:
        def put(self, name, content):
            (results / name).write_text(json.dumps(content), encoding="utf-8")

        def run(self, *options):
            return readme_table.main([*options, "--readme", str(readme), "--results", str(results)])

    Place.readme, Place.results = readme, results
    readme.write_text(f"before\n{readme_table.BEGIN}\nold\n{readme_table.END}\nafter\n")
    return Place()


def test_rows_without_a_budget_are_left_out():
    made = readme_table.table([record(row("device/copy/small", "kept"), row("", "left out"))])
    assert "kept" in made
    assert "left out" not in made


def test_a_row_shows_both_times_and_their_ratio():
    measured = row("host/dropin/single", "bs 8 x 4096, N=1", 4.567, ratio=0.457)
    made = readme_table.table([record(measured)])
    assert made.split("\n")[2] == (
        "| drop-in, 1 destination: host time a call | bs 8 x 4096, N=1 | 4.57 us "
        "| 10.00 us, peer 1.0 | 0.457 |"
    )


def test_the_row_whose_ratio_is_inverted_says_so():
    made = readme_table.table([record(row("device/copy/large", ratio=0.97))])
    assert "| 0.970 (theirs / ours) |" in made


def test_a_row_without_a_peer_shows_its_value_alone():
    alone = row("first_call/disk", value=1234.4, unit="ms", peer=None, peer_value=None, ratio=None)
    made = readme_table.table([record(alone)])
    assert made.split("\n")[2] == "| first call, kernel on disk | bs 1 | 1,234 ms |  |  |"


def test_budgets_have_one_order_and_unknown_ones_come_last():
    rows = [row(budget) for budget in ("new/budget", *reversed(readme_table.LABELS))]
    made = readme_table.table([record(each) for each in rows]).split("\n")[2:]
    labels = [line.split(" | ")[0].removeprefix("| ") for line in made if line.startswith("|")]
    assert labels == [*readme_table.LABELS.values(), "new/budget"]


def test_a_label_is_shown_once_for_neighbours():
    made = readme_table.table([record(row("first_call/disk", "a"), row("first_call/disk", "b"))])
    assert made.count("first call, kernel on disk") == 1


def test_every_different_origin_is_named_once():
    rows = row("device/copy/small")
    made = readme_table.table(
        [
            record(rows),
            record(rows, date="2026-12-01T11:00:00+00:00"),
            record(rows, commit=f"{COMMIT}-dirty"),
            record(row(), device="GPU of no budget"),
        ]
    )
    assert made.split("\n\n")[1].split("\n") == [
        "GPU X, commit `0123456789ab`, 2026-12-01, by `benchmarks/run`.",
        "GPU X, commit `0123456789ab-dirty`, 2026-12-01, by `benchmarks/run`.",
    ]


def test_without_records_it_says_so(place):
    assert readme_table.table(readme_table.read_records(place.results)) == readme_table.EMPTY


def test_check_fails_until_the_readme_has_the_table(place, capsys):
    place.put("a.json", record(row("device/copy/small")))
    assert place.run("--check") == 1
    assert "differ" in capsys.readouterr().err
    assert place.run("--write") == 0
    assert place.run("--check") == 0
    text = place.readme.read_text()
    assert text.startswith(f"before\n{readme_table.BEGIN}\n| | case |")
    assert text.endswith(f"\n{readme_table.END}\nafter\n")
    place.put("b.json", record(row("device/copy/live")))
    assert place.run("--check") == 1


def test_without_an_action_it_prints_the_table(place, capsys):
    place.put("a.json", record(row("device/copy/small")))
    before = place.readme.read_text()
    assert place.run() == 0
    assert capsys.readouterr().out == readme_table.table([record(row("device/copy/small"))]) + "\n"
    assert place.readme.read_text() == before


@pytest.mark.parametrize("content", [[], {"rows": []}], ids=["no object", "no head"])
def test_what_is_not_a_record_is_named(place, capsys, content):
    place.put("odd.json", content)
    assert place.run("--check") == 2
    assert "odd.json is not a record: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["", readme_table.BEGIN, f"{readme_table.END} {readme_table.BEGIN}", 2 * readme_table.BEGIN],
    ids=["none", "no end", "end first", "begin twice"],
)
def test_a_readme_without_its_markers_is_refused(place, text):
    place.readme.write_text(text)
    assert place.run("--write") == 2
    assert place.readme.read_text() == text


def test_the_readme_has_the_table_of_the_records():
    program = ROOT / "benchmarks/readme_table.py"
    done = subprocess.run([sys.executable, program, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
