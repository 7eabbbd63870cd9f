# SPDX-License-Identifier: Apache-2.0
"""The independent reference of a generation: docs/design.md's table, a request and a row at a time.

Takes and writes NumPy arrays by field name. It knows nothing of the package: no checks, no closed
forms, no order of work.
"""

from __future__ import annotations

DECODE, TARGET_VERIFY, DRAFT_EXTEND = 0, 1, 2
LONGEST = 2**31 - 1


def clamp(value, low, high):
    return max(low, min(int(value), high))


def eager_generate(
    batch,
    destinations,
    *,
    mode,
    bs,
    raw_bs=None,
    num_draft_tokens=1,
    seqlens_expanded_size=None,
    max_seqlen_k=None,
    index_topk=2048,
    page_size=64,
    index_kpool=1,
    seq_len_fill=1,
):
    """Fills each dict in `destinations` from the dict `batch`, which has BatchState's members."""
    variable = mode == DRAFT_EXTEND and batch.get("extend_seq_lens") is not None
    n = 1 if mode == DECODE else num_draft_tokens
    if mode == DRAFT_EXTEND and not variable and batch.get("num_draft_tokens") is not None:
        n = clamp(batch["num_draft_tokens"][0], 0, n)
    if batch.get("raw_bs") is not None:
        raw_bs = clamp(batch["raw_bs"][0], 0, bs)
    raw_bs = bs if raw_bs is None else raw_bs
    rows = bs * (1 if mode == DECODE else num_draft_tokens)
    if mode == DRAFT_EXTEND and seqlens_expanded_size is not None:
        rows = seqlens_expanded_size
    longest = LONGEST if mode == DECODE or variable else LONGEST - n

    requests = []  # (cache length, row of the pool, [expanded length of each row])
    for i in range(bs):
        live = i < raw_bs
        s = clamp(batch["seq_lens"][i] if live else seq_len_fill, 0, longest)
        r = 0
        if live and batch.get("req_pool_indices") is not None:
            r = int(batch["req_pool_indices"][i])
            r = r if 0 <= r < batch["req_to_token"].shape[0] else 0
        q = n
        if variable:
            q = clamp(batch["extend_seq_lens"][i], 0, LONGEST) if live else 0
        if mode == DECODE:
            lengths = [s]
        elif mode == TARGET_VERIFY:
            lengths = [s + t + 1 for t in range(q)]
        else:  # no more than are written: q may be anything
            lengths = [max(s - q + t + 1, 0) for t in range(min(q, rows))]
        requests.append((s + n if mode == TARGET_VERIFY else s, r, lengths))

    for target in destinations:
        _fill(target, batch, requests, rows, n, index_topk, page_size, index_kpool, max_seqlen_k)


def _fill(target, batch, requests, rows, n, topk, page, kpool, width):
    def put(field, i, value):
        if field in target:
            target[field][i] = (value + 2**31) % 2**32 - 2**31

    put("cu_seqlens_k", 0, 0)
    put("dsa_cu_seqlens_k", 0, 0)
    tokens = 0
    expanded = []
    for i, (length, r, lengths) in enumerate(requests):
        tokens += length
        put("cache_seqlens", i, length)
        put("cu_seqlens_k", i + 1, tokens)
        for t, own in enumerate(lengths):
            if len(expanded) == rows:
                break
            row = len(expanded)
            expanded.append(own)
            for field, per_column in (
                ("page_table_1", 1),
                ("real_page_table", page),
                ("pooled_page_table", page * kpool),
            ):
                if field in target:
                    pool = batch["req_to_token"][r][
                        : min(length, LONGEST if width is None else width)
                    ]
                    values = pool[::per_column] // per_column
                    columns = min(len(values), target[field].shape[1])
                    target[field][row, :columns] = values[:columns]
            ctx = target.get("paged_mqa_ctx_lens_2d")
            if ctx is not None and ctx.shape[1] != 1:
                ctx[i, t] = length
    expanded += [0] * (rows - len(expanded))
    selected = 0
    for row, length in enumerate(expanded):
        dsa = min(length // kpool * kpool, topk) + length % kpool
        selected += dsa
        put("seqlens_expanded", row, length)
        put("pooled_cache_seqlens", row, length // kpool)
        put("dsa_cache_seqlens", row, dsa)
        put("dsa_cu_seqlens_k", row + 1, selected)
        ctx = target.get("paged_mqa_ctx_lens_2d")
        if ctx is not None and ctx.shape[1] == 1:
            ctx[row, 0] = length
