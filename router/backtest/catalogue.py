"""The policies that a back-test plays, by name: published ones, ours, and the one that the supervisor runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from router.spot.live.as_run import play_as_run
from router.spot.policies import registry as published
from router.spot.policies.registry import RegisteredPolicy

AS_RUN: Final = "as-run"
_AS_RUN: Final = RegisteredPolicy(
    AS_RUN, "stepfare's own exactly as `watch` runs it: asks zones, fits, deadline guard", plays=play_as_run, exact=True
)
_OURS: Final = published.POLICIES[published.OUR_POLICY]
# Our two policies stand first.
POLICIES: Final[Mapping[str, RegisteredPolicy]] = MappingProxyType(
    {_OURS.name: _OURS, _AS_RUN.name: _AS_RUN, **published.POLICIES}
)


def find_backtest_policy(name: str) -> RegisteredPolicy:
    """Return the policy of that name; else raise KeyError with similar names, or with all."""
    return published.find_policy(name, POLICIES)
