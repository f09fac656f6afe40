"""Severity of NVIDIA's Xid and SXid events in a kernel log."""

from __future__ import annotations

import re
from typing import NamedTuple

# Faults of programs, and repairs that succeeded: noted, not acted on. 13, 31, 43, 45, 68, 109: of programs; 63: a row
# of memory was replaced; 92: many corrected errors. Source: NVIDIA, Xid catalog (docs.nvidia.com/deploy/xid-errors).
_NOTED = frozenset((13, 31, 43, 45, 63, 68, 92, 109))
# The GPU is not usable before a reset or a repair. Source: as above.
_FATAL = frozenset((48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 154, 155, 156, 157, 158))
# A link's note carries its own severity, and an SXid of the NVSwitch its own numbers.
_EVENT = re.compile(
    r"(?P<kind>SXid|Xid) \((?:PCI:)?(?P<place>[0-9A-Fa-f:.]+)\): (?P<number>\d+)[ ,:]*(?P<text>[^\n]*)"
    r"|\bXid(?: error| event)?[:= ]+(?P<number2>\d+)\b(?: on (?P<place2>[0-9A-Fa-f:.]+))?[ ,:]*(?P<text2>[^\n]*)"
)
NOTED, SERIOUS, FATAL = "noted", "serious", "fatal"


class XidEvent(NamedTuple):
    """One event: ``kind`` Xid or SXid, the PCI ``place``, its number, NVIDIA's words and the severity."""

    kind: str
    place: str
    number: int
    text: str
    severity: str


def find_events(text: str) -> list[XidEvent]:
    """Return the events that a log or a notice names, in their order."""
    events = []
    for match in _EVENT.finditer(text):
        kind = match["kind"] or "Xid"
        number = int(match["number"] or match["number2"])
        words = match["text"] or match["text2"] or ""
        events.append(
            XidEvent(kind, match["place"] or match["place2"] or "", number, words, _severity(kind, number, words))
        )
    return events


def _severity(kind: str, number: int, words: str) -> str:
    if re.search(r"\b[Nn]on-?[Ff]atal\b", words):
        return NOTED
    if kind == "SXid":
        return FATAL if re.search(r"\bFatal\b", words) else NOTED
    if number in _NOTED:
        return NOTED
    return FATAL if number in _FATAL or re.search(r"\bFatal\b", words) else SERIOUS
