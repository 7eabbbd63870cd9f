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
from graphfeed.replay.placement import KINDS, PLACEMENTS, Kind, Placement
from graphfeed.replay.progress import progress
from graphfeed.replay.reference import Mismatch
from graphfeed.replay.run import DEFAULT_STEPS, run
from graphfeed.replay.summary import describe
from graphfeed.replay.trace import EXCERPT, TraceError, read_trace


def build_parser() -> argparse.ArgumentParser:
    """The command line's options."""
    sizes = EngineConfig()
    parser = argparse.ArgumentParser(
        prog="python -m graphfeed.replay",
        description="Plays a request trace through a small continuous-batching engine stand-in, "
        "refreshes 3 draft backends and target_verify at each step, by separate copies and by "
        "graphfeed's copy and generation in turns, and checks every element of every destination "
        "against an independent reference.",
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
        "--placement",
        type=_placements,
        action="append",
        metavar="NAME[,NAME]",
        default=argparse.SUPPRESS,
        help=f"what refreshes, in turns: {', '.join(PLACEMENTS)}, or all of a kind that the device "
        f"can do: {', '.join(KINDS)} (default: both; those with graph need a GPU)",
    )
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
        asked = [each for some in getattr(options, "placement", ()) for each in some]
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
                placements=list(dict.fromkeys(asked)) or None,
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


def _placements(names: str) -> list[Placement | Kind]:
    known: dict[str, Placement | Kind] = {**PLACEMENTS, **KINDS}
    chosen = []
    for name in names.split(","):
        if name not in known:
            expected = ", ".join(known)
            raise argparse.ArgumentTypeError(f"expected some of {expected}, got {name!r}")
        chosen.append(known[name])
    return chosen


if __name__ == "__main__":
    sys.exit(main())
