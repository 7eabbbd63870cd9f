# SPDX-License-Identifier: Apache-2.0
"""The independent reference of a generation, which ``graphfeed verify`` brings along."""

from graphfeed.verify.eager_generate import DECODE, DRAFT_EXTEND, TARGET_VERIFY, eager_generate

__all__ = ["DECODE", "DRAFT_EXTEND", "TARGET_VERIFY", "eager_generate"]
