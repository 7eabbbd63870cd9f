# SPDX-License-Identifier: Apache-2.0
"""Reading traces: both formats, and one line with file and line number for every defect."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphfeed.replay import Request, TraceError, read_trace
from graphfeed.replay.trace import EXCERPT

HEADER = "arrival_ms,input_tokens,output_tokens\n"


def test_trace_reads_csv_and_json_lines_alike(tmp_path):
    table = tmp_path / "trace.csv"
    table.write_text("input_tokens,arrival_ms,user,output_tokens\n9,20,x,3\n\n7,10.5,y,2\n")
    lines = tmp_path / "trace.jsonl"
    lines.write_text(
        '{"arrival_ms": 20, "input_tokens": 9, "output_tokens": 3}\n\n'
        '{"arrival_ms": 10.5, "input_tokens": 7, "output_tokens": 2, "user": "y"}\n'
    )
    assert read_trace(table) == [Request(10.5, 7, 2), Request(20, 9, 3)]
    assert read_trace(lines) == read_trace(table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_ms,input_tokens\n1,2\n", ":1: header has no column output_tokens"),
        (HEADER + "1,2,3\n1,2\n", ":3: expected 3 columns, got 2"),
        (HEADER + "1,two,3\n", ":2: input_tokens: expected a number, got 'two'"),
        (HEADER + "1,2,\n", ":2: output_tokens: expected a number, got ''"),
        (HEADER + "nan,2,3\n", ":2: arrival_ms: expected a number, got 'nan'"),
        (HEADER + "-1,2,3\n", ":2: arrival_ms: expected 0 or more, got -1"),
        (HEADER + "1,0,3\n", ":2: input_tokens: expected a whole number from 1, got 0"),
        (HEADER + "1,2,3.5\n", ":2: output_tokens: expected a whole number from 1, got 3.5"),
        (HEADER, ": holds no requests"),
        ("", ": holds no requests"),
    ],
)
def test_trace_names_file_and_line_of_a_bad_csv_row(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(raised.value).startswith(f"{path}{message}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{\n", ":1: is not JSON"),
        ("\n[1, 2, 3]\n", ":2: expected an object, got list"),
        ('{"arrival_ms": 1, "input_tokens": 2}\n', ":1: has no output_tokens"),
        (
            '{"arrival_ms": 1, "input_tokens": true, "output_tokens": 3}\n',
            ":1: input_tokens: expected a number, got True",
        ),
    ],
)
def test_trace_names_file_and_line_of_a_bad_json_row(tmp_path, text, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(raised.value).startswith(f"{path}{message}")


def test_trace_says_that_a_file_cannot_be_read(tmp_path):
    with pytest.raises(TraceError, match=r"absent\.csv: cannot be read: No such file"):
        read_trace(tmp_path / "absent.csv")
    path = tmp_path / "binary.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="is not UTF-8 text"):
        read_trace(path)


def test_excerpt_is_kept_with_its_source_and_licence():
    assert len(read_trace(EXCERPT)) == 600
    notice = (Path(EXCERPT).parent / "README.md").read_text()
    assert "kvcache-ai/Mooncake" in notice
    assert "Apache-2.0" in notice
