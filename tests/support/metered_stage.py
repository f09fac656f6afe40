"""A stage on which jobs are planned, run and released at made-up times: records as the coordinator writes them, and
from there on the code that a real night goes through, ``accepting.record`` and ``release``, into a real state."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from pricing.book import PriceBook
from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.agent import protocol
from router.controller.accept.accept import AcceptedOrders, record_acceptance
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import ResumePoint
from router.controller.history.metering import COPIED, DISK_GIB, PROVISIONING
from router.controller.plans import Order, orders_of
from router.controller.provision.provision_order import ProvisionRequest
from router.controller.release.release import release
from router.controller.workspace.placement_options import GangPlacement
from router.controller.workspace.workspaces import attempt_name, new_attempt
from router.coordinator.saves import SAVED
from router.jobs.job_json import job_json
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import JobSummary, Line, Plan
from router.planning.document.plan_json import plan_content, plan_to_json
from router.state.records import Attempt, NodeRecord, Phase
from router.state.store import StateStore
from tests.support.bare_site import bare_site
from tests.support.made_up_book import book
from tests.support.nights import a_line, a_night, summarise

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
_STATE_ID = "s0f0f0f0f0f0f"


@dataclass(frozen=True, slots=True)
class Place:
    """One kind of machine in one zone, bought one way, with what an hour costs; ``zone`` "": the cloud's choice."""

    cloud: str
    region: str
    zone: str
    instance_type: str
    market: Market
    usd: str
    on_demand: str
    accelerator: str = "H100"
    accelerators: int = 8

    def at(self, usd: str) -> Place:
        return replace(self, usd=usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How one life of a gang went, as its cloud and its ranks told it.

    ``gone`` None: it is there. ``met`` None: it never met. ``step``, ``saved``: how far it came, and what of that is
    saved. ``saving``: how long it stood still for each checkpoint. ``copied``: what was brought to it first, from
    where, for how much. ``saved_at``: when checkpoints were saved beside its work, and of which step.
    """

    made: datetime
    gone: datetime | None
    met: datetime | None = None
    ended: datetime | None = None
    reason: str = "finished"
    first: int = 0
    step: int = 0
    saved: int | None = None
    step_seconds: float | None = None
    saving: Sequence[timedelta] = ()
    saved_at: Sequence[tuple[datetime, int]] = ()
    copied: Mapping[str, object] | None = None
    disk_gib: int | None = None
    seen: datetime | None = None


@dataclass(slots=True)
class Stage:
    """``site`` has a clock that stands at ``now``. ``machines``: all that were there, with their attempts."""

    site: ControllerContext
    now: datetime
    machines: list[tuple[Attempt, NodeRecord]] = field(default_factory=list)
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _before: dict[str, Attempt] = field(default_factory=dict)

    @property
    def store(self) -> StateStore:
        return self.site.store

    def accept(self, at: datetime, jobs: Sequence[Job], lines: Sequence[Line], who: str = "mira@desk") -> str:
        """A plan of these lines is made and applied; its digest."""
        self.now = at
        plan = _plan(at, jobs, lines)
        digest: str = plan_content(plan)["digest"]
        by_name = {job.name: job for job in jobs}
        requests = tuple(
            ProvisionRequest(digest, order, (), by_name[order.job], by_name[order.job].digest, _BOOK, at)
            for order in orders_of(plan)
        )
        expected = tuple(request.order.expected_usd for request in requests)
        specs = {job.digest: job_json(job) for job in jobs}
        record_acceptance(
            self.site,
            AcceptedOrders(requests, Usd.total(expected), expected),
            plan_to_json(plan),
            who,
            "",
            specs,
            Limits.none(),
        )
        return digest

    def run(
        self, plan: str, job: Job, place: Place, life: Life, machines: int = 1, until: datetime | None = None
    ) -> Attempt:
        """One life of a gang, from the first machine until it is released and in the ledger; ordered for 12 hours."""
        order = Order(job.name, f"{job.name}/0", life.made, until or life.made + 12 * HOUR, ())
        choice = GangPlacement(0, place.cloud, place.region, (seat_of(place),) * machines, order.start, order.end)
        return self.live(plan, job, order, choice, life)

    def live(self, plan: str, job: Job, order: Order, choice: GangPlacement, life: Life) -> Attempt:
        """One life of an order in a place of its plan: until it is released, or as it is where it is not gone."""
        attempt, nodes = self._made(plan, job, order, choice, life)
        self.store.attempts.add(attempt, nodes)
        self.store.journal.note(attempt.id, PROVISIONING, life.made, **_disk(life))
        if life.copied is not None:
            self.store.journal.note(attempt.id, COPIED, life.made + 30 * MINUTE, **life.copied)
        for number, took in enumerate(life.saving):
            told = {"id": f"save-{number}", "rank": 0, "saved_step": number, "saved_manifest": "m"}
            self.store.journal.note(attempt.id, SAVED, life.gone or self.now, seconds=took.total_seconds(), **told)
        for number, (at, step) in enumerate(life.saved_at):
            told = {"id": f"save-{number}", "rank": 0, "saved_step": step}
            self.store.journal.note(attempt.id, SAVED, at, seconds=0.0, **told)
        if life.gone is None:
            return attempt
        self.now = life.seen or life.gone + MINUTE
        ended = release(self.site, attempt, life.reason, life.reason)
        self.machines += [(ended, node) for node in self.store.attempts.nodes(attempt.id)]
        self._before[job.name] = ended
        return ended

    def _made(
        self, plan: str, job: Job, order: Order, choice: GangPlacement, life: Life
    ) -> tuple[Attempt, list[NodeRecord]]:
        number = self._numbers[plan, job.name] = self._numbers.get((plan, job.name), 0) + 1
        name = attempt_name(self.store.id, plan, order, number)
        before = self._before.get(job.name) if life.first else None
        resumed = ResumePoint(before.id if before else "", life.first, "m" if life.first else "")
        attempt, nodes = new_attempt(
            name, plan, order, choice, number, job, job.digest, "token", life.made - MINUTE, resumed
        )
        ended = protocol.FINISHED if life.reason == "finished" else protocol.STOPPED
        result = "" if life.met is None or life.gone is None else ended
        attempt = replace(
            attempt,
            phase=Phase.RUNNING,
            made_at=life.made,
            met_at=life.met,
            result=result,
            result_at=life.ended if result else None,
        )
        told: dict[str, Any] = (
            {}
            if life.met is None
            else {
                "agent": "" if life.gone else protocol.RUNNING,
                "step": life.step,
                "saved_step": life.saved,
                "step_seconds": life.step_seconds,
                "heard_at": life.ended,
                "ended_reason": result,
            }
        )
        return attempt, [
            replace(n, made_at=life.made, gone_at=life.gone, machine_id=machine_id(choice.cloud, n.name), **told)
            for n in nodes
        ]


@contextmanager
def stage(folder: Path, now: datetime) -> Iterator[Stage]:
    """One whose state is ``folder/state.db``; always of the same identity, which names of attempts are made of."""
    folder.mkdir(parents=True, exist_ok=True)
    with bare_site(folder):
        pass
    with sqlite3.connect(folder / "state.db") as connection:
        connection.execute("UPDATE facts SET value = ? WHERE name = 'id'", (_STATE_ID,))
    connection.close()
    with bare_site(folder) as site:
        made = Stage(site, now)
        made.site = replace(site, clock=lambda: made.now, wall_clock=lambda: made.now)
        yield made


def planned(
    job: Job,
    place: Place,
    start: datetime,
    hours: str | int,
    *,
    machines: int = 1,
    steps: int = 0,
    steps_per_hour: float = 1000.0,
) -> Line:
    """A line of a plan: so many hours of so many machines there; on a reservation nothing more is paid for them."""
    own = UsdPerHour.parse(place.usd).times(machines)
    reserved = place.market is Market.RESERVED
    price = UsdPerHour(0) if reserved else own
    held = Fraction(hours)
    end = start + timedelta(seconds=int(held * 3600))
    return replace(
        a_line(job.name, 0, 0, market=place.market.value),
        gang=f"{job.name}/0",
        max_usd_per_hour=price,
        cloud=place.cloud,
        region=place.region,
        zone=place.zone or None,
        instance_type=place.instance_type,
        machines=machines,
        accelerator=place.accelerator,
        accelerators=machines * place.accelerators,
        start=start,
        end=end,
        hours=held,
        startup=False,
        usd_per_hour=price,
        amortised_usd_per_hour=own,
        steps=steps,
        steps_per_hour=steps_per_hour,
        on_time_steps_per_hour=steps_per_hour,
        cost_usd=Usd(round(price.nanos * held)),
        price_as_of="2026-11-01",
        reservation_cost="amortised" if reserved else "",
    )


def machine_id(cloud: str, name: str) -> str:
    """As the cloud would call a machine of that name."""
    digits = hashlib.sha256(name.encode()).hexdigest()
    return f"i-{digits[:17]}" if cloud == "aws" else str(int(digits[:15], 16)) if cloud == "gcp" else name


def seat_of(place: Place) -> NodeRecord:
    price, reserved = UsdPerHour.parse(place.usd), place.market is Market.RESERVED
    return NodeRecord(
        "",
        0,
        "",
        place.zone or None,
        place.instance_type,
        place.market,
        place.accelerator,
        place.accelerators,
        price,
        UsdPerHour(0 if reserved else price.nanos * 5 // 4),
        price_as_of="2026-11-01",
        price_source="made up",
        on_demand_usd_per_hour=UsdPerHour.parse(place.on_demand),
        reservation_cost="amortised" if reserved else "",
    )


def _disk(life: Life) -> dict[str, object]:
    return {} if life.disk_gib is None else {DISK_GIB: life.disk_gib}


_BOOK: PriceBook = book(())


def _plan(at: datetime, jobs: Sequence[Job], lines: Sequence[Line]) -> Plan:
    return replace(
        a_night(lines),
        as_of=at.astimezone(UTC),
        expires_at=at + HOUR,
        book_digest=_BOOK.digest,
        book_as_of=_BOOK.as_of,
        horizon_start=at,
        horizon_end=max(line.end for line in lines),
        lines=tuple(lines),
        jobs=tuple(_summary(job, lines) for job in jobs),
    )


def _summary(job: Job, lines: Sequence[Line]) -> JobSummary:
    return replace(
        summarise(job.name, [line for line in lines if line.job == job.name]),
        job_digest=job.digest,
        team=job.team,
        project=job.project,
        steps=job.steps_left,
        deadline=None,
        confidence=job.confidence,
        on_time_probability=None,
    )
