"""The checkpoint that a job goes on from is in its next region before machines cost money there: which one, from where,
at what price, within what time. Where it cannot be, the job reads it across regions all the same.

:func:`goes_on_from` is the edge; the rest is pure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.places import RegionId
from router.checkpoints.arrow_store import open_store
from router.checkpoints.download import bring
from router.checkpoints.errors import OutOfTimeError, StorageError
from router.checkpoints.object_store import Depot, opened
from router.checkpoints.rate_limit import Pace
from router.checkpoints.transfer import Moved
from router.config.deploy_file import Deploy
from router.controller.accepted_limits import limits_text
from router.controller.attempt_history import Chain
from router.controller.checkpoint_check import confirmed
from router.controller.context import Site
from router.controller.usage_entries import COPIED, NOT_COPIED, moved_entries
from router.controller.workspaces import Before
from router.jobs.limits import Limits
from router.planning.remaining_work import transfer_usd
from router.planning.transfers import tariff_of
from router.state.records import Attempt, Phase

# So often it is seen whether the site is to stop, and whether the attempt is still wanted.
_LOOK_S, _ASK_S = 0.05, 1.0
# Somebody who waits for an answer of a store sees the end of the time that much later.
_LATE_S = 1.0
_WANTED = (Phase.PLANNED, Phase.PROVISIONING)

Opens = Callable[[str], Depot]


@dataclass(frozen=True, slots=True)
class Carry:
    """The newest checkpoint of a job, at least that of ``step``, is to go from one store to another. ``origin``: the
    region of the source, ``to`` that of the target."""

    step: int
    source: str
    target: str
    origin: RegionId
    to: RegionId


def carry(deploy: Deploy, chain: Chain, attempt: Attempt) -> Carry | None:
    """What has to be copied before the attempt goes on; None where nothing was saved, where it lies in its region's
    store already, where that region has none, or where it lies in no store of the deploy file: what a training keeps
    elsewhere is its own matter."""
    before, target = chain.before, deploy.cloud(attempt.cloud, attempt.region).store_of(attempt.job)
    if not before.manifest or target is None or _is_below(before.manifest, target):
        return None
    # The latest who had it in its own store says in which region that is.
    for one in (chain.saved_by, *reversed(chain.attempts)):
        source = deploy.cloud(one.cloud, one.region).store_of(one.job)
        if source is not None and _is_below(before.manifest, source):
            origin, to = (RegionId(a.cloud, a.region) for a in (one, attempt))
            return Carry(before.step, source, target, origin, to)
    return None


def egress_usd(wanted: Carry, count: int, book: PriceBook, limits: Limits) -> Usd | None:
    """What so many bytes cost, as the planner counts it for a move; None where no tariff is known."""
    tariff = tariff_of(wanted.origin, wanted.to, book)
    return None if tariff is None else transfer_usd(tariff, count, limits)


def shown(url: str) -> str:
    """A store's URL without what only its client reads."""
    return url.partition("?")[0]


def goes_on_from(
    site: Site, book: PriceBook, attempt: Attempt, chain: Chain | None, opens: Opens | None = None
) -> Before:
    """What the attempt goes on from, with the manifest in its own region's store where that could be copied in time.
    Says and writes down what was copied, at what price, or why it was not. Never raises for what a store does; ends
    soon after ``site.stop``, or once the attempt is released."""
    if chain is None:
        return Before()
    before, wanted = chain.before, carry(site.deploy, chain, attempt)
    if wanted is None:
        return confirmed(site, attempt, chain, opens)
    began, pace = time.monotonic(), Pace(seconds=site.deploy.patience.carry.total_seconds())
    details: dict[str, object] = {
        "from": shown(wanted.source),
        "to": shown(wanted.target),
        "origin": str(wanted.origin),
    }
    site.tell(attempt.job, f"copying step {wanted.step} from {details['from']} to {details['to']}")
    moved, why = _moved(site, attempt, wanted, pace, opens or _opener(site))
    if moved is None and not why:
        return before
    count = pace.moved if moved is None else moved.bytes
    limits = Limits.model_validate_json(limits_text(site.store, attempt.plan))
    usd, tariff = egress_usd(wanted, count, book, limits), tariff_of(wanted.origin, wanted.to, book)
    if tariff is not None:
        details |= {"price_as_of": tariff.as_of, "price_source": tariff.source}
    details |= {"bytes": count, "seconds": round(time.monotonic() - began, 3), "usd": None if usd is None else str(usd)}
    price = "at a price that nobody knows" if usd is None else f"egress ${usd}"
    what = f"{count / 1e6:,.1f} MB in {details['seconds']} s, {price}"
    if moved is None:
        site.store.note(attempt.id, NOT_COPIED, site.clock(), step=wanted.step, why=why, **details)
        book_moved(site, attempt)
        site.tell(attempt.job, f"step {wanted.step} is read from {details['from']}, not copied: {why} ({what})")
        # Why it was not copied may be that it is not there. A store that did not answer is not asked again.
        return confirmed(site, attempt, chain, opens) if (pace.left or 0.0) > 0 else before
    site.store.note(attempt.id, COPIED, site.clock(), step=moved.step, kept=moved.kept, **details)
    book_moved(site, attempt)
    site.tell(attempt.job, f"step {moved.step} is in {details['to']}: {what}")
    return replace(before, manifest=moved.manifest)


def book_moved(site: Site, attempt: Attempt) -> None:
    """Writes into the ledger what was copied to the attempt; what is there stays."""
    site.store.ledger.add(
        moved_entries(attempt, site.store.journal(attempt.id, what=(COPIED, NOT_COPIED)), site.clock())
    )


def told(before: Before, attempt: Attempt) -> Attempt | None:
    """For :meth:`Store.update`: the attempt goes on from there, unless it already goes on from more, or is over."""
    if attempt.phase not in _WANTED or attempt.first_step > before.step:
        return None
    return replace(attempt, first_step=before.step, first_manifest=before.manifest)


def _is_below(manifest: str, store: str) -> bool:
    """Files are called by their path, whatever the URL of their store."""
    path = shown(store).removeprefix("file://")
    return manifest.removeprefix("file://").startswith(f"{path}/")


def _opener(site: Site) -> Opens:
    return lambda url: opened(url, lambda text: open_store(text, site.environment))


def _moved(site: Site, attempt: Attempt, wanted: Carry, pace: Pace, opens: Opens) -> tuple[Moved | None, str]:
    """What was copied, or why nothing was; neither where nobody wants it any more. The copying has a thread of its own:
    a store that does not answer keeps nobody."""
    copied: Future[Moved] = Future()

    def copy() -> None:
        try:
            copied.set_result(_copy(wanted, pace, opens))
        except Exception as error:  # whatever a store's client does, the job goes on
            copied.set_exception(error)

    threading.Thread(target=copy, name="carrying", daemon=True).start()
    ends, asks = time.monotonic() + (pace.left or 0.0) + _LATE_S, time.monotonic()
    while not wait([copied], _LOOK_S).done:
        now = time.monotonic()
        if site.stop.is_set() or (now >= asks and not _is_wanted(site, attempt)):
            pace.cancel()
            return None, ""
        asks = now + _ASK_S if now >= asks else asks
        if now >= ends:
            pace.cancel()
            return None, str(OutOfTimeError("the time was over"))
    error = copied.exception()
    if error is None:
        return copied.result(), ""
    return None, str(error) if isinstance(error, StorageError) else f"{type(error).__name__}: {error}"


def _is_wanted(site: Site, attempt: Attempt) -> bool:
    now = site.store.attempt(attempt.id)
    return now is not None and now.phase in _WANTED


def _copy(wanted: Carry, pace: Pace, opens: Opens) -> Moved:
    passed: list[str] = []

    def passing(step: int, why: str) -> None:
        passed.append(f"step {step}: {why}")

    source, target = opens(wanted.source), opens(wanted.target)
    for moved in bring(source, target, pace, least=wanted.step, passed=passing):
        return moved
    raise StorageError("; ".join(passed[:3]) or f"no good checkpoint of step {wanted.step} or later is there")
