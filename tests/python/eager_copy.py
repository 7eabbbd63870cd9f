# SPDX-License-Identifier: Apache-2.0
"""The independent reference of a copy, which ``graphfeed verify`` brings along."""

from graphfeed.verify.eager_copy import DECODE, DRAFT_EXTEND, TARGET_VERIFY, eager_copy

__all__ = ["DECODE", "DRAFT_EXTEND", "TARGET_VERIFY", "eager_copy"]
