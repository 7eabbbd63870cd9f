# SPDX-License-Identifier: Apache-2.0
"""What SGLang's plugin loader calls, once in each process of a server: pyproject.toml names it."""

from __future__ import annotations

import os

from graphfeed.sglang._install import install


def install_if_asked() -> None:
    """Calls ``install()`` where the environment variable ``GRAPHFEED_SGLANG`` is 1.

    Raises:
        ValueError: It is set to something other than 0 or 1.
        RuntimeError: As ``install()``. SGLang logs the message and goes on with its own functions.
    """
    asked = os.environ.get("GRAPHFEED_SGLANG", "")
    if asked not in ("", "0", "1"):
        raise ValueError(f"GRAPHFEED_SGLANG: expected 0 or 1, got {asked!r}")
    if asked == "1":
        install()
