# SPDX-License-Identifier: Apache-2.0
"""The README is true: its Python runs, its errors are the library's, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import graphfeed.sglang
import numpy as np
import pytest
from graphfeed import Metadata

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/design.md")

# Each block goes on where those before it ended. One named gpu needs a GPU, and none follows it.
NAMED_BLOCK = re.compile(r"<!-- block: (\w+)( gpu)? -->\n```python\n(.*?)```\n", re.DOTALL)
BLOCKS = NAMED_BLOCK.findall(README)


def zeros(*shape):
    return np.zeros(shape, np.int32)


def wide():
    return Metadata(zeros(2), zeros(3), zeros(2, 163842))


def copied_to(*destinations, source=None):
    source = wide() if source is None else source
    graphfeed.copy(source, destinations, mode=graphfeed.ForwardMode.DECODE, bs=2)


def copied_over_itself():
    source = wide()
    copied_to(wide()._replace(page_table_1=source.page_table_1[:, ::-1]), source=source)


def dropped_in_with_int64():
    fields = [*wide(), *wide()]
    fields[9] = fields[9].astype(np.int64)
    graphfeed.sglang.fused_metadata_copy_cuda(*fields, 0, 2, 163842, 163842, 2)


# In the order of the README.
FAULTS = {
    "int64": lambda: copied_to(wide(), wide()._replace(page_table_1=np.zeros((2, 163842), int))),
    "narrow table": lambda: copied_to(wide()._replace(page_table_1=zeros(2, 163840))),
    "missing field": lambda: copied_to(wide()._replace(cu_seqlens_k=None)),
    "overlap": copied_over_itself,
    "int64 to the drop-in": dropped_in_with_int64,
}
SHOWN_ERRORS = re.search(r"```text\n(TypeError.*?)\n```", README, re.DOTALL).group(1).split("\n")


def test_every_python_block_is_named():
    assert README.count("```python") == len(BLOCKS) > 0
    assert len({name for name, _, _ in BLOCKS}) == len(BLOCKS)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(i, id=name, marks=[pytest.mark.gpu] if gpu else [])
        for i, (name, gpu, _) in enumerate(BLOCKS)
    ],
)
def test_python_block_runs(clean_python, number):
    code = "\n".join(code for _, _, code in BLOCKS[: number + 1])
    # Without torch's caching allocator nothing can be allocated inside a capture.
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": None}
    assert clean_python(code, check_stderr=False, **environment) == ""


def test_every_error_shown_has_its_fault():
    assert len(SHOWN_ERRORS) == len(FAULTS)


@pytest.mark.parametrize(("fault", "shown"), list(zip(FAULTS, SHOWN_ERRORS)))
def test_error_reads_as_shown(fault, shown):
    with pytest.raises((TypeError, ValueError, RuntimeError)) as raised:
        FAULTS[fault]()
    assert f"{raised.type.__name__}: {raised.value}" == shown


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, _, heading in re.findall(r"\]\(((?!https?:)[^)#]*)(#([^)]*))?\)", text):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page}: {target}"
        assert not heading or heading in headings(path), f"{page}: {target}#{heading}"


def headings(path):
    """The anchors that a forge gives the headings of a Markdown file."""
    lines = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-") for line in lines}
