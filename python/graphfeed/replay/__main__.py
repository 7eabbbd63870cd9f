# SPDX-License-Identifier: Apache-2.0
"""``python -m graphfeed.replay [TRACE]``: plays a trace and says what was refreshed and checked.

Exit status: 0 if every element was right, 1 at the first mismatch, 2 if the trace, an option or
the device cannot be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from graphfeed.replay.arrays import DeviceError
from graphfeed.replay.engine import EngineConfig
from graphfeed.replay.progress import progress
from graphfeed.replay.reference import Mismatch
from graphfeed.replay.run import DEFAULT_STEPS, Spread, Summary, run
from graphfeed.replay.trace import EXCERPT, TraceError, read_trace


def build_parser() -> argparse.ArgumentParser:
    """The command line's options."""
    sizes = EngineConfig()
    parser = argparse.ArgumentParser(
        prog="python -m graphfeed.replay",
        description="Plays a request trace through a small continuous-batching engine stand-in, "
        "refreshes 3 draft backends and target_verify through graphfeed at each step, and checks "
        "every element of every destination against an independent reference.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "trace",
        nargs="?",
        metavar="TRACE",
        default=str(EXCERPT),
        help="CSV or .jsonl with arrival_ms, input_tokens, output_tokens",
    )
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="most steps to play")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where")
    parser.add_argument(
        "--max-batch", type=int, default=sizes.max_batch, help="most requests at once"
    )
    parser.add_argument(
        "--context",
        type=int,
        default=sizes.context,
        help="most tokens a request; longer inputs are truncated",
    )
    parser.add_argument(
        "--draft-tokens", type=int, default=sizes.draft_tokens, help="draft tokens verified a step"
    )
    parser.add_argument(
        "--pages",
        type=int,
        default=sizes.num_pages,
        help="pages of 64 tokens in the pool; 0: half of max-batch requests of context tokens",
    )
    parser.add_argument(
        "--step-ms", type=float, default=sizes.step_ms, help="trace time a step takes"
    )
    parser.add_argument("--seed", type=int, default=sizes.seed, help="seed of all choices")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: Arguments after the program's name; the process's own if None.

    Returns:
        The exit status.
    """
    parser = build_parser()
    options = parser.parse_args(argv)
    try:
        if options.steps < 1:
            raise ValueError(f"--steps: expected 1 or more, got {options.steps}")
        if options.seed < 0:
            raise ValueError(f"--seed: expected 0 or more, got {options.seed}")
        config = EngineConfig(
            max_batch=options.max_batch,
            context=options.context,
            draft_tokens=options.draft_tokens,
            num_pages=options.pages,
            step_ms=options.step_ms,
            seed=options.seed,
        )
        requests = read_trace(options.trace)
    except (TraceError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    try:
        with progress(sys.stderr, total=options.steps) as on_step:
            summary = run(
                requests,
                config=config,
                steps=options.steps,
                device=options.device,
                on_step=on_step,
            )
    except (DeviceError, MemoryError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    except Mismatch as mismatch:
        if options.json:
            print(json.dumps({"mismatches": mismatch.num_elements, "mismatch": vars(mismatch)}))
        print(f"{parser.prog}: mismatch: {mismatch}", file=sys.stderr)
        return 1
    try:
        print(json.dumps(dataclasses.asdict(summary)) if options.json else describe(summary))
        sys.stdout.flush()
    except OSError as error:
        print(f"{parser.prog}: the summary: {error}", file=sys.stderr)
        return 2
    return 0


def describe(summary: Summary) -> str:
    """The summary in lines for a reader; the last one is ``mismatches 0``."""
    return "\n".join(
        (
            f"device       {summary.device}",
            f"steps        {summary.steps} ({summary.steps} decode to "
            f"{summary.decode_destinations} destinations, {summary.steps} target_verify n="
            f"{summary.draft_tokens} to {summary.verify_destinations})",
            f"requests     {summary.requests_finished} finished, {summary.requests_running} "
            f"running, {summary.requests} in the trace, {summary.inputs_truncated} truncated",
            f"pages        {summary.peak_pages} of {summary.pool_pages} in use at most",
            f"batch        {_percentiles(summary.batch)}",
            f"context      {_percentiles(summary.context)}",
            f"us a step    {_times(summary.step_us)} (host time of the calls, caches cold)",
            f"  decode     {_times(summary.decode_us)}",
            f"  verify     {_times(summary.verify_us)}",
            f"refreshed    {summary.bytes_refreshed / 1e9:.2f} GB",
            f"checked      {summary.bytes_checked / 1e9:.2f} GB, guards included, in "
            f"{summary.seconds:.1f} s",
            f"mismatches {summary.mismatches}",
        )
    )


def _percentiles(spread: Spread) -> str:
    return f"p50 {spread.p50}, p90 {spread.p90}, p99 {spread.p99}, max {spread.max}"


def _times(spread: Spread) -> str:
    return f"median {spread.p50:.1f}, p99 {spread.p99:.1f}"


if __name__ == "__main__":
    sys.exit(main())
