# SPDX-License-Identifier: Apache-2.0
"""The errors that the README shows are the library's. Its code is test_pages.py's."""

from __future__ import annotations

import re
from pathlib import Path

import graphfeed.sglang
import numpy as np
import pytest
from graphfeed import Metadata

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


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


def test_every_error_shown_has_its_fault():
    assert len(SHOWN_ERRORS) == len(FAULTS)


@pytest.mark.parametrize(("fault", "shown"), list(zip(FAULTS, SHOWN_ERRORS)))
def test_error_reads_as_shown(fault, shown):
    with pytest.raises((TypeError, ValueError, RuntimeError)) as raised:
        FAULTS[fault]()
    assert f"{raised.type.__name__}: {raised.value}" == shown
