# SPDX-License-Identifier: Apache-2.0
"""``graphfeed warmup``: compiles every kernel ahead, into a directory to ship."""

from pathlib import Path
from typing import Annotated

import typer

import graphfeed
from graphfeed.cache import fill_cache
from graphfeed.cli.errors import reported
from graphfeed.cli.options import Json
from graphfeed.cli.terminal import print_json, progress


def warmup(
    architectures: Annotated[
        list[str],
        typer.Option("--arch", metavar="ARCH", help="Such as sm_90a; again for more."),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Made where it does not exist.", file_okay=False),
    ],
    as_json: Json = False,
) -> None:
    """Compile every kernel for an architecture into a directory, without a GPU.

    Processes with the same NVRTC read it where GRAPHFEED_CACHE_PATH names it, and compile nothing.
    Devices that embedded kernels serve (doctor names them) need neither.
    """
    made = []
    for architecture in dict.fromkeys(architectures):
        with (
            reported(ValueError, RuntimeError),
            progress(f"compiling for {architecture}", unit="kernel") as on_kernel,
        ):
            filled = fill_cache(architecture, out, on_kernel=on_kernel)
        made.append({"architecture": architecture, **filled._asdict()})
    if as_json:
        embedded = graphfeed.prebuilt_kernels().architectures
        print_json({"directory": str(out.resolve()), "architectures": made, "embedded": embedded})
        return
    for each in made:
        done = f"{each['compiled']} compiled, {each['present']} there already"
        print(f"{each['architecture']}: {done}")
    print(f"use it with: export GRAPHFEED_CACHE_PATH={out.resolve()}")
