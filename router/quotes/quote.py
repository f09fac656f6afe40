"""Quotes as frozen values, the same for the same inputs; :mod:`router.quotes.quote_json` has their JSON form.

Amounts are statistics of a simulation, rounded to the cent; None stands for one without end: a job on spot alone may
never be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pricing.money import NANOS_PER_CENT, Usd
from router.jobs.run_policy import RunPolicy
from router.planning.document.plan_usage import PointToMeasure

LEVELS = tuple(i / 40 for i in range(1, 40))  # 2.5 % to 97.5 %: the ends of the 95 % interval, and the levels inside


@dataclass(frozen=True, slots=True)
class Likely:
    """A distribution of money: its median, its 90 % quantile, and its mean, which is the expected amount."""

    p50: Usd | None
    p90: Usd | None
    mean: Usd | None


@dataclass(frozen=True, slots=True)
class Point:
    """The cost of another deadline; ``knee`` marks the one beyond which more time saves little.

    ``mean`` is the expected cost, by which points are compared; absent where it has no end. ``draws`` is the number of
    simulated scenarios.
    """

    deadline: datetime
    hours: float
    p50: Usd | None
    p90: Usd | None
    on_time: float
    knee: bool
    draws: int
    mean: Usd | None = None


@dataclass(frozen=True, slots=True)
class Driver:
    """A part of the expected cost, or with ``usd`` None something that moves it."""

    what: str
    usd: Usd | None
    share: float


@dataclass(frozen=True, slots=True)
class Other:
    """The same job with one thing changed; ``mean`` and ``draws`` are as in a point.

    ``on_time_low``..``on_time_high`` is the 95 % interval of ``on_time`` that the number of draws leaves.
    """

    change: str
    p50: Usd | None
    p90: Usd | None
    on_time: float
    finish_p50: datetime | None
    draws: int
    on_time_low: float
    on_time_high: float
    mean: Usd | None = None


@dataclass(frozen=True, slots=True)
class QuoteEvidence:
    """The records that the range of a quote rests on.

    ``observed_places`` of ``spot_places`` were watched in the price history. ``fit_days`` and ``fit_pools`` are of the
    history from which ``stepfare quotes fit`` learned how wide ranges must be; absent where nothing was learned, so
    that the levels of the quote were not compared with what came of earlier ones.
    """

    spot_places: int
    observed_places: int
    fit_days: int | None = None
    fit_pools: int | None = None


@dataclass(frozen=True, slots=True)
class Somewhere:
    """A place that the quote counts on.

    ``usd_per_hour`` is of the whole gang. ``weather`` names the source of its expected spot availability.
    ``speed_evidence`` is measured, learned of earlier runs, published (the shape, with published runs on the
    accelerator) or shape (alone), ``speed_basis`` the same in words, and ``relative_error`` the standard deviation of
    the run time as a share of it; a quote of an earlier version is silent on them.
    """

    where: str
    market: str
    accelerator: str
    accelerators: int
    usd_per_hour: Usd
    steps_per_hour: float
    price_as_of: str
    weather: str
    weak: str
    speed_evidence: str = ""
    speed_basis: str = ""
    relative_error: float | None = None


@dataclass(frozen=True, slots=True)
class Leg:
    """One stretch of a typical run; ``where`` is "" while the job waits."""

    start: datetime
    end: datetime
    where: str
    market: str


@dataclass(frozen=True, slots=True)
class QuoteLearnedSpeed:
    """The speed of a gang that earlier runs of the job taught.

    ``steps_per_hour`` is what the quote reckons with, and ``factor`` that over what the job states; null where it
    states none. ``runs`` were counted, which ended from ``first_at`` to ``last_at``; ``attempts`` names the newest.
    """

    accelerator: str
    accelerators: int
    machines: int
    fabric: str | None
    steps_per_hour: float
    factor: float | None
    runs: int
    first_at: datetime
    last_at: datetime
    attempts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuoteLearnedRate:
    """The interruptions that earlier runs counted in a pool that the quote may use.

    ``factor`` multiplies the price book's interruption rate; recorded availability of the pool is added to the product.
    ``hours`` and ``interruptions`` are those of ``runs`` gangs, older ones counted less.
    """

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    factor: float
    hours: float
    interruptions: float
    runs: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class QuoteLearned:
    """The rows of earlier runs that the quote used.

    ``job_signature`` is the digest of what the job's speed depends on: runs of the same signature count. ``points`` is
    the number of speeds that became points of its profile. ``digest`` is the SHA-256 of the rows, as in a plan.
    """

    job_signature: str
    points: int
    digest: str
    speeds: tuple[QuoteLearnedSpeed, ...]
    rates: tuple[QuoteLearnedRate, ...]


@dataclass(frozen=True, slots=True)
class LimitsPlan:
    """A plan whose limits a quote was made under: its digest, and the moment that it is for."""

    digest: str
    as_of: datetime


@dataclass(frozen=True, slots=True)
class QuoteLimits:
    """The limits that a quote was made under, as far as they concern its team; acceptance keeps to the same.

    ``digest`` is the SHA-256 of their canonical JSON. ``plan`` is absent where they are of no plan. ``empty``: nothing
    is limited.
    """

    digest: str
    empty: bool
    plan: LimitsPlan | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """A quote: the cost of finishing a job by ``deadline``, as a distribution.

    ``on_time_low``..``on_time_high`` is the 95 % interval of ``on_time`` that the number of ``draws`` leaves.
    ``usd_levels`` and ``finish_levels`` are quantiles at 2.5 %, 5 %, ... 97.5 %. ``spot_share`` is of the hours that
    the job runs. ``usd_per_step`` and ``steps_per_usd`` are of the mean, which is the sum of the ``drivers`` too.
    ``plan_usd`` is what a plan of this job alone expects of its cheapest place and the fallback behind it, and
    ``place_usd`` what the quoted policy is expected to cost there alone: the rest of the difference is what its other
    places are worth. The latter is absent where the plan's place has no fallback. ``mean_error_usd`` and
    ``place_error_usd`` are half of the 95 % intervals that the number of draws leaves of ``usd.mean`` and
    ``place_usd``. ``run_policy`` is the policy that
    the quote is for and that runs the job where it is accepted; ``policy`` is the same in words. ``learned`` is absent
    where no earlier run was counted. ``hour_earlier`` and ``hour_later`` are deadlines about an hour before and after:
    a whole number of the simulation's ticks, so that ``hours`` says how far. Each is absent where nothing is done by
    then, and where the deadline is so far that an hour changes nothing. ``limits`` is absent where none were asked for
    on the command line. ``to_measure`` are gangs to measure before money is spent; absent where the speed is measured,
    or little money rests on it.
    """

    job: str
    job_digest: str
    team: str
    files: tuple[str, ...]
    asked_at: datetime
    start: datetime
    deadline: datetime
    valid_until: datetime
    steps: int
    usd: Likely
    finish_p50: datetime | None
    finish_p90: datetime | None
    on_time: float
    on_time_low: float
    on_time_high: float
    confidence: float
    spot_share: float
    interruptions: float
    usd_per_step: Usd | None
    steps_per_usd: float | None
    earliest: datetime
    earliest_usd: Usd | None
    usd_levels: tuple[Usd | None, ...]
    finish_levels: tuple[datetime | None, ...]
    curve: tuple[Point, ...]
    drivers: tuple[Driver, ...]
    dearest_risk: str
    alternatives: tuple[Other, ...]
    places: tuple[Somewhere, ...]
    run: tuple[Leg, ...]
    conditions: tuple[str, ...]
    policy: str
    draws: int
    seed: int
    book_digest: str
    book_as_of: datetime
    run_policy: RunPolicy
    evidence: QuoteEvidence
    plan_usd: Usd | None = None
    place_usd: Usd | None = None
    mean_error_usd: Usd | None = None
    place_error_usd: Usd | None = None
    learned: QuoteLearned | None = None
    hour_earlier: Point | None = None
    hour_later: Point | None = None
    limits: QuoteLimits | None = None
    to_measure: tuple[PointToMeasure, ...] | None = None

    @property
    def ceiling_usd(self) -> Usd | None:
        """Return what the job may cost where nobody says otherwise; None where nothing bounds it.

        It is the cost that 9 of 10 runs stay below. A plan that knows one place alone may expect more than that; the
        ceiling is then a twentieth above what it expected, since prices and hours differ when the quote is accepted.
        """
        if self.usd.p90 is None or self.plan_usd is None:
            return self.usd.p90
        return max(self.usd.p90, Usd(self.plan_usd.nanos * 21 // 20 // NANOS_PER_CENT * NANOS_PER_CENT))

    @property
    def knee(self) -> Point | None:
        return next((p for p in self.curve if p.knee), None)


@dataclass(frozen=True, slots=True)
class Reach:
    """Steps that a budget pays for by the deadline, with that ``confidence``; ``usd`` is their median cost."""

    confidence: float
    steps: int
    usd: Usd | None


@dataclass(frozen=True, slots=True)
class BudgetQuote:
    """A budget quote: how many steps a budget pays for.

    ``steps`` is what the job has left to do. ``policy``, ``run_policy``, ``learned`` and ``limits`` are as in a
    quote.
    """

    job: str
    job_digest: str
    asked_at: datetime
    start: datetime
    deadline: datetime
    budget: Usd
    steps: int
    reaches: tuple[Reach, ...]
    places: tuple[Somewhere, ...]
    conditions: tuple[str, ...]
    policy: str
    draws: int
    book_digest: str
    run_policy: RunPolicy
    learned: QuoteLearned | None = None
    limits: QuoteLimits | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no quote.

    ``earliest`` is when the job would be done on the fastest on-demand, and ``earliest_usd`` what that costs; None
    where nothing can run it. ``reasons`` are the planner's, where no place is left.
    """

    job: str
    what: str
    remedy: str
    earliest: datetime | None = None
    earliest_usd: Usd | None = None
    earliest_on: str = ""
    reasons: tuple[str, ...] = ()
