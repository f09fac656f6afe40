"""The contract of ``providers/fleet.py`` as tests; each adapter's test module subclasses it."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from pricing.book_file import embedded_book
from providers.caller import Caller
from providers.errors import ProviderError
from providers.fleet import CloudResource, Fleet, ResourceKind, sort_resources
from providers.registry import CLOUDS
from providers.session import Session, Settings
from tests.support.service import CALL_LIMIT_S

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
OURS, THEIRS = "s0123456789", "sabcdef0123"
_PLAIN = (str, int, bool, datetime, type(None))


class World(ABC):
    """A cloud of the adapter's own test module, with nothing in it at first: its fleet, and where machines are made."""

    def __init__(self, fleet: Fleet | None, regions: Sequence[str]) -> None:
        assert fleet is not None
        self.fleet = fleet
        self.regions = regions

    @abstractmethod
    def make(self, attempt: str, state: str, machines: int) -> list[str]:
        """Machines of an attempt as its Terraform module tags them; their ids by rank."""

    @abstractmethod
    def make_foreign(self) -> str:
        """A machine without tags; its id."""

    @abstractmethod
    def lose(self, machine_id: str) -> None:
        """Ends a machine behind everybody's back."""

    @abstractmethod
    def alive(self) -> set[str]:
        """Ids of the machines that there are, whoever made them."""


def session(cloud: str, settings: Settings) -> Session:
    """A session at :data:`NOW`."""
    return Session(settings, embedded_book(), NOW, Caller(cloud, CALL_LIMIT_S, attempts=3))


def released(fleet: Fleet, found: Sequence[CloudResource]) -> None:
    """Releases all of these; AssertionError at the first error."""
    assert fleet.release(found) == (None,) * len(found)


class FleetContract:
    """Subclass it, name the cloud, and give a world. ``canary`` is a secret that the world's credentials hold."""

    cloud: ClassVar[str] = ""
    canary: ClassVar[str] = ""

    @pytest.fixture
    def world(self) -> World:
        pytest.fail("the adapter's own test module gives its world")

    def machines(self, world: World, attempt: str = "") -> list[CloudResource]:
        """Machines found that are not on their way out, of one attempt or of all."""
        findings = world.fleet.found(world.regions)
        assert findings.gaps == ()
        return [
            one
            for one in findings.resources
            if one.kind is ResourceKind.MACHINE and not one.going and attempt in ("", one.attempt)
        ]

    def test_it_is_that_cloud(self, world: World) -> None:
        assert world.fleet.cloud == self.cloud
        assert CLOUDS[self.cloud].fleet

    def test_an_empty_cloud_has_nothing(self, world: World) -> None:
        assert world.fleet.found(world.regions).resources == ()
        assert world.fleet.release(()) == ()

    def test_machines_are_found_by_their_tags(self, world: World) -> None:
        made = world.make("llama-1", OURS, 3)
        others = world.make("bert-2", THEIRS, 1)
        world.make_foreign()
        found = self.machines(world)
        assert [(one.attempt, one.state_id, one.rank, one.machine_id) for one in found] == [
            ("bert-2", THEIRS, 0, others[0]),
            *[("llama-1", OURS, rank, machine_id) for rank, machine_id in enumerate(made)],
        ]
        for one in found:
            assert one.cloud == self.cloud
            assert one.billed
            assert one.what
            assert one.since is None or one.since.utcoffset() == timedelta(0)

    def test_findings_are_in_order_and_the_same_again(self, world: World) -> None:
        world.make("llama-1", OURS, 2)
        world.make("bert-2", OURS, 2)
        first = world.fleet.found(world.regions).resources
        assert first == sort_resources(first)
        assert len({(one.region, one.machine_id) for one in first}) == len(first)
        assert world.fleet.found(world.regions).resources == first

    def test_only_what_is_named_is_released(self, world: World) -> None:
        ours, theirs = world.make("llama-1", OURS, 3), world.make("bert-2", THEIRS, 2)
        foreign = world.make_foreign()
        before = world.alive()
        found = self.machines(world, "llama-1")
        released(world.fleet, found[:1])
        assert world.alive() == before - {ours[0]}
        released(world.fleet, found[1:])
        assert world.alive() == {*theirs, foreign}
        assert [one.attempt for one in self.machines(world)] == ["bert-2"] * 2

    def test_releasing_again_is_harmless(self, world: World) -> None:
        world.make("llama-1", OURS, 2)
        found = self.machines(world)
        released(world.fleet, [*found, found[0]])
        released(world.fleet, found)
        assert world.alive() == set()

    def test_what_went_by_itself_counts_as_released(self, world: World) -> None:
        made = world.make("llama-1", OURS, 3)
        found = self.machines(world)
        world.lose(made[1])
        released(world.fleet, found)
        assert world.alive() == set()

    def test_another_attempt_of_the_same_name_survives(self, world: World) -> None:
        """What is asked to go is the machine of that attempt, not whatever has its id by now."""
        made = world.make("llama-1", OURS, 1)
        (found,) = self.machines(world)
        answers = world.fleet.release([dataclasses.replace(found, attempt="older-1", machine_id=self.renamed(found))])
        assert len(answers) == 1
        assert set(made) <= world.alive()

    def renamed(self, found: CloudResource) -> str:
        """The id under which something else may be found later. Clouds that use an id once: one never used."""
        return found.machine_id

    def test_only_our_values_come_out(self, world: World) -> None:
        world.make("llama-1", OURS, 1)
        findings = world.fleet.found(world.regions)
        nonsense = [dataclasses.replace(one, machine_id="none/such") for one in findings.resources]
        errors = [error for error in world.fleet.release(nonsense) if error is not None]
        for value in _leaves(findings.resources):
            assert isinstance(value, _PLAIN), type(value)
        for error in errors:
            assert isinstance(error, ProviderError)
            assert error.__cause__ is None
        assert not self.canary or self.canary not in repr(findings) + "".join(map(repr, errors))
        assert world.alive()


def _leaves(found: Sequence[CloudResource]) -> Iterator[object]:
    for one in found:
        for field in dataclasses.fields(one):
            yield getattr(one, field.name)
