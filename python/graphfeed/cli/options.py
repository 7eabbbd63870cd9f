# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have. typer reads annotations at run time."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Device = Annotated[
    str, typer.Option(metavar="auto|cpu|cuda", help="Where; auto: on a GPU where there is one.")
]
