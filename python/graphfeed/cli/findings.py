# SPDX-License-Identifier: Apache-2.0
"""What ``doctor`` looks at: each part of a machine, what it means for graphfeed, what mends it."""

from __future__ import annotations

import importlib.metadata
import os
import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import graphfeed
from graphfeed.cache import cache_state
from graphfeed.cli.errors import one_line
from graphfeed.system import CudaDevice, CudaDriver, RuntimeCompiler, cuda_driver, runtime_compiler

_REINSTALL = "pip install --force-reinstall torch"
_ELSEWHERE = "export GRAPHFEED_CACHE_DIR=DIR  # one of your own"
OK, NOTE, FAULT = "ok", "note", "FAULT"
_DRIVER_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide"


@dataclass(frozen=True)
class Finding:
    """One part of the machine.

    Attributes:
        part: What was looked at.
        status: OK; NOTE: lacking, and not needed for GPU tensors here; FAULT: they cannot work.
        text: What was found.
        remedy: The command that mends it, where something is to be mended.
        facts: The same for programs.
    """

    part: str
    status: str
    text: str
    remedy: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def look() -> list[Finding]:
    """Looks at everything, in the order in which a first use would need it."""
    driver, compiler = cuda_driver(), runtime_compiler()
    prebuilt = graphfeed.prebuilt_kernels()
    needing = [device for device in driver.devices if device.no_prebuilt]
    return [
        _driver(driver),
        *(_device(i, device, compiler) for i, device in enumerate(driver.devices)),
        _prebuilt(prebuilt),
        _compiler(compiler, needing),
        _cache(),
        *_shipped(),
        _package("tvm-ffi", "apache-tvm-ffi"),
        _torch(driver),
    ]


def version_text(version: int) -> str:
    """A CUDA version as people write it: ``12.4`` for 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"


def device_nodes() -> list[str]:
    """The files by which a driver's kernel module shows GPUs, whether or not CUDA does."""
    return sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))


def _driver(driver: CudaDriver) -> Finding:
    needed = f"{version_text(driver.minimum_version)} or newer is needed"
    facts = {name: value for name, value in driver._asdict().items() if name != "devices"}
    if not driver.problem:
        return Finding(
            "driver", OK, f"for CUDA {version_text(driver.version)}; {needed}", facts=facts
        )
    nodes = device_nodes()
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not nodes:
        why = driver.problem if driver.version else "and no driver: CPU tensors need neither"
        return Finding("driver", NOTE, f"no NVIDIA GPU here, {why}", facts=facts)
    if hidden in ("", "-1"):
        text = f"CUDA_VISIBLE_DEVICES={hidden} hides this machine's GPUs: {driver.problem}"
        return Finding("driver", NOTE, text, "unset CUDA_VISIBLE_DEVICES", facts)
    remedy = "nvidia-smi  # it says what is wrong with the driver"
    if driver.version == 0:
        remedy = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...  # again"
    elif driver.version < driver.minimum_version:
        remedy = f"install a newer driver: {_DRIVER_GUIDE}"
    text = f"{nodes[0]} is here, and no driver that works: {driver.problem}"
    return Finding("driver", FAULT, text, remedy, facts)


def _device(ordinal: int, device: CudaDevice, compiler: RuntimeCompiler) -> Finding:
    part = f"cuda:{ordinal}"
    capability = ".".join(map(str, device.compute_capability))
    text = f"{device.name}, {capability}"
    if not device.no_prebuilt:
        return Finding(part, OK, f"{text}: by embedded kernels", facts=device._asdict())
    if device.architecture in compiler.architectures:
        text = f"{text}: by NVRTC, since {device.no_prebuilt}"
        return Finding(part, OK, text, facts=device._asdict())
    remedy = "pip install 'graphfeed[jit]'"
    why = "there is no NVRTC"
    if compiler.version:
        remedy = "pip install -U nvidia-cuda-nvrtc"
        why = f"NVRTC {version_text(compiler.version)} does not know {device.architecture}"
    text = f"{text}: no kernels: {device.no_prebuilt}, and {why}"
    return Finding(part, FAULT, text, remedy, device._asdict())


def _prebuilt(prebuilt: graphfeed.PrebuiltKernels) -> Finding:
    if not prebuilt.architectures:
        text = "none in this build: every kernel comes from a cache or from NVRTC"
        return Finding("kernels", NOTE, text, facts=prebuilt._asdict())
    text = (
        f"{', '.join(prebuilt.architectures)} embedded, by {prebuilt.compiler}, for drivers of "
        f"CUDA {version_text(prebuilt.minimum_driver)} or newer"
    )
    return Finding("kernels", OK, text, facts=prebuilt._asdict())


def _compiler(compiler: RuntimeCompiler, needing: list[CudaDevice]) -> Finding:
    if compiler.version:
        text = f"{version_text(compiler.version)}, found by {compiler.found_by}: {compiler.path}"
        return Finding("nvrtc", OK, text, facts=compiler._asdict())
    needed = f"{needing[0].name} needs it" if needing else "needed only without embedded kernels"
    status = FAULT if needing else NOTE
    text = f"none found; {needed}"
    if set_path := os.environ.get("GRAPHFEED_NVRTC"):
        text = f"GRAPHFEED_NVRTC={set_path} cannot be loaded; {needed}"
        return Finding("nvrtc", status, text, "unset GRAPHFEED_NVRTC", compiler._asdict())
    remedy = "pip install 'graphfeed[jit]'"
    return Finding("nvrtc", status, text, remedy, compiler._asdict())


def _cache() -> Finding:
    root = graphfeed.cache_directory()
    if not root:
        remedy = _ELSEWHERE
        text = "in memory only: compiled kernels are lost at exit"
        return Finding("cache", NOTE, text, remedy, {"directory": ""})
    return _directory("cache", root, read_only=False)


def _shipped() -> list[Finding]:
    directories = os.environ.get("GRAPHFEED_CACHE_PATH", "").split(os.pathsep)
    return [_directory("shipped", each, read_only=True) for each in directories if each]


def _directory(part: str, directory: str, *, read_only: bool) -> Finding:
    state = cache_state(directory, read_only=read_only)
    num_bytes = sum(entry.bytes for entry in state.entries)
    facts = {
        "directory": state.directory,
        "exists": state.exists,
        "problem": state.problem,
        "entries": len(state.entries),
        "bytes": num_bytes,
    }
    if not state.exists:
        existing = next(p for p in Path(state.directory).parents if p.exists())
        facts["writable"] = os.access(existing, os.W_OK | os.X_OK)
        text = f"{state.directory}: does not exist yet"
        if read_only or facts["writable"]:
            return Finding(part, OK if not read_only else NOTE, text, facts=facts)
        text = f"{state.directory}: cannot be made: {existing} is not writable"
        return Finding(part, NOTE, text, _ELSEWHERE, facts)
    facts["owner"] = owner = _owner(state.directory)
    facts["writable"] = writable = os.access(state.directory, os.W_OK | os.X_OK)
    if state.problem:
        remedy = _ELSEWHERE
        if "chmod" in state.problem:
            remedy = f"chmod -R go-w {state.directory}"
        return Finding(part, NOTE, f"{state.directory}: not used: {state.problem}", remedy, facts)
    count = f"{len(state.entries)} kernels, {num_bytes / 1e3:.0f} kB"
    text = f"{state.directory}: {count}, {'writable' if writable else 'read-only'}, of {owner}"
    if read_only or writable:
        return Finding(part, OK, text, facts=facts)
    return Finding(part, NOTE, text, _ELSEWHERE, facts)


def _owner(path: str) -> str:
    uid = os.stat(path).st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _package(part: str, distribution: str) -> Finding:
    version = importlib.metadata.version(distribution)
    return Finding(part, OK, version, facts={"version": version})


def _torch(driver: CudaDriver) -> Finding:
    try:
        import torch
    except ModuleNotFoundError:
        text = "not installed; CuPy and any array that speaks DLPack will do"
        return Finding("torch", NOTE, text, "pip install torch", {"version": None})
    except Exception as error:  # what a broken install raises is its own
        text = f"cannot be imported: {one_line(error)}"
        return Finding("torch", NOTE, text, _REINSTALL, {"version": None})
    facts = {"version": torch.__version__, "cuda": torch.version.cuda}
    if torch.version.cuda is None and driver.devices:
        text = f"{torch.__version__}, built without CUDA: it has no tensors on these GPUs"
        return Finding("torch", NOTE, text, _REINSTALL, facts)
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    return Finding("torch", OK, f"{torch.__version__}, {built}", facts=facts)
