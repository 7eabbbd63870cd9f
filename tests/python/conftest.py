# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a clean Python process, torch. Tests that need torch or a GPU are skipped without."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys

import pytest


@functools.cache
def reason_without_gpu():
    """Why torch cannot run on a GPU here; None where it can."""
    try:
        import torch
    except ImportError as error:
        return f"needs torch with CUDA: {error}"
    if not torch.cuda.is_available():
        return "needs torch with CUDA: torch.cuda.is_available() is false"
    return None


@functools.cache
def reason_without_torch():
    try:
        import torch  # noqa: F401
    except ImportError as error:
        return f"needs torch: {error}"
    return None


@functools.cache
def reason_without_sglang():
    if importlib.util.find_spec("sglang") is None:
        return "needs sglang, which is not installed"
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        reason = None
        if item.get_closest_marker("gpu") is not None:
            reason = reason_without_gpu()
        elif "torch" in item.fixturenames:
            reason = reason_without_torch()
        if reason is None and "installed_release" in item.fixturenames:
            reason = reason_without_sglang()
        if reason is not None:
            reason = f"{item.name.partition('[')[0]}: {reason}"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def torch():
    """torch, on a machine that may have no GPU."""
    return pytest.importorskip("torch")


@pytest.fixture
def in_place_only(torch, monkeypatch):
    """Fails a call whose tensors go through TVM FFI, and one that leaves an exception behind."""
    from graphfeed import _copy
    from graphfeed.sglang import _forward
    from in_place import is_error_pending

    def refuse(*args):
        raise AssertionError("not read in place")

    monkeypatch.setattr(_copy, "_copy", refuse)
    monkeypatch.setattr(_forward, "call_through_tvm_ffi", refuse)
    yield
    assert not is_error_pending()


@pytest.fixture(scope="session")
def warm_kernels(torch, tmp_path_factory):
    """Every kernel is loaded, so that a first use delays no test and may be captured."""
    import graphfeed

    torch.cuda.init()
    graphfeed.set_kernel_options(cache_directory=tmp_path_factory.mktemp("kernels"))
    graphfeed.warmup(torch.cuda.current_device())
    yield
    graphfeed.set_kernel_options()


@pytest.fixture
def clean_python(tmp_path):
    """Runs code in a new process, in an empty directory and with no setting of ours or of a cache.

    HOME is an empty directory, unless `environment` says otherwise; None there unsets a variable.
    Returns standard output; fails on a nonzero exit.
    """
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    base = dict.fromkeys(name for name in os.environ if name.startswith(("GRAPHFEED_", "XDG_")))
    base.update(
        HOME=str(home),
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONPATH=os.pathsep.join(filter(None, sys.path)),
    )

    def run(code, *, check_stderr=True, **environment):
        changed = {**os.environ, **base, **environment}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={name: value for name, value in changed.items() if value is not None},
            cwd=work,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert not check_stderr or done.stderr == ""
        return done.stdout

    run.home, run.work = home, work
    return run


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder on sys.path for a package sglang; what was imported of another comes back after."""
    from graphfeed import sglang

    def forget():
        return {
            name: sys.modules.pop(name)
            for name in list(sys.modules)
            if name.partition(".")[0] == "sglang"
        }

    before = forget()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sglang.uninstall()
    forget()
    sys.modules.update(before)


@pytest.fixture
def write(tree):
    """Writes a release's package, with some modules changed; returns its modules."""
    from sglang_tree import RELEASES, write_tree

    def write(release, changed=None):
        modules = {**RELEASES[release], **(changed or {})}
        write_tree(tree, release, modules)
        importlib.invalidate_caches()
        return modules

    return write


@pytest.fixture
def installed_release():
    """SGLang's own functions in the installed release, by module and name; not switched after."""
    from graphfeed import sglang
    from sglang_tree import RELEASES, names_of

    sglang.uninstall()
    published = {}
    for name in {name for modules in RELEASES.values() for name in names_of(modules)}:
        module, _, function = name.rpartition(".")
        try:
            published[name] = getattr(importlib.import_module(module), function)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
    yield published
    sglang.uninstall()
