# SPDX-License-Identifier: Apache-2.0
"""install() on the installed SGLang: its definitions, signatures, callers and plugin loader."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path

import pytest
from graphfeed import sglang
from sglang_tree import RELEASES, names_of
from test_sglang_install import get
from test_sglang_plugin import GROUP, VALUE

COPIES = ("fused_metadata_copy_cuda", "fused_metadata_copy_multi_cuda")
GENERATIONS = tuple(
    f"fused_dsa_{mode}_metadata{suffix}"
    for mode in ("decode", "target_verify", "draft_extend")
    for suffix in ("", "_kpool")
)
# The attributes under which backends hold the generating functions, from 0.5.20 on.
HELD = {
    "_fused_decode_metadata": "fused_dsa_decode_metadata",
    "_fused_verify_metadata": "fused_dsa_target_verify_metadata",
    "_fused_draft_extend_metadata": "fused_dsa_draft_extend_metadata",
}


def trees():
    """The package's modules whose text has one of the names, parsed, tests left out."""
    (folder,) = importlib.util.find_spec("sglang").submodule_search_locations
    root = Path(folder)
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        if any(name in text for name in (*COPIES, *GENERATIONS, *HELD)) and ".test" not in module:
            yield module, ast.parse(text)


def test_every_definition_in_the_package_is_switched(installed_release):
    defined = {
        f"{module}.{node.name}"
        for module, tree in trees()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in (*COPIES, *GENERATIONS)
    }
    assert defined == set(installed_release)
    assert set(sglang.install()) >= defined
    assert all(get(name) is not function for name, function in installed_release.items())


def test_signatures_stay_the_published_ones(installed_release):
    sglang.install()
    for name, function in installed_release.items():
        assert inspect.signature(get(name)) == inspect.signature(function), name


def test_the_packages_own_functions_come_back(installed_release):
    assert sorted(sglang.install()) == sorted(sglang.uninstall())
    assert {name: get(name) for name in installed_release} == installed_release


def test_a_stand_in_of_the_other_tests_has_these_signatures(installed_release):
    def parameters(function):
        return [
            name if each.default is each.empty else f"{name}={each.default!r}"
            for name, each in inspect.signature(function).parameters.items()
        ]

    installed = {name: parameters(function) for name, function in installed_release.items()}
    assert installed in [
        {f"{module}.{name}": each for module in modules for name, each in modules[module].items()}
        for modules in RELEASES.values()
    ]
    assert set(installed) in [set(names_of(modules)) for modules in RELEASES.values()]


def calls(tree):
    """The calls of the published functions, and those through a backend's attributes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", getattr(node.func, "attr", None))
        called = HELD.get(called, called)
        if called in (*COPIES, *GENERATIONS):
            yield called, node


def test_every_call_in_the_package_fits_the_drop_in(installed_release):
    seen = set()
    for _, tree in trees():
        for called, node in calls(tree):
            assert not any(isinstance(each, ast.Starred) for each in node.args)
            keywords = {each.arg: None for each in node.keywords}
            drop_in = getattr(sglang, called)
            keywords = {
                {"real_page_size": "physical_page_size"}.get(name, name): None for name in keywords
            }
            inspect.signature(drop_in).bind(*[None] * len(node.args), **keywords)
            seen.add(called)
    expected = {name.rpartition(".")[2] for name in installed_release}
    assert seen == {name for name in expected if not name.endswith("_kpool")}


def test_no_caller_uses_a_result(installed_release):
    for module, tree in trees():
        used = {
            id(child)
            for node in ast.walk(tree)
            if not isinstance(node, ast.Expr)
            for child in ast.iter_child_nodes(node)
        }
        assert [name for name, node in calls(tree) if id(node) in used] == [], module


def test_its_plugin_loader_switches_where_asked(installed_release, tmp_path, clean_python):
    if importlib.util.find_spec(GROUP) is None:
        pytest.skip("test_its_plugin_loader_switches_where_asked: this release has no loader")
    folder = tmp_path / "graphfeed_declared-0.0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: graphfeed-declared\nVersion: 0.0.0\n")
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\ngraphfeed = {VALUE}\n")
    module, _, name = min(installed_release).rpartition(".")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from {GROUP} import load_plugins
load_plugins()
load_plugins()
from {module} import {name}
print("module:", {name}.__module__)
"""
    for environment, where in (({"GRAPHFEED_SGLANG": "1"}, "graphfeed.sglang."), ({}, module)):
        output = clean_python(code, check_stderr=False, **environment)
        assert output.splitlines()[-1].startswith(f"module: {where}")
