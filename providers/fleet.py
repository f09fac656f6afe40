"""What exists in a cloud because an attempt made it, found by its tag; and giving it back.

The other half of ``providers/protocol.py``: that one changes nothing at a cloud, this one ends things there. The doc
comments are the contract; ``tests/contract/fleet_contract.py`` holds every adapter to it.

The tags are those that ``terraform/modules`` write. A thing without ``stepfare_attempt`` is nobody's business here,
whoever made it. Where a kind of thing carries no tags, its name (``stepfare-<attempt>``) is what shows it; such things
are shown, never released, for a name may be chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from providers.errors import ProviderError
from providers.protocol import Gap

ATTEMPT, STATE, RANK = "stepfare_attempt", "stepfare_state", "stepfare_rank"
NAME_PREFIX = "stepfare-"
BY_HAND = "run `stepfare destroy` or `terraform destroy` for its attempt, or delete it by hand"


class Kind(StrEnum):
    """What was found: a machine, or something that was made for machines."""

    MACHINE = "machine"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Found:
    """Something that exists at a cloud and carries the tag of an attempt.

    ``machine_id`` names it for :meth:`Fleet.release`; a machine's is what its Terraform module puts out as ``id``.
    ``state_id`` says which state database made it, "" where it does not say (then only ``attempt`` can tell). ``rank``
    is a machine's; ``what`` is for a person ("ec2 instance p5.48xlarge"). ``billed``: it costs money as long as it is
    there. ``going``: it was given back already and takes its time; releasing it again does no harm.
    """

    cloud: str
    region: str
    zone: str | None
    machine_id: str
    attempt: str
    state_id: str
    rank: int | None
    kind: Kind
    what: str
    since: datetime | None
    billed: bool
    going: bool = False


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found (see :func:`in_order`), and where it could not be looked: a gap may hide machines."""

    found: tuple[Found, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class Marks:
    """What the tags of a thing say."""

    attempt: str
    state_id: str
    rank: int | None


def marks(tags: Mapping[str, str]) -> Marks | None:
    """What ``tags`` (or labels) say; None for a thing that no attempt made."""
    attempt = tags.get(ATTEMPT, "")
    rank = tags.get(RANK, "")
    number = int(rank) if rank.isascii() and rank.isdecimal() else None
    return Marks(attempt, tags.get(STATE, ""), number) if attempt else None


def in_order(found: Iterable[Found]) -> tuple[Found, ...]:
    """Machines first, then by cloud, region, attempt, rank and id."""
    return tuple(
        sorted(
            found,
            key=lambda one: (
                one.kind is not Kind.MACHINE,
                one.cloud,
                one.region,
                one.attempt,
                -1 if one.rank is None else one.rank,
                one.machine_id,
            ),
        )
    )


class Fleet(Protocol):
    """One cloud. Made by :func:`providers.registry.open_fleet`; making one touches no network.

    Methods raise nothing but :class:`providers.errors.ProviderError` and return neither SDK objects nor secrets; they
    may be called from several threads. Network calls go through ``Session.caller``, and end at its time limit.
    """

    @property
    def cloud(self) -> str:
        """Its name, as in the registry."""

    def found(self, regions: Sequence[str]) -> Findings:
        """Everything in these regions (empty: all that the account has enabled) that carries the tag, whichever
        attempt or state made it. What belongs to a machine and goes with it (its disks, its interfaces) is not listed
        apart.

        A region or a kind of thing that cannot be asked is a gap. Raises when nothing at all can be asked: no
        account, no credentials, no SDK.
        """

    def release(self, found: Sequence[Found]) -> tuple[ProviderError | None, ...]:
        """Ends these, by their ids, and nothing else: one answer for each, in their order.

        None: it is gone, or the cloud has taken the order to end it; what was gone before counts as well, so that
        doing it twice is harmless. What depends on something else of ``found`` is released after it. Kinds that are
        not released here, and names that something else has by now, are answered with an error that says what to do.
        """
