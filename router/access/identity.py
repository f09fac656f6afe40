"""Identities, their roles, and what each role permits.

A grant is a role, for one team or for all. Readers see rows of the teams that their grants permit; a row that nobody
owns is seen by those who see all teams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """A role, as tokens and groups of an identity provider name it."""

    VIEWER = "viewer"
    JOB_OWNER = "job_owner"
    PLANNER = "planner"
    APPROVER = "approver"
    FINANCE = "finance"
    ADMIN = "admin"


class Permission(StrEnum):
    """One thing that may be permitted; also the scopes that a token may be confined to."""

    READ_PLANS = "plans:read"
    MAKE_PLANS = "plans:make"
    APPROVE_PLANS = "plans:approve"
    READ_JOBS = "jobs:read"
    READ_QUOTES = "quotes:read"
    MAKE_QUOTES = "quotes:make"
    ACCEPT_QUOTES = "quotes:accept"
    READ_PRICES = "prices:read"
    READ_SPEND = "spend:read"
    SET_BUDGETS = "budgets:set"
    READ_AUDIT = "audit:read"
    MANAGE_ACCESS = "access:manage"


_P = Permission
_READS = frozenset({_P.READ_PLANS, _P.READ_JOBS, _P.READ_QUOTES, _P.READ_PRICES, _P.READ_SPEND})
PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: _READS,
    Role.JOB_OWNER: _READS | {_P.MAKE_QUOTES, _P.ACCEPT_QUOTES},
    Role.PLANNER: _READS | {_P.MAKE_PLANS, _P.MAKE_QUOTES, _P.ACCEPT_QUOTES},
    Role.APPROVER: _READS | {_P.APPROVE_PLANS, _P.READ_AUDIT},
    Role.FINANCE: _READS | {_P.SET_BUDGETS, _P.READ_AUDIT},
    Role.ADMIN: frozenset(Permission),
}


class AccessDeniedError(Exception):
    """An identity may not do something; the message says what is missing."""


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """A role for a team, or for all teams where ``team`` is None. Written ``role`` or ``role:team``."""

    role: Role
    team: str | None = None

    @classmethod
    def parse(cls, text: str) -> Grant:
        """Return the grant that is written so. ValueError for a role that does not exist, or an empty team."""
        role, colon, team = text.partition(":")
        if colon and not team.strip():
            raise ValueError(f"{text!r} names no team after its colon")
        return cls(Role(role), team.strip() if colon else None)

    def __str__(self) -> str:
        return self.role.value if self.team is None else f"{self.role.value}:{self.team}"


@dataclass(frozen=True, slots=True)
class TeamFilter:
    """The teams whose rows are seen; ``teams`` None is all, rows without a team included."""

    teams: frozenset[str] | None

    def admits(self, team: str | None) -> bool:
        """Return whether rows of that team are seen; None or "" is a row that nobody owns."""
        return self.teams is None or (bool(team) and team in self.teams)

    @property
    def is_all(self) -> bool:
        """Return whether every row is seen."""
        return self.teams is None


EVERY_TEAM = TeamFilter(None)


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who asks: ``name`` is written into the audit log; ``scopes`` None confines to nothing further."""

    name: str
    grants: tuple[Grant, ...]
    scopes: frozenset[Permission] | None = None

    def teams(self, permission: Permission) -> TeamFilter:
        """Return the teams for which it has the permission; an empty set where it has it for none."""
        if self.scopes is not None and permission not in self.scopes:
            return TeamFilter(frozenset())
        found = [grant.team for grant in self.grants if permission in PERMISSIONS[grant.role]]
        return EVERY_TEAM if None in found else TeamFilter(frozenset(team for team in found if team is not None))

    @property
    def own_teams(self) -> frozenset[str]:
        """The teams that its grants name; empty where they are for all teams."""
        return frozenset(grant.team for grant in self.grants if grant.team is not None)

    def may(self, permission: Permission, team: str | None = None) -> bool:
        """Return whether it has the permission for that team; without a team, for any at all."""
        teams = self.teams(permission)
        return teams.admits(team) if team is not None else teams.teams is None or bool(teams.teams)

    def require(self, permission: Permission, team: str | None = None) -> TeamFilter:
        """Return the teams for which it has the permission. AccessDeniedError where it has it for none of those."""
        if not self.may(permission, team):
            # A plan or a quote may be of teams that who asks does not know of.
            is_known = any(grant.team == team for grant in self.grants)
            where = "" if team is None else f" for team {team}" if is_known else " for all teams that this is about"
            raise AccessDeniedError(f"{self.name} has no permission {permission.value}{where}")
        return self.teams(permission)

    def require_for_all(self, permission: Permission) -> None:
        """Raise AccessDeniedError unless it has the permission for every team."""
        if not self.teams(permission).is_all:
            raise AccessDeniedError(f"{self.name} has no permission {permission.value} for all teams")


def local_operator(name: str) -> Identity:
    """Return the identity of whoever runs a command: who can read the state may do everything with it."""
    return Identity(name, (Grant(Role.ADMIN),))


def parse_grants(texts: Iterable[str]) -> tuple[Grant, ...]:
    """Return grants without repeats, in order. ValueError as :meth:`Grant.parse`."""
    return tuple(sorted({Grant.parse(text) for text in texts}, key=str))
