# SPDX-License-Identifier: Apache-2.0
"""The independent reference: docs/design.md as one slice assignment a field and destination.

Takes NumPy arrays or torch tensors by field name. It knows nothing of the package: no checks, no
order of work, no table.
"""

from __future__ import annotations

DECODE, TARGET_VERIFY, DRAFT_EXTEND = 0, 1, 2


def eager_copy(
    source,
    destinations,
    *,
    mode,
    bs,
    max_seqlen_k=None,
    seqlens_expanded_size=None,
    live_bound=None,
    rows_per_request=None,
    page_size=64,
):
    """Copies the fields of the dict `source` into those of each dict in `destinations`."""
    rows, tokens = _table_shape(source, mode, bs, max_seqlen_k)
    expanded = bs if mode == DECODE else _expanded(source, seqlens_expanded_size)
    per_request = rows_per_request or (1 if mode == DECODE or bs == 0 else rows // bs)

    def live(row, tokens_per_column, columns):
        if live_bound is None:
            return columns
        length = max(int(live_bound[row // per_request]), 0)
        return min(-(-length // tokens_per_column), columns)

    for target in destinations:
        for field, values in source.items():
            if field == "cache_seqlens":
                target[field][:bs] = values[:bs]
            elif field == "cu_seqlens_k":
                target[field][1 : bs + 1] = values[1 : bs + 1]
            elif field == "page_table_1":
                for row in range(rows):
                    end = live(row, 1, tokens)
                    target[field][row, :end] = values[row, :end]
            elif field == "seqlens_expanded":
                if mode != DECODE:
                    target[field][:expanded] = values[:expanded]
            elif field == "dsa_cache_seqlens":
                target[field][:expanded] = values[:expanded]
            elif field == "dsa_cu_seqlens_k":
                target[field][1 : expanded + 1] = values[1 : expanded + 1]
            elif field == "real_page_table":
                for row in range(rows):
                    end = live(row, page_size, values.shape[1])
                    target[field][row, :end] = values[row, :end]
            elif field == "flashmla_num_splits":
                target[field][: expanded + 1] = values[: expanded + 1]
            elif field == "flashmla_metadata":
                _copy_flat(values.reshape(-1), target[field])
            else:
                raise AssertionError(f"no such field: {field}")


def _table_shape(source, mode, bs, max_seqlen_k):
    tables = [source[name] for name in ("page_table_1", "real_page_table") if name in source]
    if not tables:
        return 0, 0
    rows = bs if mode == DECODE else tables[0].shape[0]
    return rows, tables[0].shape[1] if max_seqlen_k is None else max_seqlen_k


def _expanded(source, given):
    if given is not None:
        return given
    for name in ("seqlens_expanded", "dsa_cache_seqlens"):
        if name in source:
            return source[name].shape[0]
    return 0


def _copy_flat(values, target):
    if target.ndim == 1:
        target[: values.shape[0]] = values
        return
    width = target.shape[1]
    for row, begin in enumerate(range(0, values.shape[0], width)):
        part = values[begin : begin + width]
        target[row, : part.shape[0]] = part
