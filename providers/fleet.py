"""Fleet: the resources that attempts made in a cloud, found by their tag, and their release.

``providers/protocol.py`` changes nothing at a cloud; this protocol ends things there. The docstrings are the contract;
``tests/contract/fleet_contract.py`` holds every adapter to it.

The tags are those that ``terraform/modules`` write. A resource without ``stepfare_attempt`` is never touched, whoever
made it. Where a kind of resource carries no tags, its name (``stepfare-<attempt>``) identifies it; such resources are
shown, never released, since a name may be chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from providers.errors import ProviderError
from providers.protocol import PartialFailure

ATTEMPT_TAG, STATE_TAG, RANK_TAG = "stepfare_attempt", "stepfare_state", "stepfare_rank"
NAME_PREFIX = "stepfare-"
RELEASE_BY_HAND = "run `stepfare destroy` or `terraform destroy` for its attempt, or delete it by hand"


class ResourceKind(StrEnum):
    """The kind of a resource: a machine, or something that was made for machines."""

    MACHINE = "machine"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class CloudResource:
    """A resource that exists at a cloud and carries the tag of an attempt.

    ``machine_id`` names it for :meth:`Fleet.release`; a machine's is what its Terraform module puts out as ``id``.
    ``state_id`` says which state database made it, "" where it does not say (then only ``attempt`` can tell). ``rank``
    is a machine's; ``what`` is for a person ("ec2 instance p5.48xlarge"). ``billed``: it costs money as long as it
    exists. ``going``: its release was ordered already and takes time; releasing it again does no harm.
    """

    cloud: str
    region: str
    zone: str | None
    machine_id: str
    attempt: str
    state_id: str
    rank: int | None
    kind: ResourceKind
    what: str
    since: datetime | None
    billed: bool
    going: bool = False


@dataclass(frozen=True, slots=True)
class FleetListing:
    """The resources found (see :func:`sort_resources`), and partial failures, each of which may hide machines."""

    resources: tuple[CloudResource, ...] = ()
    gaps: tuple[PartialFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptTags:
    """The attempt, state database and rank that the tags of a resource state."""

    attempt: str
    state_id: str
    rank: int | None


def read_attempt_tags(tags: Mapping[str, str]) -> AttemptTags | None:
    """Read the attempt that ``tags`` (or labels) state; None for a resource that no attempt made."""
    attempt = tags.get(ATTEMPT_TAG, "")
    return AttemptTags(attempt, tags.get(STATE_TAG, ""), parse_rank(tags.get(RANK_TAG, ""))) if attempt else None


def parse_rank(text: str) -> int | None:
    """Parse the rank in a tag or a mark; None where it is no number."""
    return int(text) if text.isascii() and text.isdecimal() else None


def sort_resources(resources: Iterable[CloudResource]) -> tuple[CloudResource, ...]:
    """Sort resources: machines first, then by cloud, region, attempt, rank and id."""
    return tuple(
        sorted(
            resources,
            key=lambda resource: (
                resource.kind is not ResourceKind.MACHINE,
                resource.cloud,
                resource.region,
                resource.attempt,
                -1 if resource.rank is None else resource.rank,
                resource.machine_id,
            ),
        )
    )


class Fleet(Protocol):
    """One cloud's fleet, made by :func:`providers.registry.open_fleet`; making it touches no network.

    Methods raise nothing but :class:`providers.errors.ProviderError` and return neither SDK objects nor secrets; they
    may be called from several threads. Network calls go through ``Session.caller``, and end at its time limit.
    """

    #: Its name, as in the registry.
    cloud: str

    def found(self, regions: Sequence[str]) -> FleetListing:
        """Return every resource in these regions (empty: all that the account has enabled) that carries the tag.

        It may be of any attempt or state. Resources that belong to a machine and go with it (its disks, its interfaces)
        are not listed separately. A region or a kind of resource that cannot be asked is a partial failure. Raises when
        nothing at all can be asked: no account, no credentials, no SDK.
        """

    def zones_that_sell(self, region: str, instance_types: Sequence[str]) -> tuple[str, ...] | None:
        """Return the zones of the region that sell all of these types to the account, by id, sorted.

        None where the cloud is not asked, because offers name their zones or the cloud picks one that sells them.
        """
        del region, instance_types
        return None

    def release(self, resources: Sequence[CloudResource]) -> tuple[ProviderError | None, ...]:
        """End these resources, by their ids, and nothing else; return one answer for each, in their order.

        None: it is gone, or the cloud has accepted the order to end it; a resource that was gone before counts as well,
        so that doing it twice is harmless. A resource that depends on another one is released after it.
        Kinds that are not released here, and names that something else has by now, are answered with an error that says
        what to do.
        """
