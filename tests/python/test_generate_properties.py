# SPDX-License-Identifier: Apache-2.0
"""Random batches, generated as the reference does it."""

from __future__ import annotations

import graphfeed
import numpy as np
from buffers import Layout
from eager_generate import DRAFT_EXTEND
from generate_case import FIELDS, GenerateCase
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LONGEST = 2**31 - 1
LENGTH = st.integers(0, 70) | st.sampled_from([-(2**31), -1, 127, 128, 129, LONGEST - 3, LONGEST])

layouts = st.builds(
    Layout,
    lead=st.integers(0, 5),
    gap=st.integers(0, 3),
    step=st.integers(1, 3),
    longer=st.integers(0, 2),
)


@st.composite
def cases(draw):
    mode = draw(st.integers(0, 2))
    seq_lens = tuple(draw(st.lists(LENGTH, max_size=6)))
    bs, n = len(seq_lens), draw(st.integers(1, 4))
    arguments = {
        "num_draft_tokens": n,
        "index_topk": draw(st.integers(1, 80)),
        "page_size": 2 ** draw(st.integers(0, 6)),
        "index_kpool": 2 ** draw(st.integers(0, 3)),
        "seq_len_fill": draw(st.integers(0, 5)),
    }
    extend = device_n = None
    if mode == DRAFT_EXTEND:
        arguments["seqlens_expanded_size"] = draw(st.integers(0, 14))
        how = draw(st.integers(0, 2))
        if how == 1:
            sizes = st.integers(-2, 5) | st.sampled_from([40, LONGEST])
            extend = tuple(draw(st.lists(sizes, min_size=bs, max_size=bs)))
        elif how == 2:
            device_n = draw(st.integers(-1, 6))
    case = GenerateCase(
        mode,
        seq_lens=seq_lens,
        extend_seq_lens=extend,
        arguments=arguments,
        raw_bs=draw(st.none() | st.integers(-1, 7)),
        num_draft_tokens=device_n,
        pool=draw(st.integers(1, 3)),
        width=draw(st.integers(0, 140)),
        fields=tuple(draw(st.lists(st.sampled_from(FIELDS), min_size=1, unique=True))),
        ctx_blocks=mode == 1 and draw(st.booleans()),
        num_destinations=draw(st.integers(1, 5)),
        layouts=tuple(draw(st.lists(layouts, min_size=1, max_size=3))),
        dtype=draw(st.sampled_from([np.int32, np.int64])),
        seed=draw(st.integers(0, 9)),
    )
    pool_index = st.integers(-1, 4) | st.just(LONGEST)
    case.change(req_pool_indices=draw(st.lists(pool_index, min_size=bs, max_size=bs)))
    return case


@settings(
    max_examples=400,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(cases())
def test_generation_equals_the_reference(case):
    (batch, destinations), named = case.call()
    graphfeed.generate(batch, destinations, **named)
    case.assert_equals_eager()
    assert all((case.batch[name] == values).all() for name, values in case.host.items())
