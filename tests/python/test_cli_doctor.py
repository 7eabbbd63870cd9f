# SPDX-License-Identifier: Apache-2.0
"""``graphfeed doctor`` on machines of many kinds: what it says, what mends it, when it exits 1."""

from __future__ import annotations

import graphfeed
import pytest
from command import Command
from graphfeed.system import CudaDevice, CudaDriver, RuntimeCompiler

pytest.importorskip("typer")
from graphfeed.cli import findings

H200 = CudaDevice("NVIDIA H200", (9, 0), "sm_90a", "")
NOVEL = CudaDevice("NVIDIA Novel", (11, 0), "sm_110", "this build holds no kernels for sm_110")
NVRTC = RuntimeCompiler(13000, "/lib/libnvrtc.so.13", "the loader", ["sm_90a", "sm_110"], "")
OLD_NVRTC = NVRTC._replace(version=12040, architectures=["sm_90a"])
NO_NVRTC = RuntimeCompiler(0, "", "", [], "cannot be loaded")
NO_DRIVER = CudaDriver(0, 12040, "cannot load libcuda.so.1: install NVIDIA's driver", [])
OLD_DRIVER = CudaDriver(11080, 12040, "it supports CUDA 11.8: CUDA 12.4 is needed", [])
NO_GPU = CudaDriver(13000, 12040, "cuInit failed with CUDA_ERROR_NO_DEVICE (100)", [])


def working(*devices):
    return CudaDriver(13000, 12040, "", list(devices))


@pytest.fixture
def command(capsys):
    return Command(capsys)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Replaces what this machine has."""
    for name in ("CUDA_VISIBLE_DEVICES", "GRAPHFEED_NVRTC", "GRAPHFEED_CACHE_PATH"):
        monkeypatch.delenv(name, raising=False)
    graphfeed.set_kernel_options(cache_directory=tmp_path / "cache")

    def replace(driver, compiler=NVRTC, nodes=()):
        monkeypatch.setattr(findings, "cuda_driver", lambda: driver)
        monkeypatch.setattr(findings, "runtime_compiler", lambda: compiler)
        monkeypatch.setattr(findings, "device_nodes", lambda: list(nodes))

    yield replace
    graphfeed.set_kernel_options()


def found(result, part):
    return next(each for each in result.json["findings"] if each["part"] == part)


@pytest.mark.parametrize(
    ("driver", "compiler", "nodes", "works"),
    [
        (working(H200), NO_NVRTC, ["/dev/nvidia0"], True),
        (working(H200, NOVEL), NVRTC, ["/dev/nvidia0"], True),
        (working(NOVEL), NO_NVRTC, ["/dev/nvidia0"], False),
        (working(H200, NOVEL), OLD_NVRTC, ["/dev/nvidia0"], False),
        (NO_DRIVER, NO_NVRTC, [], True),
        (NO_GPU, NO_NVRTC, [], True),
        (NO_DRIVER, NVRTC, ["/dev/nvidia0"], False),
        (OLD_DRIVER, NVRTC, ["/dev/nvidia0"], False),
    ],
    ids=[
        "embedded kernels serve it",
        "NVRTC serves one",
        "no kernels",
        "NVRTC is too old for one",
        "no driver, no GPU",
        "no GPU",
        "a GPU without a driver",
        "a GPU with an old driver",
    ],
)
def test_doctor_exits_1_where_a_gpu_cannot_be_used(
    command, machine, driver, compiler, nodes, works
):
    machine(driver, compiler, nodes)
    shown, facts = command("doctor"), command("doctor", "--json")
    assert shown.status == facts.status == (0 if works else 1)
    assert facts.json["works"] is works
    assert facts.json["gpus"] == len(driver.devices)
    assert any(each["status"] == "FAULT" for each in facts.json["findings"]) is not works
    last = shown.out.splitlines()[-1]
    if not works:
        assert "cannot work on this machine's GPU" in last
    else:
        assert last.endswith("CPU tensors" if driver.devices else "there is no GPU")


@pytest.mark.parametrize(
    ("driver", "compiler", "part", "remedy"),
    [
        (working(NOVEL), NO_NVRTC, "cuda:0", "pip install 'graphfeed[jit]'"),
        (working(NOVEL), OLD_NVRTC, "cuda:0", "pip install -U nvidia-cuda-nvrtc"),
        (working(H200), NO_NVRTC, "nvrtc", "pip install 'graphfeed[jit]'"),
        (NO_DRIVER, NVRTC, "driver", "docker run --gpus all"),
        (OLD_DRIVER, NVRTC, "driver", "install a newer driver"),
        (NO_GPU, NVRTC, "driver", "nvidia-smi"),
    ],
)
def test_doctor_names_what_mends_each_lack(command, machine, driver, compiler, part, remedy):
    machine(driver, compiler, nodes=["/dev/nvidia0"])
    assert found(command("doctor", "--json"), part)["remedy"].startswith(remedy)
    assert f"$ {remedy}" in command("doctor").out


def test_doctor_says_which_nvrtc_and_how_it_was_found(command, machine):
    machine(working(H200))
    text = found(command("doctor", "--json"), "nvrtc")["text"]
    assert text == "13.0, found by the loader: /lib/libnvrtc.so.13"


def test_doctor_blames_a_variable_that_names_no_nvrtc(command, machine, monkeypatch):
    monkeypatch.setenv("GRAPHFEED_NVRTC", "/absent.so")
    machine(working(H200), NO_NVRTC)
    finding = found(command("doctor", "--json"), "nvrtc")
    assert "GRAPHFEED_NVRTC=/absent.so cannot be loaded" in finding["text"]
    assert finding["remedy"] == "unset GRAPHFEED_NVRTC"


def test_doctor_does_not_blame_a_gpu_that_its_user_hides(command, machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    machine(NO_GPU, nodes=["/dev/nvidia0"])
    result = command("doctor", "--json")
    assert result.status == 0
    assert "CUDA_VISIBLE_DEVICES= hides this machine's GPUs" in found(result, "driver")["text"]


def test_doctor_describes_the_cache_and_what_is_wrong_with_it(command, machine, tmp_path):
    machine(working(H200))
    directory = tmp_path / "cache"
    finding = found(command("doctor", "--json"), "cache")
    assert (finding["status"], finding["facts"]["exists"]) == ("ok", False)
    assert "does not exist yet" in finding["text"]
    directory.mkdir(mode=0o700)
    facts = found(command("doctor", "--json"), "cache")["facts"]
    assert (facts["exists"], facts["writable"], facts["entries"], facts["bytes"]) == (
        True,
        True,
        0,
        0,
    )
    assert facts["owner"]
    directory.chmod(0o777)
    finding = found(command("doctor", "--json"), "cache")
    assert finding["status"] == "note"
    assert "not used: other users may write to it" in finding["text"]
    assert finding["remedy"] == f"chmod -R go-w {directory}"
    graphfeed.set_kernel_options(cache_directory="")
    assert "in memory only" in found(command("doctor", "--json"), "cache")["text"]


def test_doctor_says_what_this_machine_really_has(command):
    result = command("doctor", "--json")
    parts = [each["part"] for each in result.json["findings"]]
    assert [part for part in parts if not part.startswith(("cuda:", "shipped"))] == [
        "driver",
        "kernels",
        "nvrtc",
        "cache",
        "tvm-ffi",
        "torch",
    ]
    assert result.json["version"] == graphfeed.__version__
    embedded = found(result, "kernels")["facts"]
    assert embedded["architectures"] == graphfeed.prebuilt_kernels().architectures
