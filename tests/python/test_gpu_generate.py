# SPDX-License-Identifier: Apache-2.0
"""graphfeed.generate and its drop-ins on a GPU: values, streams, captured graphs."""

from __future__ import annotations

import graphfeed
import numpy as np
import pytest
from buffers import Device
from eager_generate import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from generate_case import ODD_LAYOUTS, GenerateCase
from test_gpu_capture import KERNEL_NODE, captured, captured_nodes
from test_sglang_generate import FUNCTIONS, case_of, extended, named

pytestmark = pytest.mark.gpu

EACH_MODE = pytest.mark.parametrize("mode", [DECODE, TARGET_VERIFY, DRAFT_EXTEND])


@pytest.fixture(scope="module")
def place(torch, warm_kernels):
    return Device(torch)


def run(case, **changed):
    args, numbers = case.call()
    graphfeed.generate(*args, **numbers, **changed)


def check(torch, case):
    torch.cuda.synchronize()
    case.assert_equals_eager()


@EACH_MODE
@pytest.mark.parametrize("num_destinations", [1, 3, 16])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_generation_matches_the_reference(place, torch, mode, num_destinations, dtype):
    case = GenerateCase(
        mode,
        arguments={"num_draft_tokens": 4, "index_topk": 50, "page_size": 16, "index_kpool": 4},
        num_destinations=num_destinations,
        layouts=ODD_LAYOUTS,
        dtype=dtype,
        place=place,
    )
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        run(case)
    check(torch, case)


@EACH_MODE
def test_a_generation_is_one_kernel(place, torch, mode):
    case = GenerateCase(mode, num_destinations=3, layouts=ODD_LAYOUTS, place=place)
    report = torch.zeros(3, dtype=torch.int64, device="cuda")
    assert captured_nodes(torch, lambda: run(case, report=report)) == [KERNEL_NODE]


@EACH_MODE
def test_a_replay_reads_the_batch_anew(place, torch, mode):
    case = GenerateCase(
        mode,
        arguments={"num_draft_tokens": 3},
        raw_bs=5,
        num_destinations=3,
        layouts=ODD_LAYOUTS,
        dtype=np.int64,
        place=place,
    )
    with captured(torch) as graph:
        run(case)
    for raw_bs, lengths in ((5, (1, 64, 65, 0, 200)), (2, (7, 130, 3, 4, 5)), (0, (9,) * 5)):
        case.change(raw_bs=raw_bs, seq_lens=lengths)
        graph.replay()
        check(torch, case)


@EACH_MODE
def test_drop_ins_fill_what_the_reference_does(place, torch, mode):
    case = case_of(mode, place=place, dtype=np.int64, **extended(mode))
    arguments = {
        name: torch.from_numpy(value).cuda() if isinstance(value, np.ndarray) else value
        for name, value in named(case).items()
    }
    FUNCTIONS[mode](**arguments)
    check(torch, case)
    assert captured_nodes(torch, lambda: FUNCTIONS[mode](**arguments)) == [KERNEL_NODE]


def test_the_report_is_written_without_a_wait(place, torch):
    case = GenerateCase(DECODE, seq_lens=(5, 6, -7, -8), place=place)
    report = torch.zeros(3, dtype=torch.int64, device="cuda")
    run(case, report=report)
    assert report.tolist() == [1, 2, -7]


def test_an_output_that_is_an_input_is_refused(place, torch):
    lengths = torch.tensor([5, 9], dtype=torch.int32, device="cuda")
    batch = graphfeed.BatchState(lengths)
    with pytest.raises(ValueError, match="cache_seqlens: overlaps seq_lens, which is read"):
        graphfeed.generate(batch, [graphfeed.GeneratedMetadata(lengths)], mode=DECODE, bs=2)
