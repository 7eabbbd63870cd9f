# SPDX-License-Identifier: Apache-2.0
"""Metadata: its fields are those of the native schema, in its order."""

from __future__ import annotations

from buffers import FIELDS
from graphfeed import Metadata, _library


def test_fields_are_those_of_the_native_schema():
    native = [str(name) for name in _library.function("field_names")()]
    assert list(Metadata._fields) == native
    assert native == list(FIELDS)


def test_every_field_is_absent_by_default():
    assert Metadata() == (None,) * len(FIELDS)
