"""Say which listings cannot serve a job, and why it has no candidate. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pricing.book import PriceBook
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.find.listings import OfferListing


@dataclass(frozen=True, slots=True)
class DroppedListing:
    """A listing (or region) that cannot serve the job.

    ``code`` groups reasons; ``accelerators`` is the size of the gang that was tried.
    """

    code: str
    reason: str
    listing: OfferListing
    accelerators: int


def no_offer_reason(
    job: Job, book: PriceBook, dropped: Iterable[DroppedListing], advisory: Sequence[Candidate] = ()
) -> str:
    """Return why a job has no candidate that can be ordered, in words that name what the book lacks where it does.

    ``advisory`` are its candidates that cannot be ordered from here.
    """
    wanted = " or ".join(sorted({option.accelerator for option in job.gang.options}))
    dropped = tuple(dropped)
    codes = {each.code for each in dropped}
    if not codes and not advisory:
        wished = sorted({option.accelerator for option in job.gang.options})
        why = "; ".join(filter(None, (book.explain_absence(name)[1] for name in wished)))
        return f"the price book has no {wanted}{why and f': {why}'}"
    if not advisory and codes == {"residency"}:
        return f"the price book has no {wanted} where residency lets the job run"
    if advisory:
        types = sorted({f"{part.offer.cloud} {part.offer.instance_type}" for c in advisory for part in c.parts})
        more = f" and {len(types) - 2} more" if len(types) > 2 else ""
        names = ", ".join(types[:2]) + more
        unmade = dict.fromkeys(part.offer.unmade for c in advisory for part in c.parts)
        why = "; ".join(list(filter(None, unmade))[:2])
        what = "only machines that cannot be ordered from here would do"
        return f"{what}: {names} (--advisory plans with them){why and f': {why}'}"
    return f"no offer passes the job's rules{_words_of_drops(job, dropped)}"


def _words_of_drops(job: Job, dropped: Sequence[DroppedListing]) -> str:
    """Return how many offers each rule drops, most first, and why the first drops the nearest that can be ordered.

    Of the other reasons those are told that a change of the job's gang or profile puts right.
    """
    words: list[str] = []
    for code, count in Counter(drop.code for drop in dropped).most_common(4):
        nearest = min((drop for drop in dropped if drop.code == code), key=_distance)
        remedy = _remedy(job, nearest)
        shown = remedy or "`" in nearest.reason or not words
        told = f" ({nearest.listing.name}: {nearest.reason}{remedy})" if shown else ""
        words.append(f"{code} drops {count}{told}")
    return ": " + ", ".join(words) if words else ""


def _remedy(job: Job, drop: DroppedListing) -> str:
    """Return which line of the job file would let the gang pass, where that is its shape or its fabric."""
    machine = drop.listing.machine
    if drop.code == "shape" and not machine.is_slice:
        return f"; `gang.machines: {drop.accelerators // machine.accelerator_count}` allows it"
    if drop.code == "fabric":
        return "; `gang.rdma: optional` allows it"
    if drop.code == "speed" and drop.accelerators > machine.accelerator_count and not machine.has_rdma:
        points = [p for p in job.workload.profile if p.accelerator == machine.accelerator]
        return "; a point needs `fabric: ethernet`" if any(p.fabric is None for p in points) else ""
    return ""


def _distance(drop: DroppedListing) -> tuple[bool, float, str]:
    machines = drop.accelerators / drop.listing.machine.accelerator_count
    return not drop.listing.offer.provisionable, machines, drop.listing.name
