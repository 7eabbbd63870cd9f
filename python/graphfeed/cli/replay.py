# SPDX-License-Identifier: Apache-2.0
"""``graphfeed replay``: plays a request trace, refreshes and checks metadata at every step."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from graphfeed.cli.errors import (
    CommandError,
    expect_at_least,
    expect_device,
    reported,
    require,
)
from graphfeed.cli.figure import expect_plot, save_figure
from graphfeed.cli.options import Device, Json
from graphfeed.cli.terminal import print_json, progress

if TYPE_CHECKING:
    from graphfeed.replay import EngineConfig, Kind, Placement, Step, Summary

_PLACEMENTS = "copies, copy, plan, graph, generate, generate-plan, generate-graph"


def _number(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text)


def replay(
    trace: Annotated[
        Optional[Path],
        typer.Argument(
            help="CSV, or JSON lines in .jsonl, with arrival_ms, input_tokens and output_tokens. "
            "Default: an excerpt of a production trace.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, _number("N", "Most steps to play.")] = 2000,
    device: Device = "auto",
    placement: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="NAME[,NAME]",
            help=f"What refreshes, in turns: {_PLACEMENTS}; or all of a kind that the device can "
            "do: copying, generation. Default: both; those with graph need a GPU.",
            show_default=False,
        ),
    ] = None,
    destinations: Annotated[
        int, _number("N", "Draft backends, each with buffers that a decode refreshes.")
    ] = 3,
    max_batch: Annotated[int, _number("N", "Most requests at once.")] = 32,
    context: Annotated[
        int, _number("N", "Most tokens a request; longer inputs are truncated.")
    ] = 32768,
    draft_tokens: Annotated[int, _number("N", "Draft tokens verified a step.")] = 4,
    pages: Annotated[
        int,
        _number("N", "Pages of 64 tokens; 0: half of what max-batch requests of context need."),
    ] = 0,
    step_ms: Annotated[float, _number("MS", "Trace time that a step takes.")] = 50.0,
    seed: Annotated[int, _number("N", "Of all choices.")] = 0,
    plot: Annotated[
        Optional[Path],
        typer.Option(metavar="FILE", help="Draw batch, context and us a step; .png or .svg."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Play a request trace through a small engine and check every refreshed element.

    At each step the draft backends (decode) and target_verify are refreshed, by separate copies and
    by graphfeed's copy and generation in turns. A wrong element ends it, exit status 1.
    """
    require("numpy", extra="cli")
    from graphfeed.replay import EngineConfig, TraceError, read_trace
    from graphfeed.replay.trace import EXCERPT

    expect_at_least("--steps", steps, 1)
    expect_at_least("--seed", seed, 0)
    expect_device(device)
    expect_plot("--plot", plot)
    with reported(TraceError):
        requests = read_trace(trace or EXCERPT)
    try:
        config = EngineConfig(
            max_batch=max_batch,
            context=context,
            draft_tokens=draft_tokens,
            draft_backends=destinations,
            num_pages=pages,
            step_ms=step_ms,
            seed=seed,
        )
    except ValueError as error:
        raise CommandError(_of_an_option(str(error))) from error
    chosen = _chosen(placement or [])
    summary, played = _play(requests, config, steps, device, chosen, as_json)
    if plot is not None:
        from graphfeed.cli.replay_plot import draw_replay

        name = (trace or EXCERPT).name
        save_figure(draw_replay(played, title=f"{name}, {summary.device}"), plot)
    if as_json:
        print_json(dataclasses.asdict(summary))
    else:
        from graphfeed.replay.summary import describe

        print(describe(summary))
    return 0


def _play(
    requests: list,
    config: "EngineConfig",
    steps: int,
    device: str,
    placements: "list[Placement | Kind] | None",
    as_json: bool,
) -> "tuple[Summary, list[Step]]":
    from graphfeed.replay import Mismatch, run

    played: list[Step] = []
    try:
        with reported(RuntimeError, MemoryError), progress("replay", unit="step") as show:

            def on_step(step: "Step") -> None:
                played.append(step)
                show(step.number, steps)

            summary = run(
                requests,
                config=config,
                steps=steps,
                device=device,
                placements=placements,
                on_step=on_step,
            )
    except Mismatch as mismatch:
        if as_json:
            print_json({"mismatches": mismatch.num_elements, "mismatch": vars(mismatch)})
        raise CommandError(f"mismatch: {mismatch}", status=1) from mismatch
    return summary, played


def _of_an_option(message: str) -> str:
    """What the engine says of one of its sizes, of the option that gave it."""
    name, _, rest = message.partition(": ")
    option = {"num_pages": "pages", "draft_backends": "destinations"}.get(name, name)
    return f"--{option.replace('_', '-')}: {rest}"


def _chosen(names: list[str]) -> "list[Placement | Kind] | None":
    from graphfeed.replay import KINDS, PLACEMENTS

    known = {**PLACEMENTS, **KINDS}
    asked = [each for some in names for each in some.split(",")]
    for name in asked:
        if name not in known:
            raise CommandError(f"--placement: expected some of {', '.join(known)}, got {name!r}")
    return [known[name] for name in dict.fromkeys(asked)] or None
