"""Drills: somebody plays the cloud and takes machines back, on the sandbox alone.

Nothing here sleeps: whoever carries out a drill looks again and again (:meth:`Taking.look`) until nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pricing.problems import InvalidInputError
from providers.sandbox.machines import Announcement, Machine
from providers.sandbox.stock import Stock
from router.state.records import Attempt
from router.state.store import Store
from terraform.module_metadata import is_local

INTERRUPTION, REBALANCE = "interruption", "rebalance"
_WHAT = {INTERRUPTION: "a drill takes this machine back", REBALANCE: "a drill may take this machine back"}


class Hand(Protocol):
    """What can be done to machines; see :class:`providers.sandbox.machines.Machines`."""

    def up(self) -> tuple[Machine, ...]:
        """All that run."""

    def announce(self, machine: Machine, said: Announcement) -> None:
        """Tells one."""

    def withdraw(self, machine: Machine) -> None:
        """Takes back what it was told."""

    def switch_off(self, machines: Sequence[Machine], mark: str) -> tuple[Machine, ...]:
        """Ends them; those that could not be ended."""


class Outcome(StrEnum):
    """What became of a machine: it was switched off; it was gone before its time was over; it runs on; it could not be
    ended."""

    KILLED = "killed"
    RELEASED = "released"
    LEFT = "left"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Target:
    """A machine that is up, of a gang that lives. ``place``: its zone, or its region where it has none."""

    job: str
    attempt: str
    rank: int
    region: str
    zone: str | None
    machine: Machine

    @property
    def place(self) -> str:
        """Its zone, or its region where it may be in any."""
        return self.zone or self.region


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one of them."""

    target: Target
    outcome: Outcome


def targets(store: Store, hand: Hand, attempts: Iterable[Attempt] | None = None) -> tuple[Target, ...]:
    """All machines that are up, of the living attempts of the sandbox or of these; by attempt and rank."""
    chosen = store.attempts(alive=True) if attempts is None else attempts
    known = {attempt.id: attempt for attempt in chosen if _is_here(attempt.cloud)}
    up = [machine for machine in hand.up() if machine.attempt in known]
    zones = {name: {node.rank: node.zone for node in store.nodes(name)} for name in {one.attempt for one in up}}
    return tuple(
        Target(known[one.attempt].job, one.attempt, one.rank, known[one.attempt].region, zone[one.rank], one)
        for one in up
        if one.rank in (zone := zones[one.attempt])
    )


def chosen(
    store: Store, hand: Hand, wanted: str, ranks: Collection[int] = (), *, everything: bool = False
) -> tuple[Target, ...]:
    """Machines of the newest gang of a job that has any up, or of an attempt: these ``ranks``, or ``everything``;
    neither: the first. InvalidInputError where there are none, or where they are not the sandbox's."""
    fits = _attempts(store, wanted)
    found: tuple[Target, ...] = ()
    for attempt in sorted(fits, key=lambda one: (one.created_at, one.number), reverse=True):
        found = targets(store, hand, [attempt])
        if found:
            break
    else:
        phases = ", ".join(f"{attempt.id} is {attempt.phase}" for attempt in fits)
        raise InvalidInputError.single(
            f"no machine of {wanted} is up: {phases}", remedy="see `stepfare status -o wide`"
        )
    there = {target.rank: target for target in found}
    if missing := sorted(set(ranks) - set(there)):
        up = ", ".join(map(str, sorted(there)))
        raise InvalidInputError.single(f"rank {missing[0]} of {wanted} is not up; ranks {up} are", field="--rank")
    if everything:
        return found
    return tuple(there[rank] for rank in sorted(set(ranks))) if ranks else found[:1]


def _attempts(store: Store, wanted: str) -> list[Attempt]:
    every = [attempt for attempt in store.attempts() if wanted in (attempt.id, attempt.job)]
    if not every:
        raise InvalidInputError.single(
            f"no job and no attempt is called {wanted}", remedy="see `stepfare status --all`"
        )
    alive = [attempt for attempt in every if not attempt.phase.is_over]
    if not alive:
        raise InvalidInputError.single(f"nothing of {wanted} runs any more", remedy="see `stepfare status --all`")
    for attempt in alive:
        if not _is_here(attempt.cloud):
            raise InvalidInputError.single(
                f"{attempt.id} runs on {attempt.cloud}: a drill takes back machines of the sandbox only",
                remedy="plan the job with `clouds: [sandbox]` in its limits file",
            )
    return alive


def _is_here(cloud: str) -> bool:
    try:
        return is_local(cloud)
    except ValueError:
        return False


def places(store: Store, hand: Hand, wanted: str, known: Collection[str] = ()) -> tuple[str, ...]:
    """The zone or region of that name, where one is ``known`` or machines are; else the places of a job's or attempt's
    machines. InvalidInputError where there are none."""
    everywhere = {place for target in targets(store, hand) for place in (target.zone, target.region)}
    if wanted in {*known, *everywhere}:
        return (wanted,)
    if not any(wanted in (attempt.id, attempt.job) for attempt in store.attempts()):
        names = ", ".join(sorted({*known, *filter(None, everywhere)})) or "none is known"
        raise InvalidInputError.single(
            f"no zone, region, job or attempt is called {wanted}", remedy=f"zones and regions: {names}"
        )
    return tuple(sorted({target.place for target in chosen(store, hand, wanted, everything=True)}))


def within(everybody: Iterable[Target], where: Collection[str]) -> tuple[Target, ...]:
    """Those whose zone or region is one of these."""
    return tuple(target for target in everybody if {target.zone, target.region} & set(where))


def kill(hand: Hand, doomed: Sequence[Target], mark: str) -> tuple[Done, ...]:
    """Switches them off without a word. ``mark`` is a new one for each drill."""
    if not doomed:
        return ()
    stuck = {machine.id for machine in hand.switch_off([target.machine for target in doomed], mark)}
    return tuple(Done(one, Outcome.STUCK if one.machine.id in stuck else Outcome.KILLED) for one in doomed)


def hint(hand: Hand, told: Sequence[Target], mark: str, *, seconds: float | None, kind: str = REBALANCE) -> None:
    """Announces it, and that is all."""
    for target in told:
        with suppress(FileNotFoundError):  # it was released meanwhile
            hand.announce(target.machine, Announcement(f"{mark}-{target.rank}", kind, seconds, _WHAT[kind]))


class Taking:
    """Machines that were told that they end in so many seconds (0: that were not told anything), and then do.

    ``mark`` is a new name for each. ``ticks`` counts seconds. ``find``: what else there is to take, asked at every
    look, for a zone in which machines may just be coming up; those have what is left of the time.
    """

    def __init__(
        self,
        hand: Hand,
        doomed: Sequence[Target],
        mark: str,
        *,
        seconds: float,
        ticks: Callable[[], float],
        find: Callable[[], Iterable[Target]] | None = None,
    ) -> None:
        self._hand, self._mark, self._ticks, self._find = hand, mark, ticks, find
        self._ends = ticks() + seconds
        self._waiting: dict[str, Target] = {}
        self._over = False
        self._add(doomed)

    @property
    def waiting(self) -> tuple[Target, ...]:
        """Those whose time is not over."""
        return tuple(self._waiting.values())

    @property
    def over(self) -> bool:
        """Whether all is done."""
        return self._over

    @property
    def seconds(self) -> float:
        """What is left of the time."""
        return max(0.0, self._ends - self._ticks())

    def look(self) -> tuple[Done, ...]:
        """What became of whom since the last look. When the time is over, all are switched off."""
        if self._over:
            return ()
        self._add(self._find() if self._find is not None else ())
        up = {machine.id for machine in self._hand.up()}
        done = [Done(self._waiting.pop(name), Outcome.RELEASED) for name in list(self._waiting) if name not in up]
        if self.seconds <= 0 and self._waiting:
            doomed, self._waiting = self.waiting, {}
            done += kill(self._hand, doomed, self._mark)
            # Whoever was just about to come up there is seen at the next look. Who cannot be ended now never will.
            self._over = self._find is None or any(one.outcome is Outcome.STUCK for one in done)
        else:
            self._over = not self._waiting
        return tuple(done)

    def let_go(self) -> tuple[Done, ...]:
        """Nobody else is switched off: what still waits runs on, and its notice is taken back."""
        done = tuple(Done(target, Outcome.LEFT) for target in self.waiting)
        for target in self.waiting:
            self._hand.withdraw(target.machine)
        self._waiting, self._over = {}, True
        return done

    def _add(self, found: Iterable[Target]) -> None:
        new = [target for target in found if target.machine.id not in self._waiting]
        if self.seconds > 0:
            hint(self._hand, new, self._mark, seconds=round(self.seconds, 3), kind=INTERRUPTION)
        self._waiting |= {target.machine.id: target for target in new}


def zone_down(
    store: Store,
    hand: Hand,
    stock: Stock,
    where: Collection[str],
    mark: str,
    *,
    seconds: float,
    until: float | None,
    ticks: Callable[[], float],
) -> Taking:
    """Nothing is to be had in these zones or regions any more, ``until`` so many seconds since 1970 (None: until they
    are opened), and the machines there are taken back after a notice of ``seconds`` (0: without a word)."""
    for place in where:
        stock.close(place, until, mark)

    def find() -> tuple[Target, ...]:
        return within(targets(store, hand), where)

    return Taking(hand, find(), mark, seconds=seconds, ticks=ticks, find=find)


def zone_up(stock: Stock, where: Collection[str], mark: str | None = None) -> tuple[str, ...]:
    """Opens what was closed there, ``mark``: by that drill only; which had been closed."""
    return tuple(place for place in where if stock.open(place, mark))
