"""What a quote's cost is made of, what moves it, and on which conditions it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from pricing.money import Usd
from pricing.offers import is_stale
from router.quotes.curve import Simulated
from router.quotes.quote import Driver, Other
from router.quotes.request import Asking, keys, where
from router.quotes.runner import Played
from router.quotes.statistics import likely, moment, quantiles, usd
from router.spot.availability.fit import WeatherFit
from router.spot.availability.observed import Weather
from router.spot.simulator.traces import Floats
from router.spot.venues import Venue, only

_SIZES: Final = 2
_LEAST_SHARE: Final = 0.005
_WORDS: Final = {
    "slow": "the job may be slower than its profile says",
    "sure": "spot may be scarce, and on-demand steps in",
    "launches": "spot may be lost often: each start costs start-up and lost work",
}


@dataclass(frozen=True, slots=True)
class Change:
    """The job with one thing changed, and its places then. ``allowed``: by the job's own rules."""

    what: str
    menu: tuple[Venue, ...]
    allowed: bool = True

    @property
    def key(self) -> tuple[str, ...]:
        """Of the places."""
        return keys(self.menu)


def drivers(s: Simulated) -> tuple[Driver, ...]:
    """Parts of the expected cost that is quoted, to the cent, the largest first; they add up to it but for start-ups,
    which are of machines. What was simulated is read at other levels where earlier quotes did not hold: all parts
    alike."""
    got, mean = s.played, usd(float(s.usd.mean()))
    total = float(got.usd.mean())
    if mean is None or not np.isfinite(total) or total <= 0 or not mean.nanos:
        return ()
    read = mean.dollars() / total
    venues, stage = s.stage.venues, s.stage
    spot, egress = float(got.spot_usd.mean()), float(got.egress_usd.mean())
    ticks = float((got.spot_ticks + got.on_demand_ticks).mean())
    hourly = (total - egress) / (ticks * stage.clock.tick_s / 3600)
    lost = np.mean([v.lost_hours for v in venues if not v.sure] or [0.0])
    starts = float(got.launches.mean()) * (stage.startup_s / 3600 + float(lost)) * hourly
    sure = "on-demand machines" if any(not v.sure for v in venues) else "machines on demand"
    parts = [("spot machines", spot), (sure, total - spot - egress), ("moving data and checkpoints", egress)]
    known = [(what, part) for what, dollars in parts if (part := usd(dollars * read)) is not None and part.nanos > 0]
    known.sort(key=lambda part: -part[1].nanos)
    rest = mean - Usd.total(part for _, part in known[1:])
    found = [Driver(what, part, part.nanos / mean.nanos) for what, part in [(known[0][0], rest), *known[1:]]]
    if starts / total >= _LEAST_SHARE:
        share = min(1.0, starts / total)
        found.append(Driver("of these: start-ups and lost work", usd(share * mean.dollars()), share))
    return tuple(found)


def dearest_risk(got: Played) -> str:
    """What goes most with the cost over the draws, in words; "" where nothing does."""
    ran = np.maximum(got.spot_ticks + got.on_demand_ticks, 1)
    causes = {"slow": got.slow, "sure": got.on_demand_ticks / ran, "launches": got.launches.astype(np.float64)}
    strength = {name: _correlation(values, got.usd) for name, values in causes.items()}
    worst = max(strength, key=lambda name: strength[name])
    return (
        f"{_WORDS[worst]} (goes with {strength[worst]:.0%} of what the cost varies)" if strength[worst] > 0.01 else ""
    )


def _uncertainty(fit: WeatherFit | None) -> str:
    if fit is None:
        return "how far weather drifts is assumed, not learned from your history: stepfare quotes fit"
    days = max(1, (fit.until - fit.since).days)
    return f"how far weather drifts, and how wide the range is, were learned from {days} days of {fit.pools} pools"


def _correlation(values: Floats, dollars: Floats) -> float:
    """The share of the variance of the cost that a straight line through ``values`` explains, where it rises."""
    finite = np.isfinite(dollars)
    if finite.sum() < 3 or np.ptp(values[finite]) == 0 or np.ptp(dollars[finite]) < 1e-9:
        return 0.0
    r = float(np.corrcoef(values[finite], dollars[finite])[0, 1])
    return max(r, 0.0) ** 2


def other(what: str, s: Simulated, start: datetime) -> Other:
    """What was simulated, as an alternative."""
    cost, finish = likely(s.usd), moment(start, float(quantiles(s.finish_s, (0.5,))[0]))
    return Other(what, cost.p50, cost.p90, s.on_time, finish, mean=cost.mean)


def without(asking: Asking, menu: Sequence[Venue]) -> list[Change]:
    """The same job with one thing changed."""
    steps, hours = asking.steps, asking.window_h
    found: list[Change] = []

    def add(what: str, venues: Sequence[Venue], *, allowed: bool = True) -> None:
        picked = asking.menu(venues, steps, hours)
        if picked and picked[0].hours(steps) <= hours:
            found.append(Change(what, picked, allowed))

    spot = [v for v in menu if not v.sure]
    if spot:
        add("on-demand alone", only(asking.venues, lambda v: v.sure))
    elif asking.job.market.spot == "never" and asking.job.checkpoint is not None:
        market = asking.job.market.model_copy(update={"spot": "allowed"})
        add("with spot allowed", asking.again(market=market), allowed=False)
    own = {v.size for v in menu}
    best = min(menu, key=lambda v: v.whole_usd(steps))
    add(f"without {best.region}", only(asking.venues, lambda v: v.region != best.region and v.size in own))
    alone = sizes_alone(asking, menu)
    return found + [Change(what, venues) for what, venues in alone if venues != tuple(menu)]


def sizes_alone(
    asking: Asking, menu: Sequence[Venue], hours: float | None = None
) -> list[tuple[str, tuple[Venue, ...]]]:
    """The same job on one size of gang, of the cheapest; none where no other than those of ``menu`` can be had.
    ``hours`` to the deadline: None: to that which was asked for."""
    steps, hours = asking.steps, asking.window_h if hours is None else hours
    sizes = {v.size for v in asking.venues}
    if {v.size for v in menu} == sizes and len(sizes) == 1:
        return []
    ranked = sorted(sizes, key=lambda s: (min(v.whole_usd(steps) for v in asking.venues if v.size == s), s))
    found: list[tuple[str, tuple[Venue, ...]]] = []
    for kind, count in ranked:
        picked = asking.menu([v for v in asking.venues if v.size == (kind, count)], steps, hours)
        if len(found) < _SIZES and picked and picked[0].hours(steps) <= hours:
            found.append((f"on {count} {kind} alone", picked))
    return found


def conditions(asking: Asking, menu: Sequence[Venue], weather: Weather, policy: str) -> tuple[str, ...]:
    """What has to hold."""
    said = [f"started at {asking.start:%Y-%m-%d %H:%MZ}, run by {policy}"]
    if any(v.sure for v in menu):
        said.append("on-demand machines can be had when they are needed")
    else:
        said.append("spot alone: nothing makes sure that it is ever done")
    said.append("prices stay as they are in the price book")
    stale = sorted({where(v.candidate) for v in menu if any(is_stale(p.offer) for p in v.candidate.parts)})
    if stale:
        said.append(f"prices that could not be refreshed hold: {', '.join(stale)}")
    if asking.job.data is not None and asking.job.data.mode == "copy":
        said.append(
            "the data are in the first region when it starts; copying them there is in the cost, not in the time"
        )
    if any(not v.sure for v in menu) and not weather.observed:
        said.append("spot was never watched here: how it comes and goes, and how wide the range is, are a prior's")
    if any(not v.sure for v in menu) and weather.observed:
        said.append(_uncertainty(asking.trade.fit))
    if asking.ask.job.checkpoint is None and asking.ask.job.market.spot != "never":
        said.append("without a checkpoint the job would lose all its work with a spot machine: none is counted on")
    return tuple(said)
