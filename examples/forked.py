# SPDX-License-Identifier: Apache-2.0
"""The refresh beside the model's first layers, which do not read it: forked, then joined.

The same step() warms up, where the copy runs in order, and is captured, where it is a branch.
"""

import sys

import torch
from graphfeed import ForwardMode, Metadata, Plan

BS, HIDDEN, STEPS = 8, 1024, 20


def lengths_of(step):
    return torch.arange(BS, dtype=torch.int32, device="cuda") + step


def main():
    if not torch.cuda.is_available():
        sys.exit("forked.py: needs an NVIDIA GPU, and torch with CUDA")
    source = Metadata(cache_seqlens=lengths_of(0))
    static = Metadata(cache_seqlens=lengths_of(0))
    plan = Plan(source, [static], mode=ForwardMode.DECODE, bs=BS)
    hidden = torch.ones(BS, HIDDEN, device="cuda")

    def step():
        copy = plan.fork()
        projected = hidden + 1  # needs no metadata: runs beside the copy
        copy.join()
        return projected * static.cache_seqlens[:, None]  # does: waits for both

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    for i in range(STEPS):
        source.cache_seqlens.copy_(lengths_of(i))
        graph.replay()
        assert torch.equal(result, 2.0 * lengths_of(i)[:, None].expand(BS, HIDDEN))
    print(f"forked.py: {STEPS} replays with the copy beside the first layer, all right")


if __name__ == "__main__":
    main()
