# SPDX-License-Identifier: Apache-2.0
"""Plan.check: which buffers are no longer those that were bound, by name."""

from __future__ import annotations

import numpy as np
import pytest
from graphfeed import ForwardMode, Metadata, Plan

BS = 4


@pytest.fixture(params=["numpy", "torch"])
def empty(request):
    """Makes an int32 array of zeros, NumPy's or torch's."""
    if request.param == "numpy":
        return lambda *shape: np.zeros(shape, np.int32)
    torch = pytest.importorskip("torch")
    return lambda *shape: torch.zeros(shape, dtype=torch.int32)


@pytest.fixture
def bound(empty):
    """A plan of three destinations, and those."""
    destinations = [
        Metadata(cache_seqlens=empty(BS), page_table_1=empty(BS, 128)[:, :64]) for _ in range(3)
    ]
    source = Metadata(cache_seqlens=empty(BS), page_table_1=empty(BS, 64))
    return Plan(source, destinations, mode=ForwardMode.DECODE, bs=BS), destinations


def changed(destinations, k, **fields):
    return [each._replace(**fields) if i == k else each for i, each in enumerate(destinations)]


def test_the_buffers_that_were_bound_pass(bound):
    plan, destinations = bound
    plan.check(destinations)
    views = [Metadata(*(None if f is None else f[:] for f in each)) for each in destinations]
    plan.check(views)
    plan.run()
    plan.check(tuple(destinations))


def test_what_changed_is_named(bound, empty):
    plan, destinations = bound
    table = destinations[1].page_table_1
    for fields, message in [
        ({"cache_seqlens": empty(BS)}, "cache_seqlens: has moved since it was bound"),
        (
            {"cache_seqlens": destinations[1].cache_seqlens[:3]},
            "cache_seqlens: was resized from 4 to 3 since it was bound",
        ),
        (
            {"page_table_1": table[:, :62]},
            "page_table_1: was resized from 4 x 64 to 4 x 62 since it was bound",
        ),
        (
            {"page_table_1": empty(BS, 64)},
            "page_table_1: has strides 64 x 1 in place of 128 x 1 since it was bound",
        ),
        ({"page_table_1": empty(BS)}, "page_table_1: has another rank since it was bound"),
        ({"page_table_1": None}, "page_table_1: is missing since it was bound"),
        ({"real_page_table": empty(BS, 1)}, "real_page_table: is new since it was bound"),
        (
            {"cache_seqlens": np.zeros(BS, np.int64)}
            if isinstance(table, np.ndarray)
            else {"cache_seqlens": destinations[1].cache_seqlens.long()},
            "cache_seqlens: has another type or device since it was bound",
        ),
    ]:
        with pytest.raises(ValueError, match=f"^plan: destination 1: {message}$"):
            plan.check(changed(destinations, 1, **fields))


def test_another_number_of_destinations_is_refused(bound):
    plan, destinations = bound
    message = "^plan: destinations: expected 3, as many as are bound, got 2$"
    with pytest.raises(ValueError, match=message):
        plan.check(destinations[:2])


def test_what_is_not_metadata_is_a_type_error(bound):
    plan, destinations = bound
    with pytest.raises(TypeError) as raised:
        plan.check(destinations[0])
    assert str(raised.value).startswith("plan: destinations: expected a sequence of Metadata")
    with pytest.raises(TypeError) as raised:
        plan.check([*destinations[:2], ("fields",)])
    assert str(raised.value) == "plan: destination 2: expected Metadata, got tuple"
