# SPDX-License-Identifier: Apache-2.0
"""What the pages say is true: their Python runs, their links lead somewhere, their names exist.

A block is named in a comment above it. Blocks of a page go on where those before them ended. One
marked gpu needs a GPU, as do those behind it; one marked sglang finds a package of that name, with
the modules and signatures of the newest release and nothing in its functions.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from graphfeed.sglang import _releases
from sglang_tree import RELEASES, write_tree

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import readme_table  # noqa: E402

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")))
}
NAMED_BLOCK = re.compile(
    r"<!-- block: (\w+)((?: gpu| sglang)*) -->\n```python\n(.*?)```\n", re.DOTALL
)
BLOCKS = {page: NAMED_BLOCK.findall(text) for page, text in PAGES.items()}


def each_block():
    for page, blocks in BLOCKS.items():
        kinds = set()
        for i, (name, marks, _) in enumerate(blocks):
            kinds |= set(marks.split())
            marked = [pytest.mark.gpu] if "gpu" in kinds else []
            yield pytest.param(page, i, set(kinds), id=f"{page}-{name}", marks=marked)


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_is_named(page):
    assert PAGES[page].count("```python") == len(BLOCKS[page])
    assert len({name for name, _, _ in BLOCKS[page]}) == len(BLOCKS[page])


def test_pages_for_users_have_blocks():
    assert all(BLOCKS[page] for page in ("README.md", "docs/choosing.md", "docs/migration.md"))


@pytest.mark.parametrize(("page", "number", "kinds"), list(each_block()))
def test_python_block_runs(clean_python, tmp_path, page, number, kinds):
    code = "\n".join(code for _, _, code in BLOCKS[page][: number + 1])
    # Without torch's caching allocator nothing can be allocated inside a capture.
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": None}
    if "sglang" in kinds:
        newest = list(RELEASES)[-1]
        write_tree(tmp_path / "packages", newest, RELEASES[newest])
        path = [str(tmp_path / "packages"), *filter(None, sys.path)]
        environment["PYTHONPATH"] = os.pathsep.join(path)
    assert clean_python(code, check_stderr=False, **environment) == ""


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    for target, _, heading in re.findall(r"\]\(((?!https?:)[^)#]*)(#([^)]*))?\)", PAGES[page]):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page}: {target}"
        assert not heading or heading in headings(path), f"{page}: {target}#{heading}"


def headings(path):
    """The anchors that a forge gives the headings of a Markdown file."""
    lines = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-") for line in lines}


def test_choosing_names_rows_of_the_measured_table():
    prose = re.sub(r"```.*?```", "", PAGES["docs/choosing.md"], flags=re.DOTALL)
    text = re.sub(r"\s+", " ", prose)
    named = re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", text)
    assert len(named) > 5
    assert set(named) <= set(readme_table.LABELS.values())
    assert all(f"| {label} |" in PAGES["README.md"] for label in named)


def test_migration_names_every_module_that_is_switched():
    text = PAGES["docs/migration.md"]
    for module in (*_releases.COPIES, *_releases.GENERATIONS):
        package, _, name = module.rpartition(".")
        listed = f"`{package}.decode`" in text and (name == "decode" or f"`.{name}`" in text)
        assert f"`{module}`" in text or listed, module
