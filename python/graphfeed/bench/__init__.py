# SPDX-License-Identifier: Apache-2.0
"""Measurements of graphfeed beside its peers: cases, clocks, limits, records, reports.

``graphfeed bench`` runs them; ``benchmarks/run`` of the source tree also keeps records and runs the
C++ programs. What runs on a GPU needs torch.
"""
