# SPDX-License-Identifier: Apache-2.0
"""Scheduler metadata as outputs of graphfeed.generate on the CPU: values, arguments, errors."""

from __future__ import annotations

import graphfeed
import numpy as np
import pytest
from buffers import SENTINEL, Device, Layout
from eager_generate import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from generate_case import SCHEDULES, GenerateCase
from graphfeed import BatchState, FlashMlaScheduler, GeneratedMetadata, PagedMqaScheduler, Plan
from schedules import UNDEFINED, flashmla_metadata, paged_mqa_schedule, sparse_tokens

MODES = (DECODE, TARGET_VERIFY, DRAFT_EXTEND)
PAGED_MQA = PagedMqaScheduler(revision="54e2261", arch=90, num_sms=132)
FLASHMLA = FlashMlaScheduler(revision="9241ae3", num_sm_parts=66, topk=2048)
LENGTHS = (700, 0, 90_000, 64, 5000)


class ScheduledCase(GenerateCase):
    """A case with both schedulers and their outputs in every destination."""

    def __init__(self, mode, *, paged_mqa=PAGED_MQA, flashmla=FLASHMLA, topk_length=None, **case):
        super().__init__(mode, **case)
        self.paged_mqa, self.flashmla, self.topk_length = paged_mqa, flashmla, topk_length
        shapes = ((paged_mqa.num_sms + 1, 2), (flashmla.num_sm_parts, 8), (self.rows + 1,))
        self.outputs = [[self.output(shape) for shape in shapes] for _ in self.destinations]

    def output(self, shape):
        memory = self.place.full(int(np.prod(shape)), SENTINEL)
        return self.place.view(memory, shape, (shape[-1], 1)[2 - len(shape) :], 0)

    def call(self):
        (batch, destinations), named = super().call()
        batch = batch._replace(topk_length=self.topk_length)
        outputs = [dict(zip(SCHEDULES, each)) for each in self.outputs]
        destinations = [d._replace(**more) for d, more in zip(destinations, outputs)]
        return (batch, destinations), {
            **named,
            "paged_mqa": self.paged_mqa,
            "flashmla": self.flashmla,
        }

    def assert_equals_eager(self):
        super().assert_equals_eager()
        lengths = self.expected[0].tensors
        whole = self.paged_mqa.next_n > 1
        name = self.paged_mqa.revision
        by_page = name == "477618c"
        if name == "54e2261":
            name += f"-sm{self.paged_mqa.arch}"
        schedule = paged_mqa_schedule(
            f"deepgemm-{name}",
            lengths["cache_seqlens" if whole else "seqlens_expanded"],
            next_n=self.paged_mqa.next_n,
            split_kv=4 * self.paged_mqa.block_kv if by_page else 256,
            num_sms=self.paged_mqa.num_sms,
        )
        layout = f"flashmla-{self.flashmla.revision}"
        tokens = lengths["dsa_cache_seqlens"].tolist()
        if self.flashmla.topk:
            tokens = sparse_tokens(
                layout,
                rows=len(tokens),
                block_size=self.flashmla.block_size,
                topk=self.flashmla.topk,
                topk_length=self.topk_length,
                extra_topk=0,
                extra_topk_length=None,
            )
        metadata, num_splits = flashmla_metadata(
            layout,
            tokens,
            block_size=self.flashmla.block_size,
            overhead=self.flashmla.fixed_overhead,
            num_sm_parts=self.flashmla.num_sm_parts,
        )
        metadata = np.where(metadata == UNDEFINED, 0, metadata)
        for made in self.outputs:
            for got, expected in zip(made, (schedule, metadata, num_splits)):
                np.testing.assert_array_equal(self.place.download(got), expected)


def run(case, **changed):
    args, named = case.call()
    graphfeed.generate(*args, **{**named, **changed})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("topk", [0, 2048])
@pytest.mark.parametrize("revision", ["1408756", "9241ae3"])
def test_flashmla_metadata_matches_the_reference(mode, topk, revision):
    case = ScheduledCase(
        mode,
        flashmla=FlashMlaScheduler(revision, num_sm_parts=66, topk=topk),
        seq_lens=LENGTHS,
        arguments={"num_draft_tokens": 3},
        num_destinations=3,
        layouts=(Layout(),),
    )
    run(case)
    case.assert_equals_eager()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "scheduler",
    [
        PagedMqaScheduler("477618c", 78, block_kv=32),
        PagedMqaScheduler("7f2a703", 132),
        PagedMqaScheduler("54e2261", 132, arch=90),
        PagedMqaScheduler("54e2261", 148, arch=100),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_paged_mqa_schedule_matches_the_reference(mode, scheduler, whole):
    whole = whole and mode == TARGET_VERIFY
    case = ScheduledCase(
        mode,
        paged_mqa=scheduler._replace(next_n=3 if whole else 1),
        seq_lens=LENGTHS,
        arguments={"num_draft_tokens": 3},
        ctx_blocks=whole,
        layouts=(Layout(),),
    )
    run(case)
    case.assert_equals_eager()


def test_rows_of_their_own_number_match_the_reference():
    case = ScheduledCase(
        DRAFT_EXTEND,
        flashmla=FLASHMLA._replace(topk=0),
        seq_lens=LENGTHS,
        extend_seq_lens=(2, 0, 5, 1, 4),
        raw_bs=4,
        arguments={"seqlens_expanded_size": 11},
        layouts=(Layout(),),
    )
    run(case)
    case.assert_equals_eager()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rows_may_have_a_top_k_of_their_own(dtype):
    lengths = np.array([2048, 0, 700, 64, 1], dtype)
    case = ScheduledCase(DECODE, topk_length=lengths, seq_lens=LENGTHS, layouts=(Layout(),))
    run(case)
    case.assert_equals_eager()


def test_a_plan_makes_schedules_anew():
    case = ScheduledCase(
        DECODE, flashmla=FLASHMLA._replace(topk=0), seq_lens=LENGTHS, layouts=(Layout(),)
    )
    args, named = case.call()
    plan = Plan.generating(*args, **named)
    for length in (0, 70_000):
        case.change(seq_lens=length)
        plan.run()
        case.assert_equals_eager()


def test_torch_tensors_are_read_in_place(torch):
    case = ScheduledCase(TARGET_VERIFY, seq_lens=LENGTHS, layouts=(Layout(),))
    (batch, destinations), named = case.call()

    def of_torch(arrays):
        return type(arrays)(*(None if a is None else torch.from_numpy(a) for a in arrays))

    graphfeed.generate(of_torch(batch), [of_torch(d) for d in destinations], **named)
    case.assert_equals_eager()


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        (
            {"paged_mqa": PAGED_MQA._replace(revision="main")},
            ValueError,
            "generate: paged_mqa: revision: must be one of 477618c, 7f2a703, 54e2261, got 'main'",
        ),
        (
            {"flashmla": FLASHMLA._replace(revision=None)},
            ValueError,
            "generate: flashmla: revision: must be one of 1408756, 9241ae3, got None",
        ),
        (
            {"paged_mqa": FLASHMLA},
            TypeError,
            "generate: paged_mqa: expected PagedMqaScheduler, got FlashMlaScheduler",
        ),
        (
            {"paged_mqa": PAGED_MQA._replace(num_sms="132")},
            TypeError,
            "generate: paged_mqa: num_sms: expected an integer, got str",
        ),
        (
            {"paged_mqa": PAGED_MQA._replace(arch=0)},
            ValueError,
            "generate: paged_mqa: arch: must be named for 54e2261: 90 or 100",
        ),
        (
            {"paged_mqa": PAGED_MQA._replace(num_sms=0)},
            ValueError,
            "generate: paged_mqa: num_sms: must be from 1 to 65536, got 0",
        ),
        (
            {"flashmla": FLASHMLA._replace(num_sm_parts=67)},
            ValueError,
            "generate: destination 0: flashmla_metadata: needs 67 x 8 elements, has 66 x 8",
        ),
        (
            {"flashmla": None},
            ValueError,
            "generate: destination 0: flashmla_metadata: needs the scheduler flashmla, which is "
            "missing",
        ),
    ],
)
def test_errors_name_the_scheduler(changed, kind, message):
    case = ScheduledCase(DECODE, seq_lens=LENGTHS)
    with pytest.raises(kind) as raised:
        run(case, **changed)
    assert str(raised.value) == message
    assert all((each == SENTINEL).all() for each in case.outputs[0])


def test_a_scheduler_without_output_is_refused():
    batch = BatchState(np.array(LENGTHS, np.int32))
    with pytest.raises(ValueError, match="paged_mqa: is given, and no destination has its output"):
        graphfeed.generate(
            batch,
            [GeneratedMetadata(cache_seqlens=np.zeros(5, np.int32))],
            mode=DECODE,
            bs=5,
            paged_mqa=PAGED_MQA,
        )


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("topk", [0, 2048])
def test_replays_on_a_gpu_make_schedules_anew(torch, warm_kernels, mode, topk):
    case = ScheduledCase(
        mode,
        flashmla=FLASHMLA._replace(topk=topk),
        seq_lens=LENGTHS,
        arguments={"num_draft_tokens": 3},
        num_destinations=3,
        layouts=(Layout(),),
        place=Device(torch),
    )
    args, named = case.call()
    plan = Plan.generating(*args, **named)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.run()
    for lengths in ((0, 0, 0, 0, 0), (5, 70_000, 1, 0, 900)):
        for run in (plan.run, graph.replay):
            case.change(seq_lens=[each + (run == plan.run) for each in lengths])
            run()
            torch.cuda.synchronize()
            case.assert_equals_eager()
