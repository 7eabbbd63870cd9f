# SPDX-License-Identifier: Apache-2.0
"""Loads the native module and hands out its functions; nothing else of the package does."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import tvm_ffi

_PATH = Path(__file__).parent / "lib" / "libgraphfeed_tvm_ffi.so"
if not _PATH.exists():
    raise ImportError(
        f"graphfeed: {_PATH} is not there: this is the source folder, not an installed package. "
        "Run pip install . in the project, and import from another folder"
    )
_MODULE = tvm_ffi.load_module(str(_PATH), keep_module_alive=True)


def function(name: str, *, keep_gil: bool = False) -> tvm_ffi.Function:
    """Returns the native function `name`.

    Args:
        name: The function, as exported.
        keep_gil: Hold the interpreter lock during calls. For calls of a few microseconds, which
            would otherwise wait for other threads to hand the lock back.
    """
    native = _MODULE.get_function(name)
    native.release_gil = not keep_gil
    return native


version = function("version")
set_kernel_options = function("set_kernel_options")

# Where NVRTC's wheel may be. The directories are only named here; the library looks into them when
# it first has to compile.
NVRTC_HINTS = os.pathsep.join(entry for entry in sys.path if entry.endswith("-packages"))

set_kernel_options(None, None, None, NVRTC_HINTS, None, None)
function("set_log_callback")(logging.getLogger("graphfeed").warning)
