"""Two quotes of the example month that were accepted: one that was kept, and one that cost more than it said."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pricing.money import Usd
from router.config.plan_files import QuoteAcceptance, store_acceptance, store_quotes
from router.jobs.spec import Job
from router.quotes.quote import Likely, Quote

_HOUR = timedelta(hours=1)


def keep_promises(home: Path, plans: Mapping[str, str], code: Job, tts: Job) -> None:
    """Puts them where ``quote`` does, with the plans that were made of them."""
    for job, start, hours, p50, p90 in (
        (code, datetime(2026, 11, 10, 6, tzinfo=UTC), 60, "2950", "3380"),
        (tts, datetime(2026, 11, 17, 8, tzinfo=UTC), 10, "540", "590"),
    ):
        (name,) = store_quotes(home / "quotes", [_quote(job, start, hours * _HOUR, Usd.parse(p50), Usd.parse(p90))])
        at = f"{start - _HOUR:%Y-%m-%dT%H:%M:%SZ}"
        store_acceptance(home / "quotes", QuoteAcceptance(name, at, "mira@desk", plans[job.name], job.digest, p90))


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
