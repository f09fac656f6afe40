"""Gangs to be watched: some that are up, of which nothing was ever made; places that are answered as a test says."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from router.agent import protocol
from router.controller.context import ControllerContext
from router.controller.history import heartbeats
from router.controller.provision.provision_order import PlacedAttempt
from router.controller.supervise import supervisor
from router.controller.supervise.replanner import PendingGang, PlacementAccepted, ReplanAnswer
from router.controller.supervise.supervisor import Supervisor
from router.deploy.deploy_settings import Deploy
from router.state.records import Attempt, NoticeRecord, Phase
from tests.support.bare_site import bare_site
from tests.support.state_values import NOW, attempt, node

SECOND = timedelta(seconds=1)
QUIET: Any = SimpleNamespace(advise=lambda alive, notices: ())


@dataclass
class Places:
    """Answers as it is told, and makes nothing; ``asked`` who wanted a place, together."""

    site: ControllerContext
    answer: ReplanAnswer | None = None
    asked: list[list[str]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def replan(self, wanting: Sequence[PendingGang]) -> list[ReplanAnswer]:
        self.asked.append([want.last.job for want in wanting])
        go: Any = PlacementAccepted(SimpleNamespace(book=None, choices=(SimpleNamespace(),)))  # type: ignore[arg-type]
        return [self.answer or go for _ in wanting]

    def stated_job(self, _: Attempt) -> None:
        """The specifications of these jobs are not known."""

    def placed(self, going: Sequence[tuple[PendingGang, PlacementAccepted]]) -> list[PlacedAttempt]:
        return [self._placed(want, go) for want, go in going]

    def _placed(self, want: PendingGang, go: PlacementAccepted) -> PlacedAttempt:
        before, last = want.chain.before, want.last
        name, number = f"{last.job}-{last.number + 1}", last.number + 1
        one = attempt(
            name,
            job=last.job,
            number=number,
            resumes=before.attempt,
            first_step=before.step,
            created_at=NOW + number * SECOND,
            machines=last.machines,
        )
        self.site.store.attempts.add(one, [node(name)])
        return PlacedAttempt(one, go.request.choices[0], "")


@contextmanager
def patient_site(folder: Path, told: list[str] | None = None) -> Iterator[ControllerContext]:
    """One that takes a rank for lost after a minute."""
    deploy = Deploy.model_validate({"timeouts": {"lost": "60s"}})
    with bare_site(folder, told, deploy=deploy) as made:
        yield made


def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of whoever looks, to be moved."""
    now = [1000.0]
    for module in (supervisor, heartbeats):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def up(site: ControllerContext, job: str = "llama", *agents: str, **changes: Any) -> Attempt:
    """A gang that runs. Nothing was ever made of it, so that releasing needs no Terraform."""
    agents = agents or (protocol.RUNNING,)
    fields: dict[str, Any] = {
        "phase": Phase.RUNNING,
        "met_at": NOW,
        "machines": len(agents),
        "created_at": NOW + SECOND,
    }
    one = attempt(f"{job}-1", job=job, **{**fields, **changes})
    site.store.attempts.add(one, [node(one.id, rank=r, agent=a, heard_at=NOW) for r, a in enumerate(agents)])
    return one


def noticed(site: ControllerContext, one: Attempt, **changes: Any) -> None:
    site.store.notices.add(NoticeRecord(one.id, 0, "n1", protocol.INTERRUPTION, "sandbox", 30.0, "taken", NOW))
    order: dict[str, Any] = {"order_id": "n1", "order_reason": "interruption", "order_seconds": 28.0, "ordered_at": NOW}
    site.store.attempts.update(one.id, lambda a: replace(a, **{"phase": Phase.NOTICED, **order, **changes}))


def saved(site: ControllerContext, one: Attempt, step: int) -> None:
    site.store.journal.note(
        one.id, "saved", NOW, rank=0, id="n1", saved_step=step, saved_manifest=f"/m/{step}", seconds=1.0
    )
    site.store.attempts.set_node(one.id, 0, saved_step=step, saved_manifest=f"/m/{step}", step=step)


def settle(watcher: Supervisor, clock: list[float], passes: int = 6) -> None:
    for _ in range(passes):
        watcher.reconcile()
        while not watcher.idle and not all(f.done() for f in watcher._work._running.values()):
            time.sleep(0.002)
        clock[0] += 1.0


def now(site: ControllerContext, name: str) -> Attempt:
    found = site.store.attempts.get(name)
    assert found is not None
    return found
