# SPDX-License-Identifier: Apache-2.0
"""The command ``graphfeed``. typer and rich are imported when it runs."""

from __future__ import annotations

import importlib.util
import signal
import sys


def main() -> None:
    """Runs the command line of this process and exits with its status."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # where nobody reads on, end as `| head` expects
    missing = [name for name in ("typer", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"graphfeed: the command line needs {' and '.join(missing)}: "
            "pip install 'graphfeed[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    try:
        from graphfeed.cli.app import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
