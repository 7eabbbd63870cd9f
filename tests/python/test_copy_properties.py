# SPDX-License-Identifier: Apache-2.0
"""Random tensors within one buffer: copied as the reference does, or refused and not written."""

from __future__ import annotations

import re

import graphfeed
import numpy as np
from buffers import FIELDS, Case, Layout, Sizes
from eager_copy import eager_copy
from graphfeed import Metadata
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SIZE = 160
NAMED = re.compile(
    r"copy: ((source|destination \d+): ("
    + "|".join(FIELDS)
    + r")|live_bound|bs|max_seqlen_k|seqlens_expanded_size|rows_per_request|page_size): \S"
)
repeatable = settings(
    max_examples=400,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@st.composite
def placements(draw, shape, slack):
    """Draws (shape, strides, offset) of a tensor that lies within SIZE elements."""
    size = [max(0, each + draw(st.integers(*slack))) for each in shape]
    strides = []
    for axis in range(len(size)):
        dense = int(np.prod(size[axis + 1 :], dtype=int)) or 1
        choices = [dense, dense, dense + 1, dense + 2, 2 * dense, -dense, 0, 1]
        strides.append(draw(st.sampled_from(choices)))
    steps = [(length - 1) * stride for length, stride in zip(size, strides) if length > 0]
    low = -sum(min(step, 0) for step in steps)
    high = SIZE - 1 - sum(max(step, 0) for step in steps)
    if high < low:  # longer than the buffer: dense, at its start
        strides = [int(np.prod(size[axis + 1 :], dtype=int)) for axis in range(len(size))]
        low = high = 0
    return tuple(size), tuple(strides), draw(st.integers(low, high))


def view(memory, placement):
    shape, strides, offset = placement
    return np.lib.stride_tricks.as_strided(memory[offset:], shape, [4 * each for each in strides])


@st.composite
def requests(draw):
    """Draws the sizes of a copy, its fields, and where each of their tensors lies."""
    mode = draw(st.integers(0, 2))
    sizes = Sizes(
        mode,
        bs=draw(st.integers(0, 3)),
        expanded=draw(st.integers(0, 5)),
        rows=draw(st.integers(0, 5)),
        width=draw(st.integers(0, 6)),
        pages=draw(st.integers(0, 2)),
        parts=draw(st.integers(0, 2)),
    )
    fields = draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3, unique=True))
    operands = []
    for operand in range(1 + draw(st.integers(1, 3))):
        slack = (0, 0) if operand == 0 else draw(st.sampled_from([(0, 2), (0, 2), (-1, 1)]))
        operands.append({name: draw(placements(sizes.shape(name), slack)) for name in fields})
    bound = draw(st.none() | placements((draw(st.integers(1, 5)),), (0, 0)))
    return sizes, operands, bound


@repeatable
@given(requests())
def test_copy_equals_the_reference_or_writes_nothing(request):
    sizes, operands, bound = request
    memory = np.arange(SIZE, dtype=np.int32)
    before = memory.copy()
    source, *destinations = ({n: view(memory, p) for n, p in each.items()} for each in operands)
    arguments = sizes.arguments()
    if bound is not None:
        arguments.update(live_bound=view(memory, bound), page_size=3)
    refusal = None
    try:
        graphfeed.copy(Metadata(**source), [Metadata(**each) for each in destinations], **arguments)
    except (ValueError, TypeError) as error:
        refusal = str(error)
    if refusal is not None:
        assert NAMED.match(refusal), refusal
        assert (memory == before).all()
        return
    expected = before.copy()
    if bound is not None:
        arguments["live_bound"] = view(before, bound)
    eager_copy(  # every read comes before every write: the order of work must not matter
        {name: view(before, placement) for name, placement in operands[0].items()},
        [{name: view(expected, p) for name, p in each.items()} for each in operands[1:]],
        **arguments,
    )
    assert memory.tolist() == expected.tolist()


layouts = st.builds(
    Layout,
    lead=st.integers(0, 5),
    gap=st.integers(0, 3),
    step=st.integers(1, 3),
    longer=st.integers(0, 2),
)


@repeatable
@given(
    sizes=st.builds(
        Sizes,
        mode=st.integers(0, 2),
        bs=st.integers(0, 4),
        expanded=st.integers(0, 6),
        rows=st.integers(0, 6),
        width=st.integers(0, 300),
        pages=st.integers(0, 5),
        parts=st.integers(0, 3),
    ),
    fields=st.lists(st.sampled_from(FIELDS), unique=True, max_size=len(FIELDS)),
    source_layout=layouts,
    destination_layouts=st.lists(layouts, min_size=1, max_size=16),
)
def test_disjoint_tensors_that_are_large_enough_are_never_refused(
    sizes, fields, source_layout, destination_layouts
):
    count = len(destination_layouts)
    case = Case(sizes, tuple(fields), count, source_layout, tuple(destination_layouts))
    graphfeed.copy(*case.metadata(), **sizes.arguments())
    case.assert_equals_eager()
