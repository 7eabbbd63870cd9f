# SPDX-License-Identifier: Apache-2.0
"""Measures graphfeed beside its peers and keeps the records; the entry is benchmarks/run."""
