# SPDX-License-Identifier: Apache-2.0
"""Where compiled kernels are kept; what import, copies and failures leave behind.

Settings are taken once a process, so most tests run a clean one.
"""

from __future__ import annotations

import json
import os
import re

import graphfeed
import pytest

SHOW_CACHE = "import graphfeed; print(graphfeed.cache_directory())"
COPY = """
import graphfeed, numpy
source = graphfeed.Metadata(*[numpy.ones(3, numpy.int32)] * 2)
target = graphfeed.Metadata(*[numpy.zeros(3, numpy.int32)] * 2)
target = target._replace(cu_seqlens_k=numpy.zeros(4, numpy.int32))
graphfeed.copy(source, [target], mode=0, bs=2)
assert target.cache_seqlens.tolist() == [1, 1, 0]
"""


def contents(*directories):
    return sorted(str(path) for directory in directories for path in directory.rglob("*"))


def kept_at_home(clean_python):
    """What is in HOME but for the cache that NVRTC and the driver keep for themselves."""
    driver = str(clean_python.home / ".nv")
    return [path for path in contents(clean_python.home) if not path.startswith(driver)]


# Which directory


def test_cache_directory_is_in_home_by_default(clean_python):
    assert clean_python(SHOW_CACHE).strip() == str(clean_python.home / ".cache" / "graphfeed")


def test_xdg_cache_home_goes_before_home(clean_python, tmp_path):
    shown = clean_python(SHOW_CACHE, XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert shown.strip() == str(tmp_path / "xdg" / "graphfeed")


def test_graphfeed_cache_dir_goes_before_xdg_cache_home(clean_python, tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path / "xdg"), "GRAPHFEED_CACHE_DIR": str(tmp_path)}
    assert clean_python(SHOW_CACHE, **environment).strip() == str(tmp_path)


def test_an_explicit_directory_goes_before_graphfeed_cache_dir(clean_python, tmp_path):
    code = f"""
import graphfeed, pathlib
for directory in ({str(tmp_path / "a")!r}, pathlib.Path({str(tmp_path / "b")!r}), "", None):
    graphfeed.set_kernel_options(cache_directory=directory)
    print(graphfeed.cache_directory())
"""
    shown = clean_python(code, GRAPHFEED_CACHE_DIR=str(tmp_path / "c"))
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert shown.split("\n") == [a, b, "", c, ""]
    assert not any((tmp_path / name).exists() for name in "abc")


@pytest.mark.parametrize(
    "environment",
    [{"HOME": None}, {"HOME": "relative"}, {"GRAPHFEED_CACHE_DIR": ""}],
    ids=["no HOME", "relative HOME", "empty GRAPHFEED_CACHE_DIR"],
)
def test_kernels_are_kept_in_memory_only(clean_python, environment):
    assert clean_python(SHOW_CACHE, **environment).strip() == ""


def test_a_relative_xdg_cache_home_is_ignored(clean_python):
    shown = clean_python(SHOW_CACHE, XDG_CACHE_HOME="relative")
    assert shown.strip() == str(clean_python.home / ".cache" / "graphfeed")


def test_options_are_replaced_as_a_whole(clean_python, tmp_path):
    code = f"""
import graphfeed
graphfeed.set_kernel_options(cache_directory={str(tmp_path)!r})
graphfeed.set_kernel_options(max_cache_bytes=1)
print(graphfeed.cache_directory())
"""
    assert clean_python(code).strip() == str(clean_python.home / ".cache" / "graphfeed")


@pytest.mark.parametrize("options", [
    {"cache_directory": 3},
    {"read_only_directories": [3]},
    {"nvrtc_path": 3.0},
    {"max_cache_bytes": "3"},
    {"prebuilt": "no"},
])  # fmt: skip
def test_options_of_a_wrong_type_are_type_errors_and_change_nothing(options):
    before = graphfeed.cache_directory()
    with pytest.raises(TypeError):
        graphfeed.set_kernel_options(**options)
    assert graphfeed.cache_directory() == before


# What is left behind


def test_import_and_cpu_copies_print_nothing_and_create_nothing(clean_python):
    before = contents(clean_python.home, clean_python.work)
    code = COPY + "import graphfeed.sglang; graphfeed.cache_directory(); graphfeed.kernel_stats()"
    assert clean_python(code) == ""
    assert contents(clean_python.home, clean_python.work) == before == []


def test_import_needs_neither_torch_nor_numpy(clean_python):
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy", "cupy", "jax"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import graphfeed, graphfeed.sglang
print(graphfeed.__version__)
"""
    assert clean_python(code).strip() == graphfeed.__version__


def test_cpu_copies_load_no_kernel_and_no_driver(clean_python):
    code = f"""
import numpy, tvm_ffi  # which imports torch where there is torch, and that loads what it likes
def loaded():
    return {{line.split()[-1] for line in open("/proc/self/maps")
            if "libcuda" in line or "nvrtc" in line}}
before = loaded()
{COPY}
print(*graphfeed.kernel_stats(), *loaded() - before)
"""
    assert clean_python(code).split() == ["0", "0", "0", "0"]


def test_kernel_stats_are_counts_by_name():
    stats = graphfeed.kernel_stats()
    assert stats._fields == ("prebuilt", "disk_hits", "compiled", "loaded")
    assert all(isinstance(value, int) and value >= 0 for value in stats)


def test_prebuilt_kernels_serve_every_family_or_none():
    kernels = graphfeed.prebuilt_kernels()
    if kernels.architectures:
        assert kernels.architectures == ["sm_80", "sm_90a", "sm_100", "sm_120"]
        assert re.fullmatch(r"NVRTC \d+\.\d+", kernels.compiler)
        assert kernels.minimum_driver >= 12040
    else:
        assert kernels == ([], "", 0)


# Failures and warnings


def test_warmup_without_a_gpu_says_what_is_missing_and_goes_on(clean_python):
    code = (
        COPY
        + """
for _ in range(2):
    try:
        graphfeed.warmup()
    except RuntimeError as error:
        print(error)
graphfeed.reset_failures()
graphfeed.copy(source, [target], mode=0, bs=2)
print(*graphfeed.kernel_stats())
"""
    )
    first, second, stats = clean_python(code, CUDA_VISIBLE_DEVICES="").strip().split("\n")
    assert first == second
    assert first.startswith("cuda driver: ")
    assert "install NVIDIA's driver" in first or "no GPU is visible" in first
    assert stats == "0 0 0 0"
    assert contents(clean_python.home) == []


@pytest.mark.parametrize("device", [-1, 64, 2**31, 2**32])
def test_warmup_refuses_a_device_that_cannot_be(device):
    with pytest.raises(ValueError, match=rf"device: expected a CUDA .*, got {device}$"):
        graphfeed.warmup(device)


def test_warmup_refuses_what_is_no_ordinal():
    with pytest.raises(TypeError, match=r"^warmup: device: expected an integer, got"):
        graphfeed.warmup("cuda:0")


def test_warnings_go_to_the_logger_graphfeed(clean_python):
    code = """
import logging, sys, types
import tvm_ffi
real, callbacks = tvm_ffi.load_module, []
class Module:
    def __init__(self, module):
        self.module = module
    def get_function(self, name):
        if name != "set_log_callback":
            return self.module.get_function(name)
        class Recorder:
            def __call__(self, callback):
                callbacks.append(callback)
        return Recorder()
tvm_ffi.load_module = lambda *args, **named: Module(real(*args, **named))
import graphfeed
logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
callbacks[0]("100% of it is not used")
"""
    assert clean_python(code) == "graphfeed WARNING 100% of it is not used\n"


# With a GPU

WARMUP = """
import json, logging, sys
logging.basicConfig(stream=sys.stderr, format="%(name)s %(levelname)s %(message)s")
import graphfeed
graphfeed.warmup()
print(json.dumps(graphfeed.kernel_stats()._asdict()))
"""


def warm(clean_python, directory, **environment):
    """What a fresh process does to warm up without the kernels embedded in this build."""
    environment = {"GRAPHFEED_PREBUILT": "0", "GRAPHFEED_CACHE_DIR": str(directory)} | environment
    stats = json.loads(clean_python(WARMUP, **environment))
    assert stats.pop("prebuilt") == 0
    return stats


@pytest.mark.gpu
def test_prebuilt_kernels_need_neither_a_compiler_nor_a_disk(clean_python, tmp_path):
    if not graphfeed.prebuilt_kernels().architectures:
        pytest.skip("this build holds no compiled kernels")
    absent = str(tmp_path / "libnvrtc.so.13")
    stats = json.loads(clean_python(WARMUP, GRAPHFEED_NVRTC=absent, GRAPHFEED_PREBUILT="1"))
    assert stats["prebuilt"] == stats["loaded"] > 0
    assert stats["disk_hits"] == stats["compiled"] == 0
    assert kept_at_home(clean_python) == []


@pytest.mark.gpu
def test_a_second_process_compiles_nothing(clean_python, tmp_path):
    cache = tmp_path / "cache"
    first = warm(clean_python, cache)
    entries = list(cache.rglob("*.bin"))
    assert first["compiled"] == first["loaded"] == len(entries) > 0
    assert first["disk_hits"] == 0
    second = warm(clean_python, cache)
    assert second == {"compiled": 0, "disk_hits": len(entries), "loaded": len(entries)}
    assert kept_at_home(clean_python) == []
    for path in (cache, *cache.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.gpu
def test_foreign_and_damaged_entries_are_compiled_again(clean_python, tmp_path):
    cache = tmp_path / "cache"
    warm(clean_python, cache)
    entries = sorted(cache.rglob("*.bin"))
    whole = [path.read_bytes() for path in entries]
    flipped = bytearray(whole[2])
    flipped[-1] ^= 1
    entries[0].write_bytes(whole[1])  # another kernel's
    entries[1].write_bytes(whole[1][:-100])
    entries[2].write_bytes(flipped)
    entries[3].write_bytes(b"")
    again = warm(clean_python, cache)
    assert again == {"compiled": 4, "disk_hits": len(entries) - 4, "loaded": len(entries)}
    assert warm(clean_python, cache)["compiled"] == 0


@pytest.mark.gpu
def test_a_cache_that_cannot_be_used_is_one_warning(clean_python, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    code = WARMUP.replace("sys.stderr", "sys.stdout")
    environment = {"GRAPHFEED_PREBUILT": "0", "GRAPHFEED_CACHE_DIR": str(in_the_way / "cache")}
    shown = clean_python(code, **environment).strip().split("\n")
    assert len(shown) == 2
    assert shown[0].startswith("graphfeed WARNING the kernel cache directory ")
    assert str(in_the_way / "cache") in shown[0]
    stats = json.loads(shown[1])
    assert stats["compiled"] == stats["loaded"] > 0


@pytest.mark.gpu
def test_a_read_only_cache_is_read_and_never_written(clean_python, tmp_path):
    shipped = tmp_path / "shipped"
    count = warm(clean_python, shipped)["compiled"]
    before = contents(shipped)
    path = os.pathsep.join([str(tmp_path / "absent"), str(shipped)])
    stats = warm(clean_python, "", GRAPHFEED_CACHE_PATH=path)
    assert stats == {"compiled": 0, "disk_hits": count, "loaded": count}
    assert contents(shipped) == before


@pytest.mark.gpu
def test_a_failed_compile_is_remembered_until_it_is_reset(clean_python, tmp_path):
    code = """
import graphfeed
errors = []
for _ in range(2):
    try:
        graphfeed.warmup()
    except RuntimeError as error:
        errors.append(str(error))
graphfeed.set_kernel_options(cache_directory="", prebuilt=False)
try:
    graphfeed.warmup()
except RuntimeError as error:
    errors.append(str(error))
assert len(errors) == 3 and len(set(errors)) == 1, errors
assert errors[0].startswith("nvrtc: "), errors
graphfeed.reset_failures()
graphfeed.warmup()
print(graphfeed.kernel_stats().compiled > 0)
"""
    absent = str(tmp_path / "libnvrtc.so.13")
    options = f"nvrtc_path={absent!r}, prebuilt=False"
    code = f"import graphfeed; graphfeed.set_kernel_options({options})\n{code}"
    assert clean_python(code).strip() == "True"
