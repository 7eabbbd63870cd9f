# SPDX-License-Identifier: Apache-2.0
"""graphfeed.sglang.install() and uninstall(), on packages with the modules of SGLang's releases."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
import threading
import types

import pytest
from buffers import Case, Sizes
from eager_copy import TARGET_VERIFY
from graphfeed import sglang
from sglang_tree import COPIES, JIT, OPS, RELEASES, names_of, write_module
from test_sglang import SINGLE, multi, multi_case, single
from test_sglang_generate import DECODE, DRAFT_EXTEND, EACH_MODE, case_of, extended, named

EACH_RELEASE = pytest.mark.parametrize("release", RELEASES)
NEWEST = "0.5.23"
COPY_MODULE = OPS + "dsa.fused_metadata_copy"


def held():
    """Every object that a loaded module of sglang has, by module and attribute."""
    return {
        f"{name}.{attribute}": value
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "sglang"
        for attribute, value in vars(module).items()
        if not isinstance(value, (types.ModuleType, dict)) and not attribute.startswith("__")
    }


def get(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def assert_published(names):
    for name in names:
        assert get(name).__module__ == name.rpartition(".")[0]


def assert_switched(names):
    for name in names:
        assert get(name).__module__.startswith("graphfeed.sglang.")


@EACH_RELEASE
def test_every_function_is_switched_and_put_back(write, release):
    names = names_of(write(release))
    assert sorted(sglang.install()) == sorted(names)
    assert_switched(names)
    assert sorted(sglang.uninstall()) == sorted(names)
    assert_published(names)


@EACH_RELEASE
def test_switched_signatures_are_the_published_ones(write, release):
    names = names_of(write(release))
    published = {name: inspect.signature(get(name)) for name in names}
    sglang.install()
    assert {name: inspect.signature(get(name)) for name in names} == published


@pytest.mark.parametrize("release", ["0.5.9", NEWEST])
def test_switched_copies_do_the_work_by_either_kind_of_argument(write, release):
    modules = write(release)
    sglang.install()
    function, three = (get(name) for name in names_of(modules)[:2])
    in_release = [parameter.replace("dsa_", "nsa_") for parameter in SINGLE]
    for names in (SINGLE, in_release if release == "0.5.9" else SINGLE):
        case = Case(Sizes(TARGET_VERIFY))
        function(**dict(zip(names, single(case).values())))
        case.assert_equals_eager()
    case = multi_case()
    three(*multi(case).values())
    case.assert_equals_eager()


@EACH_MODE
@pytest.mark.parametrize("release", ["0.5.15", "0.5.20", NEWEST])
def test_switched_generations_do_the_work(write, release, mode):
    modules = write(release)
    sglang.install()
    name = {DECODE: "decode", DRAFT_EXTEND: "draft_extend"}.get(mode, "target_verify")
    for each in names_of(modules):
        if f"fused_dsa_{name}_metadata" not in each:
            continue
        pool = (
            {"index_kpool": 4} if "index_kpool" in inspect.signature(get(each)).parameters else {}
        )
        case = case_of(mode, arguments=pool, **extended(mode))
        arguments = {**named(case), **pool}
        if release != NEWEST:
            arguments["real_page_size"] = arguments.pop("physical_page_size")
        get(each)(**arguments)
        case.assert_equals_eager()


def test_names_imported_before_and_after_are_switched_and_put_back(write, tree):
    write(NEWEST)
    importing = f"from {COPY_MODULE} import fused_metadata_copy_cuda as copy\n"
    write_module(tree, "sglang.srt.before", importing)
    write_module(tree, "sglang.srt.after", importing)
    published = importlib.import_module("sglang.srt.before").copy
    before = held()
    assert "sglang.srt.before.copy" in sglang.install()
    assert get("sglang.srt.before.copy") is get("sglang.srt.after.copy") is not published
    assert "sglang.srt.after.copy" in sglang.uninstall()
    assert get("sglang.srt.before.copy") is get("sglang.srt.after.copy") is published
    assert held().items() >= before.items()


def test_everything_else_in_the_modules_stays_as_it_is(write):
    for name in names_of(write(NEWEST)):
        get(name)
    get("sglang.__version__")
    before = held()
    names = sglang.install()
    assert {name for name, value in held().items() if before[name] is not value} == set(names)
    sglang.uninstall()
    assert held() == before


def test_a_second_install_changes_nothing_and_one_uninstall_suffices(write):
    names = names_of(write(NEWEST))
    sglang.install()
    switched = held()
    assert sglang.install() == []
    assert held() == switched
    sglang.uninstall()
    assert_published(names)
    assert sglang.uninstall() == []
    assert sorted(sglang.install()) == sorted(names)


def test_threads_switch_once(write):
    names = names_of(write(NEWEST))
    results, barrier = [], threading.Barrier(8)

    def switch():
        barrier.wait()
        results.append(sglang.install())

    threads = [threading.Thread(target=switch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, results)) == [0] * 7 + [len(names)]
    sglang.uninstall()
    assert_published(names)


def test_both_modules_of_a_release_that_has_two_are_switched(write):
    names = names_of(write(NEWEST, {JIT: COPIES}))
    assert len(names) == 10
    assert sorted(sglang.install()) == sorted(names)
    sglang.uninstall()
    assert_published(names)


def test_a_decorated_function_is_switched_and_put_back(write, tree):
    write("0.5.13")
    parameters = {name: ", ".join(each) for name, each in COPIES.items()}
    decorated = "".join(
        f"@functools.lru_cache\ndef {name}({each}):\n    pass\n\n\n"
        for name, each in parameters.items()
    )
    write_module(tree, JIT, "import functools\n\n\n" + decorated)
    published = get(JIT + ".fused_metadata_copy_cuda")
    sglang.install()
    assert get(JIT + ".fused_metadata_copy_cuda") is not published
    sglang.uninstall()
    assert get(JIT + ".fused_metadata_copy_cuda") is published


def test_what_was_switched_is_logged(write, caplog):
    write("0.5.9")
    with caplog.at_level(logging.INFO, "graphfeed"):
        sglang.install()
        sglang.uninstall()
    names = f"{JIT}.fused_metadata_copy_cuda, {JIT}.fused_metadata_copy_multi_cuda"
    assert [record.getMessage() for record in caplog.records] == [
        f"install: sglang 0.5.9: switched {names}",
        f"uninstall: sglang 0.5.9: put back {names}",
    ]


def test_what_wraps_a_drop_in_is_left_with_a_warning(write, caplog):
    names = names_of(write(NEWEST))
    sglang.install()
    module = importlib.import_module(COPY_MODULE)
    wrapper = functools.wraps(module.fused_metadata_copy_cuda)(lambda *args: None)
    module.fused_metadata_copy_cuda = wrapper
    assert sglang.install() == []
    sglang.uninstall()
    assert module.fused_metadata_copy_cuda is wrapper
    assert [record.getMessage() for record in caplog.records] == [
        f"uninstall: {COPY_MODULE}.fused_metadata_copy_cuda is no longer graphfeed's and is left"
    ]
    assert_published(name for name in names if not name.endswith("fused_metadata_copy_cuda"))
