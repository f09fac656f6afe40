"""Which faults come at which stages, and what follows: every stage with the kills and each command, the other faults
where they mean something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

from tests.support.fault_stages import BY_NAME, STAGES
from tests.support.fault_walk import FOLLOW_UPS, Step
from tests.support.faults import (
    AGENT_KILLED,
    BOTH_KILLED,
    DIRECTORY_REMOVED,
    DISK_FULL,
    INTERRUPTED,
    INTERRUPTED_TWICE,
    LOCKED,
    LOCKED_LONG,
    NODE_KILLED,
    STALLED,
    STATE_LOST,
    STATE_LOST_LATER,
    STEPFARE_KILLED,
    TERMINATED,
    TERRAFORM_KILLED,
    UNWRITABLE,
    Fault,
)

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
