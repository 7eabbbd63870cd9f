# SPDX-License-Identifier: Apache-2.0
"""``graphfeed warmup`` and ``graphfeed cache``: directories of kernels made, listed, judged."""

from __future__ import annotations

import shutil
from pathlib import Path

import graphfeed
import pytest
from command import Command
from graphfeed.cache import cache_state, fill_cache
from graphfeed.system import runtime_compiler


@pytest.fixture
def command(capsys):
    return Command(capsys)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A directory of kernels for sm_90a, which no test changes."""
    if problem := runtime_compiler().problem:
        pytest.skip(problem.partition("\n")[0])
    directory = tmp_path_factory.mktemp("kernels") / "made"
    fill_cache("sm_90a", directory)
    return directory


@pytest.fixture
def directory(made, tmp_path):
    shutil.copytree(made, tmp_path / "kernels")
    return tmp_path / "kernels"


def test_warmup_compiles_what_is_not_there_yet(command, directory):
    entries = sorted(directory.rglob("*.bin"))
    gone = entries[3].read_bytes()
    entries[3].unlink()
    result = command("warmup", "--arch", "sm_90a", "--out", directory, "--json")
    assert result.status == 0
    assert result.json["directory"] == str(directory)
    assert result.json["architectures"] == [
        {"architecture": "sm_90a", "compiled": 1, "present": len(entries) - 1}
    ]
    assert entries[3].read_bytes() == gone
    assert f"compiling for sm_90a: kernel {len(entries)} of {len(entries)}" in result.err
    shown = command("warmup", "--arch", "sm_90a", "--out", directory).out
    assert f"sm_90a: 0 compiled, {len(entries)} there already" in shown
    assert f"export GRAPHFEED_CACHE_PATH={directory}" in shown


def test_warmup_refuses_what_it_cannot_do_in_a_line(command, made, tmp_path):
    said = command.refused("warmup", "--arch", "hopper", "--out", tmp_path / "out")
    assert "expected one such as sm_90a or sm_120, got 'hopper'" in said
    said = command.refused("warmup", "--arch", "sm_21", "--out", tmp_path / "out")
    assert "cannot compile for sm_21" in said
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    said = command.refused("warmup", "--arch", "sm_90a", "--out", in_the_way)
    assert f"'{in_the_way}' is a file" in said
    said = command.refused("warmup", "--arch", "sm_90a", "--out", in_the_way / "below")
    assert f"{in_the_way / 'below'} is not used" in said
    assert not (tmp_path / "out").exists()


def test_what_a_callback_raises_ends_a_fill(made, tmp_path):
    class Enough(Exception):
        pass

    def stop(done, total):
        raise Enough(f"{done} of {total}")

    with pytest.raises(Enough, match=r"^1 of 12$"):
        fill_cache("sm_90a", tmp_path / "out", on_kernel=stop)
    assert 1 <= len(cache_state(tmp_path / "out").entries) < 12


def test_ls_lists_every_kernel_with_its_bytes(command, directory):
    entries = cache_state(directory).entries
    shown = command("cache", "ls", "--dir", directory).out.splitlines()
    assert shown[0].split() == ["architecture", "kernel", "bytes", "age"]
    for line, entry in zip(shown[1:], entries):
        assert line.split()[:3] == ["sm_90a", Path(entry.path).name[:12], f"{entry.bytes:,}"]
    total = sum(entry.bytes for entry in entries)
    assert shown[-1] == f"{len(entries)} kernels, {total:,} bytes, in {directory}"
    listed = command("cache", "ls", "--dir", directory, "--json").json
    assert listed["entries"] == [entry._asdict() for entry in entries]


def test_check_names_each_kernel_that_would_not_be_taken(command, directory):
    assert command("cache", "check", "--dir", directory).status == 0
    entries = sorted(directory.rglob("*.bin"))
    entries[0].write_bytes(entries[0].read_bytes()[:50])
    flipped = bytearray(entries[1].read_bytes())
    flipped[-1] ^= 1
    entries[1].write_bytes(flipped)
    entries[2].write_bytes(entries[3].read_bytes())
    result = command("cache", "check", "--dir", directory)
    assert result.status == 1
    lines = result.out.splitlines()
    assert lines[1].endswith("it is cut off")
    assert lines[2].endswith("its checksum is wrong")
    assert lines[3].endswith("it holds another kernel than its name says")
    assert [line.split()[-1] for line in lines[4:-1]] == ["ok"] * (len(entries) - 3)
    assert lines[-1].endswith("; 3 unusable")
    facts = command("cache", "check", "--dir", directory, "--json")
    assert facts.status == 1
    assert sum(bool(each["defect"]) for each in facts.json["entries"]) == 3


def test_check_fails_for_a_directory_that_is_not_used(command, directory):
    directory.chmod(0o777)
    result = command("cache", "check", "--dir", directory)
    assert result.status == 1
    assert "not used: other users may write to it" in result.out


def test_clear_removes_kernels_and_nothing_else(command, directory):
    foreign = directory / "v1" / "sm_90a" / "notes.txt"
    foreign.write_text("mine")
    count = len(cache_state(directory).entries)
    assert command("cache", "clear", "--dir", directory).out.startswith(
        f"removed {count} kernels, "
    )
    assert [path for path in directory.rglob("*") if path.is_file()] == [foreign]
    assert command("cache", "clear", "--dir", directory, "--json").json["entries"] == []


def test_a_directory_that_is_none_is_refused(command, tmp_path):
    assert "does not exist" in command.refused("cache", "check", "--dir", tmp_path / "absent")
    (tmp_path / "file").write_text("")
    assert "is not a directory" in command.refused("cache", "ls", "--dir", tmp_path / "file")


def test_the_directory_in_use_is_the_default(command, directory):
    graphfeed.set_kernel_options(cache_directory=directory)
    try:
        assert command("cache", "ls", "--json").json["directory"] == str(directory)
        graphfeed.set_kernel_options(cache_directory="")
        assert "kept in memory only" in command.refused("cache", "ls")
    finally:
        graphfeed.set_kernel_options()
