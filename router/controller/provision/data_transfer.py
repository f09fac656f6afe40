"""Copy the data of a job to its region before machines cost money there, and know which copies there are.

Jobs with ``data.mode: copy`` get a copy below the region's ``data_url``; where none can be made they read the data
where they lie. :func:`prepare_data` is the edge; the rest decides and asks the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from pricing.atomic_file import make_private_folder
from pricing.book import PriceBook
from pricing.places import RegionId
from router.checkpoints.checkpoints import FileJournal, sha256_hex
from router.checkpoints.data_copy import FILES, DataCopyResult, DataFile, copy_data
from router.checkpoints.transfer import TransferLimits
from router.controller.context import ControllerContext
from router.controller.history.metering import DATA_COPIED, DATA_NOT_COPIED
from router.controller.plans import limits_json
from router.controller.provision.checkpoint_transfer import (
    CopyRoute,
    OpenStore,
    describe_transfer,
    display_url,
    is_wanted,
    store_opener,
    summarize_transfer,
    wait_for_copy,
)
from router.controller.release.copy_meter import CopyMeter, copies_folder, noted_bytes, record_transfer_costs
from router.deploy.cloud_settings import join_store_url, validate_store_url
from router.jobs.fields import RefusedError
from router.jobs.job_json import read_job
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.state.data_copies import DataCopy
from router.state.errors import LeaseHeldError
from router.state.lock_owner import LockOwner
from router.state.records import Attempt
from router.state.store import StateStore

# Hundreds of gangs may wait for their turn at once.
_POLL_S, _TELL_S = 1.0, 60.0
# Leases: of an attempt that somebody prepares without the apply lock, and of a copy that somebody makes.
_PREPARING, _COPYING = "preparing ", "copying "
_NO_STORE = "the deploy file names no data_url for {to}; the plan's egress is that of one copy, reading may move more"
_SAID_TO_BE_THERE = "the job file says that they are in {to}, and the state knows no copy there"


@dataclass(frozen=True, slots=True)
class NoTransfer:
    """The reason why data are read where they lie; "" where that needs no word."""

    why: str = ""


def plan_data_transfer(site: ControllerContext, attempt: Attempt, job: Job) -> CopyRoute | NoTransfer:
    """Return what has to be copied before the attempt's machines are made, or why nothing is.

    A copy that the state knows is brought up to date where it is, whatever the deploy file says now.
    """
    data, to = job.data, RegionId(attempt.cloud, attempt.region)
    if data is None or data.mode != "copy" or data.at == to:
        return NoTransfer()
    known = site.store.data_copies.get(data.uri, to)
    if known is not None:
        return CopyRoute(data.uri, known.url, data.at, to)
    if job.status is not None and to in job.status.data_in:
        return NoTransfer(_SAID_TO_BE_THERE.format(to=to))
    target = site.deploy.cloud(attempt.cloud, attempt.region).data_store_of(data.uri)
    if target is None:
        return NoTransfer(_NO_STORE.format(to=to))
    why = _unreadable_source(data.uri)
    return NoTransfer(why) if why else CopyRoute(data.uri, target, data.at, to)


def _unreadable_source(uri: str) -> str:
    """Return why the controller does not read such data; "" where it does.

    Its own files are none of a job's: a job file could otherwise have any of them copied to where machines read.
    """
    try:
        validate_store_url(uri)
    except RefusedError as error:
        return f"data.uri {error.what}" if "credentials" in error.what else "data.uri is no s3://, gs:// or abfs(s)://"
    return "data.uri is a folder, and only buckets are copied" if uri.startswith("file:") else ""


def data_location(store: StateStore, job: Job, to: RegionId) -> str:
    """Return the URL at which the job reads its data in a region: a whole copy there, else where they lie."""
    data = job.data
    if data is None:
        return ""
    copy = store.data_copies.get(data.uri, to) if data.mode == "copy" and data.at != to else None
    return data.uri if copy is None or copy.made_at is None else join_store_url(copy.url, FILES)


def attempts_using(store: StateStore, copies: Iterable[DataCopy]) -> dict[DataCopy, Attempt]:
    """Return the copies that an attempt reads or is to read, each with one such attempt."""
    uris: dict[tuple[RegionId, str], Attempt] = {}
    for attempt in store.attempts.find(alive=True):
        job = read_job(store.plans.job(attempt.job_digest))
        if job is not None and job.data is not None:
            uris[RegionId(attempt.cloud, attempt.region), job.data.uri] = attempt
    return {copy: uris[copy.place, copy.uri] for copy in copies if (copy.place, copy.uri) in uris}


def attempts_in_preparation(site: ControllerContext) -> dict[str, LockOwner]:
    """Return the attempts that live processes copy data for, here or elsewhere, though nobody has the apply lock."""
    holders = site.store.lease_holders(_PREPARING, site.wall_clock)
    return {name.removeprefix(_PREPARING): holder for name, holder in holders.items()}


def copies_in_progress(
    store: StateStore, copies: Iterable[DataCopy], now: Callable[[], datetime]
) -> dict[DataCopy, LockOwner]:
    """Return the copies that live processes make or bring up to date, each with its process."""
    holders = store.lease_holders(_COPYING, now)
    return {copy: holders[name] for copy in copies if (name := _lease_of_copy(copy.url)) in holders}


def _lease_of_copy(url: str) -> str:
    return f"{_COPYING}{_short_digest(url)}"


def _short_digest(url: str) -> str:
    return sha256_hex(url.encode())[:12]


def prepare_data(
    site: ControllerContext, book: PriceBook, attempt: Attempt, job: Job, opens: OpenStore | None = None
) -> bool:
    """Copy the job's data to its region where they are to be copied and are not there yet.

    Reports and records what was copied and at what price, or why it was not. Never raises for what a store does; ends
    soon after ``site.stop`` is set, or once the attempt is released. While bytes move, other commands may have the
    apply lock; the state says who copies what. A process makes one copy at a time, by many files at once, and waits for
    one that another process makes. Returns whether the lock is held again: else the site was stopped.
    """
    transfer = plan_data_transfer(site, attempt, job)
    if isinstance(transfer, NoTransfer):
        if transfer.why and job.data is not None:
            source = display_url(job.data.uri)
            site.store.journal.note(attempt.id, DATA_NOT_COPIED, site.clock(), **{"from": source, "why": transfer.why})
            site.tell(attempt.job, f"data are read from {source} in {job.data.at}, not copied: {transfer.why}")
        return True
    me, copied = LockOwner.of_this_process(), None
    with ExitStack() as leases:
        leases.enter_context(site.store.lease(f"{_PREPARING}{attempt.id}", me, site.wall_clock))
        try:
            with site.workers.waiting(site.stop):
                if _take_turn(site, attempt, transfer, me, leases):
                    try:
                        copied = _DataCopying(site, book, attempt, transfer, opens or store_opener(site))
                        copied.run()
                    finally:
                        site.copying.release()
        except LeaseHeldError:
            return False
        if copied is not None:
            copied.record()
    return True


def _take_turn(
    site: ControllerContext, attempt: Attempt, transfer: CopyRoute, me: LockOwner, leases: ExitStack
) -> bool:
    """Wait until no copy is made here, and this one nowhere else; return whether it is still wanted then."""
    told = False
    while not site.stop.is_set() and is_wanted(site, attempt):
        if site.copying.acquire(timeout=_POLL_S):
            try:
                leases.enter_context(site.store.lease(_lease_of_copy(transfer.target), me, site.wall_clock))
                return True
            except LeaseHeldError as error:
                site.copying.release()
                if not told:
                    told, holder = True, error.holder
                    who = f"process {holder.pid} on {holder.host}"
                    site.tell(attempt.job, f"{who} copies the data to {display_url(transfer.target)}: waiting for it")
                site.stop.wait(_POLL_S)
            except BaseException:
                site.copying.release()
                raise
    return False


class _DataCopying:
    def __init__(
        self, site: ControllerContext, book: PriceBook, attempt: Attempt, transfer: CopyRoute, opens: OpenStore
    ) -> None:
        self._site, self._book, self._attempt, self._transfer, self._opens = site, book, attempt, transfer, opens
        self._limits = Limits.model_validate_json(limits_json(site.store, attempt.plan))
        self._began = self._told_at = time.monotonic()
        self._wanted_bytes: int | None = None
        self._source, self._target = display_url(transfer.source), display_url(transfer.target)
        self._ended: float | None = None
        self._result: DataCopyResult | None = None
        self._why = ""
        self._meter = CopyMeter(site, attempt, self._describe)
        seconds = site.deploy.timeouts.data_copy.total_seconds()
        self._pace = TransferLimits(seconds=seconds, counted=self._meter.count)

    def run(self) -> None:
        """Copy. Nobody else makes this copy meanwhile."""
        try:
            self._result, self._why = wait_for_copy(
                self._site, self._attempt, lambda: self._copy(self._pace), self._pace, self._tell_progress
            )
        finally:
            self._ended = time.monotonic()
            self._meter.close()

    def record(self) -> None:
        site, attempt, result, why = self._site, self._attempt, self._result, self._why
        # Whoever released the attempt meanwhile noted what was moved until then.
        details = self._describe(self._pace.moved - noted_bytes(site, attempt))
        if result is None and not why:
            now = site.store.attempts.get(attempt.id)
            if now is None or not now.phase.is_over:
                # Whoever releases the attempt meters it.
                return
            why = "its gang was released"
        known = site.store.data_copies.get(self._transfer.source, self._transfer.to)
        if result is not None:
            self._tell_result(result, details)
            site.store.journal.note(attempt.id, DATA_COPIED, site.clock(), kept=result.kept, **details)
            made_at = site.clock() if known is None or known.made_at is None else known.made_at
            whole = replace(self._record(), bytes=result.bytes, files=result.files, made_at=made_at)
            site.store.data_copies.put(whole)
        else:
            site.store.journal.note(attempt.id, DATA_NOT_COPIED, site.clock(), why=why, **details)
            if known is not None and known.made_at is not None:
                site.store.data_copies.put(replace(known, until=max(known.until, self._record().until)))
                site.tell(attempt.job, f"data are read from {self._target} as they were copied: {why}")
            else:
                summary = summarize_transfer(details)
                site.tell(attempt.job, f"data are read from {self._source}, not copied: {why} ({summary})")
        record_transfer_costs(site, attempt)

    def _copy(self, pace: TransferLimits) -> DataCopyResult:
        folder = copies_folder(self._site)
        make_private_folder(folder)
        name = f"{_short_digest(self._transfer.target)}.jsonl"
        journal = FileJournal(folder / name, DataFile)
        source, target = self._opens(self._transfer.source), self._opens(self._transfer.target)
        result = copy_data(source, target, pace, journal, begins=self._begin)
        # The manifest has all of it now.
        (folder / name).unlink(missing_ok=True)
        return result

    def _begin(self, count: int) -> None:
        """Record that the copy is not whole, before it changes: what there will be of it can be found and removed."""
        self._wanted_bytes = count
        self._site.store.data_copies.put(self._record())
        size = f"{count / 1e9:,.1f} GB"
        self._site.tell(self._attempt.job, f"copying {size} of data from {self._source} to {self._target}")

    def _record(self) -> DataCopy:
        """Return the record of a copy that is not whole, kept as long as this attempt demands."""
        transfer, now = self._transfer, self._site.clock()
        known = self._site.store.data_copies.get(transfer.source, transfer.to)
        until = max(self._attempt.end, now) + self._site.deploy.data_keep
        if known is not None:
            return replace(known, made_at=None, until=max(until, known.until))
        place, team = transfer.to, self._attempt.team
        return DataCopy(transfer.source, place.cloud, place.region, transfer.target, team, 0, 0, now, None, until)

    def _describe(self, moved: int) -> dict[str, object]:
        seconds = (self._ended or time.monotonic()) - self._began
        return describe_transfer(self._transfer, moved, seconds, self._book, self._limits)

    def _tell_progress(self) -> None:
        now, wanted, pace = time.monotonic(), self._wanted_bytes, self._pace
        if wanted is None or now - self._told_at < _TELL_S:
            return
        self._told_at = now
        rate = "" if pace.rate is None else f", {pace.rate / 1e6:,.0f} MB/s"
        self._site.tell(self._attempt.job, f"{pace.moved / 1e9:,.1f} of {wanted / 1e9:,.1f} GB of data copied{rate}")

    def _tell_result(self, result: DataCopyResult, details: dict[str, object]) -> None:
        what = f"{result.files:,} files" if result.files != 1 else "1 file"
        copied = summarize_transfer(details) if self._wanted_bytes is not None else "nothing had to be copied"
        self._site.tell(self._attempt.job, f"data are in {self._target}, {what}: {copied}")
