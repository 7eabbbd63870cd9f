# SPDX-License-Identifier: Apache-2.0
"""Copies that start while the kernel before still runs: programmatic dependent launch.

A chain: the target model's buffers are refreshed from the batch, the draft model's from those. The
second copy is set up while the first still writes, and waits for its end before it reads. A kernel
of one's own may follow a copy the same way, launched with the programmatic stream serialization
attribute, if it calls cudaGridDependencySynchronize() before it reads what the copy wrote.
"""

import sys

import torch
from graphfeed import ForwardMode, Metadata, Plan

BS, WIDTH, STEPS = 64, 8192, 20


def table(first):
    values = torch.arange(first, first + BS * WIDTH, dtype=torch.int32, device="cuda")
    return Metadata(page_table_1=values.view(BS, WIDTH))


def main():
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 9:
        sys.exit("programmatic.py: needs an NVIDIA GPU of compute capability 9.0, and torch")
    batch, target, draft = table(0), table(0), table(0)
    arguments = {"mode": ForwardMode.DECODE, "bs": BS}
    to_target = Plan(batch, [target], **arguments)
    to_draft = Plan(target, [draft], **arguments)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        to_target.run()
        to_draft.run(programmatic=True)

    for i in range(STEPS):
        batch.page_table_1.copy_(table(i).page_table_1)
        graph.replay()
        assert torch.equal(draft.page_table_1, table(i).page_table_1)
    print(f"programmatic.py: {STEPS} replays of two overlapping copies, all right")


if __name__ == "__main__":
    main()
