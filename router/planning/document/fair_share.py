"""Rank teams by recent use against their shares, in four bands. Pure. Design note rules-of-the-plan."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from pricing.money import ZERO
from router.jobs.limits import Limits
from router.planning.document.plan import TeamStanding

# A band ends where a team has used so many times its share of all use; the factor there is 2^-1/2, 1/2, 1/4.
_ENDS = (Fraction(1, 2), Fraction(1), Fraction(2))
_DIGITS = 6


def team_standings(limits: Limits, teams: Iterable[str]) -> tuple[TeamStanding, ...]:
    """Return the standing of every team that has a job, a share or recent use, by name; nothing without shares.

    The factor is 2^-(part of all use / part of all shares): 1 for a team that used nothing, 1/2 for one that used just
    its share.
    """
    fair = limits.fair_share
    if fair is None:
        return ()
    names = sorted({*teams, *fair.shares, *fair.recent_usd})
    shares = {name: Fraction(str(fair.shares.get(name, 1.0))) for name in names}
    used = {name: fair.recent_usd.get(name, ZERO) for name in names}
    all_used, all_shares = sum(usd.nanos for usd in used.values()), sum(shares.values())
    standings = []
    for name in names:
        over = Fraction(used[name].nanos, all_used) * all_shares / shares[name] if all_used else Fraction(0)
        standings.append(
            TeamStanding(
                team=name,
                share=float(shares[name]),
                recent_usd=used[name],
                factor=round(2.0 ** -float(over), _DIGITS),
                band=1 + sum(over > end for end in _ENDS),
            )
        )
    return tuple(standings)
