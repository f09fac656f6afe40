"""Take quotas, reservations and stock as they were read from the clouds into the limits of a plan or quote."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pricing.book import PriceBook
from pricing.units import format_count
from router.config.job_files import LoadedJobs
from router.jobs.limits import Limits
from router.jobs.spec import Placement
from router.planning.document.inputs import LimitSource
from router.prices.allowance_store import LATEST, AllowanceStore, load_allowances
from router.prices.data_folders import allowances_folder
from router.prices.read_limits import MergedLimits, merge_read_limits

NO_QUOTAS = "none"


def with_read_quotas(
    limits: Limits,
    name: str | None,
    limits_file: Path | None,
    book: PriceBook,
    now: datetime,
    running: Sequence[tuple[Placement, int]],
) -> MergedLimits:
    """Return the limits with those that were read; as they are where no reading is asked for.

    ``name`` is that of the reading: ``latest``, a file, ``none``, or None for what the limits file says.
    InvalidInputError where the reading is missing or damaged.
    """
    if name is None and limits.quotas is not None:
        folder = Path() if limits_file is None else limits_file.parent
        name = limits.quotas if limits.quotas in (LATEST, NO_QUOTAS) else str(folder / limits.quotas)
    if name is None or name == NO_QUOTAS:
        return MergedLimits(limits.model_copy(update={"quotas": None}), (), ())
    reading = load_allowances(name, AllowanceStore(allowances_folder()))
    return merge_read_limits(limits, reading, book, now, running)


def running_placements(loaded: LoadedJobs, book: PriceBook) -> tuple[tuple[Placement, int], ...]:
    """Return where jobs run at this moment, and on how many machines; a gang of two machine types is two placements."""
    placements = []
    for job in loaded.jobs:
        place = job.status.running if job.status is not None else None
        for name, accelerators in place.accelerators_by_type.items() if place is not None else ():
            machine = book.machine(place.cloud, name) if place is not None else None
            if place is not None and machine is not None:
                alone = {"instance_type": name, "accelerators": accelerators, "mixed_with": None}
                placements.append((place.model_copy(update=alone), -(-accelerators // machine.accelerator_count)))
    return tuple(placements)


def describe_sources(sources: Sequence[LimitSource], now: datetime) -> tuple[str, ...]:
    """Return a sentence a reading: how many limits came from it, how old it is, and which the file makes smaller."""
    groups: dict[tuple[str, datetime], list[LimitSource]] = {}
    for source in sources:
        groups.setdefault((source.source, source.read_at), []).append(source)
    lines = []
    for (name, read_at), found in sorted(groups.items()):
        words = (
            f"{format_count(len(found), 'limit')} from the {name}, read {read_at:%Y-%m-%d %H:%MZ}, {_age(now, read_at)}"
        )
        shared = [one for one in found if one.in_file is not None]
        for one in shared:
            binds = "limits file" if one.binds_by_file else "reading"
            words += f"; {one.limit}: {one.read:,} read, {one.in_file:,} in the limits file, the {binds} binds"
        lines.append(words)
    return tuple(lines)


def _age(now: datetime, read_at: datetime) -> str:
    hours = (now - read_at).total_seconds() / 3600
    if hours < 0:
        return "after the moment of the plan"
    return f"{hours:.0f} hours before" if hours >= 1 else "less than an hour before"
