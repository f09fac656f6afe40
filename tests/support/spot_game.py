"""A job against the availability, minute by minute: what a policy decides is carried out with honest delays.

Work is in minutes of the on-demand machine. What was not confirmed to be saved is lost with the machines; a launch
takes its whole time, also one that turns out to have failed; decisions fall at every tick, at the end of a launch or a
move, and, where ``told`` is, at a loss or a notice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.spot.policies.interface import (
    AvailabilityAnswer,
    CurrentPlacement,
    MoveDecision,
    Observation,
    PastAttempt,
    PlacementOption,
    Policy,
    PolicyEvent,
    SaveDecision,
)

BEGIN = datetime(2026, 11, 21, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ON_DEMAND = UsdPerHour.parse("3.60")
SPOT = UsdPerHour.parse("1.20")
DEAR = UsdPerHour.parse("9.00")
_GIVE_UP = 100_000


@dataclass(frozen=True)
class Spot:
    """A spot pool: minutes to start, work done a minute, its region, and whether it is up at a minute."""

    start: int
    speed: int
    region: int
    up: Callable[[int], bool]
    notice: int = 0


@dataclass(frozen=True)
class World:
    """What is fixed. ``far``: minutes to bring the checkpoint from one region to another, both ways alike. ``dear``:
    other on-demand places, which are always up."""

    work: int
    deadline: int
    tick: int
    start: int
    save: int
    interval: int
    far: int
    spots: tuple[Spot, ...]
    told: bool = True
    asked_while_starting: bool = False
    dear: tuple[Spot, ...] = ()

    @property
    def always_on_demand(self) -> int:
        """When the job ends that goes on demand at once, where that is soonest done."""
        others = (d.start + self.far * (d.region != 0) + -(-self.work // d.speed) for d in self.dear)
        return min([self.start + self.work, *others])


@dataclass
class Game:
    """One run; ``play`` gives the minute of the end."""

    world: World
    policy: Policy
    minute: int = 0
    confirmed: int = 0
    unsaved: int = 0
    home: int = 0
    here: str = ""
    since_save: int = 0
    saving: int = 0
    nanos: int = 0
    decisions: list[str] = field(default_factory=list)
    lives: list[PastAttempt] = field(default_factory=list)
    answers: list[AvailabilityAnswer] = field(default_factory=list)

    def play(self) -> int:
        event = PolicyEvent.TICK
        while self.minute < _GIVE_UP:
            self._carry_out(self._observed(event))
            event = self._until_next()
            if self.confirmed + self.unsaved >= self.world.work:
                return self.minute
        raise AssertionError("it never ends")

    def _observed(self, event: PolicyEvent) -> Observation:
        world = self.world
        here = self._place(self.here) if self.here else None
        at = None
        if here is not None:
            at = CurrentPlacement(
                here,
                self._leaves_in(),
                saved=self.unsaved == 0,
                unsaved_hours=self.unsaved / 60,
                checkpoint_transfer_hours=here.transfer_hours,
            )
        names = ["on-demand", *(f"dear-{i}" for i in range(len(world.dear)))]
        down = [f"spot-{i}" for i, s in enumerate(world.spots) if not s.up(self.minute)]
        names += [f"spot-{i}" for i, s in enumerate(world.spots) if s.up(self.minute)]
        return Observation(
            now=BEGIN + self.minute * MINUTE,
            deadline=BEGIN + world.deadline * MINUTE,
            tick=world.tick * MINUTE,
            event=event,
            here=at,
            places=tuple(self._place(name) for name in names),
            save=world.save * MINUTE,
            closed=tuple(self._place(name) for name in down),
            began=BEGIN,
            share=self._share,
            lives=tuple(self.lives),
            answers=tuple(self.answers),
        )

    @property
    def _share(self) -> float:
        return (self.world.work - self.confirmed) / self.world.work

    def _place(self, name: str) -> PlacementOption:
        """On-demand is where the checkpoint is; so the first region's is not needed."""
        left = self.world.work - self.confirmed
        spot = self._spot(name)
        if spot is None:
            market, rate, start, speed, moves = Market.ON_DEMAND, ON_DEMAND, self.world.start, 1, self._far(0)
        else:
            sure = name.startswith("dear-")
            market, rate = (Market.ON_DEMAND, DEAR) if sure else (Market.SPOT, SPOT)
            start, speed = spot.start, spot.speed
            moves = self._far(spot.region)
        hours = left / speed / 60
        cost = Usd(round(rate.nanos * (hours + start / 60)))
        return PlacementOption(name, market, rate, hours, start / 60, cost, moves / 60)

    def _far(self, region: int) -> int:
        return 0 if region == self.home else self.world.far

    def _spot(self, name: str) -> Spot | None:
        if name == "on-demand":
            return None
        kind, number = name.split("-")
        return (self.world.spots if kind == "spot" else self.world.dear)[int(number)]

    def _leaves_in(self) -> timedelta | None:
        spot = self._spot(self.here)
        if spot is None or not spot.notice:
            return None
        soon = [n for n in range(1, spot.notice + 1) if not spot.up(self.minute + n)]
        return soon[0] * MINUTE if soon else None

    def _carry_out(self, o: Observation) -> None:
        decision = self.policy.decide(o)
        self.decisions.append(f"{self.minute} {decision}")
        if isinstance(decision, SaveDecision) and self.here and not self.saving:
            self.saving = self.world.save + 1
        if isinstance(decision, MoveDecision) and not decision.to:
            self._leave()
        elif isinstance(decision, MoveDecision) and decision.to[0] != self.here:
            self._leave()
            self._launch(decision.to[0])

    def _leave(self) -> None:
        """Saves as long as the machines last."""
        spot = self._spot(self.here) if self.here else None
        for _ in range(self.world.save if self.here and self.unsaved else 0):
            self._pay()
            self.minute += 1
            if spot is not None and not spot.up(self.minute):
                self.unsaved = 0
                break
        self._confirm()
        self._gone(taken=False)

    def _gone(self, *, taken: bool) -> None:
        if self.here and self.lives and self.lives[-1].until is None:
            now = BEGIN + self.minute * MINUTE
            self.lives[-1] = replace(self.lives[-1], until=now, taken=taken, share_to=self._share)
        self.here = ""

    def _confirm(self) -> None:
        if self.unsaved and self.here:
            spot = self._spot(self.here)
            self.home = 0 if spot is None else spot.region
        self.confirmed += self.unsaved
        self.unsaved = self.since_save = self.saving = 0

    def _launch(self, name: str) -> None:
        spot = self._spot(name)
        minutes = self.world.start + self._far(0) if spot is None else spot.start + self._far(spot.region)
        now = BEGIN + self.minute * MINUTE
        self._gone(taken=False)  # a launch that was given up
        self.here = name
        self.lives.append(PastAttempt(name, now, now + minutes * MINUTE, None, False, self._share, self._share))
        for number in range(minutes):
            if self.world.asked_while_starting and number % self.world.tick == 0 and number:
                o = self._observed(PolicyEvent.TICK)
                decision = self.policy.decide(o)
                if isinstance(decision, MoveDecision) and decision.to[:1] != (name,):
                    self.decisions.append(f"{self.minute} gives up {name}: {decision}")
                    if not decision.to:
                        self._gone(taken=False)
                        return
                    self._launch(decision.to[0])
                    return
            self._pay()
            self.minute += 1
        if spot is not None and not spot.up(self.minute):
            self.here = ""
            self.lives.pop()
        if spot is not None:
            self.answers.append(AvailabilityAnswer(name, BEGIN + self.minute * MINUTE, bool(self.here)))
        self.since_save = 0

    def _until_next(self) -> PolicyEvent:
        """Time passes until the next tick, or until somebody says something."""
        noticed = bool(self.here) and self._leaves_in() is not None
        lost = False
        for _ in range(self.world.tick):
            self.minute += 1
            if not self.here:
                continue
            spot = self._spot(self.here)
            if spot is not None and not spot.up(self.minute):
                self._gone(taken=True)
                self.unsaved, self.saving, lost = 0, 0, True
                if self.world.told:
                    return PolicyEvent.LOST
                continue
            self._pay()
            self._work(1 if spot is None else spot.speed)
            if self.confirmed + self.unsaved >= self.world.work:
                return PolicyEvent.TICK
            if self.world.told and not noticed and self._leaves_in() is not None:
                return PolicyEvent.INTERRUPTION
        return PolicyEvent.LOST if lost else PolicyEvent.TICK

    def _work(self, speed: int) -> None:
        self.unsaved += speed
        self.since_save += 1
        if self.saving:
            self.saving -= 1
        if self.saving == 1 or (self.world.interval and self.since_save >= self.world.interval):
            self._confirm()

    def _pay(self) -> None:
        if self.here:
            prices = {"spot": SPOT, "dear": DEAR}
            self.nanos += prices.get(self.here.split("-")[0], ON_DEMAND).nanos // 60
