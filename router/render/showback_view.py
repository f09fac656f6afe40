"""Arrange the report of a month for its page: sentence, tiles, drivers, bridge, teams, waste, trend. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from router.ledger.month import Month
from router.render.figures import day, percent
from router.render.month_charts_svg import WaterfallStep
from router.showback.apportion import sum_known
from router.showback.facts import UNALLOCATED
from router.showback.report.bridge import NOT_RUN
from router.showback.report.outcomes import BUDGETS_UNKNOWN
from router.showback.report.values import ShowbackReport, replace_unprintable

NOBODY = "nobody’s"
_SHOWN_TEAMS = 12
# Below it an amount is written as nothing.
HALF_CENT = Decimal("0.005")
_ZERO = Decimal(0)
_MOST = Decimal("0.5")
# Words of reasons in a sentence; below zero some have words of their own.
_REASONS = {
    ("price", None): "dearer than planned",
    ("quantity", None): "longer runs",
    ("quantity", NOT_RUN): "did not run",
    ("mix", None): "other places",
    ("waste", "startup"): "starting up",
    ("waste", "checkpoint_overhead"): "saving checkpoints",
    ("waste", "restart_lost_work"): "work lost to restarts",
    ("waste", "idle_allocated"): "idle machines",
    ("waste", "commitment_unused"): "unused commitment",
    ("waste", "reservation_unused"): "unused reservation",
    ("waste", "failed_launch"): "failed launches",
    ("waste", "overrun"): "overrun past the deadline",
    ("unplanned", "machine"): "machines without a plan",
    ("unplanned", "other"): "fees and support",
    ("unplanned", "disk"): "disks",
    ("unplanned", "egress"): "moved data",
    ("unplanned", "storage"): "storage",
    ("credit", "credit"): "credits",
    ("credit", "tax"): "tax",
    ("credit", "correction"): "corrections",
    ("credit", "adjustment"): "adjustments",
}
_BELOW_ZERO = {("price", None): "cheaper than planned", ("quantity", None): "shorter runs"}
WASTE_NAMES = {
    "startup": "Starting up",
    "checkpoint_overhead": "Saving checkpoints",
    "restart_lost_work": "Work lost to restarts",
    "idle_allocated": "Idle while held",
    "commitment_unused": "Commitment unused",
    "reservation_unused": "Reservation unused",
    "failed_launch": "Failed launches",
    "overrun": "Overrun past the deadline",
}
_STEP_NAMES = {"credit": "Credits, taxes", "currency": "Other currency", "timing": "Timing"}
_CHANGE_WORDS = {
    "volume": ("more hours", "fewer hours"),
    "price": ("dearer prices", "cheaper prices"),
    "mix": ("other places", "other places"),
    "other": ("fees, taxes, credits", "fees, taxes, credits"),
}
_KINDS = {"planned": "planned", "metered": "metered", "spent": "spent", "invoiced": "spent", "waste": "waste"}
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReasonWords:
    """An amount and the words of its reason; ``parts`` are parts of it."""

    amount: Decimal
    words: str
    parts: tuple[ReasonWords, ...] = ()


# Team and job as the report names them: what a link leads to. A name is None where the row is of no single one.
OwnerNames = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class DriverRow:
    """A driver in a sentence."""

    who: str
    difference: Decimal
    reasons: tuple[ReasonWords, ...]
    owner: OwnerNames


@dataclass(frozen=True, slots=True)
class WasteRow:
    """A kind of waste."""

    name: str
    cost: Decimal | None
    share: Decimal | None
    owner: str
    owner_cost: Decimal | None
    action: str
    owner_names: OwnerNames = (None, None)


@dataclass(frozen=True, slots=True)
class CurrencyFigures:
    """The figures of one currency that have pictures: the bridge, days and months.

    ``days`` are those that have begun. ``coming`` are those that have not, with what is charged for them already, as a
    support fee of the whole month; it is ``charged_ahead`` together, and a part of what was ``spent``.
    """

    currency: str
    spent: Decimal | None
    budget: Decimal | None
    steps: tuple[WaterfallStep, ...]
    days: tuple[tuple[date, Decimal], ...]
    coming: tuple[tuple[date, Decimal], ...]
    months: tuple[tuple[Month, Decimal], ...]
    drivers: tuple[DriverRow, ...]
    together: Decimal
    whole: Decimal | None

    @property
    def charged_ahead(self) -> Decimal:
        """Return what is charged for days that have not begun."""
        if not self.coming:
            return _ZERO
        return self.coming[-1][1] - (self.days[-1][1] if self.days else _ZERO)

    def station(self, name: str) -> Decimal | None:
        """Return the level of a station of the bridge; None where there is none."""
        return next((step.level for step in self.steps if step.is_station and step.name == name), None)


@dataclass(frozen=True, slots=True)
class MonthPage:
    """All that the page says of a report, in its order.

    ``teams`` are the report's records of them in the currency of the page; ``who`` is a team in words, ``others`` what
    it spent in other currencies, ``running`` what its machines cost that still run, which its budget counts, too.
    ``change_team`` is the team that changed most on last month in the way of the whole change.
    """

    report: ShowbackReport
    month: Month
    currency: str
    total: Record
    figures: tuple[CurrencyFigures, ...]
    others: tuple[tuple[Decimal, str], ...]
    cause: str
    over: tuple[str, ...] | None
    knows_budgets: bool
    not_billed: Decimal | None
    change: tuple[ReasonWords, ...]
    change_team: ReasonWords | None
    waste_total: Decimal | None
    teams: tuple[Record, ...]
    team_scale: Decimal
    waste: tuple[WasteRow, ...]
    waste_notes: tuple[str, ...]
    waste_others: tuple[tuple[Decimal, str], ...]

    @property
    def main(self) -> CurrencyFigures:
        return self.figures[0]

    @property
    def month_before(self) -> datetime:
        return self.month.begins - timedelta(days=1)

    @property
    def spent(self) -> Decimal | None:
        """Return what the month came to, with what is charged for days that have not begun."""
        cost: Decimal | None = self.total[self.report.basis]
        return cost

    @property
    def charged_ahead(self) -> Decimal:
        """Return what is charged for days that have not begun; 0 where that is less than half a cent."""
        ahead = self.main.charged_ahead
        return ahead if abs(ahead) >= HALF_CENT else _ZERO

    @property
    def spent_so_far(self) -> Decimal | None:
        """Return what was spent on the days that have begun."""
        return None if self.spent is None else self.spent - self.charged_ahead

    @property
    def is_over(self) -> bool:
        return self.report.made_at >= self.month.ends

    @property
    def has_no_bill(self) -> bool:
        """Return whether no bill has anything of the month."""
        return self.report.head["bills_through"] == "no bill"

    @property
    def bills_through(self) -> str:
        """Return how far bills reach, in words."""
        words = self.report.head["bills_through"]
        return "no bill" if self.has_no_bill else f"bills through {day(datetime.fromisoformat(words))}"


def month_page_of(report: ShowbackReport) -> MonthPage | None:
    """Return what the page says of a report; None where the month has nothing."""
    totals = list(report.section("totals").records())
    if not totals:
        return None
    basis = report.basis
    currency = _main_currency(totals)
    ordered = [currency, *(str(row["currency"]) for row in totals if row["currency"] != currency)]
    month = Month.parse(report.head["month"])
    figures = tuple(_figures(report, each, month, basis, report.made_at.date()) for each in ordered)
    total = next(row for row in totals if row["currency"] == currency)
    waste = _rows(report, "waste", currency)
    teams = _teams(report, currency)
    sizes = [row[name] for row in teams for name in ("cost", "last_month", "budget") if row[name] is not None]
    return MonthPage(
        report=report,
        month=month,
        currency=currency,
        total=total,
        figures=figures,
        others=tuple((e.spent, e.currency) for e in figures[1:] if e.spent is not None),
        cause=_cause(report, figures[0]),
        over=_over_budget(report),
        knows_budgets=BUDGETS_UNKNOWN not in report.section("budgets").notes,
        not_billed=_timing(report, currency),
        change=_change(report, currency),
        change_team=_change_team(report, currency),
        waste_total=sum_known(row[basis] for row in waste),
        teams=teams,
        team_scale=max((*sizes, Decimal("0.01"))),
        waste=tuple(_waste_row(row, basis) for row in waste),
        waste_notes=report.section("waste").notes,
        waste_others=tuple(
            (amount, c)
            for c in ordered[1:]
            if (amount := sum_known(row[basis] for row in _rows(report, "waste", c))) is not None
        ),
    )


def owner_name(team: object, job: object = UNALLOCATED) -> str:
    """Return a team, or team and job, as the page says them."""
    names = [replace_unprintable(str(word)) for word in (team, job) if word not in (None, UNALLOCATED)]
    return "/".join(names) or NOBODY


def _rows(report: ShowbackReport, section: str, currency: str) -> list[Record]:
    return list(report.section(section).records(currency))


def _main_currency(totals: Sequence[Record]) -> str:
    """Return the currency of the budget, else dollars, else that with the most rows: amounts do not compare."""
    ranked = sorted(totals, key=lambda row: (row["budget"] is None, row["currency"] != "USD", -row["facts"]))
    return str(ranked[0]["currency"])


def _figures(report: ShowbackReport, currency: str, month: Month, basis: str, today: date) -> CurrencyFigures:
    total = _rows(report, "totals", currency)[0]
    drivers = _rows(report, "drivers", currency)
    days = _days(report, currency, month)
    return CurrencyFigures(
        currency=currency,
        spent=total[basis],
        budget=total["budget"],
        steps=tuple(_step(row) for row in _rows(report, "bridge", currency) if _is_drawn(row)),
        days=tuple(each for each in days if each[0] <= today),
        coming=tuple(each for each in days if each[0] > today),
        months=tuple(
            (Month.parse(row["month"]), row["cost"])
            for row in _rows(report, "months", currency)
            if row["cost"] is not None
        ),
        drivers=tuple(_driver(report, row) for row in drivers),
        together=drivers[-1]["together"] if drivers else _ZERO,
        whole=drivers[-1]["whole"] if drivers else None,
    )


def _days(report: ShowbackReport, currency: str, month: Month) -> tuple[tuple[date, Decimal], ...]:
    """Return the sum at the end of each day of the month on which something was spent.

    What stands on days before or after the month is in the sum of its first or last day.
    """
    first, last = month.begins.date(), month.ends.date() - timedelta(days=1)
    rows = (row for row in _rows(report, "days", currency) if row["sum"] is not None)
    return tuple({min(max(row["day"], first), last): row["sum"] for row in rows}.items())


def _is_drawn(row: Record) -> bool:
    is_station = row["step"] in _KINDS and row["step"] != "waste"
    return is_station or bool(abs(row["amount"]) >= HALF_CENT)


def _step(row: Record) -> WaterfallStep:
    name = str(row["step"])
    title = _STEP_NAMES.get(name, name.capitalize())
    return WaterfallStep(title, str(row["why"]), _KINDS.get(name, "reason"), row["amount"], row["sum"])


def _driver(report: ShowbackReport, driver: Record) -> DriverRow:
    rows = [
        row
        for row in _rows(report, "driver_reasons", str(driver["currency"]))
        if row["number"] == driver["number"] and abs(row["amount"]) >= HALF_CENT
    ]
    waste = [_reason(row) for row in rows if row["bucket"] == "waste"]
    reasons = [_reason(row) for row in rows if row["bucket"] != "waste"]
    if len(waste) > 1:
        amount = sum_known(each.amount for each in waste) or _ZERO
        reasons.append(ReasonWords(amount, "waste", tuple(sorted(waste, key=lambda reason: -reason.amount)[:2])))
    else:
        reasons += waste
    reasons.sort(key=lambda reason: -reason.amount)
    owner = (driver["team"], driver["job"])
    return DriverRow(owner_name(*owner), driver["difference"], tuple(reasons), owner)


def _reason(row: Record) -> ReasonWords:
    return ReasonWords(row["amount"], _reason_words(row))


def _reason_words(row: Record) -> str:
    key = (str(row["bucket"]), row["kind"])
    words = _REASONS.get(key, str(row["kind"] or row["bucket"]).replace("_", " "))
    return _BELOW_ZERO.get(key, words) if row["amount"] < 0 else words


def _cause(report: ShowbackReport, figures: CurrencyFigures) -> str:
    """Return the largest reason of a driver that goes the way of the whole difference; "" for none.

    It has its share where it is most of the difference.
    """
    whole = figures.whole
    rows = _rows(report, "driver_reasons", figures.currency)
    alike = [row for row in rows if whole and row["amount"] * whole > 0]
    if not alike or not whole:
        return ""
    row = max(alike, key=lambda row: abs(row["amount"]))
    share = row["amount"] / whole
    if share <= _MOST:
        size = "many reasons, the largest "
    else:
        size = f"{percent(float(share))} of it " if share <= 1 else "most of it "
    return f"{size}{_reason_words(row)} ({owner_name(row['team'], row['job'])})"


def _over_budget(report: ShowbackReport) -> tuple[str, ...] | None:
    """Return the scopes whose budget is passed; None where no budget is set or none was looked at."""
    rows = list(report.section("budgets").records())
    if not rows:
        return None
    passed = [replace_unprintable(str(row["scope"])) for row in rows if row["mark"] == "over"]
    return tuple("the month" if scope == "all" else scope.removeprefix("team ") for scope in passed)


def _timing(report: ShowbackReport, currency: str) -> Decimal | None:
    found = [row["amount"] for row in _rows(report, "bridge", currency) if row["step"] == "timing"]
    return -found[0] if found else None


def _change(report: ShowbackReport, currency: str) -> tuple[ReasonWords, ...]:
    """Return the reasons of the change on last month, the largest first; together they are the change."""
    rows = [row for row in _rows(report, "change", currency) if row["amount"] and abs(row["amount"]) >= HALF_CENT]
    rows.sort(key=lambda row: -abs(row["amount"]))
    return tuple(ReasonWords(row["amount"], _CHANGE_WORDS[row["bucket"]][row["amount"] < 0]) for row in rows)


def _change_team(report: ShowbackReport, currency: str) -> ReasonWords | None:
    """Return the team whose cost changed most in the way of the whole change; None where none did."""
    whole = _rows(report, "totals", currency)[0]["change"]
    rows = [row for row in _rows(report, "teams", currency) if row["cost"] is not None]
    changes = [(row["cost"] - (row["last_month"] or _ZERO), str(row["team"])) for row in rows]
    alike = [(abs(amount), team, amount) for amount, team in changes if whole and amount * whole > 0]
    if not alike:
        return None
    _, team, amount = max(alike)
    return ReasonWords(amount, owner_name(team))


def _teams(report: ShowbackReport, currency: str) -> tuple[Record, ...]:
    """Return the teams by what they spent; beyond twelve the cheapest are one row, nobody's always stays."""
    rows = list(report.section("teams").records())
    main = [row for row in rows if row["currency"] == currency]
    named = {row["team"] for row in main}
    elsewhere = dict.fromkeys(row["team"] for row in rows if row["team"] not in named)
    main += [{**dict.fromkeys(rows[0]), "team": team} for team in elsewhere]
    running = {row["scope"]: row["running"] for row in _rows(report, "budgets", currency)}
    teams = [_team_row(row, rows, currency, running.get(f"team {row['team']}")) for row in main]
    if len(teams) <= _SHOWN_TEAMS:
        return tuple(teams)
    kept = [row for number, row in enumerate(teams) if number < _SHOWN_TEAMS - 1 or row["who"] == NOBODY]
    rest = [row for row in teams if row not in kept]
    together = {
        **dict.fromkeys(teams[0]),
        **{name: sum_known(row[name] for row in rest) for name in ("cost", "waste", "last_month")},
        "who": f"{len(rest)} others",
        "mark": "over" if any(row["mark"] == "over" for row in rest) else None,
        "others": (),
    }
    return (*kept, together)


def _team_row(row: Record, rows: Sequence[Record], currency: str, running: Decimal | None) -> Record:
    others = tuple(
        (other["cost"], str(other["currency"]))
        for other in rows
        if other["team"] == row["team"] and other["currency"] != currency and other["cost"]
    )
    return {**row, "who": owner_name(row["team"]), "others": others, "running": running}


def _waste_row(row: Record, basis: str) -> WasteRow:
    use = str(row["use"])
    owner = "unknown" if row["owner"] is None else owner_name(row["owner"], row["most_job"])
    name = WASTE_NAMES.get(use, use.replace("_", " ").capitalize())
    names = (row["owner"], row["most_job"])
    return WasteRow(name, row[basis], row["share_of_total"], owner, row["most"], str(row["action"]), names)
