"""Quotes that were accepted, made up: what a job was to cost, and the plan that was made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.config.plan_files import QuoteAcceptance, store_acceptance, store_quotes
from router.jobs.spec import Job
from router.quotes.quote import Driver, Leg, Likely, Quote, QuoteEvidence, Somewhere
from router.render.figures import MARKET_WORDS
from router.spot.live.selection import default_run_policy
from router.spot.policies import QUOTED_RULE
from router.spot.policies.our_policy import QUOTED_DESCRIPTION
from tests.support.metered_stage import Place

_HOUR = timedelta(hours=1)
_BOOK_AS_OF = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Promise:
    """A quote of a job that was accepted an hour before its start, and the plan that was made of it.

    It counts on one place, on so many machines.
    """

    job: Job
    plan: str
    place: Place
    machines: int
    start: datetime
    takes: timedelta
    p50: str
    p90: str
    who: str = "mira@desk"


def keep_promises(home: Path, promises: Iterable[Promise]) -> None:
    """Put quotes where ``quote`` does, with the plans that were made of them."""
    for each in promises:
        quote = _quote(each, Usd.parse(each.p50), Usd.parse(each.p90))
        (name,) = store_quotes(home / "quotes", [quote])
        at = f"{each.start - _HOUR:%Y-%m-%dT%H:%M:%SZ}"
        accepted = QuoteAcceptance(name, at, each.who, each.plan, each.job.digest, each.p90)
        store_acceptance(home / "quotes", accepted)


def _quote(promise: Promise, p50: Usd, p90: Usd) -> Quote:
    job, start, takes, place = promise.job, promise.start, promise.takes, promise.place
    assert job.deadline is not None
    where = "/".join(filter(None, (place.cloud, place.region, place.zone, place.instance_type)))
    market = place.market.value
    somewhere = Somewhere(
        where=where,
        market=market,
        accelerator=place.accelerator,
        accelerators=promise.machines * place.accelerators,
        usd_per_hour=Usd(UsdPerHour.parse(place.usd).times(promise.machines).nanos),
        steps_per_hour=job.steps / (takes / _HOUR),
        price_as_of=_BOOK_AS_OF.date().isoformat(),
        weather="made up",
        weak="",
    )
    return Quote(
        job=job.name,
        job_digest=job.digest,
        team=job.team,
        files=(f"{job.name}.yaml",),
        asked_at=start - 2 * _HOUR,
        start=start,
        deadline=job.deadline.at(start),
        valid_until=start,
        steps=job.steps,
        usd=Likely(p50, p90, p50),
        finish_p50=start + takes,
        finish_p90=start + takes * 1.15,
        on_time=0.95,
        on_time_low=0.93,
        on_time_high=0.97,
        confidence=0.9,
        spot_share=float(place.market is Market.SPOT),
        interruptions=1.0,
        usd_per_step=Usd(p50.nanos // job.steps),
        steps_per_usd=job.steps / p50.dollars(),
        earliest=start + takes,
        earliest_usd=p90,
        usd_levels=(p50,) * 39,
        finish_levels=(start + takes,) * 39,
        curve=(),
        drivers=(Driver(f"{MARKET_WORDS[market]} machines", p50, 1.0),),
        dearest_risk="",
        alternatives=(),
        places=(somewhere,),
        run=(Leg(start, start + takes, where, market),),
        conditions=(
            f"started at {start:%Y-%m-%d %H:%MZ}, run by {QUOTED_DESCRIPTION}",
            "prices stay as they are in the price book",
        ),
        policy=QUOTED_DESCRIPTION,
        draws=400,
        seed=0,
        book_digest="0" * 64,
        book_as_of=_BOOK_AS_OF,
        run_policy=default_run_policy(QUOTED_RULE),
        evidence=QuoteEvidence(spot_places=int(place.market is Market.SPOT), observed_places=0),
    )
