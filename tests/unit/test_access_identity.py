"""Which role permits what, for whom: every role, permission and team."""

from __future__ import annotations

import itertools

import pytest

from router.access.identity import (
    AccessDeniedError,
    Grant,
    Identity,
    Permission,
    Role,
    TeamFilter,
    local_operator,
    parse_grants,
)

# Written a second time, from docs/console.md: rows are permissions, columns the roles that have it.
TABLE = """
plans:read      viewer job_owner planner approver finance admin
jobs:read       viewer job_owner planner approver finance admin
quotes:read     viewer job_owner planner approver finance admin
prices:read     viewer job_owner planner approver finance admin
spend:read      viewer job_owner planner approver finance admin
quotes:make     job_owner planner admin
quotes:accept   job_owner planner admin
plans:make      planner admin
plans:approve   approver admin
budgets:set     finance admin
audit:read      approver finance admin
access:manage   admin
"""
PERMITTED = {words[0]: frozenset(words[1:]) for words in map(str.split, TABLE.strip().splitlines())}
TEAMS = ("speech", "vision", None)


def test_the_table_names_every_permission_and_role() -> None:
    assert set(PERMITTED) == {each.value for each in Permission}
    assert frozenset().union(*PERMITTED.values()) == {each.value for each in Role}


@pytest.mark.parametrize("role", Role)
def test_a_role_permits_what_the_table_says_for_its_team_alone(role: Role) -> None:
    for permission, granted, team in itertools.product(Permission, TEAMS, TEAMS):
        identity = Identity("ana", (Grant(role, granted),))
        is_permitted = role.value in PERMITTED[permission.value]
        case = (permission, granted, team)
        expected = is_permitted and (team is None or granted in (None, team))
        assert identity.may(permission, team) is expected, case
        # Rows that nobody owns are for those who see all teams.
        assert identity.teams(permission).admits(team) is (is_permitted and granted in (None, team)), case
        assert identity.teams(permission).admits("") is (is_permitted and granted is None), case
        if expected:
            assert identity.require(permission, team) == identity.teams(permission)
        else:
            with pytest.raises(AccessDeniedError, match=permission.value):
                identity.require(permission, team)
        if is_permitted and granted is None:
            identity.require_for_all(permission)
        else:
            with pytest.raises(AccessDeniedError):
                identity.require_for_all(permission)


def test_a_refusal_names_no_team_of_others() -> None:
    identity = Identity("ana", (Grant(Role.VIEWER, "speech"),))
    for team, is_named in (("speech", True), ("vision", False)):
        with pytest.raises(AccessDeniedError) as refused:
            identity.require(Permission.APPROVE_PLANS, team)
        assert (team in str(refused.value)) is is_named


def test_scopes_take_away_and_never_add() -> None:
    confined = Identity("ci", parse_grants(["viewer:speech"]), frozenset({Permission.READ_JOBS, Permission.MAKE_PLANS}))
    assert confined.teams(Permission.READ_JOBS) == TeamFilter(frozenset({"speech"}))
    assert {each for each in Permission if confined.may(each)} == {Permission.READ_JOBS}
    assert not any(Identity("ci", local_operator("o").grants, frozenset()).may(each) for each in Permission)


def test_grants_add_up() -> None:
    identity = Identity("ana", parse_grants(["viewer:speech", "finance:vision", "viewer:speech"]))
    assert identity.teams(Permission.READ_PLANS) == TeamFilter(frozenset({"speech", "vision"}))
    assert identity.teams(Permission.SET_BUDGETS) == TeamFilter(frozenset({"vision"}))
    assert Identity("ana", parse_grants(["viewer:speech", "viewer"])).teams(Permission.READ_PLANS).is_all
    assert not Identity("ana", ()).may(Permission.READ_PRICES)


def test_grants_are_read_as_they_are_written() -> None:
    for text in ("viewer", "job_owner:speech", "approver:a:b"):
        assert str(Grant.parse(text)) == text
    assert Grant.parse("viewer: speech ") == Grant(Role.VIEWER, "speech")
    for wrong in ("", "Viewer", "viewer:", "viewer: ", ":speech", "owner", "viewer;admin"):
        with pytest.raises(ValueError, match=r"no team|is not a valid Role"):
            Grant.parse(wrong)
