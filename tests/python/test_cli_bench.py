# SPDX-License-Identifier: Apache-2.0
"""``graphfeed bench``: what it shows of records and of this machine, its plot, its report."""

from __future__ import annotations

import html.parser
import json
import re
import xml.etree.ElementTree
from pathlib import Path

import pytest
from command import Command
from graphfeed.bench.comparison import compare, panels_of
from graphfeed.bench.report import Row

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
HEAD = {"device": "GPU X", "commit": "0123", "command": "a <b>", "date": "2026-12-01T10:00:00"}


@pytest.fixture
def command(capsys):
    return Command(capsys)


@pytest.fixture
def records(tmp_path):
    """Writes records into a folder."""

    def write(*rows, name="one"):
        folder = tmp_path / "records"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps({**HEAD, "rows": list(rows)}))
        return folder

    return write


def row(case="bs 1", budget="", value=5.0, unit="us", peer="peer 1.0", peer_value=10.0):
    ratio = None if peer_value is None else value / peer_value
    return Row(budget, case, value, unit, peer, peer_value, ratio)


# What is shown of rows


def test_a_case_has_all_the_peers_it_was_measured_beside():
    rows = [
        row(budget="device/copy/small"),
        row(case="device: bs 1", peer="separate copies", peer_value=90.0),
        row(case="device: bs 1", value=6.0, peer="of another run", peer_value=1.0),
        row(case="device: bs 128", peer="of another case", peer_value=1.0),
    ]
    (one,) = compare(rows)
    assert (one.label, one.quantity, one.case) == ("small batch", "device time", "bs 1")
    assert [(peer.name, peer.value) for peer in one.peers] == [
        ("peer 1.0", 10.0),
        ("separate copies", 90.0),
    ]
    assert one.ratio_to(one.peers[0]) == 0.5
    assert one.limit_text == "ratio <= 0.45, missed"


def test_rows_follow_the_order_of_their_labels_and_unknown_ones_come_last():
    budgets = ["first_call/empty", "of/tomorrow", "host/dropin/single", "device/copy/small"]
    rows = [row(budget=budget, case=budget) for budget in budgets]
    assert [each.case for each in compare(rows)] == [
        "host/dropin/single",
        "device/copy/small",
        "first_call/empty",
        "of/tomorrow",
    ]


def test_rows_without_limits_are_shown_where_there_are_no_others():
    rows = [
        row(case="copy, on the CPU: bs 1"),
        row(case="copy, on the CPU: bs 8", value=7.0, peer=None, peer_value=None),
        row(case="bandwidth: bs 8", value=7.0, unit="GB/s"),
    ]
    panels = panels_of(compare(rows))
    assert [[each.case for each in panel] for panel in panels] == [["bs 1", "bs 8"], ["bs 8"]]
    assert [panel[0].quantity for panel in panels] == ["time", "bandwidth"]


def test_a_peer_that_took_nothing_has_no_ratio():
    (one,) = compare([Row("", "device: bs 1", 5.0, "us", "peer", 0.0, None)])
    assert one.ratio_to(one.peers[0]) is None


# From records


def test_records_are_shown_with_peers_and_ratios(command, records):
    folder = records(vars(row(budget="device/copy/small")))
    result = command("bench", "--from", folder)
    assert result.status == 0
    lines = result.out.splitlines()
    assert lines[0] == "GPU X, 2026-12-01"
    assert "small batch: device time" in lines
    assert lines[-1].split() == ["bs", "1", "5.00", "us", "peer", "1.0", "10.00", "0.50x"]
    assert command("bench", "--from", folder, "--json").json == {
        "records": [{**HEAD, "rows": [vars(row(budget="device/copy/small"))]}],
        "failures": [],
    }


@pytest.mark.parametrize("columns", [80, 120])
def test_the_projects_records_fit_the_columns_there_are(command, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = command("bench", "--from", RESULTS).out
    assert max(map(len, out.splitlines())) <= columns
    assert "drop-in, 3 destinations: host time a call" in out
    assert "sglang" in out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not JSON", "Expecting value"),
        ("[]", "no attribute"),
        ('{"device": ""}', "it has no command, commit, date, rows"),
        (json.dumps({**HEAD, "rows": 5}), "not iterable"),
        (json.dumps({**HEAD, "rows": [{"case": "x"}]}), "missing 3 required"),
        (json.dumps({**HEAD, "rows": [{**vars(row()), "value": "1"}]}), "must be real number"),
        (json.dumps({**HEAD, "rows": [{**vars(row()), "unit": 3}]}), "expected texts"),
    ],
)
def test_a_file_that_is_no_record_is_named(command, tmp_path, text, reason):
    (tmp_path / "bad.json").write_text(text)
    said = command.refused("bench", "--from", tmp_path)
    assert said.startswith(f"graphfeed bench: {tmp_path}/bad.json is not a record: ")
    assert reason in said


def test_a_folder_without_records_is_refused(command, tmp_path, records):
    assert "is no directory" in command.refused("bench", "--from", tmp_path / "absent")
    assert "holds no records" in command.refused("bench", "--from", tmp_path)
    assert "holds no records" in command.refused("bench", "--from", records())


def test_a_plot_names_cases_peers_and_axes_with_units(command, tmp_path):
    pytest.importorskip("matplotlib")
    assert command("bench", "--from", RESULTS, "--plot", tmp_path / "out.svg").status == 0
    text = (tmp_path / "out.svg").read_text(encoding="utf-8")
    xml.etree.ElementTree.fromstring(text)
    for label in (
        "host time a call (us)",
        "device time (us)",
        "time (ms)",
        "case",
        "sglang 0.5.23",
        "separate copies",
        "bs 1 x 4096, N=3   graphfeed",
    ):
        assert f"<!-- {label} -->" in text, label
    assert command("bench", "--from", RESULTS, "--plot", tmp_path / "out.png").status == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


class Page(html.parser.HTMLParser):
    """Keeps the tags that are open, and whatever could load something."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.text = [], [], ""

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href", "data")]
        if tag not in ("meta", "br", "path", "use"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href", "data")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_report_is_one_whole_page_that_loads_nothing(command, tmp_path, records):
    pytest.importorskip("matplotlib")
    path = tmp_path / "report.html"
    folder = records(vars(row(case="bs <i>", budget="device/copy/small")))
    assert command("bench", "--from", folder, "--html", path).status == 0
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert [each for each in page.loads if not each.startswith("#")] == []
    assert re.search(r"@import|url\((?!#)", text) is None
    assert text.count("<svg") == text.count("<table>") == 1
    for shown in ("bs <i>", "small batch: device time", "GPU X", "a <b>", "ratio <= 0.45, missed"):
        assert shown in page.text
    assert "0.500" in page.text


# Measured here


def test_without_a_gpu_the_cpu_path_is_measured_and_said(command, tmp_path):
    pytest.importorskip("matplotlib")
    options = ("--device", "cpu", "--quick", "--only", "cpu/copy")
    result = command("bench", *options, "--json", "--html", tmp_path / "out.html")
    assert result.status == 0, result.err
    assert "this is the CPU path beside NumPy" in result.err
    (record,) = result.json["records"]
    assert record["device"].startswith("CPU, ")
    cases = {each["case"] for each in record["rows"]}
    assert cases == {
        f"{call}, on the CPU: bs {bs} x 4096, N=3" for call in ("copy", "plan") for bs in (1, 32)
    }
    for each in record["rows"]:
        assert each["value"] > 0
        assert each["ratio"] == pytest.approx(each["value"] / each["peer_value"])
    assert "copy, on the CPU" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_a_group_that_fails_is_named_and_the_others_are_shown(command, monkeypatch):
    from graphfeed.bench import cpu

    def fail(context):
        raise AssertionError("not what separate NumPy copies give")

    monkeypatch.setattr(cpu, "copy", fail)
    monkeypatch.setattr(cpu, "generate", lambda context: [row(case="generate: bs 1")])
    result = command("bench", "--device", "cpu")
    assert result.status == 1
    assert "failed: cpu/copy: AssertionError: not what separate NumPy copies give" in result.err
    assert "peer 1.0" in result.out
    said = command("bench", "--device", "cpu", "--only", "copy")
    assert (said.status, said.out) == (1, "")
    assert "nothing was measured: cpu/copy: AssertionError" in said.err


def test_a_wrong_result_is_not_timed(monkeypatch):
    from graphfeed.bench import cpu, measure

    monkeypatch.setattr(cpu, "_copy_separately", lambda source, destinations: None)
    with pytest.raises(AssertionError, match="not what separate NumPy copies give"):
        cpu.copy(measure.make_cpu_context(quick=True))


def test_groups_are_listed(command):
    assert command("bench", "--device", "cpu", "--list").out == "cpu/copy\ncpu/generate\n"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--only", "tpu"], "--only: 'tpu' finds none of cpu/copy, cpu/generate"),
        (["--only", "("], "--only: '(' is no regular expression: "),
        (["--device", "gpu"], "--device: expected auto, cpu or cuda, got 'gpu'"),
        (["--plot", "out.gif"], "--plot: expected a name ending in .png or .svg, got out.gif"),
        (["--html", "/absent/out.html"], "--html: /absent is no directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_refused(command, options, line):
    given = options if "--device" in options else ["--device", "cpu", *options]
    assert command.refused("bench", *given).startswith(f"graphfeed bench: {line}")


@pytest.mark.gpu
def test_this_machines_gpu_is_measured(command):
    result = command("bench", "--quick", "--only", "^device/copy/small$", "--json")
    assert result.status == 0, result.err
    (record,) = result.json["records"]
    assert any(each["budget"] == "device/copy/small" for each in record["rows"])
