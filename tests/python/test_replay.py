# SPDX-License-Identifier: Apache-2.0
"""The replay: the engine's invariants, every refresh against the reference, the command line."""

from __future__ import annotations

import dataclasses
import io
import json
import re

import pytest
from graphfeed.replay import PLACEMENTS, Engine, EngineConfig, Mismatch, Request, run
from graphfeed.replay.__main__ import main
from graphfeed.replay.arrays import DeviceError, open_arrays
from graphfeed.replay.engine import graph_sizes
from graphfeed.replay.placement import Prepared
from graphfeed.replay.progress import progress
from replay_case import ON_CPU, SMALL, corrupted, make_requests

# Engine


def test_graph_sizes_are_bucketed():
    assert graph_sizes(32) == [1, 2, 4, 8, 16, 24, 32]
    assert graph_sizes(11) == [1, 2, 4, 8, 11]
    assert graph_sizes(1) == [1]


@pytest.mark.parametrize("num_pages", [0, 20])
def test_engine_never_shares_pages_and_gets_all_of_them_back(num_pages):
    config = EngineConfig(max_batch=12, context=1000, num_pages=num_pages, seed=2)
    requests = make_requests(60)
    engine = Engine(requests, config)
    every_page = set(range(1, config.pool_pages + 1))
    seen = set()
    while (state := engine.next_state()) is not None:
        held = [page for request in state.held for page in request.pages]
        rows = [request.row for request in state.held]
        assert sorted(held + engine.free_pages) == sorted(every_page)
        assert len(set(rows)) == len(rows)
        assert 0 not in rows
        for request in state.held:
            seen.add(request.id)
            slots = engine.req_to_token[request.row, : request.length + config.draft_tokens]
            assert len(slots) <= len(request.pages) * config.page_size
            assert all(
                slot == request.pages[token // 64] * 64 + token % 64
                for token, slot in enumerate(slots.tolist())
            )
        engine.finish_step()
    assert set(engine.free_pages) == every_page
    assert sorted(engine.free_rows) == list(range(1, config.max_batch + 1))
    assert seen == set(range(len(requests)))
    assert engine.num_finished == len(requests)
    assert not engine.req_to_token[0].any()


def test_engine_pads_the_batch_to_a_graph_size():
    engine = Engine([Request(0, 10 + index, 50) for index in range(5)], SMALL)
    state = engine.next_state()
    assert state.bs == 8
    assert state.seq_lens.tolist() == [10, 11, 12, 13, 14, 1, 1, 1]
    assert state.req_rows[5:].tolist() == [0, 0, 0]
    assert state.decode.num_splits.shape == (9,)
    assert state.verify.num_splits.shape == (33,)


def test_engine_admits_by_arrival_batch_and_pages():
    late = Engine([Request(0, 8, 9), Request(120, 8, 9)], EngineConfig(context=64, step_ms=50))
    sizes = []
    for _ in range(4):
        sizes.append(len(late.next_state().held))
        late.running[0].remaining = 9
        late.finish_step()
    assert sizes == [1, 1, 1, 2]
    full = Engine([Request(0, 8, 9)] * 3, EngineConfig(max_batch=2, context=64))
    assert len(full.next_state().held) == 2
    short = Engine([Request(0, 100, 9)] * 3, EngineConfig(context=124, num_pages=5))
    assert len(short.next_state().held) == 2


def test_engine_accepts_1_to_n_tokens_a_step():
    engine = Engine([Request(0, 10, 900)] * 8, SMALL)
    steps = []
    before = [request.length for request in engine.next_state().held]
    for _ in range(30):
        engine.finish_step()
        after = [request.length for request in engine.next_state().held]
        steps += [new - old for new, old in zip(after, before)]
        before = after
    assert set(steps) == {1, 2, 3, 4}


def test_engine_truncates_inputs_to_the_context_limit_and_counts_them():
    requests = [Request(0, 5000, 100), Request(0, 900, 100), Request(0, 5, 5000)]
    engine = Engine(requests, SMALL)
    assert [request.length for request in engine.next_state().held] == [900, 900, 1]
    assert engine.num_truncated == 2
    while (state := engine.next_state()) is not None:
        assert state.seq_lens.max() <= SMALL.context
        engine.finish_step()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"max_batch": 0}, "max_batch: expected 1 or more, got 0"),
        ({"context": 1}, "context: expected 2 or more tokens, got 1"),
        ({"page_size": 48}, "page_size: expected a power of two, got 48"),
        ({"step_ms": 0.0}, "step_ms: expected more than 0"),
        ({"context": 640, "num_pages": 10}, "num_pages: one request may need 11 pages, got 10"),
        ({"num_pages": 2**26}, "num_pages: 67108864 pages pass"),
    ],
)
def test_engine_config_refuses_sizes_that_cannot_work(sizes, message):
    with pytest.raises(ValueError, match=message):
        EngineConfig(**sizes)


# Source and reference


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "sizes",
    [
        {"max_batch": 12, "context": 1000},
        {"max_batch": 1, "context": 64, "draft_tokens": 1},
        {"max_batch": 5, "context": 300, "draft_tokens": 6, "num_pages": 9},
        {"max_batch": 9, "context": 130, "page_size": 16, "top_k": 40},
    ],
)
@pytest.mark.parametrize("placement", ON_CPU, ids=lambda each: each.name)
def test_source_and_reference_agree_on_random_states(placement, seed, sizes):
    config = EngineConfig(seed=seed, **sizes)
    requests = make_requests(25, seed=seed, longest=2 * config.context)
    summary = run(requests, config=config, device="cpu", placements=[placement])
    assert summary.requests_finished == len(requests)
    assert summary.mismatches == 0


def test_reference_finds_a_refresh_that_did_nothing():
    idle = dataclasses.replace(
        ON_CPU[0], prepare=lambda graph, first: Prepared(lambda batch: None, graph.captured)
    )
    with pytest.raises(Mismatch) as raised:
        run(make_requests(3), config=SMALL, device="cpu", placements=[idle])
    assert (raised.value.step, raised.value.destination) == (0, "draft 0")


# The job


def test_a_short_replay_has_no_mismatch():
    requests = make_requests(30)
    steps = []
    summary = run(requests, config=SMALL, device="cpu", steps=50, on_step=steps.append)
    assert summary.device == "cpu"
    assert summary.mismatches == 0
    assert summary.steps == 50
    assert steps == list(range(1, 51))
    assert summary.requests_finished + summary.requests_running <= 30
    assert 1 <= summary.batch.p50 <= summary.batch.p99 <= summary.batch.max <= 12
    assert summary.context.max <= 1000
    assert 0 < summary.bytes_refreshed < summary.bytes_checked


@pytest.mark.gpu
def test_a_short_replay_on_a_gpu_has_no_mismatch():
    try:
        label = open_arrays("cuda").label
    except DeviceError as error:
        pytest.skip(str(error))
    summary = run(make_requests(30), config=SMALL, device="cuda", steps=60)
    assert summary.device == label
    assert summary.mismatches == 0


def test_run_refuses_no_steps_and_no_requests():
    with pytest.raises(ValueError, match="steps: expected 1 or more, got 0"):
        run(make_requests(1), steps=0)
    with pytest.raises(ValueError, match="requests: expected at least one"):
        run([])


# Command line

SHORT = ["--device", "cpu", "--steps", "20", "--context", "2048", "--max-batch", "8"]


def test_command_plays_the_excerpt_and_ends_with_mismatches_0(capsys):
    assert main(SHORT) == 0
    out, err = capsys.readouterr()
    assert out.rstrip().splitlines()[-1] == "mismatches 0"
    assert "steps        20 (20 decode to 3 destinations, 20 target_verify n=4 to 1)" in out
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("us a step"))
    assert [line.split()[0] for line in lines[first + 1 : first + 7]] == [
        *(each.name for each in ON_CPU),
        "refreshed",
    ]
    percentiles = [lines[first].index(name) + 3 for name in ("p50", "p90", "p99")]
    for line in lines[first + 1 : first + 6]:
        assert all(re.search(r" [0-9]+[.][0-9]$", line[:end]) for end in percentiles)
    assert "replay: step 20 of 20\n" in err
    assert "\x1b" not in out + err
    assert "\r" not in out + err


def test_command_prints_json(capsys):
    assert main([*SHORT, "--json", "--draft-tokens", "3"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["mismatches"] == 0
    assert summary["steps"] == 20
    assert summary["draft_tokens"] == 3
    assert summary["batch"]["max"] <= 8
    assert [(each["name"], each["steps"]) for each in summary["placements"]] == [
        ("copies", 4),
        ("copy", 4),
        ("plan", 4),
        ("generate", 4),
        ("generate-plan", 4),
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
def test_command_plays_the_placements_asked_for(capsys, options, names):
    assert main([*SHORT, *options, "--json"]) == 0
    placements = json.loads(capsys.readouterr().out)["placements"]
    assert [each["name"] for each in placements] == names


@pytest.mark.parametrize("name", ["graph", "generate-graph"])
def test_command_refuses_a_graph_without_a_gpu_in_a_line(capsys, name):
    assert main([*SHORT, "--placement", f"copy,{name}"]) == 2
    out, err = capsys.readouterr()
    line = f"python -m graphfeed.replay: placement {name}: needs a GPU, and this is cpu"
    assert (out, err) == ("", f"{line}\n")


def test_command_refuses_an_unknown_placement(capsys):
    with pytest.raises(SystemExit) as raised:
        main([*SHORT, "--placement", "copy,eager"])
    assert raised.value.code == 2
    names = (
        "copies, copy, plan, graph, generate, generate-plan, generate-graph, copying, generation"
    )
    assert f"--placement: expected some of {names}, got 'eager'" in capsys.readouterr().err


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_command_exits_1_at_a_mismatch_and_names_it(capsys, monkeypatch, extra):
    wrong = corrupted(
        PLACEMENTS["copy"],
        nth=4,
        name="draft 2",
        place=lambda d: (d.metadata.page_table_1, (3, 17)),
    )
    monkeypatch.setitem(PLACEMENTS, "copy", wrong)
    assert main([*SHORT, "--placement", "copy", *extra]) == 1
    out, err = capsys.readouterr()
    assert "mismatch: step 4: copy: destination draft 2: page_table_1: row 3, column 17: " in err
    if extra:
        mismatch = json.loads(out)["mismatch"]
        assert (mismatch["placement"], mismatch["field"]) == ("copy", "page_table_1")
    else:
        assert "mismatches 0" not in out


def test_command_exits_2_at_a_bad_trace_or_size(tmp_path, capsys):
    path = tmp_path / "bad.csv"
    path.write_text("arrival_ms,input_tokens,output_tokens\n1,x,3\n")
    assert main([str(path)]) == 2
    assert f"{path}:2: input_tokens: expected a number" in capsys.readouterr().err
    assert main(["--steps", "0"]) == 2
    assert "--steps: expected 1 or more, got 0" in capsys.readouterr().err
    assert main(["--context", "1"]) == 2
    assert "context: expected 2 or more tokens" in capsys.readouterr().err


def test_progress_draws_a_bar_on_a_terminal_without_rich(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with progress(terminal, total=4) as on_step:
        for done in range(1, 5):
            on_step(done)
    assert terminal.getvalue().endswith(f"\rreplay [{'#' * 40}] 4/4\n")
