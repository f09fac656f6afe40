"""Budgets as values: what holds when, whose money counts, which marks are passed; and as limits of what is planned."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pricing.money import Usd
from router.controller.plans import BudgetSource, apply_hard_budgets, budget_sources, fill_spending
from router.jobs.limits import Limits
from router.ledger.budget import Budget, BudgetStatus, Scope, budgets_in_force, spent_of
from router.ledger.month import Month

AT = datetime(2026, 11, 1, tzinfo=UTC)
NOVEMBER, DECEMBER = Month(2026, 11), Month(2026, 12)


def usd(text: str) -> Usd:
    return Usd.parse(text)


def budget(name: str = "research", amount: str | None = "100", scope: Scope = Scope.TEAM, **said: Any) -> Budget:
    money = None if amount is None else usd(amount)
    return Budget(**{"scope": scope, "name": name, "since": NOVEMBER, "usd": money, "at": AT, **said})


def stands(spent: str, forecast: str | None = None, **said: Any) -> BudgetStatus:
    likely = None if forecast is None else usd(forecast)
    of = budget(**said)
    assert of.usd is not None
    return BudgetStatus(of, of.usd, usd(spent), forecast=likely)


def test_the_latest_that_has_begun_holds() -> None:
    everyone = budget("", "900", Scope.ALL)
    asr = budget("asr", "50", Scope.PROJECT)
    found = [asr, budget(amount="200", since=DECEMBER), budget(), everyone]
    assert [(each.title, each.usd) for each in budgets_in_force(found, NOVEMBER)] == [
        ("all", usd("900")),
        ("team research", usd("100")),
        ("project asr", usd("50")),
    ]
    assert budgets_in_force(found, DECEMBER)[1].usd == usd("200")
    assert budgets_in_force(found, Month(2026, 10)) == ()


def test_one_that_was_taken_away_holds_no_more_and_may_come_back() -> None:
    found = [budget(), budget(amount=None, since=DECEMBER), budget(amount="5", since=Month(2027, 2))]
    months = (NOVEMBER, DECEMBER, Month(2027, 1), Month(2027, 2))
    assert [len(budgets_in_force(found, month)) for month in months] == [1, 0, 0, 1]


def test_whose_money_counts() -> None:
    spent: dict[tuple[str, str | None], Usd] = {
        ("research", "asr"): usd("1"),
        ("research", None): usd("2"),
        ("vision", "asr"): usd("4"),
        ("", None): usd("8"),
    }
    assert spent_of(budget(), spent) == usd("3")
    assert spent_of(budget("asr", scope=Scope.PROJECT), spent) == usd("5")
    assert spent_of(budget("", scope=Scope.ALL), spent) == usd("15")


@pytest.mark.parametrize(
    ("spent", "passed", "percent", "over"),
    [
        ("49.999999999", (), 49, False),
        ("50", (50,), 50, False),
        ("99.99", (50, 80), 99, False),
        ("100", (50, 80, 100), 100, False),
        ("100.000000001", (50, 80, 100), 100, True),
        ("-3", (), -3, False),
    ],
)
def test_marks_are_passed_to_the_nano_dollar(spent: str, passed: tuple[int, ...], percent: int, over: bool) -> None:
    standing = stands(spent)
    assert (standing.passed, standing.percent, standing.is_over) == (passed, percent, over)


def test_a_forecast_warns_only_before_it_has_come_true() -> None:
    assert stands("60", "100.01").will_be_over
    assert not stands("60", "100").will_be_over
    assert not stands("101", "300").will_be_over
    assert not stands("60").will_be_over


def test_a_budget_of_nothing_is_passed_by_anything() -> None:
    assert stands("0", amount="0").percent is None
    assert stands("0.01", amount="0").is_over


@pytest.mark.parametrize(
    "said",
    [{"name": ""}, {"scope": Scope.ALL}, {"amount": "-1"}, {"warn": (80, 50)}, {"warn": (0,)}, {"warn": (50, 50)}],
)
def test_what_is_no_budget(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"budget|warnings"):
        budget(**said)


def limits(*teams: dict[str, str]) -> Limits:
    return Limits.model_validate({"teams": list(teams)})


def told(found: Limits) -> list[tuple[str, str, str]]:
    return [(team.team, f"{team.budget.dollars():g}", f"{team.spent.dollars():g}") for team in found.teams]


def test_a_hard_budget_lowers_and_adds_and_a_soft_one_does_neither() -> None:
    file = limits({"team": "research", "budget": "$150"}, {"team": "vision", "budget": "$10"})
    hard = [budget(hard=True), budget("vision", "70", hard=True), budget("ops", "5", hard=True), budget("hr", "1")]
    found = apply_hard_budgets(file, [*hard, budget("", "3", Scope.ALL, hard=True)])
    assert told(found) == [("research", "100", "0"), ("vision", "10", "0"), ("ops", "5", "0")]
    assert apply_hard_budgets(file, [budget("hr", "1")]) is file


def test_what_the_file_says_is_spent_is_believed_and_the_rest_is_counted() -> None:
    file = limits({"team": "research", "budget": "$150", "spent": "$0"}, {"team": "vision", "budget": "$10"})
    spent: dict[tuple[str, str | None], Usd] = {
        ("research", "asr"): usd("40"),
        ("vision", "a"): usd("1"),
        ("vision", "b"): usd("2.5"),
    }
    found = fill_spending(apply_hard_budgets(file, [budget(hard=True), budget("ops", "5", hard=True)]), spent)
    assert told(found) == [("research", "100", "0"), ("vision", "10", "3.5"), ("ops", "5", "0")]
    assert budget_sources(file, found) == (
        BudgetSource(found.teams[0], hard=True, counted=False),
        BudgetSource(found.teams[1], hard=False, counted=True),
        BudgetSource(found.teams[2], hard=True, counted=True),
    )
    assert budget_sources(file, file) == ()
