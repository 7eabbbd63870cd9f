# SPDX-License-Identifier: Apache-2.0
"""Requests and sizes for a short replay, and placements that flip an element."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
from graphfeed.replay import PLACEMENTS, EngineConfig, Request

SMALL = EngineConfig(max_batch=12, context=1000, top_k=256, seed=5)
ON_CPU = [PLACEMENTS[name] for name in ("copies", "copy", "plan", "generate", "generate-plan")]


def make_requests(count, *, seed=1, longest=1500, outputs=60):
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.integers(0, 50 * count, size=count)).tolist()
    lengths = rng.integers(1, longest, size=count).tolist()
    tokens = rng.integers(1, outputs, size=count).tolist()
    return [Request(*row) for row in zip(arrivals, lengths, tokens)]


def corrupted(placement, *, nth, name, place):
    """The placement, but that its refresh number `nth` of destination `name`, from 0, goes wrong.

    Args:
        place: Picks tensor and index of the element to flip, given the destination.
    """
    calls = Counter()

    def prepare(graph, first):
        destination = next((each for each in graph.destinations if each.name == name), None)
        if destination is None:
            return placement.prepare(graph, first)
        tensor, index = place(destination)
        if not placement.needs_nodes:
            prepared, flip = placement.prepare(graph, first), lambda: flip_in(tensor, index)
        else:
            prepared, flip = _prepare_flipped(placement, graph, first, element=tensor[index])

        def refresh(batch):
            prepared.refresh(batch)
            if calls["refresh"] == nth:
                flip()
            calls["refresh"] += 1

        return prepared._replace(refresh=refresh)

    return dataclasses.replace(placement, prepare=prepare)


def flip_in(tensor, index):
    tensor[index] ^= 1


def _prepare_flipped(placement, graph, first, *, element):
    """What is captured flips the element behind the work, once the function returned was called."""
    import torch

    mask = torch.zeros((), dtype=torch.int32, device=element.device)
    element.bitwise_xor_(mask)  # loads its kernel before it is captured
    capture = graph.capture

    def capture_flipped(refresh):
        def both():
            refresh()
            element.bitwise_xor_(mask)

        return capture(both)

    graph.capture = capture_flipped
    prepared = placement.prepare(graph, first)
    del graph.capture
    return prepared, lambda: mask.fill_(1)
