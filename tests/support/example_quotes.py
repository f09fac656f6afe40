"""Quotes that were accepted, made up: what a job was to cost, and the plan that was made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pricing.money import Usd
from router.config.plan_files import QuoteAcceptance, store_acceptance, store_quotes
from router.jobs.spec import Job
from router.quotes.quote import Likely, Quote

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Promise:
    """A quote of a job that was accepted an hour before its start, and the plan that was made of it."""

    job: Job
    plan: str
    start: datetime
    takes: timedelta
    p50: str
    p90: str
    who: str = "mira@desk"


def keep_promises(home: Path, promises: Iterable[Promise]) -> None:
    """Put quotes where ``quote`` does, with the plans that were made of them."""
    for each in promises:
        quote = _quote(each.job, each.start, each.takes, Usd.parse(each.p50), Usd.parse(each.p90))
        (name,) = store_quotes(home / "quotes", [quote])
        at = f"{each.start - _HOUR:%Y-%m-%dT%H:%M:%SZ}"
        accepted = QuoteAcceptance(name, at, each.who, each.plan, each.job.digest, each.p90)
        store_acceptance(home / "quotes", accepted)


def _quote(job: Job, start: datetime, takes: timedelta, p50: Usd, p90: Usd) -> Quote:
    assert job.deadline is not None
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
        spot_share=1.0,
        interruptions=1.0,
        usd_per_step=None,
        steps_per_usd=None,
        earliest=start + takes,
        earliest_usd=p90,
        usd_levels=(p50,) * 39,
        finish_levels=(start + takes,) * 39,
        curve=(),
        drivers=(),
        dearest_risk="",
        alternatives=(),
        places=(),
        run=(),
        conditions=(),
        policy="made up",
        draws=400,
        seed=0,
        book_digest="0" * 64,
        book_as_of=datetime(2026, 11, 1, tzinfo=UTC),
    )
