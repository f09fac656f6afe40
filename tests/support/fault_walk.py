"""One step of the fault walk: an apply or destroy is stopped at a stage, a fault comes, one more command runs, and then
machines, Terraform's state, the state database, the journal and the ledger have to tell the same story."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from router.controller.provision.provision_order import is_half_done
from tests.support import walks
from tests.support.busy import eventually
from tests.support.deployed import Ran, Site, Template, job
from tests.support.deployed_checks import disagreements
from tests.support.faults import (
    AGENT_KILLED,
    BOTH_KILLED,
    BY_NAME,
    DIRECTORY_REMOVED,
    DISK_FULL,
    FAILING,
    INTERRUPTED,
    INTERRUPTED_TWICE,
    LINGER,
    LINGERING,
    LOCKED,
    LOCKED_LONG,
    MACHINES,
    NODE_KILLED,
    STAGES,
    STALLED,
    STATE_LOST,
    STATE_LOST_LATER,
    STEPFARE_KILLED,
    TERMINATED,
    TERRAFORM_KILLED,
    UNWRITABLE,
    WAITING,
    Fault,
    Stage,
    begin,
    engines,
)
from tests.support.seen_machines import SeenMachines
from tests.support.walks import Verdict

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


@dataclass(frozen=True)
class Step:
    """One row of the table."""

    stage: Stage
    fault: Fault
    follow_up: str


def templates(folder: Path, engine: Path | None = None) -> dict[str, Template]:
    """The plans that are walked through; ``engine`` instead of the embedded one."""
    return {
        WAITING: Template(folder / WAITING, [job("walk", machines=MACHINES)], engine),
        LINGERING: Template(folder / LINGERING, [job("walk", _LINGERS, machines=MACHINES)], engine),
        FAILING: Template(folder / FAILING, [job("walk", "exit 7", machines=MACHINES)], engine),
    }


def take(step: Step, template: Template, folder: Path, seen_machines: SeenMachines) -> Verdict[Step]:
    """Walk one step in a site of its own, and clear up. Raises nothing."""
    return walks.take(step, lambda step, below: _walked(step, template, below, seen_machines), folder)


def walk(steps: Sequence[Step], folder: Path, engine: Path | None = None) -> list[Verdict[Step]]:
    """Walk all steps; ``engine`` instead of the embedded one."""
    made = templates(folder, engine)
    with SeenMachines() as seen_machines:
        return walks.walk(steps, lambda step, below: _walked(step, made[step.stage.job], below, seen_machines), folder)


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


def table(verdicts: Sequence[Verdict[Step]]) -> str:
    """Stage and fault against the command that followed."""
    rows: dict[tuple[str, str], dict[str, Verdict[Step]]] = {}
    for verdict in verdicts:
        step = verdict.step
        rows.setdefault((step.stage.name, step.fault.name), {})[step.follow_up] = verdict
    width = max(len(stage) for stage, _ in rows) + 2
    second = max(len(fault) for _, fault in rows) + 2
    lines = [f"{'stage':{width}}{'fault':{second}}" + "".join(f"{name:9}" for name in FOLLOW_UPS)]
    for (stage, fault), found in rows.items():
        marks = [found[n].mark if n in found else "" for n in FOLLOW_UPS]
        lines.append(f"{stage:{width}}{fault:{second}}" + "".join(f"{mark:9}" for mark in marks).rstrip())
    lines.append(walks.sum_up(verdicts))
    lines += sorted({f"- {v.step.fault.name}: {v.skipped}" for v in verdicts if v.skipped})
    return "\n".join(lines)


# Which faults come at which stages, and what follows: every stage with the kills and each command, the other faults
# where they mean something.
_FOLLOWED = "RUNNING, followed"
_MEETING = "waiting for ranks, followed"
_DESTROYING = "destroy: 2 of 3 left"
_ELSEWHERE: tuple[tuple[Fault, tuple[str, ...]], ...] = (
    (STALLED, ("init", "preview", "before apply locks the state", "destroy: before it locks")),
    (
        TERRAFORM_KILLED,
        ("init", "preview", "apply, 0 of 3 machines", "apply, 2 of 3 machines", "apply, 3 of 3 machines", _DESTROYING),
    ),
    # A machine that goes when nobody stays is found by whoever stays next; so these stay.
    (AGENT_KILLED, ("apply, 2 of 3 machines", _MEETING, _FOLLOWED)),
    (NODE_KILLED, ("apply, 2 of 3 machines", _MEETING, _FOLLOWED)),
    (INTERRUPTED, ("init", "preview", "apply, 1 of 3 machines", "waiting for ranks", _FOLLOWED, _DESTROYING)),
    (TERMINATED, ("preview", "apply, 2 of 3 machines", "waiting for ranks", _FOLLOWED, _DESTROYING)),
    (INTERRUPTED_TWICE, ("apply, 1 of 3 machines", "waiting for ranks")),
    (DISK_FULL, ("preview", "apply, 0 of 3 machines", "apply, 1 of 3 machines", _DESTROYING)),
    (STATE_LOST, ("apply, 1 of 3 machines", "apply, 3 of 3 machines", _DESTROYING)),
    (STATE_LOST_LATER, ("destroy: RELEASING",)),
    (DIRECTORY_REMOVED, ("apply, 2 of 3 machines",)),
    (UNWRITABLE, ("accepted, no attempt",)),
    (LOCKED, ("apply, 1 of 3 machines", "waiting for ranks")),
    (LOCKED_LONG, ("apply, 1 of 3 machines",)),
)  # fmt: skip


def kills() -> list[Step]:
    """Both kills at every stage, with each follow-up."""
    return [
        Step(stage, fault, follow_up)
        for stage in STAGES
        if stage.name != _MEETING  # it is the same without staying
        for fault in ([STEPFARE_KILLED, BOTH_KILLED] if stage.terraform else [STEPFARE_KILLED])
        for follow_up in FOLLOW_UPS
    ]


def others() -> list[Step]:
    """The other faults, with one follow-up each, in turn."""
    follow_ups = cycle(FOLLOW_UPS)
    return [Step(BY_NAME[name], fault, next(follow_ups)) for fault, names in _ELSEWHERE for name in names]


def _in_turn(steps: Sequence[Step]) -> list[Step]:
    """Of those that differ in the command that follows alone one each, so that each command comes as often."""
    return _one_of_each(steps, lambda step: (step.stage.name, step.fault.name))


def sampled() -> list[Step]:
    """A kill at every stage, which is killed in turn, and each other fault at every second of its stages."""
    kept = {(fault, name) for fault, names in _ELSEWHERE for name in names[::2]}
    elsewhere = [step for step in others() if (step.fault, step.stage.name) in kept]
    return [*_one_of_each(_in_turn(kills()), lambda step: step.stage.name), *elsewhere]


def _one_of_each(steps: Sequence[Step], kind: Callable[[Step], object]) -> list[Step]:
    alike: dict[object, list[Step]] = {}
    for step in steps:
        alike.setdefault(kind(step), []).append(step)
    return [group[number % len(group)] for number, group in enumerate(alike.values())]
