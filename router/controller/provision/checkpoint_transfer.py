"""Check the checkpoint that a job resumes from, and copy it to its next region, before machines cost money there.

An agent reported the checkpoint, and its word is no proof: where it is missing or incomplete, the newest complete one
counts. Where it cannot be copied in time, the job reads it across regions. :func:`prepare_resume_point` is the edge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import TypeVar

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.places import RegionId
from router.checkpoints.arrow_store import open_arrow_store
from router.checkpoints.checkpoints import find_complete_checkpoints, has_expected_sizes, manifest_name, read_manifest
from router.checkpoints.object_store import CheckpointStore, StorageError, open_checkpoint_store
from router.checkpoints.transfer import TransferLimits, TransferResult, download_checkpoints
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import AttemptHistory, ResumePoint
from router.controller.history.metering import COPIED, NOT_COPIED
from router.controller.plans import limits_json
from router.controller.release.copy_meter import CHECKPOINT, CopyMeter, record_transfer_costs
from router.deploy.deploy_settings import Deploy
from router.jobs.limits import Limits
from router.planning.find.transfers import tariff_of, transfer_usd
from router.state.records import Attempt, Phase

NOT_WHOLE, NOT_CONFIRMED = "checkpoint not whole", "checkpoint not confirmed"
# A store that does not answer within this time is no longer waited for.
_TIMEOUT_S, _POLL_S = 60.0, 0.05

OpenStore = Callable[[str], CheckpointStore]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _StoreFailure:
    reason: str


def confirm_checkpoint(
    site: ControllerContext, attempt: Attempt, chain: AttemptHistory, opens: OpenStore | None = None
) -> ResumePoint:
    """Return what the attempt resumes from, checked against the store if one of the deploy file holds it.

    The manifest and the sizes of its files are checked. A false claim is removed from the attempts that made it, so
    that it counts nowhere. Never raises for what a store does: the claim then stands, and the journal says so.
    """
    before = chain.before
    store = next((url for url in sorted(site.deploy.stores_of(attempt.job)) if _is_named_by_store(before, url)), None)
    if store is None:
        return before
    open_one = opens or store_opener(site)
    instead = _ask_store(site, lambda: _find_instead(open_one(store), before, chain.attempts[0]))
    if isinstance(instead, _StoreFailure):
        site.store.journal.note(attempt.id, NOT_CONFIRMED, site.clock(), step=before.step, why=instead.reason)
        return before
    if instead is None:
        return before
    step = instead.step
    site.store.journal.note(attempt.id, NOT_WHOLE, site.clock(), step=before.step, instead=step)
    site.tell(attempt.job, f"step {before.step} is not whole in {store.partition('?')[0]}: resuming after step {step}")
    for earlier in chain.attempts:
        if earlier.phase.is_over and earlier.kept_step is not None and earlier.kept_step > step:
            site.store.attempts.update(earlier.id, lambda old: replace(old, kept_step=step))
    site.store.attempts.update(attempt.id, lambda mine: replace(mine, first_step=step, first_manifest=instead.manifest))
    return instead


def _is_named_by_store(before: ResumePoint, store: str) -> bool:
    # Other layouts are the training's own matter.
    path = store.partition("?")[0].removeprefix("file://")
    return before.manifest.removeprefix("file://") == f"{path}/{manifest_name(before.step)}"


def _find_instead(store: CheckpointStore, before: ResumePoint, first: Attempt) -> ResumePoint | None:
    """Return the newest complete checkpoint, else what the ``first`` attempt began with; None if the claim holds."""
    claimed = read_manifest(store, before.step)
    if claimed is not None and has_expected_sizes(store, claimed):
        return None
    for other in find_complete_checkpoints(store):
        if other.step < before.step:
            return ResumePoint(before.attempt, other.step, store.where(other.name))
    return ResumePoint(before.attempt, first.first_step, first.first_manifest)


def _ask_store(site: ControllerContext, check: Callable[[], ResumePoint | None]) -> ResumePoint | _StoreFailure | None:
    answer = run_in_thread(check, "confirming")
    ends = time.monotonic() + _TIMEOUT_S
    while not wait([answer], _POLL_S).done:
        if site.stop.is_set() or time.monotonic() >= ends:
            return _StoreFailure("the store did not answer in time")
    error = answer.exception()
    if error is None:
        return answer.result()
    return _StoreFailure(str(error) if isinstance(error, StorageError) else type(error).__name__)


def run_in_thread(do: Callable[[], Result], name: str) -> Future[Result]:
    """Begin the work in a thread of its own, so that a store that does not answer delays nobody."""
    result: Future[Result] = Future()

    def run() -> None:
        try:
            result.set_result(do())
        except Exception as error:  # The job resumes whatever a store's client raises.
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


def store_opener(site: ControllerContext) -> OpenStore:
    """Return what opens the store at a URL, with the credentials of the site's environment."""
    return lambda url: open_checkpoint_store(url, lambda text: open_arrow_store(text, site.environment))


# Seconds between checks whether the attempt is still wanted.
_CHECK_S = 1.0
# A caller that waits for a store's answer notices the timeout this much later.
_GRACE_S = 1.0
_WANTED_PHASES = (Phase.PLANNED, Phase.PROVISIONING)


@dataclass(frozen=True, slots=True)
class CopyRoute:
    """The URLs of a copy's source and target, and their regions, between which egress is paid."""

    source: str
    target: str
    origin: RegionId
    to: RegionId


@dataclass(frozen=True, slots=True)
class CheckpointTransfer(CopyRoute):
    """A copy of a job's newest checkpoint, of ``step`` or later, from one store to another."""

    step: int


def plan_transfer(deploy: Deploy, chain: AttemptHistory, attempt: Attempt) -> CheckpointTransfer | None:
    """Return what has to be copied before the attempt resumes, or None.

    None where nothing was saved, where the checkpoint is already in the store of the attempt's region, where that
    region has no store, or where the checkpoint is in no store of the deploy file: what a training stores elsewhere is
    its own matter.
    """
    resume_point, target = chain.before, deploy.cloud(attempt.cloud, attempt.region).store_of(attempt.job)
    if not resume_point.manifest or target is None or _is_in_store(resume_point.manifest, target):
        return None
    # The latest attempt that had the checkpoint in its own store says which region that store is in.
    for earlier in (chain.saved_by, *reversed(chain.attempts)):
        source = deploy.cloud(earlier.cloud, earlier.region).store_of(earlier.job)
        if source is not None and _is_in_store(resume_point.manifest, source):
            origin, to = (RegionId(a.cloud, a.region) for a in (earlier, attempt))
            return CheckpointTransfer(source, target, origin, to, resume_point.step)
    return None


def egress_usd(route: CopyRoute, count: int, book: PriceBook, limits: Limits) -> Usd | None:
    """Return what moving ``count`` bytes costs, computed as in the planner; None where no tariff is known."""
    tariff = tariff_of(route.origin, route.to, book)
    return None if tariff is None else transfer_usd(tariff, count, limits)


def describe_transfer(
    route: CopyRoute, count: int, seconds: float, book: PriceBook, limits: Limits
) -> dict[str, object]:
    """Return what the journal has of a copy that moved ``count`` bytes: its stores, their size, time and price."""
    usd, tariff = egress_usd(route, count, book, limits), tariff_of(route.origin, route.to, book)
    places = {"from": display_url(route.source), "to": display_url(route.target), "origin": str(route.origin)}
    price = {} if tariff is None else {"price_as_of": tariff.as_of, "price_source": tariff.source}
    return {**places, **price, "bytes": count, "seconds": round(seconds, 3), "usd": None if usd is None else str(usd)}


def summarize_transfer(details: dict[str, object]) -> str:
    """Return size, time and price of a copy, for a person."""
    price = "at an unknown price" if details["usd"] is None else f"egress ${details['usd']}"
    return f"{int(str(details['bytes'])) / 1e6:,.1f} MB in {details['seconds']} s, {price}"


def display_url(url: str) -> str:
    """Return a store's URL without the query, which only the store's client reads, and without a password."""
    scheme, mark, rest = url.partition("?")[0].partition("://")
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    # In Azure's, the container stands before the @.
    user = user.partition(":")[0] if scheme.startswith("abfs") else ""
    return f"{scheme}{mark}{user}{at if user else ''}{host}{slash}{path}"


def prepare_resume_point(
    site: ControllerContext,
    book: PriceBook,
    attempt: Attempt,
    chain: AttemptHistory | None,
    opens: OpenStore | None = None,
) -> ResumePoint:
    """Return what the attempt resumes from, after copying the checkpoint to its region's store where possible in time.

    Reports and records what was copied and at what price, or why it was not copied. Never raises for what a store does;
    ends soon after ``site.stop`` is set, or once the attempt is released.
    """
    if chain is None:
        return ResumePoint()
    before, transfer = chain.before, plan_transfer(site.deploy, chain, attempt)
    if transfer is None:
        return confirm_checkpoint(site, attempt, chain, opens)
    limits, began = Limits.model_validate_json(limits_json(site.store, attempt.plan)), time.monotonic()

    def describe(count: int) -> dict[str, object]:
        return describe_transfer(transfer, count, time.monotonic() - began, book, limits)

    meter = CopyMeter(site, attempt, lambda count: {"step": transfer.step, **describe(count)}, CHECKPOINT)
    pace = TransferLimits(seconds=site.deploy.timeouts.checkpoint_copy.total_seconds(), counted=meter.count)
    source, target = display_url(transfer.source), display_url(transfer.target)
    site.tell(attempt.job, f"copying step {transfer.step} from {source} to {target}")
    open_one = opens or store_opener(site)
    try:
        result, why = wait_for_copy(site, attempt, lambda: _copy(transfer, pace, open_one), pace)
    finally:
        meter.close()
    if result is None and not why:
        # Whoever releases the attempt meters what was moved until then.
        return before
    details = describe(pace.moved if result is None else result.bytes)
    summary = summarize_transfer(details)
    if result is None:
        site.store.journal.note(attempt.id, NOT_COPIED, site.clock(), step=transfer.step, why=why, **details)
        record_transfer_costs(site, attempt)
        site.tell(attempt.job, f"step {transfer.step} is read from {source}, not copied: {why} ({summary})")
        # The copy may have failed because the checkpoint is missing. A store that did not answer is not asked again.
        return confirm_checkpoint(site, attempt, chain, opens) if (pace.left or 0.0) > 0 else before
    site.store.journal.note(attempt.id, COPIED, site.clock(), step=result.step, kept=result.kept, **details)
    record_transfer_costs(site, attempt)
    site.tell(attempt.job, f"step {result.step} is in {target}: {summary}")
    return replace(before, manifest=result.manifest)


def with_resume_point(before: ResumePoint, attempt: Attempt) -> Attempt | None:
    """Return the attempt with that resume point; for :meth:`Attempts.update`.

    None if the attempt has a later resume point already, or is no longer wanted.
    """
    if attempt.phase not in _WANTED_PHASES or attempt.first_step > before.step:
        return None
    return replace(attempt, first_step=before.step, first_manifest=before.manifest)


def _is_in_store(manifest: str, store: str) -> bool:
    # Files are compared by path, however the store's URL is written.
    path = display_url(store).removeprefix("file://")
    return manifest.removeprefix("file://").startswith(f"{path}/")


def wait_for_copy(
    site: ControllerContext,
    attempt: Attempt,
    copy: Callable[[], Result],
    pace: TransferLimits,
    watch: Callable[[], None] = lambda: None,
) -> tuple[Result | None, str]:
    """Copy in a thread of its own and return what was copied, or None and the reason why not all was.

    The reason is "" if the attempt is no longer wanted. ``watch`` is called about once a second meanwhile.
    """
    copied = run_in_thread(copy, "carrying")
    ends, asks = time.monotonic() + (pace.left or 0.0) + _GRACE_S, time.monotonic()
    while not wait([copied], _POLL_S).done:
        now = time.monotonic()
        if site.stop.is_set() or (now >= asks and not is_wanted(site, attempt)):
            pace.cancel()
            return None, ""
        if now >= asks:
            asks = now + _CHECK_S
            watch()
        if now >= ends:
            pace.cancel()
            return None, pace.time_over
    error = copied.exception()
    if error is None:
        return copied.result(), ""
    return None, str(error) if isinstance(error, StorageError) else f"{type(error).__name__}: {error}"


def is_wanted(site: ControllerContext, attempt: Attempt) -> bool:
    now = site.store.attempts.get(attempt.id)
    return now is not None and now.phase in _WANTED_PHASES


def _copy(transfer: CheckpointTransfer, pace: TransferLimits, opens: OpenStore) -> TransferResult:
    skipped: list[str] = []
    source, target = opens(transfer.source), opens(transfer.target)
    for moved in download_checkpoints(
        source, target, pace, least=transfer.step, passed=lambda step, why: skipped.append(f"step {step}: {why}")
    ):
        return moved
    raise StorageError("; ".join(skipped[:3]) or f"no good checkpoint of step {transfer.step} or later is there")
