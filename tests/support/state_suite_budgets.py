"""What every database has to do with budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pricing.money import Usd
from router.ledger.budget import Budget, Scope
from router.ledger.entry import Kind, What
from router.ledger.month import Month
from router.state.store import Store
from tests.support.state_suite import StateSuite
from tests.support.state_values import HOUR, NOW, entry

NOVEMBER = Month(2026, 11)
RESEARCH = Budget(scope=Scope.TEAM, name="research", since=NOVEMBER, usd=Usd.parse("100"), who="anna", at=NOW)


def usd(text: str) -> Usd:
    return Usd.parse(text)


class BudgetsSuite(StateSuite):
    """Budgets, and what is spent of them."""

    def test_what_is_set_is_there_and_the_same_month_replaces(self, url: str) -> None:
        everyone = replace(RESEARCH, scope=Scope.ALL, name="", hard=True, warn=(), usd=usd("9000000000"))
        later = replace(RESEARCH, since=Month(2026, 12), usd=None)
        with Store.open(url, now=NOW) as store:
            assert store.budgets.all() == ()
            for each in (RESEARCH, later, everyone, replace(RESEARCH, warn=(90,), who="bob")):
                store.budgets.put(each)
        with Store.open(url, now=NOW) as store:
            assert store.budgets.all() == (everyone, replace(RESEARCH, warn=(90,), who="bob"), later)

    def test_spent_is_what_ran_in_the_month_and_what_people_put_into_its_books(self, url: str) -> None:
        start, end = NOVEMBER.begins, NOVEMBER.ends

        def hour(key: str, begin: Any, dollars: str, **said: Any) -> Any:
            return entry(key, start=begin, end=begin + HOUR, usd=usd(dollars), **said)

        people = {"what": What.OTHER, "who": "anna", "reason": "x", "attempt": "", "rank": None}
        with Store.open(url, now=NOW) as store:
            store.ledger.add(
                [
                    hour("before", start - HOUR, "1"),
                    hour("first", start, "2"),
                    hour("asr", start + HOUR, "4", project="asr"),
                    hour("last", end - HOUR, "8", team="vision"),
                    hour("after", end, "16"),
                    hour("late", start + 2 * HOUR, "32", period=Month(2026, 12), corrects="first"),
                    hour("plan", start, "64", kind=Kind.PLANNED),
                    hour("fee", start, "128", kind=Kind.FEE, **people),
                    hour("credit", start - HOUR, "-3", kind=Kind.CREDIT, period=NOVEMBER, corrects="fee", **people),
                ]
            )
            assert store.budgets.spent(NOVEMBER) == {
                ("research", None): usd("159"), ("research", "asr"): usd("4"), ("vision", None): usd("8"),
            }  # fmt: skip
            assert store.budgets.metered_daily(start - 24 * HOUR, 2) == [
                {("research", None): usd("1")}, {("research", None): usd("34"), ("research", "asr"): usd("4")},
            ]  # fmt: skip
