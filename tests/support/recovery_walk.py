"""A walk through the steps by which a gang goes elsewhere: whoever looks after it is killed at one of them, somebody
else looks on, and then the job has to have finished as if nobody had disturbed it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from router.demo.stage import TrainingResult
from tests.support import walks
from tests.support.busy import eventually
from tests.support.deployed import Running, Site, Template
from tests.support.faults import engines
from tests.support.recovered import (
    TIMEOUTS,
    alone,
    set_off,
    stop,
    taken_back,
    training,
    until_finished,
    until_step,
    watched,
    wrong,
)
from tests.support.seen_machines import SeenMachines
from tests.support.walks import Verdict

# Enough that on a busy machine, too, the notice is acted on before the job is at its end.
STEPS, STEP_S, EVERY = 400, 0.03, 60
# The notice comes after so many steps, and says so many seconds.
_AFTER, _NOTICE_S = 62, 4.0


@dataclass(frozen=True)
class Stage:
    """Whoever looks after the gang is held at ``place`` (see :mod:`tests.support.held_command`), and killed.

    ``terraform``: it is killed as well. ``follows``: it was `apply --follow`, not `watch`. ``told`` False: the machine
    goes without a word.
    """

    name: str
    place: str
    terraform: bool = False
    follows: bool = False
    told: bool = True


STAGES = (
    Stage("NOTICED", "noticed"),
    Stage("CHECKPOINTING", "checkpointing"),
    Stage("MIGRATING", "migrating"),
    Stage("MIGRATING, a machine is lost", "migrating", told=False),
    Stage("successor PLANNED", "after-attempt"),
    Stage("old RELEASING", "releasing"),
    Stage("old RELEASING, before the ledger", "before-ledger"),
    Stage("old RELEASING, a machine is lost", "after-ledger", told=False),
    Stage("successor PROVISIONING", "provisioning"),
    Stage("successor PROVISIONING, machines there", "after-apply", terraform=True),
    Stage("successor made and not met", "before-hello"),
    Stage("successor made and not met, followed", "before-hello", follows=True),
    Stage("successor met", "before-ready"),
    Stage("successor RESUMING", "resuming"),
    Stage("successor RUNNING", "running"),
)


def walk(stages: Sequence[Stage], folder: Path) -> list[Verdict[Stage]]:
    """Walk all stages."""
    template = Template(folder / "plan", [training(STEPS, every=EVERY, step_s=STEP_S)])
    same = alone(folder, STEPS)
    with SeenMachines() as seen_machines:
        return walks.walk(
            stages, lambda stage, below: _walked(stage, template.site(below), same, seen_machines), folder
        )


def _walked(stage: Stage, site: Site, same: TrainingResult, seen_machines: SeenMachines) -> tuple[str, ...]:
    try:
        return tuple(_wrong(stage, site, same, seen_machines))
    finally:
        site.end()


def _wrong(stage: Stage, site: Site, same: TrainingResult, seen_machines: SeenMachines) -> Iterable[str]:
    running = _watched(stage, site)
    until_step(site, _AFTER)
    site.holds.put(stage.place)
    with taken_back(site, 1, _NOTICE_S if stage.told else 0.0):
        eventually(lambda: _is_there(stage, site, running), 60, why=f"for {stage.name}", pause=0.005)
        groups = engines(site) if stage.terraform else []
        running.signal(signal.SIGKILL)
        for group in groups:
            os.killpg(group, signal.SIGKILL)
        running.process.wait()
        site.holds.free_all()
        watcher = site.start("watch")
        until_finished(site)
    stop(watcher)
    return wrong(site, STEPS, same, seen_machines)


def _watched(stage: Stage, site: Site) -> Running:
    if not stage.follows:
        running = watched(site, held=True)
        set_off(site)
        return running
    site.deploy(timeouts=TIMEOUTS)
    return site.start("apply", site.plan, "--yes", "--follow", "--limits", site.folder / "limits.yaml", held=True)


def _is_there(stage: Stage, site: Site, running: Running) -> bool:
    assert running.process.poll() is None, f"it ended before: {running.err}"
    return site.holds.reached(stage.place)


def table(verdicts: Sequence[Verdict[Stage]]) -> str:
    """One row a stage."""
    width = max(len(verdict.step.name) for verdict in verdicts) + 2
    lines = [f"{'killed at':{width}}{'seconds':>9}  "]
    lines += [f"{one.step.name:{width}}{one.seconds:>9.0f}  {one.mark}" for one in verdicts]
    return "\n".join([*lines, walks.sum_up(verdicts)])
