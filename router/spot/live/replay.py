"""A job's past as an explorer would have seen it, tick by tick (:class:`router.spot.simulator.blind_policy.Known` of
one
window), so that a policy that was just begun can be brought to where one would be that had been there all the time.
Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from router.spot.simulator.blind_policy import NEVER, Hearer, Known, Player, Terms, Wish
from router.spot.simulator.simulation import IDLE, NOWHERE, SPOT


@dataclass(frozen=True, slots=True)
class Spell:
    """Seconds since the job began. It was in ``zone`` on ``kind`` from ``since_s``, working from ``ready_s``, until
    ``until_s`` (infinite: still); ``from_s`` and ``to_s``: seconds of work left then and at the end."""

    kind: int
    zone: int
    since_s: float
    ready_s: float
    until_s: float
    taken: bool
    from_s: float
    to_s: float

    def there(self, at_s: float) -> bool:
        """Whether it was there just before ``at_s`` and was not taken until then."""
        return self.since_s < at_s and (self.until_s > at_s or (self.until_s == at_s and not self.taken))

    def alike(self, other: Spell, until_s: float) -> bool:
        """Whether it is the same before ``until_s``."""
        ends = self.until_s == other.until_s and self.taken == other.taken
        same = (self.kind, self.zone, self.since_s) == (other.kind, other.zone, other.since_s)
        return same and (ends or min(self.until_s, other.until_s) >= until_s)

    def left_s(self, at_s: float, now_s: float) -> float:
        """Work left at ``at_s``, as if it was done evenly."""
        end = min(self.until_s, now_s)
        if at_s >= end or end <= self.ready_s:
            return self.to_s if at_s >= end else self.from_s
        part = max(0.0, at_s - self.ready_s) / (end - self.ready_s)
        return self.from_s + (self.to_s - self.from_s) * part


@dataclass(frozen=True, slots=True)
class Said:
    """That ``zone`` had spot (``up``) or not, to a ``launch`` or to a question."""

    at_s: float
    zone: int
    up: bool
    launch: bool


@dataclass(frozen=True, eq=False, slots=True)
class Story:
    """All of it until ``now_s``, when ``left_s`` of work is left. ``spells`` and ``said`` in order; ``is_there``: the
    last spell goes on. ``spot_usd``: by zone the times from which on prices held, and the prices."""

    terms: Terms
    now_s: float
    left_s: int
    is_there: bool
    spells: Sequence[Spell]
    said: Sequence[Said]
    spot_usd: Sequence[tuple[Sequence[float], Sequence[float]]]

    @property
    def tick(self) -> int:
        """The tick that it is."""
        return int(self.now_s // self.terms.tick_s)


class Retelling:
    """Goes through a story; ``known`` is what is seen at the moment."""

    def __init__(self, story: Story) -> None:
        self.story, self.terms = story, story.terms
        zones = len(story.terms.zones)
        self.asked, self.was_up, self.tried = [NEVER] * zones, [False] * zones, [False] * zones
        self.heard = 0
        self.kind, self.zone, self.home, self.lost = IDLE, 0, NOWHERE, False
        self.since, self.delay_s, self.left_s = NEVER, 0.0, float(story.terms.task.work_s)
        self.tick, self.at_s, self.next = 0, 0.0, 0

    def told_to(self, player: Player | None) -> None:
        """All ticks before the one that it is, those apart that were told before; None: nobody listens. A player that
        can hear without deciding is not asked."""
        for tick in range(self.next, self.story.tick):
            self._begin(tick, tick * self.terms.tick_s)
            wish = None
            if isinstance(player, Hearer):
                player.hear(self.known)
            elif player is not None:
                wish = player.act(self.known)
            self._launch((tick + 1) * self.terms.tick_s, wish)
            if player is not None:
                player.look(self.known)
            self._hear((tick + 1) * self.terms.tick_s)
        self.next = max(self.next, self.story.tick)

    def goes_on(self, story: Story) -> bool:
        """Whether what was told is what ``story`` begins with, and more of it can be told."""
        told_s, old = self.next * self.terms.tick_s, self.story
        same = (story.terms.zones, story.terms.tick_s) == (self.terms.zones, self.terms.tick_s)
        if not same or story.tick < self.next or story.said[: self.heard] != old.said[: self.heard]:
            return False
        if self.heard < len(story.said) and story.said[self.heard].at_s < told_s:
            return False
        before = [[s for s in one.spells if s.since_s < told_s] for one in (old, story)]
        return len(before[0]) == len(before[1]) and all(map(lambda a, b: a.alike(b, told_s), *before))

    def of(self, story: Story) -> Retelling:
        """As far as this one has told, of a story that goes on (:meth:`goes_on`)."""
        found = copy(self)
        found.story, found.terms = story, story.terms
        found.asked, found.was_up, found.tried = [*self.asked], [*self.was_up], [*self.tried]
        return found

    def now(self, *, launched: bool = False) -> Known:
        """The moment that it is, before anything is done about it; ``launched``: before what was done just now."""
        story = self.story
        self._begin(story.tick, story.now_s)
        if launched:
            return self.known
        last = story.spells[-1] if story.spells else None
        if story.is_there and last is not None:
            self._is_in(last)
        else:
            self.kind = IDLE
        self.left_s = story.left_s
        return self.known

    def after(self, wish: Wish) -> Known:
        """The same once it is done; ``wish``: what was wished for."""
        self._launch(float(np.nextafter(self.story.now_s, inf)), wish)
        return self.known

    @property
    def known(self) -> Known:
        """What is seen."""
        times = [usd[bisect_right(since, self.at_s) - 1] for since, usd in self.story.spot_usd]
        column = np.array(times)[:, None]

        def one(value: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.array([round(value)], dtype=np.int64)

        return Known(
            tick=self.tick,
            ticks=self.terms.ticks,
            window=one(0),
            left_s=one(max(1.0, self.left_s)),
            kind=np.array([self.kind], dtype=np.int8),
            zone=one(self.zone),
            lost=np.array([self.lost]),
            home=one(self.home),
            delay_s=one(self.delay_s),
            since=one(self.since),
            spot_usd=column,
            asked=np.array(self.asked)[:, None],
            was_up=np.array(self.was_up)[:, None],
            tried=np.array(self.tried)[:, None],
        )

    def _begin(self, tick: int, at_s: float) -> None:
        """What is seen before anything is decided at ``at_s``."""
        self._hear(at_s)
        self.tick, self.at_s = tick, at_s
        begun = [spell for spell in self.story.spells if spell.since_s < at_s]
        last = begun[-1] if begun else None
        self.kind, self.lost = IDLE, False
        if last is None:
            return
        self.left_s = last.left_s(at_s, self.story.now_s)
        self.home = last.zone
        if last.there(at_s):
            self._is_in(last)
            return
        self.zone, self.delay_s = last.zone, 0.0
        before = (tick - 1) * self.terms.tick_s
        if last.kind == SPOT and last.taken and last.until_s > before:
            self.lost = True
            self.asked[last.zone], self.was_up[last.zone] = tick, False

    def _is_in(self, spell: Spell) -> None:
        self.kind, self.zone, self.lost = spell.kind, spell.zone, False
        self.since = int(spell.since_s // self.terms.tick_s)
        self.delay_s = max(0.0, spell.ready_s - max(spell.since_s, self.at_s))
        if spell.kind == SPOT:
            self.asked[spell.zone], self.was_up[spell.zone] = self.tick, True

    def _launch(self, before_s: float, wish: Wish | None) -> None:
        """What was done in the tick, of what was before ``before_s``. Spot that runs and is wished for counts as
        tried."""
        own = self.zone if self.kind == SPOT and wish is not None and not wish.leave[0] else NOWHERE
        zones = range(len(self.asked))
        begins = self.tick * self.terms.tick_s
        now = [s for s in self.story.said if s.launch and begins <= s.at_s < before_s]
        self.tried = [any(s.zone == zone for s in now) for zone in zones]
        for one in now:
            self.asked[one.zone], self.was_up[one.zone] = self.tick, one.up
        there = [s for s in self.story.spells if s.since_s < before_s and s.until_s > self.at_s]
        self.kind = IDLE
        if there:
            spell = there[-1]
            self.kind, self.zone = spell.kind, spell.zone
            self.since = int(spell.since_s // self.terms.tick_s)
            self.delay_s = max(0.0, spell.ready_s - max(spell.since_s, self.at_s))
            if own == spell.zone and wish is not None and isfinite(wish.spot[own, 0]) and spell.since_s < self.at_s:
                self.tried[own] = True

    def _hear(self, before_s: float) -> None:
        """All that was said before."""
        said = self.story.said
        while self.heard < len(said) and said[self.heard].at_s < before_s:
            one = said[self.heard]
            self.asked[one.zone], self.was_up[one.zone] = int(one.at_s // self.terms.tick_s), one.up
            self.heard += 1


class Kept:
    """What the player of one job has heard, from one decision to the next: only what is new is told. Decisions are the
    same as those of a player that is told everything anew; for who plays thousands of them."""

    def __init__(self) -> None:
        self._told: Retelling | None = None
        self._heard: Player | None = None

    def told_to(self, player: Player, story: Story) -> Retelling:
        """``story`` told to a player that was just begun, as far as the tick that it is."""
        told = Retelling(story)
        before = self._told
        if before is not None and before.goes_on(story) and isinstance(player, Hearer) and player.recall(self._heard):
            told = before.of(story)
        told.told_to(player)
        if isinstance(player, Hearer):
            twin = copy(player)
            twin.recall(player)
            self._told, self._heard = told.of(story), twin
        return told
