"""Arrange a quote for its page: sentence, tiles, rows and notes in the order in which they are shown. Pure functions.

Money is the quote's own, or the difference of two amounts of it; None is an amount without end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pricing.money import Usd
from pricing.units import format_count
from router.quotes.quote import LEVELS, Other, Point, Quote, QuoteLimits, Refused
from router.quotes.quote_json import quote_content
from router.render.figures import MARKET_LETTERS, MARKET_WORDS, chance, day_clock, hours, money, percent, stamp
from router.render.speed_text import advise_measuring, list_speeds

SHOWN_ALTERNATIVES = 8
DOTS = tuple(range(0, len(LEVELS), 2))  # 2.5 %, 7.5 %, ... 97.5 %: the middles of 20 parts of one run in 20
_HOUR = timedelta(hours=1)
_WITHIN = "of these: "


@dataclass(frozen=True, slots=True)
class QuoteView:
    """Everything that the page says about one quote; ``name`` is its id, "" where it is not stored.

    ``deadlines`` are those of its table with their tags, such as "knee"; ``around`` those about an hour away, in words.
    ``alternatives`` begin with the job as asked.
    """

    quote: Quote
    name: str
    anchor: str
    deadlines: tuple[tuple[Point, tuple[str, ...]], ...]
    around: tuple[tuple[str, Point], ...]
    alternatives: tuple[Other, ...]
    other_alternatives: str
    trust: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    limits: str

    @property
    def price(self) -> Usd | None:
        """Return the figure of the first sentence: the expected cost."""
        return self.quote.usd.mean

    @property
    def cost_dots(self) -> tuple[Usd | None, ...]:
        """Return the costs of the 20 dots, each one run in 20, from the cheapest."""
        return tuple(self.quote.usd_levels[i] for i in DOTS)

    @property
    def end_dots(self) -> tuple[datetime | None, ...]:
        """Return the ends of the 20 dots, from the earliest."""
        return tuple(self.quote.finish_levels[i] for i in DOTS)

    @property
    def spread(self) -> str:
        """Return the 20 costs in words, equal ones counted."""
        return _counted([cost_words(usd) for usd in self.cost_dots])

    @property
    def ends(self) -> str:
        """Return the 20 ends in words, equal ones counted."""
        return _counted(["never" if at is None else day_clock(at) for at in self.end_dots])

    @property
    def on_time_words(self) -> str:
        """Return the interval of the chance to be on time that the number of runs leaves, and what was asked for."""
        q = self.quote
        return f"{interval_words(q.on_time_low, q.on_time_high)} by {q.draws:,} runs; asked {chance(q.confidence)}"

    @property
    def per_1000_steps(self) -> Usd | None:
        """Return the expected cost of a thousand steps."""
        usd = self.quote.usd_per_step
        return None if usd is None else Usd(usd.nanos * 1000)

    @property
    def command(self) -> str:
        if self.name:
            return f"stepfare quotes show {self.name} -o json"
        q = self.quote
        files = " ".join(file.replace("\\", "/").rsplit("/", 1)[-1] for file in q.files) or "JOB.yaml"
        return f"stepfare quote {files} --by {stamp(q.deadline)} --now {stamp(q.asked_at)} -o json"

    @property
    def curve_notes(self) -> tuple[str, ...]:
        """Return sentences on the curve: its lines, its knee, what is noise."""
        notes = ["Solid: half of the runs cost less. Dashed: 9 of 10 do"]
        knee = self.quote.knee
        if knee is not None:
            notes.append(
                f"At the knee, {day_clock(knee.deadline)}, it costs {cost_words(knee.mean)} expected: "
                "after it, more time saves less than on average"
            )
        elif len(self.quote.curve) > 2:
            notes.append("No deadline is a knee, after which more time would save less than on average")
        draws = sorted({p.draws for p in self.quote.curve})
        if draws:
            runs = " or ".join(f"{n:,}" for n in draws)
            notes.append(
                f"Each point rests on {runs} simulated runs and nothing is smoothed: the expected cost never rises "
                "with a later deadline, half and 9 of 10 may"
            )
        return tuple(notes)


@dataclass(frozen=True, slots=True)
class QuotesView:
    """The page of one or more quotes; ``refused`` are the jobs that could not be quoted."""

    quotes: tuple[QuoteView, ...]
    refused: tuple[Refused, ...]

    @property
    def asked_at(self) -> datetime:
        return self.quotes[0].quote.asked_at

    @property
    def total_usd(self) -> Usd:
        """Return the sum of the expected costs that have an end."""
        return Usd.total(usd for view in self.quotes if (usd := view.price) is not None)

    @property
    def endless(self) -> int:
        return sum(view.price is None for view in self.quotes)


def quotes_view(quotes: Sequence[tuple[str, Quote]], refused: Sequence[Refused] = ()) -> QuotesView:
    """Return what the page says about quotes, each with its id."""
    return QuotesView(tuple(quote_view(q, name, f"q{i}") for i, (name, q) in enumerate(quotes, 1)), tuple(refused))


def quote_view(q: Quote, name: str, anchor: str = "q1") -> QuoteView:
    """Return what the page says about a quote; ``anchor`` begins the ids of its sections."""
    alternatives = _alternatives(q)
    return QuoteView(
        quote=q,
        name=name,
        anchor=anchor,
        deadlines=_deadlines(q),
        around=_hours_around(q),
        alternatives=alternatives[:SHOWN_ALTERNATIVES],
        other_alternatives=_rest(alternatives[SHOWN_ALTERNATIVES:]),
        trust=_trust(q),
        fields=_raw_fields(q),
        limits=limits_words(q.limits),
    )


def limits_words(limits: QuoteLimits | None) -> str:
    """Return the limits that a quote was made under in words; "" where none are recorded."""
    if limits is None:
        return ""
    if limits.plan is None:
        return "no limits" if limits.empty else f"limits {limits.digest[:12]}, written for it"
    plan = f"limits of plan-{limits.plan.digest[:12]} as of {day_clock(limits.plan.as_of)} UTC"
    return f"{plan}, which limit nothing here" if limits.empty else plan


def cost_words(usd: Usd | None) -> str:
    """Return an amount to the cent, or that it has no end."""
    return "no end" if usd is None else money(usd)


def interval_words(low: float, high: float) -> str:
    """Return an interval of chances such as ``93% to 96%``; never up to a certainty."""
    if high > 0.99:
        return f"{chance(low).removeprefix('>')} or more"
    return f"{chance(low)} to {chance(high)}"


def step_words(length: timedelta) -> str:
    """Return how far a deadline moves: ``an hour``, or hours with one decimal."""
    return "an hour" if abs(length / _HOUR - 1) < 0.05 else hours(length)


def roles_of(q: Quote, point: Point) -> tuple[str, ...]:
    """Return what a point of the curve is: tightest, knee, asked."""
    said = [("tightest", bool(q.curve) and point is q.curve[0]), ("knee", point.knee)]
    return tuple(name for name, true in [*said, ("asked", point.deadline == q.deadline)] if true)


def difference_of(usd: Usd | None, than: Usd | None) -> Usd | None:
    """Return how much more an amount is; None where one of both has no end."""
    return None if usd is None or than is None else usd - than


def _deadlines(q: Quote) -> tuple[tuple[Point, tuple[str, ...]], ...]:
    """Return the deadlines of the curve, and those about an hour away, earliest first."""
    rows = [(p, roles_of(q, p)) for p in q.curve]
    for words, point in _hours_around(q):
        # A point of the curve may be the same deadline but for a part of a tick.
        same = next((i for i, (p, _) in enumerate(rows) if _minute(p.deadline) == _minute(point.deadline)), None)
        if same is None:
            rows.append((point, (words,)))
        elif rows[same][0].mean == point.mean:
            rows[same] = (rows[same][0], (*rows[same][1], words))
    return tuple(sorted(rows, key=lambda row: row[0].deadline))


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def _hours_around(q: Quote) -> tuple[tuple[str, Point], ...]:
    around = ((q.hour_earlier, "earlier"), (q.hour_later, "later"))
    return tuple((f"{step_words(abs(p.deadline - q.deadline))} {word}", p) for p, word in around if p is not None)


def _alternatives(q: Quote) -> tuple[Other, ...]:
    """Return the job as asked, then its alternatives by price, those without an end last."""
    interval = (q.on_time_low, q.on_time_high)
    requested = Other("as asked", q.usd.p50, q.usd.p90, q.on_time, q.finish_p50, q.draws, *interval, q.usd.mean)

    def price(other: Other) -> tuple[bool, int, str]:
        return (other.mean is None, (other.mean or other.p50 or Usd(0)).nanos, other.change)

    return (requested, *sorted(q.alternatives, key=price))


def interval_of_runs(other: Other) -> str:
    """Return the interval of a chance to be on time, and how many runs it rests on."""
    return f"{interval_words(other.on_time_low, other.on_time_high)}, {other.draws:,} runs"


def _rest(rows: Sequence[Other]) -> str:
    """Return how many alternatives are not shown, and what the cheapest of them costs."""
    if not rows:
        return ""
    least = rows[0].mean
    price = "have no end" if least is None else f"cost {money(least)} or more"
    return f"{format_count(len(rows), 'more alternative')} {price}"


def place_words(where: str) -> str:
    """Return a place such as ``aws us-east-1 p5.48xlarge``."""
    return where.replace("/", " ")


def market_words(market: str) -> str:
    """Return a market with its letter, such as ``S spot``."""
    return f"{MARKET_LETTERS.get(market, '')} {MARKET_WORDS.get(market, market)}".strip()


def _trust(q: Quote) -> tuple[str, ...]:
    known = interval_words(q.on_time_low, q.on_time_high)
    simulated = f"Half and 9 of 10 are of {q.draws:,} simulated runs, not of runs that took place."
    said = [f"{simulated} With this many, the chance to be on time is known to lie at {known}."]
    evidence = q.evidence
    if not evidence.spot_places:
        said.append("No spot is counted on: the range is of the job’s speed and of failing hardware alone.")
    elif evidence.fit_days is not None:
        said.append(
            f"{evidence.observed_places} of {format_count(evidence.spot_places, 'spot place')} "
            f"{'was' if evidence.spot_places == 1 else 'were'} watched. The range was checked: half and 9 of 10 are "
            f"read at the levels that held afterwards, on {format_count(evidence.fit_days, 'day')} of "
            f"{format_count(evidence.fit_pools or 0, 'pool')}."
        )
    elif evidence.observed_places:
        said.append(
            f"{evidence.observed_places} of {format_count(evidence.spot_places, 'spot place')} "
            f"{'was' if evidence.spot_places == 1 else 'were'} watched, but the range was not checked against what "
            "followed: stepfare quotes fit does so."
        )
    else:
        said.append(
            "No spot place was watched: how often spot is lost and comes back, and how wide the range is, come from a "
            "prior. It was not checked against what followed."
        )
    said.append(
        "Prices stay as they are and on-demand can always be had: a rise of prices or a shortage is not in the range."
    )
    if q.learned is not None:
        said.append(
            f"Earlier runs count: {format_count(len(q.learned.speeds), 'speed')} of this job and the interruptions of "
            f"{format_count(len(q.learned.rates), 'pool')} that it may use."
        )
    said += [f"{words[0].upper()}{words[1:]}." for words in list_speeds(q.places)]
    advice = advise_measuring(q.job, q.to_measure or (), q.files)
    said += [f"{advice}."] if advice else []
    weak = sum(bool(p.weak) for p in q.places)
    if weak:
        said.append(f"{format_count(weak, 'place')} {'rests' if weak == 1 else 'rest'} on weak data, said below.")
    said.append("Whether accepted quotes came true: stepfare quotes calibration.")
    return tuple(said)


def _counted(words: Sequence[str]) -> str:
    """Return words in their order, equal neighbours once with their number."""
    counts: list[list[Any]] = []
    for word in words:
        if counts and counts[-1][0] == word:
            counts[-1][1] += 1
        else:
            counts.append([word, 1])
    return ", ".join(word if n == 1 else f"{word} ({n} dots)" for word, n in counts)


def _raw_fields(q: Quote) -> tuple[tuple[str, str], ...]:
    """Return the fields of the quote's JSON that are single values, and its quantiles, as they stand there."""
    found: list[tuple[str, str]] = []

    def add(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                add(f"{name}.{key}" if name else key, each)
        elif isinstance(value, list):
            if not any(isinstance(each, dict) for each in value):
                found.append((name, ", ".join("null" if each is None else str(each) for each in value) or "none"))
        else:
            found.append((name, "null" if value is None else str(value)))

    add("", quote_content(q))
    return tuple(found)


def driver_name(what: str) -> tuple[str, bool]:
    """Return the name of a part of the cost, and whether it lies within the other parts."""
    return what.removeprefix(_WITHIN), what.startswith(_WITHIN)


def share_words(share: float) -> str:
    """Return a share of the expected cost."""
    return percent(share, 1)
