# SPDX-License-Identifier: Apache-2.0
"""``python -m graphfeed``: the command line."""

from graphfeed.cli import main

if __name__ == "__main__":
    main()
