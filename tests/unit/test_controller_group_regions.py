"""Gangs of a job group stay in one region where they are placed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pricing.money import Usd
from pricing.places import RegionId
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import history_of
from router.controller.history.heartbeats import take_snapshot
from router.controller.supervise.policy_runner import Adviser
from router.controller.supervise.replanner import (
    TICK,
    GroupMember,
    PendingGang,
    PlacementAccepted,
    ReplanAnswer,
    Replanner,
    regions_of_groups,
)
from router.spot.policies.interface import Decision, Observation, StayDecision
from router.state.records import Attempt, Phase
from tests.bench.storm import HERE, book, fill, site_of
from tests.support.narrowed import present
from tests.support.new_state import open_state
from tests.support.state_values import NOW

HOME = RegionId(HERE[0], HERE[1])
GROUPED = 3


@dataclass
class Watching:
    """Stays, and keeps what it was shown."""

    seen: list[Observation] = field(default_factory=list)

    def decide(self, o: Observation) -> Decision:
        self.seen.append(o)
        return StayDecision()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    """Thirty gangs in one zone, of which the first three are a group."""
    with open_state(tmp_path / "state.db", NOW) as store:
        fill(store, 30, 2, grouped=GROUPED)
        yield site_of(store, tmp_path)


def attempt_of(site: ControllerContext, number: int) -> Attempt:
    return present(site.store.attempts.get(f"gang-{number:03}"))


def lose(site: ControllerContext, numbers: range) -> list[PendingGang]:
    """The machines of these gangs are gone."""
    for number in numbers:
        site.store.attempts.change(attempt_of(site, number), phase=Phase.FAILED, reason="lost", gone_at=site.clock())
    return [PendingGang(history_of(site.store, attempt_of(site, number))) for number in numbers]


def regions(answers: list[ReplanAnswer]) -> list[RegionId]:
    placed = [answer for answer in answers if isinstance(answer, PlacementAccepted)]
    return [RegionId(go.request.choices[0].cloud, go.request.choices[0].region) for go in placed]


def test_an_interrupted_gang_goes_where_its_mates_run(site: ControllerContext) -> None:
    pending = lose(site, range(1))
    assert regions(Replanner(site, book).replan(pending)) == [HOME]


def test_without_a_group_it_would_go_where_it_is_cheaper(site: ControllerContext) -> None:
    """Otherwise the test above would show nothing."""
    pending = lose(site, range(GROUPED, GROUPED + 1))
    (region,) = regions(Replanner(site, book).replan(pending))
    assert region != HOME


def test_a_group_that_lost_all_its_gangs_is_placed_in_one_region(site: ControllerContext) -> None:
    found = regions(Replanner(site, book).replan(lose(site, range(GROUPED))))
    assert len(found) == GROUPED
    assert len(set(found)) == 1


def test_it_is_the_region_that_has_a_place_for_most_of_them(site: ControllerContext) -> None:
    """One member has candidates in its old region alone, which is dearer for the others."""
    replanner = Replanner(site, book)
    members = {}
    for number in range(GROUPED):
        job = present(replanner.left_of(history_of(site.store, attempt_of(site, number))))
        members[number] = GroupMember(job, replanner.finder(replanner.limits_of(attempt_of(site, 0))).find(job)[0])

    def place(some: Sequence[GroupMember]) -> tuple[int, Usd]:
        costs = [min(c.usd_per_hour.nanos for c in member.open_candidates) for member in some if member.open_candidates]
        return len(costs), Usd(sum(costs))

    (cheap,) = set(regions_of_groups(members, place).values())
    assert HOME not in cheap
    narrow = GroupMember(members[0].job, tuple(c for c in members[0].open_candidates if c.region == HOME))
    assert set(regions_of_groups({**members, 0: narrow}, place).values()) == {frozenset({HOME})}
    elsewhere = GroupMember(members[1].job, members[1].open_candidates, frozenset({HOME}))
    assert regions_of_groups({1: elsewhere}, place) == {1: frozenset({HOME})}
    assert regions_of_groups({1: members[1]}, place) == {}


def test_a_policy_is_shown_only_places_beside_the_mates(site: ControllerContext) -> None:
    for number, expected in ((0, True), (GROUPED, False)):
        policy = Watching()
        adviser = Adviser(Replanner(site, book, policy), most_s=10.0)
        adviser.advise([attempt_of(site, number)], take_snapshot(site.store))
        moment = site.clock() + TICK
        object.__setattr__(site, "clock", lambda moment=moment: moment)
        adviser.advise([attempt_of(site, number)], take_snapshot(site.store))
        (o,) = policy.seen
        shown = {place.region for place in (*o.places, *o.closed)}
        assert (shown == {str(HOME)}) is expected
