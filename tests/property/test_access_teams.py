"""Whoever has grants for teams alone never sees rows of others, whatever else they have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.access.identity import EVERY_TEAM, Grant, Identity, Permission, Role

NAMES = st.text(min_size=1, max_size=6).filter(str.strip)
SCOPES = st.none() | st.frozensets(st.sampled_from(Permission))
OF_TEAMS = st.lists(st.builds(Grant, st.sampled_from(Role), NAMES)).map(tuple)
ANY_GRANTS = st.lists(st.builds(Grant, st.sampled_from(Role), st.none() | NAMES)).map(tuple)


@given(OF_TEAMS, SCOPES, NAMES | st.none() | st.just(""), st.sampled_from(Permission))
def test_rows_of_other_teams_are_not_admitted(
    grants: tuple[Grant, ...], scopes: frozenset[Permission] | None, team: str | None, permission: Permission
) -> None:
    identity = Identity("ana", grants, scopes)
    own = {grant.team for grant in grants}
    teams = identity.teams(permission)
    assert not teams.is_all
    assert teams.admits(team) <= (team in own)
    assert not teams.admits("")
    assert identity.may(permission, team or "nobody's") <= ((team or "nobody's") in own)


@given(ANY_GRANTS, ANY_GRANTS, SCOPES, SCOPES, NAMES, st.sampled_from(Permission))
def test_more_grants_show_more_and_fewer_scopes_less(
    grants: tuple[Grant, ...],
    more: tuple[Grant, ...],
    scopes: frozenset[Permission] | None,
    fewer: frozenset[Permission] | None,
    team: str,
    permission: Permission,
) -> None:
    whole = Identity("ana", grants + more, scopes)
    part = Identity("ana", grants, scopes)
    assert part.may(permission, team) <= whole.may(permission, team)
    confined = frozenset(Permission) if scopes is None else scopes
    narrow = Identity("ana", grants + more, confined & (fewer or frozenset()))
    assert narrow.may(permission, team) <= whole.may(permission, team)
    assert (whole.teams(permission) == EVERY_TEAM) >= (narrow.teams(permission) == EVERY_TEAM)
