"""Quotes as text with the answer in the first line, as a table, or as one line for a ticket. Pure functions.

The first figure is the expected cost: its parts add up to it, quotes are compared by it, and plans show it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pricing.money import Usd
from pricing.problems import Problem
from pricing.units import format_count, format_utc
from router.quotes.quote import (
    BudgetQuote,
    Other,
    Quote,
    QuoteLearned,
    QuoteLearnedRate,
    QuoteLearnedSpeed,
    QuoteLimits,
    Refused,
)
from router.render.quote_view import limits_words
from router.render.record_table import RecordTable, TableColumn, attribute_columns
from router.render.speed_text import advise_measuring, list_speeds
from router.render.tables import (
    MARKETS,
    PLAIN,
    Screen,
    describe_price_date,
    format_step_price,
    format_table,
    format_timestamp,
    format_usd,
    wrap_text,
)

if TYPE_CHECKING:
    from router.config.plan_files import StoredQuote

_ENDLESS = "no end in sight"
_LEAST_SURE = 0.9995  # above this a probability is shown as "greater than"
_PLACES = 6


def text(answer: Quote | BudgetQuote, name: str, screen: Screen = PLAIN) -> str:
    """Return the full text for the owner of the job."""
    return _budget(answer, screen) if isinstance(answer, BudgetQuote) else _quote(answer, name, screen)


def line(answer: Quote | BudgetQuote, name: str) -> str:
    """Return one line for a ticket."""
    if isinstance(answer, BudgetQuote):
        steps = ", ".join(f"{r.steps:,} at {r.confidence:.0%}" for r in answer.reaches)
        return f"{answer.job} by {format_timestamp(answer.deadline)} for {format_usd(answer.budget)}: steps {steps}"
    q = answer
    named = f" ({name})" if name else ""
    return (
        f"{q.job} by {format_timestamp(q.deadline)}: {format_cost(q.usd.mean)} expected, "
        f"9 of 10 up to {format_cost(q.usd.p90)}, "
        f"on time {format_on_time(q)}; "
        f"valid until {format_timestamp(q.valid_until)}{named}"
    )


def table(answers: Sequence[tuple[str, Quote | BudgetQuote]], screen: Screen = PLAIN) -> str:
    """Return a table with one row per job, and the total."""
    budgets = [(n, a) for n, a in answers if isinstance(a, BudgetQuote)]
    quotes = [(n, a) for n, a in answers if isinstance(a, Quote)]
    parts = []
    if quotes:
        header = ("JOB", "BY", "EXPECTED", "9 OF 10", "ON TIME", "SPOT", "KNEE", "QUOTE")
        rows = [
            (
                q.job,
                f"{q.deadline:%d %H:%M}",
                _amount(q.usd.mean),
                _amount(q.usd.p90),
                format_on_time(q),
                f"{q.spot_share:.0%}",
                f"{q.knee.deadline:%d %H:%M}" if q.knee else "",
                name.removeprefix("quote-")[:8],
            )
            for name, q in quotes
        ]
        parts.append(
            format_table(header, rows, frozenset({"EXPECTED", "9 OF 10", "ON TIME", "SPOT"}), {"JOB": 21}, screen)
        )
        means = [q.usd.mean for _, q in quotes]
        known = Usd.total(m for m in means if m is not None)
        more = " and more without end" if None in means else ""
        parts.append(
            f"{format_count(len(quotes), 'job')}, expected {format_usd(known)}{more}; dollars, days and times of UTC"
        )
    if budgets:
        names = ("JOB", "BY", *(f"STEPS AT {r.confidence:.0%}" for r in budgets[0][1].reaches), "LEFT")
        budget_rows = [
            (b.job, f"{b.deadline:%d %H:%M}", *(f"{r.steps:,}" for r in b.reaches), f"{b.steps:,}") for _, b in budgets
        ]
        parts.append(format_table(names, budget_rows, frozenset(names[2:]), {"JOB": 30}, screen))
    return "\n\n".join(part for part in parts if part) + "\n"


def refusal_problem(r: Refused) -> Problem:
    """Return why there is no quote, and what would help."""
    what, remedy = r.what, r.remedy
    if r.earliest is not None:
        what += f"; at the earliest {format_timestamp(r.earliest)}, "
        what += f"for about {format_cost(r.earliest_usd)} on {r.earliest_on}"
    if r.reasons:
        remedy = "\n    ".join((remedy, *r.reasons))
    return Problem(f"job {r.job}", "", what, remedy)


def format_cost(amount: Usd | None) -> str:
    """Return an amount such as ``$1,234.56``, or words if it has no upper bound."""
    return _ENDLESS if amount is None else format_usd(amount)


def format_on_time(q: Quote) -> str:
    """Return the probability of being on time, or a lower bound if the draws cannot tell it from certainty."""
    if q.on_time >= _LEAST_SURE:
        return f">{int(q.on_time_low * 1000) / 10:g}%"
    return f"{q.on_time:.1%}" if q.on_time > 0.9 else f"{q.on_time:.0%}"


def _accepted(field: str) -> Callable[[StoredQuote], object]:
    return lambda row: row.acceptance and getattr(row.acceptance, field)


_SHORT_TIME = "{:%m-%d %H:%M}".format
# What has no end or is not known is empty in CSV.
STORED_QUOTES: RecordTable[StoredQuote] = RecordTable(
    (
        TableColumn("quote_id", lambda row: row.name, "QUOTE", lambda name: name.removeprefix("quote-")),
        TableColumn("", lambda row: row.quote.asked_at, "ASKED", _SHORT_TIME),
        TableColumn("job", lambda row: row.quote.job, "JOB", width=18),
        *attribute_columns("team", of="quote"),
        TableColumn("asked_at", lambda row: row.quote.asked_at, plain=format_utc),
        *attribute_columns("asked_by"),
        TableColumn("deadline", lambda row: row.quote.deadline, "BY", _SHORT_TIME, plain=format_utc),
        TableColumn("valid_until", lambda row: row.quote.valid_until, plain=format_utc),
        TableColumn(
            "expected_usd", lambda row: row.quote.usd.mean, "EXPECTED", format_usd, right=True, unknown=_ENDLESS
        ),
        TableColumn("p90_usd", lambda row: row.quote.usd.p90),
        *attribute_columns("on_time", of="quote"),
        TableColumn("", lambda row: row.quote, "ON TIME", format_on_time, right=True),
        TableColumn("accepted_at", _accepted("at")),
        TableColumn("accepted_by", _accepted("who")),
        TableColumn("ceiling_usd", _accepted("ceiling_usd"), "ACCEPTED", "${}".format, right=True),
        TableColumn("plan", _accepted("plan")),
    )
)


def _amount(amount: Usd | None) -> str:
    return "-" if amount is None else format_usd(amount).removeprefix("$")


def _quote(q: Quote, name: str, screen: Screen) -> str:
    expected = (
        "no expected cost, for some runs never end" if q.usd.mean is None else f"{format_usd(q.usd.mean)} expected"
    )
    cost = f"{expected}, in 9 of 10 cases up to {format_cost(q.usd.p90)}"
    head = f"{q.job} by {format_timestamp(q.deadline)}: {cost}; on time {format_on_time(q)}"
    finish = f"{_when(q.finish_p50)}, in 9 of 10 cases by {_when(q.finish_p90)}"
    parts = [
        wrap_text(head),
        "\n".join(
            [
                *_expected(q),
                f"  half       {format_cost(q.usd.p50)}: half of the cases cost no more",
                *_planned(q),
                f"  done       {finish}",
                f"  earliest   {format_timestamp(q.earliest)} for about {format_cost(q.earliest_usd)}, on demand"
                if any(place.market != "spot" for place in q.places)
                else f"  earliest   {format_timestamp(q.earliest)} if spot is never lost",
                f"  a step     {format_step_price(q.usd_per_step) or '-'} dollars"
                + (f", {q.steps_per_usd:,.3g} steps a dollar" if q.steps_per_usd else ""),
                f"  spot       {q.spot_share:.0%} of the hours, {q.interruptions:.1f} restarts expected",
                wrap_text(
                    f"  on time    {q.on_time_low:.1%} to {q.on_time_high:.1%} ({q.draws} simulated scenarios); "
                    f"the job asks for {q.confidence:.1%}",
                    "",
                    80,
                ),
                *_learned(q.learned),
            ]
        ),
        _drivers(q),
        _curve(q, screen),
        _others(q.alternatives, q, screen),
        _places(q),
        _conditions([*q.conditions, *list_speeds(q.places)]),
        wrap_text(advise_measuring(q.job, q.to_measure or (), q.files)),
        wrap_text(f"run by {q.run_policy}: `apply` runs the same policy"),
        _limits(q.limits),
        f"valid until {format_timestamp(q.valid_until)}"
        + (f"; stepfare quote --accept {name} --out plan.json" if name else ""),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _planned(q: Quote) -> list[str]:
    """Return what a plan costs if it differs from the expected cost, and what the quote would cost on its place."""
    if q.plan_usd is None or q.plan_usd == q.usd.mean:
        return []
    if q.place_usd is None:
        return [f"  a plan     {format_cost(q.plan_usd)}: it runs at once, on one place"]
    beyond = ", others if it is a bad one, and its fallback"
    if q.place_usd == q.usd.mean:
        own = f"  a plan     {format_cost(q.plan_usd)}, by formula: on the spot place of this quote{beyond}"
        return [wrap_text(own, "", 80)]
    alone = f"this policy on the first place alone: {format_cost(q.place_usd)}{_error(q.place_error_usd)}"
    if q.place_error_usd is not None and abs(q.plan_usd.nanos - q.place_usd.nanos) > q.place_error_usd.nanos:
        alone += "; beyond that, the plan leaves a bad pool by formula, for another or for its fallback"
    return [wrap_text(f"  a plan     {format_cost(q.plan_usd)}: on one spot place{beyond}; {alone}", "", 80)]


def _expected(q: Quote) -> list[str]:
    """Return how far the expected cost may be off for the number of scenarios, and why it may be above 9 of 10."""
    if q.usd.mean is None or q.mean_error_usd is None or not q.mean_error_usd.nanos:
        return []
    words = f"  expected   {format_cost(q.usd.mean)}{_error(q.mean_error_usd)}, as {q.draws} scenarios tell it"
    if q.usd.p90 is not None and q.usd.p90 < q.usd.mean:
        words += "; few runs cost far more than the others, so that more than 9 of 10 cost less"
    return [wrap_text(words, "", 80)]


def _error(usd: Usd | None) -> str:
    return "" if usd is None or not usd.nanos else f" ±{format_cost(usd)}"


def _learned(learned: QuoteLearned | None) -> list[str]:
    """Return a line with what earlier runs taught, and from when to when they ended; none without."""
    if learned is None:
        return []
    rows: list[QuoteLearnedSpeed | QuoteLearnedRate] = [*learned.speeds, *learned.rates]
    said = []
    if learned.speeds:
        factors = [speed.factor for speed in learned.speeds if speed.factor is not None]
        runs = format_count(sum(speed.runs for speed in learned.speeds), "run")
        said.append(f"{format_count(learned.points, 'speed')}{_times(factors)} of {runs}")
    if learned.rates:
        said.append(f"{format_count(len(learned.rates), 'pool')}{_times([rate.factor for rate in learned.rates])}")
    # No run is older than half a year, so that the year goes without saying.
    first, last = (f"{day:%m-%d}" for day in (min(r.first_at for r in rows), max(r.last_at for r in rows)))
    return [f"  learned    {', '.join(said)}; {first if first == last else f'{first} to {last}'}"]


def _times(factors: Sequence[float]) -> str:
    """Return by what rows multiply what is stated: `` x0.52-1.1``."""
    if not factors:
        return ""
    least, most = (f"{factor:.2g}" for factor in (min(factors), max(factors)))
    return f" x{least}" if least == most else f" x{least}-{most}"


def _when(moment: datetime | None) -> str:
    return "never" if moment is None else format_timestamp(moment)


def _drivers(q: Quote) -> str:
    lines = [f"WHAT IT COSTS ({format_cost(q.usd.mean)} expected)"]
    lines += [f"  {d.share:5.0%}  {format_cost(d.usd):>13}  {d.what}" for d in q.drivers]
    if q.dearest_risk:
        lines.append(wrap_text(f"dearest risk: {q.dearest_risk}", "  "))
    return "\n".join(lines) if len(lines) > 1 else ""


def _curve(q: Quote, screen: Screen) -> str:
    if len(q.curve) < 2:
        return ""
    rows = [
        (
            format_timestamp(p.deadline),
            f"{p.hours:,.1f}",
            _amount(p.mean),
            _amount(p.p90),
            f"{p.on_time:.0%}",
            "knee" if p.knee else "",
        )
        for p in q.curve
    ]
    header = ("DONE BY", "HOURS", "EXPECTED", "9 OF 10", "ON TIME", "")
    return format_table(header, rows, frozenset(header[1:-1]), {}, screen)


def _others(others: Sequence[Other], q: Quote, screen: Screen) -> str:
    if not others:
        return ""
    rows = [(o.change, _amount(o.mean), _amount(o.p90), f"{o.on_time:.0%}", _more(o.mean, q.usd.mean)) for o in others]
    header = ("INSTEAD", "EXPECTED", "9 OF 10", "ON TIME", "MORE")
    return format_table(header, rows, frozenset(header[1:]), {"INSTEAD": 36}, screen)


def _more(cost: Usd | None, than: Usd | None) -> str:
    if cost is None or than is None or not than.nanos:
        return ""
    return f"{cost.nanos / than.nanos - 1:+.0%}"


def _places(q: Quote | BudgetQuote) -> str:
    if not q.places:
        return ""
    lines = ["COUNTS ON"]
    for p in q.places[:_PLACES]:
        price = f"{format_usd(p.usd_per_hour)}/h, {describe_price_date(p.price_as_of)}"
        lines.append(
            wrap_text(
                f"{p.where} {p.accelerators} x {p.accelerator} {MARKETS.get(p.market, p.market)}, {price}; {p.weather}",
                "  ",
            )
        )
    if len(q.places) > _PLACES:
        lines.append(f"  and {len(q.places) - _PLACES} more")
    return "\n".join(lines)


def _limits(limits: QuoteLimits | None) -> str:
    words = limits_words(limits)
    return wrap_text(f"made under {words}; accepted under the same") if words else ""


def _conditions(conditions: Sequence[str]) -> str:
    return "\n".join(["HOLDS IF", *(wrap_text(words, "  ") for words in conditions)]) if conditions else ""


def _budget(b: BudgetQuote, screen: Screen) -> str:
    mid = b.reaches[1] if len(b.reaches) > 1 else b.reaches[0]
    share = f" of the {b.steps:,} it has left" if mid.steps < b.steps else f", all of the {b.steps:,} it has left"
    head = f"{b.job} for {format_usd(b.budget)} by {format_timestamp(b.deadline)}: "
    head += f"{format_count(mid.steps, 'step')}, {mid.confidence:.0%} sure{share}"
    rows = [
        (f"{r.confidence:.0%} sure", f"{r.steps:,}", _amount(r.usd), f"{min(r.steps / b.steps, 9.99):.0%}")
        for r in b.reaches
    ]
    header = ("", "STEPS", "MEDIAN COST", "OF THE JOB")
    parts = [
        wrap_text(head),
        format_table(header, rows, frozenset(header[1:]), {}, screen),
        "\n".join(_learned(b.learned)),
        _places(b),
        _conditions([*b.conditions, *list_speeds(b.places)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
