# SPDX-License-Identifier: Apache-2.0
"""GRAPHFEED_SGLANG=1: what SGLang's plugin loader finds, and that spawned workers are switched."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
from graphfeed.sglang._plugin import install_if_asked
from sglang_tree import names_of, write_module
from test_sglang_install import assert_published, assert_switched

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
GROUP = "sglang.srt.plugins"
VALUE = re.search(
    rf'^\[project.entry-points."{GROUP}"\]\ngraphfeed = "(.*)"$',
    PROJECT.read_text(encoding="utf-8"),
    re.MULTILINE,
).group(1)

# As SGLang's of 0.5.11 and newer: once a process, in the order of discovery, errors logged.
LOADER = """
import logging
from importlib.metadata import entry_points

def load_plugins():
    found = entry_points()
    chosen = found.select(group="sglang.srt.plugins") if hasattr(found, "select") else (
        found.get("sglang.srt.plugins", ()))
    for each in chosen:
        try:
            each.load()()
        except Exception:
            logging.getLogger(__name__).exception("Failed to execute general plugin: %s", each.name)
"""
SERVER = """
import multiprocessing

def work(queue):
    from sglang.srt.plugins import load_plugins
    load_plugins()
    from sglang.kernels.ops.attention.dsa.metadata import fused_dsa_decode_metadata
    queue.put(fused_dsa_decode_metadata.__module__)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    worker = context.Process(target=work, args=(queue,))
    worker.start()
    worker.join()
    print(queue.get(timeout=60))
"""
# For releases before those with a loader: a worker imports the script that started its server.
SCRIPT = "import graphfeed.sglang\n\ngraphfeed.sglang.install()\n" + SERVER.replace(
    "    from sglang.srt.plugins import load_plugins\n    load_plugins()\n", ""
)


@pytest.mark.parametrize("value", [None, "", "0"])
def test_nothing_is_switched_unless_asked(write, monkeypatch, value):
    names = names_of(write("0.5.23"))
    monkeypatch.delenv("GRAPHFEED_SGLANG", raising=False)
    if value is not None:
        monkeypatch.setenv("GRAPHFEED_SGLANG", value)
    install_if_asked()
    assert_published(names)


def test_one_switches(write, monkeypatch):
    names = names_of(write("0.5.23"))
    monkeypatch.setenv("GRAPHFEED_SGLANG", "1")
    install_if_asked()
    assert_switched(names)


def test_another_value_is_refused(write, monkeypatch):
    names = names_of(write("0.5.23"))
    monkeypatch.setenv("GRAPHFEED_SGLANG", "yes")
    with pytest.raises(ValueError, match=r"^GRAPHFEED_SGLANG: expected 0 or 1, got 'yes'$"):
        install_if_asked()
    assert_published(names)


def test_the_declared_entry_point_is_the_plugin():
    assert importlib.metadata.EntryPoint("graphfeed", VALUE, GROUP).load() is install_if_asked


def test_the_installed_package_declares_it():
    try:
        installed = importlib.metadata.distribution("graphfeed")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("test_the_installed_package_declares_it: graphfeed is not installed")
    declared = [each for each in installed.entry_points if each.group == GROUP]
    assert [(each.name, each.value) for each in declared] == [("graphfeed", VALUE)]


@pytest.fixture
def server(write, tree, clean_python):
    """Runs a server of a spawned worker; returns the module its worker's function is from."""
    write("0.5.23")
    write_module(tree, "sglang.srt.plugins", LOADER)
    folder = tree / "graphfeed_declared-0.0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: graphfeed-declared\nVersion: 0.0.0\n")
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\ngraphfeed = {VALUE}\n")

    def run(script=SERVER, **environment):
        write_module(tree, "server", script)
        code = f"import runpy; runpy.run_path({str(tree / 'server.py')!r}, run_name='__main__')"
        return clean_python(code, **environment).strip()

    return run


def test_spawned_workers_are_switched(server):
    assert server(GRAPHFEED_SGLANG="1") == "graphfeed.sglang._generation"


def test_spawned_workers_are_left_alone_without_it(server):
    assert server() == "sglang.kernels.ops.attention.dsa.metadata"


def test_a_script_that_installs_on_import_switches_its_workers_too(server):
    assert server(SCRIPT) == "graphfeed.sglang._generation"
