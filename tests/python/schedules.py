# SPDX-License-Identifier: Apache-2.0
"""Scheduler metadata of DeepGEMM and FlashMLA, eagerly, and the golden vectors to hold it against.

What is computed is what the published kernels do (docs/schedules.md), a request or a part at a
time. The golden vectors' format is in tests/data/schedules/README.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

DATA = Path(__file__).parents[1] / "data" / "schedules"

# DeepGEMM: query atoms of a request with next_n tokens; whether its units go split by split;
# whether the last SMs take the remainder.
PAGED_MQA = {
    "deepgemm-477618c": (lambda next_n: 1, False, False),
    "deepgemm-7f2a703": (lambda next_n: next_n if next_n % 2 else next_n // 2, False, False),
    "deepgemm-54e2261-sm90": (lambda next_n: -(-next_n // 2), False, True),
    "deepgemm-54e2261-sm100": (lambda next_n: next_n, True, False),
}
FLASHMLA = ("flashmla-1408756", "flashmla-9241ae3")
UNDEFINED = -1  # in place of a word that no consumer reads


def paged_mqa_schedule(revision, lengths, *, next_n, split_kv, num_sms):
    """[num_sms + 1, 2], for a context length a request."""
    atoms_of, split_major, last_take_remainder = PAGED_MQA[revision]
    atoms = atoms_of(next_n)
    splits = [-(-int(length) // split_kv) for length in lengths]
    share, remainder = divmod(sum(splits) * atoms, num_sms)
    schedule = []
    row = unit = 0
    for k in range(num_sms + 1):
        while row < len(splits) and unit >= splits[row] * atoms:
            unit -= splits[row] * atoms
            row += 1
        if row == len(splits):
            schedule.append((row * atoms, 0))
        elif split_major:
            schedule.append((row * atoms, unit // atoms))
        else:
            schedule.append((row * atoms + unit // splits[row], unit % splits[row]))
        takes_more = k >= num_sms - remainder if last_take_remainder else k < remainder
        unit += share + takes_more
    return np.array(schedule, np.int32)


def sparse_tokens(revision, *, rows, block_size, topk, topk_length, extra_topk, extra_topk_length):
    """What each row of sparse attention attends to; lengths are None where rows have none."""
    if revision == "flashmla-1408756":
        return [topk] * rows
    tokens = []
    for row in range(rows):
        count = max(topk if topk_length is None else int(topk_length[row]), 1)
        if extra_topk:
            extra = extra_topk if extra_topk_length is None else int(extra_topk_length[row])
            count = -(-count // block_size) * block_size + extra
        tokens.append(count)
    return tokens


def flashmla_metadata(revision, tokens, *, block_size, overhead, num_sm_parts):
    """[num_sm_parts, 8] and num_splits [rows + 1], for what each row attends to."""
    blocks = [max(count - 1, 0) // block_size + 1 for count in tokens]
    payload = -(-sum(count + overhead for count in blocks) // num_sm_parts) + overhead
    metadata, num_splits = [], [0]
    row = block = split = 0
    for _ in range(num_sm_parts):
        begin_row, begin_block, begin_split = row, block, split
        left = payload
        while row < len(tokens):
            need = blocks[row] - block + overhead
            if left < need:
                if left > overhead:
                    block += left - overhead
                    split += 1
                break
            left -= need
            num_splits.append(num_splits[-1] + split + 1)
            row, block, split = row + 1, 0, 0
        end_row = row if block else row - 1
        row_end = blocks[end_row] if tokens[end_row] else 0
        end_block = block if block else row_end
        first_split, last_split = begin_block != 0, end_block != row_end
        if begin_row == end_row:
            first_split = last_split = first_split or last_split
        if begin_row == len(tokens):
            begin_block = UNDEFINED
        if revision == "flashmla-1408756":
            part = (begin_row, begin_block, end_row, end_block, begin_split) + (UNDEFINED,) * 3
        else:
            part = (begin_row, end_row, begin_block, end_block, begin_split)
            part += (first_split, last_split, UNDEFINED)
        metadata.append(part)
    return np.array(metadata, np.int32), np.array(num_splits, np.int32)


class Golden(NamedTuple):
    """One case: its columns by name, and the outputs it has in full, UNDEFINED where they are."""

    columns: dict
    outputs: dict


def read_golden(revision):
    def word(text):
        return UNDEFINED if text[0] in ".?" else int(text)

    names, cases = [], []
    for line in (DATA / f"{revision}.txt").read_text().splitlines():
        kind, *words = line.split()
        if kind == "columns":
            names = words
        elif kind == "case":
            assert len(words) == len(names), line
            columns = {n: int(w, 16 if "hash" in n else 10) for n, w in zip(names, words)}
            cases.append(Golden(columns, {}))
        elif kind != "#":
            cases[-1].outputs[kind] = np.array([word(text) for text in words], np.int32)
    return cases


EDGES = (0, 1, 63, 64, 65, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049, 4096, 65536, 131072)
EDGES += (1048576,)


def draw_lengths(rows, kind, limit, seed):
    """A batch's lengths: splitmix64, two draws a row."""
    draws = np.arange(1, 2 * rows + 1, dtype=np.uint64)
    z = np.uint64(seed) + draws * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    a, b = z[::2], z[1::2]
    below = a % np.uint64(limit + 1)
    if kind == 0:
        lengths = np.zeros(rows)
    elif kind == 1:
        lengths = np.full(rows, limit)
    elif kind == 2:
        lengths = below
    elif kind == 3:
        lengths = np.minimum(np.array(EDGES)[a % np.uint64(len(EDGES))], limit)
    elif kind == 4:
        lengths = np.where(b % np.uint64(4) == 0, below, np.uint64(0))
    elif kind == 5:
        lengths = below >> (b % np.uint64(20))
    else:
        lengths = a % np.uint64(min(limit + 1, 300))
        lengths[seed % rows] = limit
    return lengths.astype(np.int32)


def hash_of(*arrays):
    value = 0xCBF29CE484222325
    for array in arrays:
        for word in np.asarray(array, np.int32).ravel().view(np.uint32).tolist():
            value = ((value ^ word) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
