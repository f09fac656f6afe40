"""Jobs that really train on the sandbox while machines are taken from them, and what has to be true afterwards."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from providers.sandbox.machines import SandboxMachines
from router.controller.drills import PreemptionDrill, choose_targets
from router.demo.stage import TrainingResult, find_differences, read_step_count, read_training_result, train_undisturbed
from router.ledger.entry import LedgerEntryKind
from router.state.records import Attempt, JournalEntry, Phase
from router.state.store import StateStore
from tests.support.busy import eventually
from tests.support.deployed import Ran, Running, Site, job
from tests.support.deployed_checks import disagreements
from tests.support.repository import ROOT
from tests.support.seen_machines import SeenMachines
from tests.support.training import metrics

JOB = "train"
STEP_S = 0.05
# Short, so that a gang that is lost is missed soon, and nobody is kept from a pool for longer than a test takes.
TIMEOUTS = {"rendezvous": "30s", "lost": "6s", "quarantine": "20s", "shortage": "20s"}
_TRAINER = shlex.join([sys.executable, str(ROOT / "router" / "demo" / "train.py")])
_LOOK_S = 0.1
_alone: dict[tuple[str, int], TrainingResult] = {}


def training(
    steps: int, *, every: int, step_s: float = STEP_S, machines: int = 2, name: str = JOB, place: str = "", **more: Any
) -> dict[str, Any]:
    """A job that trains so many steps and saves after ``every`` so many, in `checkpoints` beside its cloud, or in a
    folder ``place`` there; ``more`` are fields of the job."""
    command = (
        f"exec {_TRAINER} --steps {steps} --step-seconds {step_s} --checkpoint-every {every} --limit-seconds 20"
        f' --checkpoint-dir "${{STEPFARE_SANDBOX%/*}}/{place}checkpoints"'
    )
    return lasting(name, command, steps, step_s, machines, **more)


def lasting(
    name: str, command: str, steps: int, step_s: float, machines: int, *, planned_s: float | None = None, **more: Any
) -> dict[str, Any]:
    """A job of so many steps; ``planned_s``: how long a step takes by its specification."""
    pace = {
        "accelerator": "H100",
        "count": machines,
        "seconds_per_step": planned_s or step_s,
        "fabric": "ethernet",
        "source": "the trainer waits until a step has taken so long",
    }
    fields = {"steps": steps, "workload": {"profile": [pace]}, "checkpoint": {"size_gib": 0.0001}, **more}
    return job(name, command, machines=machines, **fields)


def watched(site: Site, *, held: bool = False, environment: Mapping[str, str] | None = None, **deploy: Any) -> Running:
    """`stepfare watch`, which listens already; ``deploy``: more of its deploy file."""
    site.deploy(timeouts=TIMEOUTS, **deploy)
    watcher = site.start("watch", held=held, environment=environment)
    eventually(lambda: "listening at" in watcher.err, 30, why="for a watcher")
    return watcher


def set_off(site: Site, environment: Mapping[str, str] | None = None) -> None:
    words = ("apply", site.plan, "--yes", "--limits", site.folder / "limits.yaml")
    applied = site.run(*words, environment=environment)
    assert applied.code == 0, applied.err


def sped_up(site: Site, speed: int, ahead: timedelta = timedelta(0)) -> dict[str, str]:
    """The environment of commands whose clock runs that much faster than life, and is ahead of it by now."""
    began = datetime.now(UTC) - ahead / (speed - 1)
    return {**site.environment, "STEPFARE_CLOCK": f"{speed}@{began.isoformat()}"}


def until_step(site: Site, step: int, attempt: str = "", seconds: float = 90) -> None:
    """Until so many steps are done, by that attempt if one is named."""

    def done() -> bool:
        if not attempt:
            return read_step_count(site.folder) >= step
        return any(row["attempt"] == attempt and row["step"] >= step for row in metrics(site.folder / "checkpoints"))

    eventually(done, seconds, why=f"for step {step}", pause=0.05)


def attempts(site: Site) -> tuple[Attempt, ...]:
    """All, the oldest first."""
    with site.store() as store:
        return store.attempts.find()


def until_finished(site: Site, seconds: float = 90) -> None:
    """Until the last gang is gone."""
    eventually(
        lambda: all(a.phase.is_over for a in attempts(site)) and is_done(site), seconds, why="for the end", pause=0.2
    )


def is_done(site: Site) -> bool:
    """Whether an attempt ended well."""
    return any(attempt.phase is Phase.FINISHED for attempt in attempts(site))


def journal(site: Site, what: str) -> list[JournalEntry]:
    """Its entries of that kind, of all attempts."""
    with site.store() as store:
        return [entry for entry in store.journal.entries() if entry.what == what]


def alone(folder: Path, steps: int) -> TrainingResult:
    """The same training with nobody to disturb it, once a test run."""
    key = (str(folder), steps)
    if key not in _alone:
        place = folder / f"alone-{steps}"
        place.mkdir()
        _alone[key] = train_undisturbed(place, steps, 0, {**os.environ, "PYTHONPATH": str(ROOT)})
    return _alone[key]


def wrong(
    site: Site,
    steps: int,
    same: TrainingResult,
    seen_machines: SeenMachines | None = None,
    *,
    folder: Path | None = None,
) -> list[str]:
    """What is not as it has to be once the job has finished; empty when all is. ``folder`` holds its checkpoints."""
    folder = folder or site.folder
    found = list(find_differences(read_training_result(folder, steps), same))
    return [*found, *repeated(site, steps, metrics(folder / "checkpoints")), *disagreements(site, seen_machines)]


def repeated(site: Site, steps: int, rows: Sequence[dict[str, Any]], name: str = JOB) -> Iterator[str]:
    """Whether two gangs trained at once, a step was done again that was saved, or the ledger has other steps than were
    done. ``rows``: a line for each step that was done."""
    yield from (f"{b[0]} trained while {a[0]} did" for a, b in pairwise(spans_of(rows)) if b[1] < a[2])
    found = [one for one in attempts(site) if one.job == name]
    done = {one.id: [row["step"] for row in rows if row["attempt"] == one.id] for one in found}
    for one, following in pairwise(found):
        later = [step for other in found if other.number > one.number for step in done[other.id]]
        again = [step for step in later if step <= (one.kept_step or 0)]
        if again:
            yield f"{one.id} had saved step {one.kept_step}, and {len(again)} of those steps were done again"
        if following.made_at is not None and following.first_step < (one.kept_step or 0):
            yield f"{following.id} goes on after step {following.first_step}, {one.id} had saved step {one.kept_step}"
    with site.store() as store:
        kept, lost = counted(store, name)
    if kept != steps:
        yield f"the ledger has {kept} steps, the job {steps}"
    # A checkpoint that nobody could confirm counts as lost, but who goes on from it does none of that again.
    unsaid = 0
    for one in found:
        later = [step for other in found if other.number > one.number for step in done[other.id]]
        unsaid += max(0, min(later, default=0) - 1 - (one.kept_step or 0))
    if not 0 <= lost <= len(rows) - steps + unsaid:
        yield f"the ledger has {lost} lost steps, {len(rows) - steps} were done again, {unsaid} saved and not confirmed"


def spans_of(rows: Sequence[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Each attempt with the time of its first and its last step, by the first."""
    times: dict[str, list[float]] = {}
    for row in rows:
        times.setdefault(row["attempt"], []).append(row["time"])
    return sorted(((name, min(some), max(some)) for name, some in times.items()), key=lambda span: span[1])


def counted(store: StateStore, name: str = JOB) -> tuple[int, int]:
    """Steps, and lost ones, of what was metered."""
    entries = store.ledger.entries(kind=LedgerEntryKind.METERED, job=name)
    return sum(entry.steps for entry in entries), sum(entry.lost_steps for entry in entries)


def stop(watcher: Running) -> Ran:
    """Ends whoever watches, as Ctrl-C does; what it said."""
    watcher.process.terminate()
    ran = watcher.wait()
    assert ran.code == 130, ran.err
    return ran


@contextmanager
def taken_back(site: Site, rank: int, seconds: float, name: str = JOB) -> Iterator[PreemptionDrill]:
    """The cloud tells the machine of a rank that it ends in so many seconds (0: without a word), and then ends it,
    unless it was released before or the block is over."""
    with site.store() as store:
        hand = SandboxMachines(store.id)
        doomed = choose_targets(store, hand, name, [rank])
    mark = f"drill-{os.urandom(4).hex()}"
    taking, ended, trouble = (
        PreemptionDrill(hand, doomed, mark, seconds=seconds, ticks=time.monotonic),
        threading.Event(),
        [],
    )

    def play() -> None:
        try:
            taking.look()
            while not taking.over and not ended.wait(_LOOK_S):
                taking.look()
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=play, name="preempted")
    thread.start()
    try:
        yield taking
    finally:
        ended.set()
        thread.join()
        assert not trouble, trouble
