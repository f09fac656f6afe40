"""Say which listings cannot serve a job, and why it has no candidate. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def no_offer_reason(job: Job, dropped: Iterable[DroppedListing], advisory: Sequence[Candidate] = ()) -> str:
    """Return why a job has no candidate that can be ordered, in words that name what the book lacks where it does.

    ``advisory`` are its candidates that cannot be ordered from here.
    """
    wanted = " or ".join(sorted({option.accelerator for option in job.gang.options}))
    dropped = tuple(dropped)
    codes = {each.code for each in dropped}
    if not codes and not advisory:
        return f"the price book has no {wanted}"
    if not advisory and codes == {"residency"}:
        return f"the price book has no {wanted} where residency lets the job run"
    if advisory:
        types = sorted({f"{part.offer.cloud} {part.offer.instance_type}" for c in advisory for part in c.parts})
        more = f" and {len(types) - 2} more" if len(types) > 2 else ""
        names = ", ".join(types[:2]) + more
        return f"only machines that cannot be ordered from here would do: {names} (--advisory plans with them)"
    return f"no offer passes the job's rules{_words_of_drops(dropped)}"


def _words_of_drops(dropped: Sequence[DroppedListing]) -> str:
    """Return how many offers each rule drops, most first, and why the first drops the nearest that can be ordered."""
    counts = Counter(drop.code for drop in dropped).most_common(4)
    if not counts:
        return ""
    nearest = min(
        (drop for drop in dropped if drop.code == counts[0][0]),
        key=lambda d: (
            not d.listing.offer.provisionable,
            d.accelerators / d.listing.machine.accelerator_count,
            d.listing.name,
        ),
    )
    words = [f"{code} drops {count}" for code, count in counts]
    words[0] += f" ({nearest.listing.name}: {nearest.reason})"
    return ": " + ", ".join(words)
