# SPDX-License-Identifier: Apache-2.0
"""Checks this machine's results: random batches, copied and generated, compared element by element.

A batch and all of its tensors follow from one number, its seed. On a GPU the results are compared
with the CPU path's, without one the CPU path's with an eager reference that shares no code with it.
"""
