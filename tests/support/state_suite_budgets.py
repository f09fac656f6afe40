"""Tests that every database passes: budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pricing.money import Usd
from router.ledger.budget import Budget, Scope, budgets_in_force, budgets_set_by
from router.ledger.entry import ClosedError, CostItem, LedgerEntryKind
from router.ledger.month import Month
from router.state.errors import ConcurrentChangeError
from router.state.periods import find_seal_problems
from router.state.store import StateStore
from tests.support.state_suite import StateSuite
from tests.support.state_values import HOUR, NOW, entry

NOVEMBER = Month(2026, 11)
RESEARCH = Budget(scope=Scope.TEAM, name="research", since=NOVEMBER, usd=Usd.parse("100"), who="anna", at=NOW)


def usd(text: str) -> Usd:
    return Usd.parse(text)


class BudgetsSuite(StateSuite):
    """Budgets, and what is spent of them."""

    def test_what_is_set_is_there_beside_what_was_set_before(self, url: str) -> None:
        everyone = replace(RESEARCH, scope=Scope.ALL, name="", hard=True, warn=(), usd=usd("9000000000"))
        later = replace(RESEARCH, since=Month(2026, 12), usd=None)
        with StateStore.open(url, now=NOW) as store:
            assert store.budgets.all() == ()
            for each in (RESEARCH, later, everyone, replace(RESEARCH, warn=(90,), who="bob")):
                store.budgets.put(each)
        with StateStore.open(url, now=NOW) as store:
            assert store.budgets.all() == (everyone, replace(RESEARCH, warn=(90,), who="bob"), later)
            # What was set before is known, whatever is set later.
            raised = replace(RESEARCH, usd=usd("200"), at=NOW + HOUR)
            store.budgets.put(raised)
            found = store.budgets.all()
            assert found == (everyone, replace(RESEARCH, warn=(90,), who="bob"), raised, later)
            assert budgets_in_force(found, NOVEMBER) == (everyone, raised)
            assert budgets_in_force(budgets_set_by(found, NOW), NOVEMBER) == (
                everyone,
                replace(RESEARCH, warn=(90,), who="bob"),
            )

    def test_a_closed_month_keeps_its_budgets(self, url: str) -> None:
        at = NOVEMBER.ends + HOUR
        with StateStore.open(url, now=NOW) as store:
            store.budgets.put(RESEARCH)
            store.periods.close(NOVEMBER, who="anna", at=at, seal={"version": 1})
            for since in (NOVEMBER, Month(2026, 1)):
                for usd_of in (usd("5"), None):
                    with pytest.raises(ClosedError, match=r"the books of 2026-11 are closed.*--from 2026-12"):
                        store.budgets.put(replace(RESEARCH, since=since, usd=usd_of))
            december = replace(RESEARCH, since=Month(2026, 12), usd=usd("7"))
            store.budgets.put(december)
            assert store.budgets.all() == (RESEARCH, december)
            assert store.ledger.verify().problems == ()

    def test_a_seal_tells_of_budgets_and_of_what_was_sealed_before(self, url: str, tmp_path: Path) -> None:
        december, raised = Month(2026, 12), replace(RESEARCH, usd=usd("200"), at=NOW + HOUR)
        with StateStore.open(url, now=NOW) as store:
            store.budgets.put(RESEARCH)
            store.budgets.put(raised)
            first = store.periods.close(NOVEMBER, who="anna", at=NOVEMBER.ends, seal={"report": "x"}, head=0)
            with pytest.raises(ConcurrentChangeError, match="has 0 entries now, not 3"):
                store.periods.close(december, who="anna", at=december.ends, seal={}, head=3)
            second = store.periods.close(december, who="anna", at=december.ends, seal={"report": "y"}, head=0)
            assert store.periods.closings() == (first, second)
            assert [each["usd_nanos"] for each in first.sealed["budgets"]] == [usd("100").nanos, usd("200").nanos]
            assert list(find_seal_problems((first, second))) == []
            for changed in (
                (replace(first, seal=first.seal.replace("x", "z")), second),
                (replace(first, seal="", seal_hash=""), second),
                (replace(first, who="bob"), second),
                (first, replace(second, seal_hash="0" * 64)),
            ):
                assert len(list(find_seal_problems(changed))) == 1
            store.backups.write(tmp_path / "books")
        with StateStore.open(f"sqlite:///{tmp_path / 'other.db'}", now=NOW) as other:
            other.backups.restore(tmp_path / "books")
            assert other.periods.closings() == (first, second)
            assert other.budgets.all() == (RESEARCH, raised)
            assert other.ledger.verify().problems == ()

    def test_spent_is_what_the_books_of_the_month_have(self, url: str) -> None:
        start, end = NOVEMBER.begins, NOVEMBER.ends

        def hour(key: str, begin: Any, dollars: str, **said: Any) -> Any:
            return entry(key, start=begin, end=begin + HOUR, usd=usd(dollars), **said)

        people = {"what": CostItem.OTHER, "who": "anna", "reason": "x", "attempt": "", "rank": None}
        with StateStore.open(url, now=NOW) as store:
            store.ledger.add(
                [
                    hour("before", start - HOUR, "1"),
                    hour("first", start, "2"),
                    hour("asr", start + HOUR, "4", project="asr"),
                    hour("last", end - HOUR, "8", team="vision"),
                    hour("after", end, "16"),
                    hour("late", start + 2 * HOUR, "32", period=Month(2026, 12), corrects="first"),
                    hour("plan", start, "64", kind=LedgerEntryKind.PLANNED),
                    hour("fee", start, "128", kind=LedgerEntryKind.FEE, **people),
                    hour(
                        "credit",
                        start - HOUR,
                        "-3",
                        kind=LedgerEntryKind.CREDIT,
                        period=NOVEMBER,
                        corrects="fee",
                        **people,
                    ),
                ]
            )
            # What was metered late is in December's books, and counts there: as in December's report.
            assert store.budgets.spent(NOVEMBER) == {
                ("research", None): usd("127"),
                ("research", "asr"): usd("4"),
                ("vision", None): usd("8"),
            }
            assert store.budgets.spent(NOVEMBER.next) == {("research", None): usd("48")}
