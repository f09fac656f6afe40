"""The part of limits that concerns the jobs of one team, as quotes of that team are made and stored under it.

Budgets and shares of other teams are left out, since they change no quote, and a digest of them could be guessed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any

from router.jobs.limits import Limits
from router.planning.document.restricted_plan import ForeignNames


def restrict_limits(limits: Limits, team: str, others: Collection[str] = ()) -> Limits:
    """Return the limits without what is of other teams; names of those, and of ``others``, are replaced by words."""
    known = {entry.team for entry in limits.teams} | {*others}
    known |= set() if limits.fair_share is None else {*limits.fair_share.shares, *limits.fair_share.recent_usd}
    names = ForeignNames(frozenset(), frozenset(known - {team, ""}), frozenset())
    changes: dict[str, Any] = {"fair_share": None}
    for section in Limits.model_fields:
        entries = getattr(limits, section)
        if isinstance(entries, tuple):
            kept = tuple(entry for entry in entries if getattr(entry, "team", team) == team)
            changes[section] = _hide_names(kept, names) if all(hasattr(entry, "name") for entry in kept) else kept
    return limits.model_copy(update=changes)


def _hide_names(entries: Sequence[Any], names: ForeignNames) -> tuple[Any, ...]:
    """Return the entries under names without those of other teams; names stay unique."""
    taken = {entry.name for entry in entries}
    restricted: list[Any] = []
    for entry in entries:
        name = hidden = names.hide(entry.name)
        number = 1
        while name != entry.name and name in taken:
            number += 1
            name = f"{hidden} ({number})"
        taken.add(name)
        restricted.append(entry if name == entry.name else entry.model_copy(update={"name": name}))
    return tuple(restricted)


def limits_text(limits: Limits) -> str:
    """Return the limits as canonical JSON; unlike :meth:`Limits.to_json` without spending that nobody stated.

    Spending that is not stated is counted from the ledger, also where the limits are read from this text.
    """
    content: dict[str, Any] = json.loads(limits.to_json())
    for entry, team in zip(content.get("teams", ()), limits.teams, strict=True):
        if "spent" not in team.model_fields_set:
            del entry["spent"]
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def limits_digest(limits: Limits) -> str:
    """Return SHA-256 (hex) of :func:`limits_text`."""
    return hashlib.sha256(limits_text(limits).encode()).hexdigest()
