# SPDX-License-Identifier: Apache-2.0
"""The examples run where they can, and say what they need where they cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
EACH_EXAMPLE = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def run(path, cwd, **environment):
    base = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # Without torch's caching allocator nothing can be allocated inside a capture.
    base.pop("PYTORCH_NO_CUDA_MEMORY_CACHING", None)
    return subprocess.run(
        [sys.executable, str(path)],
        env={**base, **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_there_are_examples():
    assert {path.stem for path in EXAMPLES} == {"forked", "in_graph", "programmatic"}


@EACH_EXAMPLE
def test_an_example_without_a_gpu_says_so(torch, tmp_path, path):
    done = run(path, tmp_path, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{path.name}: needs an NVIDIA GPU")
    assert done.stderr.count("\n") == 1


@pytest.mark.gpu
@EACH_EXAMPLE
def test_gpu_an_example_is_right(torch, tmp_path, path):
    if path.stem == "programmatic" and torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs compute capability 9.0")
    done = run(path, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{path.name}: ")
    assert done.stdout.endswith(" all right\n")
