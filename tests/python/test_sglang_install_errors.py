# SPDX-License-Identifier: Apache-2.0
"""Releases that graphfeed.sglang.install() refuses: named, and with nothing switched."""

from __future__ import annotations

import importlib
import sys
import types

import pytest
from graphfeed import sglang
from sglang_tree import COPIES, JIT, OPS, RELEASES, names_of, write_module, write_tree
from test_sglang_install import assert_published, get, held

NEWEST = "0.5.23"
SINGLE = "fused_metadata_copy_cuda"
METADATA = OPS + "dsa.metadata"
VERIFY = "fused_dsa_target_verify_metadata"


def changed(module, function, change):
    """A module of the newest release with the parameters of one function changed."""
    functions = RELEASES[NEWEST][module]
    return {module: {**functions, function: change(list(functions[function]))}}


def replaced(old, *new):
    def change(parameters):
        at = parameters.index(old)
        return [*parameters[:at], *new, *parameters[at + 1 :]]

    return change


def swapped(first, second):
    def change(parameters):
        other = {first: second, second: first}
        return [other.get(name, name) for name in parameters]

    return change


CHANGES = {
    "renamed": (replaced("next_n", "num_drafts"), "parameter 'num_drafts' is not known"),
    "more": (lambda each: [*each, "out=None"], "parameter 'out' is not known"),
    "fewer": (replaced("next_n"), "parameter 'next_n' is missing"),
    "order": (
        swapped("bs", "next_n"),
        "parameter 11 is 'next_n', expected 'bs'",
    ),
    "kind": (
        replaced("next_n", "*", "next_n"),
        "parameter 'next_n' is keyword-only, expected positional or keyword",
    ),
    "default": (
        replaced("paged_mqa_ctx_lens_2d=None", "paged_mqa_ctx_lens_2d=0"),
        "parameter 'paged_mqa_ctx_lens_2d' has the default 0, expected the default None",
    ),
    "no default": (
        replaced("paged_mqa_ctx_lens_2d=None", "paged_mqa_ctx_lens_2d"),
        "parameter 'paged_mqa_ctx_lens_2d' has no default, expected the default None",
    ),
    "new default": (
        replaced("next_n", "next_n=1"),
        "parameter 'next_n' has the default 1, expected no default",
    ),
    "anything": (
        lambda _: ["*args", "**named"],
        "parameter 'args' is not known",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_signature_is_refused_by_function_and_difference(write, change):
    edit, difference = CHANGES[change]
    names = names_of(write(NEWEST, changed(METADATA, VERIFY, edit)))
    with pytest.raises(RuntimeError) as caught:
        sglang.install()
    assert str(caught.value) == (
        f"install: sglang {NEWEST} is not switched: {METADATA}.{VERIFY}: {difference}"
    )
    assert_published(names)
    assert sglang.uninstall() == []


def test_the_pools_default_is_compared_where_a_function_has_it(write):
    module, name = OPS + "dsa.kpool_metadata.verify", VERIFY + "_kpool"
    write(NEWEST, changed(module, name, replaced("index_kpool=1", "index_kpool=2")))
    with pytest.raises(RuntimeError, match=f"{name}: parameter 'index_kpool' has the default 2"):
        sglang.install()


def test_every_difference_is_named(write):
    wrong = {
        **changed(METADATA, VERIFY, replaced("bs", "batch")),
        **changed(OPS + "dsa.fused_metadata_copy", "fused_metadata_copy_cuda", lambda _: ["out"]),
    }
    write(NEWEST, wrong)
    with pytest.raises(
        RuntimeError, match=r"copy_cuda: parameter 'out' .*; .*'batch' is not known"
    ):
        sglang.install()


def test_a_module_without_one_of_its_functions_is_refused(write):
    names = names_of(write("0.5.13", {JIT: {SINGLE: COPIES[SINGLE]}}))
    with pytest.raises(RuntimeError, match="fused_metadata_copy_multi_cuda: is not there"):
        sglang.install()
    assert_published(names)


@pytest.mark.parametrize(
    ("value", "difference"), [("'none'", "is of type str"), ("min", "has no signature")]
)
def test_a_function_that_is_something_else_is_refused(write, tree, value, difference):
    write("0.5.13")
    write_module(tree, JIT, f"{SINGLE} = fused_metadata_copy_multi_cuda = {value}\n")
    with pytest.raises(RuntimeError, match=f"{SINGLE}: {difference};"):
        sglang.install()


def test_a_release_without_the_functions_is_refused_by_what_is_missing(tree):
    write_tree(tree, "0.5.8", {"sglang.jit_kernel.other": {}})
    with pytest.raises(RuntimeError, match=r"^install: sglang 0.5.8 has no function") as caught:
        sglang.install()
    assert JIT in str(caught.value)


def test_no_sglang_is_said_so(tree, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [Without(), *sys.meta_path])
    with pytest.raises(RuntimeError, match=r"^install: sglang is not installed in this Python$"):
        sglang.install()


class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "sglang":
            raise ModuleNotFoundError("No module named 'sglang'", name="sglang")


@pytest.mark.parametrize("broken", ["import no_such_package", "raise ImportError('broken')"])
def test_a_module_that_cannot_be_imported_raises_its_own_error(write, tree, broken):
    names = names_of(write(NEWEST))
    write_module(tree, METADATA, broken + "\n")
    with pytest.raises(ImportError, match=r"no_such_package|^broken$"):
        sglang.install()
    assert_published(name for name in names if not name.startswith(METADATA))


class Refusing(types.ModuleType):
    """Its attributes cannot be set."""

    refuses = False

    def __setattr__(self, name, value):
        if self.refuses:
            raise AttributeError(f"{name} is fixed")
        super().__setattr__(name, value)


def test_a_switch_that_fails_midway_is_undone(write, monkeypatch):
    names = names_of(write(NEWEST))
    last = names[-1]
    for name in names:
        get(name)
    fixed = Refusing("sglang.srt.fixed")
    fixed.kept = get(last)
    fixed.refuses = True
    sys.modules["sglang.srt.fixed"] = fixed
    before = held()
    with pytest.raises(AttributeError, match="kept is fixed"):
        sglang.install()
    assert held() == before
    assert sglang.uninstall() == []
    del sys.modules["sglang.srt.fixed"]
    assert sorted(sglang.install()) == sorted(names)
    assert importlib.import_module(METADATA).fused_dsa_decode_metadata.__module__ != METADATA
