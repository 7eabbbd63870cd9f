# SPDX-License-Identifier: Apache-2.0
"""The refresh as a node of the model's own graph: a step is a replay, and no launch besides.

The node reads the batch's tensors where they lie; before a replay it is pointed at the next ones.
"""

import sys

import torch
from graphfeed import ForwardMode, Metadata, Plan

BS, WIDTH, TOKENS, STEPS = 4, 128, 4096, 20


def next_batch():
    """What a scheduler hands over: new tensors at every step."""
    return Metadata(
        cache_seqlens=torch.randint(1, WIDTH + 1, (BS,), dtype=torch.int32, device="cuda"),
        page_table_1=torch.randint(TOKENS, (BS, WIDTH), dtype=torch.int32, device="cuda"),
    )


def model(metadata, keys, columns):
    """Stands in for attention: sums the keys of every request's tokens."""
    live = columns < metadata.cache_seqlens[:, None]
    return (keys[metadata.page_table_1] * live).sum(dim=1)


def main():
    if not torch.cuda.is_available():
        sys.exit("in_graph.py: needs an NVIDIA GPU, and torch with CUDA")
    torch.manual_seed(1)
    keys = torch.randint(1_000_000, (TOKENS,), device="cuda")
    columns = torch.arange(WIDTH, device="cuda")
    static, batch = next_batch(), next_batch()  # static: the buffers that the graph reads

    plan = Plan(batch, [static], mode=ForwardMode.DECODE, bs=BS)
    model(static, keys, columns)  # loads torch's kernels before they are captured
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        plan.run()
        result = model(static, keys, columns)
    node = plan.node(graph)

    for _ in range(STEPS):
        batch = next_batch()
        node.repoint(batch)
        graph.replay()
        assert torch.equal(result, model(batch, keys, columns))
    print(f"in_graph.py: {STEPS} steps, each a replay alone, all right")


if __name__ == "__main__":
    main()
