# SPDX-License-Identifier: Apache-2.0
"""A plan for a case's tensors, other sources for it, and the comparison with an eager copy."""

from __future__ import annotations

import pytest
from buffers import ODD, SLICED, STRIDED, Case
from eager_copy import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from graphfeed import Plan

EACH_MODE = pytest.mark.parametrize("mode", [DECODE, TARGET_VERIFY, DRAFT_EXTEND])
LAYOUTS = (SLICED, ODD, STRIDED)


def plan_of(case, **changed):
    return Plan(*case.metadata(), **{**case.sizes.arguments(), **changed})


def other_source(case, layout=STRIDED, start=7_000):
    """Another source for the case's destinations."""
    other = Case(case.sizes, case.fields, 0, layout, place=case.place)
    other.refill(start)
    return other.source


def check(case, source=None, **changed):
    """Compares with an eager copy from `source`, by default the case's own."""
    own, case.source = case.source, source or case.source
    case.assert_equals_eager(**changed)
    case.source = own
