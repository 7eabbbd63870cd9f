# SPDX-License-Identifier: Apache-2.0
"""How the consumers of a decode step share its work out: what makes their scheduler metadata."""

from __future__ import annotations

from typing import NamedTuple

# In the order of the native enumerators, whose first is none of them.
PAGED_MQA_REVISIONS = ("477618c", "7f2a703", "54e2261")
FLASHMLA_REVISIONS = ("1408756", "9241ae3")


class PagedMqaScheduler(NamedTuple):
    """DeepGEMM's ``get_paged_mqa_logits_metadata(context_lens, block_kv, num_sms)``.

    Made of ``paged_mqa_ctx_lens_2d``, whether or not that is generated. docs/schedules.md has the
    formulas.
    """

    revision: str
    """The DeepGEMM commit whose meaning is used: "477618c", "7f2a703" or "54e2261"."""
    num_sms: int
    """SMs that the consumer is launched with."""
    arch: int = 0
    """90 or 100: the GPU whose rule is used. From 54e2261 on it must be named."""
    next_n: int = 1
    """Query tokens a row of ``paged_mqa_ctx_lens_2d``.

    1 where that is [R, 1]; in target_verify num_draft_tokens, where it is [bs, num_draft_tokens].
    """
    block_kv: int = 64
    """Tokens a block; it matters in 477618c alone."""


class FlashMlaScheduler(NamedTuple):
    """FlashMLA's decode scheduler metadata for R rows. docs/schedules.md has the formulas."""

    revision: str
    """The FlashMLA commit whose layout is used: "1408756" or "9241ae3"."""
    num_sm_parts: int
    topk: int
    """Tokens each row attends to, or 0: dense attention to ``dsa_cache_seqlens``.

    With top-k nothing depends on lengths, but for ``BatchState.topk_length`` (9241ae3).
    """
    block_size: int = 64
    """Tokens a block."""
    fixed_overhead: int = 5
    """Blocks that a row costs beyond its own."""


def flat_schedulers(
    function: str, paged_mqa: PagedMqaScheduler | None, flashmla: FlashMlaScheduler | None
) -> tuple[int | None, ...]:
    """Returns the numbers of both, in the order of the native call; None for one that is absent.

    Raises:
        TypeError: One of them is of another type.
        ValueError: A revision is not known.
    """
    if paged_mqa is None and flashmla is None:
        return (None,) * 10
    return (
        *_numbers(function, "paged_mqa", paged_mqa, PagedMqaScheduler, PAGED_MQA_REVISIONS),
        *_numbers(function, "flashmla", flashmla, FlashMlaScheduler, FLASHMLA_REVISIONS),
    )


def _numbers(
    function: str,
    name: str,
    scheduler: PagedMqaScheduler | FlashMlaScheduler | None,
    expected: type,
    revisions: tuple[str, ...],
) -> tuple[int | None, ...]:
    if scheduler is None:
        return (None,) * 5
    if not isinstance(scheduler, expected):
        got = type(scheduler).__name__
        raise TypeError(f"{function}: {name}: expected {expected.__name__}, got {got}")
    if scheduler.revision not in revisions:
        raise ValueError(
            f"{function}: {name}: revision: must be one of {', '.join(revisions)}, "
            f"got {scheduler.revision!r}"
        )
    return (1 + revisions.index(scheduler.revision), *scheduler[1:])
