"""The chain of the audit log breaks wherever somebody changes, removes or adds something."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd
from router.state.audit import BEGINNING, hash_entry, verify_chain, with_hash
from router.state.records import AuditEntry
from tests.support.state_values import NOW


def _log(length: int = 5) -> list[AuditEntry]:
    log: list[AuditEntry] = []
    for seq in range(1, length + 1):
        previous = log[-1].hash if log else BEGINNING
        at = NOW + timedelta(hours=seq)
        entry = AuditEntry(seq, at, "anna", "apply", f"d{seq}", Usd(seq), {"gangs": seq}, previous, "")
        log.append(with_hash(entry))
    return log


def test_a_whole_one() -> None:
    assert verify_chain([]) is None
    assert verify_chain(_log()) is None


def test_the_hash_is_the_same_for_ever() -> None:
    # Logs that exist have to stay verifiable: whoever changes this breaks them.
    assert hash_entry(_log(1)[0]) == "7ad6ac0e9b122c15d5e7a56ebd2854293eb3effa339abda51c516b635eee3ed8"


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize(
    "change",
    [
        {"who": "bob"},
        {"what": "destroy"},
        {"digest": "d9"},
        {"usd": Usd(1_000)},
        {"at": NOW},
        {"details": {}},
        {"details": {"gangs": "1"}},
        {"previous": "f" * 64},
        {"hash": "f" * 64},
        {"seq": 9},
    ],
)
def test_any_change_shows_where_it_was_made(index: int, change: dict[str, Any]) -> None:
    log = _log()
    log[index] = replace(log[index], **change)
    assert verify_chain(log) == log[index].seq


@pytest.mark.parametrize("index", range(5))
def test_a_change_with_a_new_hash_shows_at_the_next_one(index: int) -> None:
    log = _log()
    log[index] = with_hash(replace(log[index], usd=Usd(0)))
    assert verify_chain(log) == (index + 2 if index < 4 else None)


@pytest.mark.parametrize("index", range(4))
def test_a_missing_one_shows_at_the_next(index: int) -> None:
    log = _log()
    del log[index]
    assert verify_chain(log) == index + 2


@given(st.permutations(range(4)))
def test_only_the_order_it_was_written_in_is_whole(order: list[int]) -> None:
    log = _log(4)
    assert (verify_chain([log[i] for i in order]) is None) == (order == sorted(order))
