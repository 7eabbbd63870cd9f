# SPDX-License-Identifier: Apache-2.0
"""Rows for a reader: each case once, with every peer that it was measured beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphfeed.bench.records import LABELS, THEIRS_OVER_OURS
from graphfeed.bench.report import LIMITS, Limit, Row


@dataclass(frozen=True)
class Peer:
    """What a case was measured beside, in the case's unit."""

    name: str
    value: float


@dataclass(frozen=True)
class Comparison:
    """A case and its peers.

    Attributes:
        label: What was measured.
        quantity: What of it: ``host time a call``.
        case: Sizes.
        unit: us, ms, GB/s.
        ours: graphfeed's.
        peers: The same of others, in the same run.
        limit: What it is held to.
        is_met: Whether it meets that.
    """

    label: str
    quantity: str
    case: str
    unit: str
    ours: float
    peers: tuple[Peer, ...] = ()
    limit: Limit | None = None
    is_met: bool = True

    def ratio_to(self, peer: Peer) -> float | None:
        """graphfeed's figure over the peer's; None where that is 0."""
        return self.ours / peer.value if peer.value else None

    @property
    def limit_text(self) -> str:
        """The limit and whether it is met; empty without one."""
        if self.limit is None:
            return ""
        inverted = " (theirs / ours)" if self.limit.budget in THEIRS_OVER_OURS else ""
        return f"{self.limit}{inverted}, {'met' if self.is_met else 'missed'}"


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """The rows that are held to a limit, in the order of LABELS; all where none is.

    A row that is not held, and tells the same figure of the same case, adds its peer.
    """
    held = [row for row in rows if row.budget]
    order = [*LABELS, *dict.fromkeys(row.budget for row in held if row.budget not in LABELS)]
    held.sort(key=lambda row: order.index(row.budget))
    made: list[Comparison] = []
    for row in held or rows:
        one = _comparison(row)
        same = next((i for i, each in enumerate(made) if _is_same(each, one)), None)
        if same is None:
            made.append(one)
        else:
            made[same] = replace(made[same], peers=_joined(made[same].peers, one.peers))
    if not held:
        return made
    others = [row for row in rows if not row.budget and row.peer is not None]
    return [_with_others(each, others) for each in made]


def panels_of(compared: Sequence[Comparison]) -> list[list[Comparison]]:
    """The comparisons of one thing and one unit, together."""
    panels: dict[tuple[str, str, str], list[Comparison]] = {}
    for each in compared:
        panels.setdefault((each.label, each.quantity, each.unit), []).append(each)
    return list(panels.values())


def number(value: float) -> str:
    """A figure with as many places as its size deserves."""
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def _comparison(row: Row) -> Comparison:
    if row.budget:
        label, _, quantity = LABELS.get(row.budget, row.budget).partition(": ")
        case = row.case
    else:
        label, _, case = row.case.rpartition(": ")
        quantity = ""
    limit = next((each for each in LIMITS if each.budget == row.budget), None)
    peers = () if row.peer is None or row.peer_value is None else (Peer(row.peer, row.peer_value),)
    return Comparison(
        label=label or case,
        quantity=quantity or _QUANTITIES.get(row.unit, "measured"),
        case=case,
        unit=row.unit,
        ours=row.value,
        peers=peers,
        limit=limit,
        is_met=limit is None or limit.is_met(row),
    )


_QUANTITIES = {"us": "time", "ms": "time", "GB/s": "bandwidth"}


def _is_same(one: Comparison, other: Comparison) -> bool:
    members = ("label", "case", "unit", "ours")
    is_one_measurement = all(getattr(one, name) == getattr(other, name) for name in members)
    names = {peer.name for peer in other.peers}
    return is_one_measurement and names.isdisjoint(peer.name for peer in one.peers)


def _with_others(comparison: Comparison, others: Sequence[Row]) -> Comparison:
    found = tuple(
        Peer(row.peer, row.peer_value)
        for row in others
        if (row.value, row.unit) == (comparison.ours, comparison.unit)
        and row.case.endswith(comparison.case)
    )
    return replace(comparison, peers=_joined(comparison.peers, found))


def _joined(known: tuple[Peer, ...], more: tuple[Peer, ...]) -> tuple[Peer, ...]:
    names = {peer.name for peer in known}
    return known + tuple(peer for peer in more if peer.name not in names)
