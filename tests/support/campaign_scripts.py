"""What happens in a world of the fault campaign: drawn from its seed alone, so that it can be told again. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from tests.support.campaign_places import SETTINGS, Setting


class Kind(StrEnum):
    """What comes about. The words are those of the table."""

    WATCHER_KILLED = "kill -9 the watcher"
    WATCHER_ASKED = "SIGTERM to the watcher"
    WATCHER_STOPPED = "watcher held up (SIGSTOP)"
    WATCHER_TWICE = "a second watcher"
    CLOCK_BACK = "clock set back"
    AGENT_KILLED = "kill -9 an agent"
    TRAINER_KILLED = "kill -9 a trainer"
    NODE_KILLED = "kill -9 a machine"
    NOTICE = "notice, then gone"
    FALSE_NOTICE = "notice, not gone"
    ZONE_DOWN = "zone down"
    REBALANCE = "rebalance hint"
    HEALTH = "health hint"
    TERRAFORM_KILLED = "kill -9 Terraform"
    STATE_EMPTY = "Terraform state of 0 bytes"
    UNWRITABLE = "checkpoints unwritable"
    DISK_FULL = "checkpoint disk full"
    TORN = "newest checkpoint torn"
    HALF_WRITTEN = "half a checkpoint, newer"


# How often each comes, in proportion.
_WEIGHTS = {
    Kind.WATCHER_KILLED: 6, Kind.WATCHER_ASKED: 3, Kind.WATCHER_STOPPED: 2, Kind.WATCHER_TWICE: 2, Kind.CLOCK_BACK: 2,
    Kind.AGENT_KILLED: 3, Kind.TRAINER_KILLED: 3, Kind.NODE_KILLED: 4, Kind.NOTICE: 6, Kind.FALSE_NOTICE: 1,
    Kind.ZONE_DOWN: 3, Kind.REBALANCE: 2, Kind.HEALTH: 2, Kind.TERRAFORM_KILLED: 3, Kind.STATE_EMPTY: 2,
    Kind.UNWRITABLE: 1, Kind.DISK_FULL: 1, Kind.TORN: 2, Kind.HALF_WRITTEN: 1,
}  # fmt: skip
_FEWEST, _MOST = 2, 4
_FOLLOWS = 0.4
# Of the training; the first steps are left to it, and the last: nothing can be taken from what has ended.
_FIRST_SHARE, _LAST_SHARE = 0.02, 0.9
# So often a fault comes while the one before is still dealt with.
_SOON_AFTER = 0.45
_SOON_S = (0.1, 5.0)


@dataclass(frozen=True)
class Fault:
    """One of them. It comes when ``share`` of a job's steps are done; ``after``: so many seconds after the one before,
    instead. ``job`` and ``rank`` are numbers, taken modulo what is there; ``seconds``: the notice's, or how long it
    lasts."""

    kind: Kind
    share: float
    after: float | None
    job: int
    rank: int
    seconds: float

    def __str__(self) -> str:
        when = f"at {self.share:.0%}" if self.after is None else f"{self.after:.1f} s later"
        return f"{when} {self.kind.value} (job {self.job}, rank {self.rank}, {self.seconds:.1f} s)"


@dataclass(frozen=True)
class Script:
    """All that happens in one world. ``follows``: `apply --follow` is the first watcher."""

    seed: int
    setting: Setting
    faults: tuple[Fault, ...]
    follows: bool


def script_of(seed: int) -> Script:
    dice = random.Random(seed)
    setting = SETTINGS[seed % len(SETTINGS)]
    count = dice.randint(_FEWEST, _MOST)
    shares = sorted(dice.uniform(_FIRST_SHARE, _LAST_SHARE) for _ in range(count))
    kinds = dice.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()), k=count)
    faults = []
    for number, (kind, share) in enumerate(zip(kinds, shares, strict=True)):
        soon = number > 0 and dice.random() < _SOON_AFTER
        after = round(dice.uniform(*_SOON_S), 2) if soon else None
        faults.append(Fault(kind, share, after, dice.randrange(8), dice.randrange(8), _seconds(kind, dice)))
    return Script(seed, setting, tuple(faults), follows=dice.random() < _FOLLOWS)


def _seconds(kind: Kind, dice: random.Random) -> float:
    match kind:
        case Kind.NOTICE | Kind.FALSE_NOTICE:
            # Mostly short: half a second is less than a checkpoint takes.
            return float(round(min(20.0, 0.5 * 40.0 ** dice.random()), 2))
        case Kind.ZONE_DOWN:
            return dice.choice((0.0, 0.0, 2.0))
        case Kind.WATCHER_STOPPED:
            return round(dice.uniform(1, 8), 2)
        case Kind.CLOCK_BACK:
            return round(dice.uniform(60, 900), 0)
        case Kind.TERRAFORM_KILLED:
            return round(dice.uniform(0, 1), 2)
        case _:
            return round(dice.uniform(0.2, 4), 2)
