"""One step of the fault walk: an apply or destroy is stopped at a stage, a fault comes, one more command runs, and then
machines, Terraform's state, the state database, the journal and the ledger have to tell the same story."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from router.controller.provision.provision_order import is_half_done
from tests.support.deployed import Ran, Site, Template, eventually, job
from tests.support.deployed_checks import disagreements
from tests.support.fault_stages import (
    FAILING,
    LINGER,
    LINGERING,
    MACHINES,
    WAITING,
    Stage,
    StageMissedError,
    begin,
    engines,
)
from tests.support.faults import Fault, NotHereError
from tests.support.seen_machines import SeenMachines

# Deaf to a second SIGTERM. One goes at once, the others when they may: some are left until then, however they are told.
_LINGERS = """
linger() {
    trap '' TERM
    hold=${STEPFARE_SANDBOX%/*}/holds/LINGER
    mv "$hold" "$hold.taken" 2>/dev/null && exit 0
    while [ -e "$hold.taken" ]; do sleep 0.1; done
    sleep $((1 + NODE_RANK))
    exit 0
}
trap linger TERM
while :; do sleep 0.2; done
""".replace("LINGER", LINGER)
FOLLOW_UPS = ("apply", "destroy", "sweep")
_TRIES = 3


@dataclass(frozen=True)
class Step:
    """One row of the table."""

    stage: Stage
    fault: Fault
    follow_up: str


@dataclass(frozen=True)
class Verdict:
    """``wrong`` is empty when all is well; ``skipped``: why it could not be walked on this machine."""

    step: Step
    wrong: tuple[str, ...]
    seconds: float
    skipped: str = ""

    @property
    def mark(self) -> str:
        return "-" if self.skipped else "WRONG" if self.wrong else "ok"


def templates(folder: Path, engine: Path | None = None) -> dict[str, Template]:
    """The plans that are walked through; ``engine`` instead of the embedded one."""
    return {
        WAITING: Template(folder / WAITING, [job("walk", machines=MACHINES)], engine),
        LINGERING: Template(folder / LINGERING, [job("walk", _LINGERS, machines=MACHINES)], engine),
        FAILING: Template(folder / FAILING, [job("walk", "exit 7", machines=MACHINES)], engine),
    }


def take(step: Step, template: Template, folder: Path, seen_machines: SeenMachines) -> Verdict:
    """Walks one step in a site of its own, and clears up; again where the stage went by unseen. Raises nothing."""
    begun = time.monotonic()
    wrong: tuple[str, ...] = ()
    skipped = ""
    for number in range(_TRIES):
        try:
            wrong = _walked(step, template, folder / str(number), seen_machines)
        except StageMissedError as error:
            wrong = (f"StageMissedError: {error}",)
            continue
        except NotHereError as error:
            skipped = str(error)
        except Exception as error:
            wrong = (f"{type(error).__name__}: {error}",)
        break
    return Verdict(step, wrong, time.monotonic() - begun, skipped)


def _walked(step: Step, template: Template, folder: Path, seen_machines: SeenMachines) -> tuple[str, ...]:
    with step.fault.around(folder):
        site = template.site(folder)
        site.deploy(timeouts={"rendezvous": "25s", "lost": "15s"})
        try:
            return tuple(_wrong(step, site, seen_machines))
        finally:
            site.end()


def _wrong(step: Step, site: Site, seen_machines: SeenMachines) -> Iterable[str]:
    running = begin(step.stage, site, seen_machines)
    step.fault.strike(site, running)
    ended = running.wait()
    if ended.code not in step.fault.codes:
        yield f"exit {ended.code} after the fault: {ended.err[-500:]}"
    step.fault.mend(site)
    done = _follow_up(step, site)
    site.holds.free_all()
    eventually(lambda: not engines(site), why="for a Terraform that nobody waits for")
    if done.code not in _codes(step):
        yield f"exit {done.code} of {step.follow_up}: {done.err[-500:]}"
    yield from disagreements(site, seen_machines, mute=step.fault.mute)
    with site.store() as store:
        alive = store.attempts.find(alive=True)
        if step.follow_up == "apply" and step.stage.job != FAILING and len(alive) != 1:
            yield f"{len(alive)} gangs run after apply"
        if step.follow_up == "destroy" and alive:
            yield f"{len(alive)} gangs are left after destroy"
        if any(is_half_done(attempt) for attempt in alive):
            yield "an attempt stands between two states"


def _follow_up(step: Step, site: Site) -> Ran:
    match step.follow_up:
        case "apply":
            # A job that fails is released by whoever stays.
            return site.apply(*(["--follow"] if step.stage.job == FAILING else []))
        case "destroy":
            return site.run("destroy", "--all", "--yes")
        case _:
            return site.run("sweep", "--yes")


def _codes(step: Step) -> set[int]:
    return {5} if step.follow_up == "apply" and step.stage.job == FAILING else {0}


def table(verdicts: Sequence[Verdict]) -> str:
    """Stage and fault against the command that followed."""
    rows: dict[tuple[str, str], dict[str, Verdict]] = {}
    for verdict in verdicts:
        step = verdict.step
        rows.setdefault((step.stage.name, step.fault.name), {})[step.follow_up] = verdict
    width = max(len(stage) for stage, _ in rows) + 2
    second = max(len(fault) for _, fault in rows) + 2
    lines = [f"{'stage':{width}}{'fault':{second}}" + "".join(f"{name:9}" for name in FOLLOW_UPS)]
    for (stage, fault), found in rows.items():
        marks = [found[n].mark if n in found else "" for n in FOLLOW_UPS]
        lines.append(f"{stage:{width}}{fault:{second}}" + "".join(f"{mark:9}" for mark in marks).rstrip())
    walked = [verdict for verdict in verdicts if not verdict.skipped]
    good = sum(not verdict.wrong for verdict in walked)
    lines.append(f"{good} of {len(walked)} ok, {100 * good / len(walked):.0f} %")
    lines += sorted({f"- {v.step.fault.name}: {v.skipped}" for v in verdicts if v.skipped})
    return "\n".join(lines)
