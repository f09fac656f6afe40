"""Drills: interrupt sandbox machines as a cloud would.

Nothing here sleeps: the caller runs a drill by calling :meth:`PreemptionDrill.look` until nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from pricing.problems import InvalidInputError
from providers.sandbox.machines import SandboxMachine, SandboxMachines, SandboxNotice
from providers.sandbox.stock import StockFile
from router.state.records import Attempt
from router.state.store import StateStore
from terraform.module_metadata import module_facts

INTERRUPTION, REBALANCE = "interruption", "rebalance"
_WHAT = {INTERRUPTION: "a drill interrupts this machine", REBALANCE: "a drill may interrupt this machine"}


class DrillOutcome(StrEnum):
    """The fate of a machine in a drill.

    It was switched off; it was gone before its time was over; it keeps running; it could not be switched off.
    """

    KILLED = "killed"
    RELEASED = "released"
    LEFT = "left"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class DrillTarget:
    """A machine that is up and belongs to a living gang."""

    job: str
    attempt: str
    rank: int
    region: str
    zone: str | None
    machine: SandboxMachine

    @property
    def place(self) -> str:
        """Return its zone, or its region where it may be in any zone."""
        return self.zone or self.region


@dataclass(frozen=True, slots=True)
class DrillResult:
    """The outcome for one machine."""

    target: DrillTarget
    outcome: DrillOutcome


def find_targets(
    store: StateStore, hand: SandboxMachines, attempts: Iterable[Attempt] | None = None
) -> tuple[DrillTarget, ...]:
    """Return all machines that are up of the sandbox's living attempts, or of these attempts; by attempt and rank."""
    chosen = store.attempts.find(alive=True) if attempts is None else attempts
    known = {attempt.id: attempt for attempt in chosen if _is_sandbox(attempt.cloud)}
    up = [machine for machine in hand.up() if machine.attempt in known]
    zones = {
        name: {node.rank: node.zone for node in store.attempts.nodes(name)} for name in {one.attempt for one in up}
    }
    return tuple(
        DrillTarget(known[one.attempt].job, one.attempt, one.rank, known[one.attempt].region, zone[one.rank], one)
        for one in up
        if one.rank in (zone := zones[one.attempt])
    )


def choose_targets(
    store: StateStore, hand: SandboxMachines, name: str, ranks: Collection[int] = (), *, everything: bool = False
) -> tuple[DrillTarget, ...]:
    """Return machines of the newest gang of a job that has any up, or of an attempt.

    ``ranks`` selects ranks and ``everything`` all; without either, only the first machine is returned.
    InvalidInputError where there are none, or where they are not the sandbox's.
    """
    attempts = _attempts(store, name)
    targets: tuple[DrillTarget, ...] = ()
    for attempt in sorted(attempts, key=lambda attempt: (attempt.created_at, attempt.number), reverse=True):
        targets = find_targets(store, hand, [attempt])
        if targets:
            break
    else:
        phases = ", ".join(f"{attempt.id} is {attempt.phase}" for attempt in attempts)
        raise InvalidInputError.single(f"no machine of {name} is up: {phases}", remedy="see `stepfare status -o wide`")
    there = {target.rank: target for target in targets}
    if missing := sorted(set(ranks) - set(there)):
        up = ", ".join(map(str, sorted(there)))
        raise InvalidInputError.single(f"rank {missing[0]} of {name} is not up; ranks {up} are", field="--rank")
    if everything:
        return targets
    return tuple(there[rank] for rank in sorted(set(ranks))) if ranks else targets[:1]


def _attempts(store: StateStore, name: str) -> list[Attempt]:
    attempts = [attempt for attempt in store.attempts.find() if name in (attempt.id, attempt.job)]
    if not attempts:
        raise InvalidInputError.single(f"no job or attempt has the name {name}", remedy="see `stepfare status --all`")
    alive = [attempt for attempt in attempts if not attempt.phase.is_over]
    if not alive:
        raise InvalidInputError.single(f"{name} has no running attempt", remedy="see `stepfare status --all`")
    for attempt in alive:
        if not _is_sandbox(attempt.cloud):
            raise InvalidInputError.single(
                f"{attempt.id} runs on {attempt.cloud}: a drill can interrupt only machines of the sandbox",
                remedy="plan the job with `clouds: [sandbox]` in its limits file",
            )
    return alive


def _is_sandbox(cloud: str) -> bool:
    try:
        return module_facts(cloud).local
    except ValueError:
        return False


def find_places(
    store: StateStore, hand: SandboxMachines, name: str, place_names: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the named zone or region, or the places of the named job's or attempt's machines.

    A zone or region counts if it is one of ``place_names`` or machines are in it. InvalidInputError if nothing has that
    name.
    """
    everywhere = {place for target in find_targets(store, hand) for place in (target.zone, target.region)}
    if name in {*place_names, *everywhere}:
        return (name,)
    if not any(name in (attempt.id, attempt.job) for attempt in store.attempts.find()):
        names = ", ".join(sorted({*place_names, *filter(None, everywhere)})) or "none is known"
        raise InvalidInputError.single(
            f"no zone, region, job or attempt has the name {name}", remedy=f"zones and regions: {names}"
        )
    return tuple(sorted({target.place for target in choose_targets(store, hand, name, everything=True)}))


def targets_in(everybody: Iterable[DrillTarget], where: Collection[str]) -> tuple[DrillTarget, ...]:
    return tuple(target for target in everybody if {target.zone, target.region} & set(where))


def kill_machines(hand: SandboxMachines, machines: Sequence[DrillTarget], mark: str) -> tuple[DrillResult, ...]:
    """Switch the machines off without a notice. ``mark`` is new for each drill."""
    if not machines:
        return ()
    stuck = {machine.id for machine in hand.switch_off([target.machine for target in machines], mark)}
    return tuple(
        DrillResult(one, DrillOutcome.STUCK if one.machine.id in stuck else DrillOutcome.KILLED) for one in machines
    )


def announce_to(
    hand: SandboxMachines, told: Sequence[DrillTarget], mark: str, *, seconds: float | None, kind: str = REBALANCE
) -> None:
    """Deliver a notice to the machines, and do nothing else."""
    for target in told:
        with suppress(FileNotFoundError):  # it was released meanwhile
            hand.announce(target.machine, SandboxNotice(f"{mark}-{target.rank}", kind, seconds, _WHAT[kind]))


class PreemptionDrill:
    """A drill that announces to machines when they end, and then switches them off.

    It is ``over`` once nothing is left to do. With 0 seconds nothing is announced. ``mark`` is a new name for each
    drill. ``ticks`` counts seconds. ``find`` returns further machines to interrupt and is called at every look, for a
    zone in which machines may just be coming up; those get the time that is left.
    """

    def __init__(
        self,
        hand: SandboxMachines,
        doomed: Sequence[DrillTarget],
        mark: str,
        *,
        seconds: float,
        ticks: Callable[[], float],
        find: Callable[[], Iterable[DrillTarget]] | None = None,
    ) -> None:
        self._hand, self._mark, self._ticks, self._find = hand, mark, ticks, find
        self._ends = ticks() + seconds
        self._waiting: dict[str, DrillTarget] = {}
        self.over = False
        self._add_targets(doomed)

    @property
    def waiting(self) -> tuple[DrillTarget, ...]:
        return tuple(self._waiting.values())

    @property
    def seconds(self) -> float:
        return max(0.0, self._ends - self._ticks())

    def look(self) -> tuple[DrillResult, ...]:
        """Return the outcomes since the last look. When the time is over, all machines are switched off."""
        if self.over:
            return ()
        self._add_targets(self._find() if self._find is not None else ())
        up = {machine.id for machine in self._hand.up()}
        done = [
            DrillResult(self._waiting.pop(name), DrillOutcome.RELEASED)
            for name in list(self._waiting)
            if name not in up
        ]
        if self.seconds <= 0 and self._waiting:
            doomed, self._waiting = self.waiting, {}
            done += kill_machines(self._hand, doomed, self._mark)
            # A machine that is just coming up there is found at the next look. One that cannot be switched off now
            # never will be.
            self.over = self._find is None or any(one.outcome is DrillOutcome.STUCK for one in done)
        else:
            self.over = not self._waiting
        return tuple(done)

    def let_go(self) -> tuple[DrillResult, ...]:
        """End the drill: machines that still wait keep running, and their notices are withdrawn."""
        done = tuple(DrillResult(target, DrillOutcome.LEFT) for target in self.waiting)
        for target in self.waiting:
            self._hand.withdraw(target.machine)
        self._waiting, self.over = {}, True
        return done

    def _add_targets(self, targets: Iterable[DrillTarget]) -> None:
        new = [target for target in targets if target.machine.id not in self._waiting]
        if self.seconds > 0:
            announce_to(self._hand, new, self._mark, seconds=round(self.seconds, 3), kind=INTERRUPTION)
        self._waiting |= {target.machine.id: target for target in new}


def close_zones(
    store: StateStore,
    hand: SandboxMachines,
    stock: StockFile,
    where: Collection[str],
    mark: str,
    *,
    seconds: float,
    until: float | None,
    ticks: Callable[[], float],
) -> PreemptionDrill:
    """Close these zones or regions, and interrupt the machines there after ``seconds``.

    Without seconds (0) they are interrupted without a notice. Nothing can be obtained there ``until`` a moment in
    seconds since 1970 (None: until the zones are opened).
    """
    for place in where:
        stock.close(place, until, mark)

    def find() -> tuple[DrillTarget, ...]:
        return targets_in(find_targets(store, hand), where)

    return PreemptionDrill(hand, find(), mark, seconds=seconds, ticks=ticks, find=find)


def open_zones(stock: StockFile, where: Collection[str], mark: str | None = None) -> tuple[str, ...]:
    """Open the zones that were closed, only by the drill ``mark`` if given, and return those that had been closed."""
    return tuple(place for place in where if stock.open(place, mark))
