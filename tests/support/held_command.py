"""`python -m tests.support.held_command HOLDS ARGUMENT...`: stepfare, waiting between two steps where a hold is.

The places: before-attempt, after-attempt (its row), provisioning, before-count (machines are there, the state does not
have their ids), before-hello (the first rank calls), before-ready, ready, releasing, before-ledger, after-ledger, over.
Of a gang that is taken back: noticed (the notice and its order are written), checkpointing, migrating, before-leaving;
of one that goes on: resuming, running.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from router.cli.main import main
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind
from router.state.attempts import Attempts
from router.state.joint_writes import JointWrites
from router.state.journal import AttemptJournal
from router.state.ledger_store import LedgerStore
from router.state.records import Attempt
from tests.support.deployed_engine import wait_while_held


def _around(owner: type, name: str, before: Callable[..., str], after: Callable[..., str]) -> None:
    """Holds at the places that the functions name for a call ("": nowhere); ``after`` is given the result as well."""
    original = getattr(owner, name)

    @wraps(original)
    def held(self: Any, *arguments: Any, **options: Any) -> Any:
        _hold(before(*arguments, **options))
        result = original(self, *arguments, **options)
        _hold(after(result, *arguments, **options))
        return result

    setattr(owner, name, held)


def _hold(place: str) -> None:
    if place:
        wait_while_held(_holds, place)


def _nowhere(*_arguments: object, **_options: object) -> str:
    return ""


def _updated(result: Attempt, *_arguments: object) -> str:
    return "over" if result.phase.is_over else result.phase.value


def _updated_all(result: Mapping[str, Attempt], *_arguments: object) -> str:
    """Where the first of them is."""
    return next((_updated(attempt) for attempt in result.values()), "")


def _added(_result: None, attempts: Sequence[object]) -> str:
    return "after-attempt" if attempts else ""


def _metered(entries: tuple[LedgerEntry, ...]) -> bool:
    return any(entry.kind is LedgerEntryKind.METERED and entry.what is CostItem.MACHINE for entry in entries)


_holds = Path(sys.argv.pop(1))
_around(Attempts, "add", lambda *_: "before-attempt", lambda *_: "after-attempt")
_around(Attempts, "update", _nowhere, _updated)
_around(Attempts, "update_all", _nowhere, _updated_all)
_around(Attempts, "add_all", _nowhere, _added)
_around(JointWrites, "add_notice", _nowhere, lambda *_: "noticed")
_around(Attempts, "set_node", lambda *_, **changes: "before-count" if "machine_id" in changes else "", _nowhere)
_around(AttemptJournal, "note", lambda _attempt, what, *_, **__: f"before-{what}", _nowhere)
_around(
    LedgerStore,
    "add",
    lambda entries: "before-ledger" if _metered(entries) else "",
    lambda _head, entries: "after-ledger" if _metered(entries) else "",
)
main()
