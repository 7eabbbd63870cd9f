# SPDX-License-Identifier: Apache-2.0
"""Plays a request trace through an engine stand-in and refreshes graph buffers at each step.

Comes in: a trace (arrival, input tokens, output tokens). Goes out: a summary, after every element
of every destination was checked against an independent reference at every step.
Data goes trace -> engine -> source -> placement -> captured graph -> reference.
"""

import importlib.util

if importlib.util.find_spec("numpy") is None:
    raise ImportError("graphfeed.replay needs NumPy: pip install 'graphfeed[cli]'")

from graphfeed.replay.engine import Engine, EngineConfig
from graphfeed.replay.placement import COPYING, GENERATION, KINDS, PLACEMENTS, Kind, Placement
from graphfeed.replay.reference import Mismatch
from graphfeed.replay.run import Step, run
from graphfeed.replay.summary import PlacementTimes, Summary
from graphfeed.replay.trace import Request, TraceError, read_trace

__all__ = [
    "COPYING",
    "GENERATION",
    "KINDS",
    "PLACEMENTS",
    "Engine",
    "EngineConfig",
    "Kind",
    "Mismatch",
    "Placement",
    "PlacementTimes",
    "Request",
    "Step",
    "Summary",
    "TraceError",
    "read_trace",
    "run",
]
