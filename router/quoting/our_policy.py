"""The product's own policy, made in one place."""

from __future__ import annotations

from router.quoting.joint import JointLearned
from router.quoting.learned import Learned
from router.quoting.scene import Scene
from router.quoting.series import Series
from router.quoting.simulation import VectorPolicy


def policy_for(past: Series, like: Scene) -> VectorPolicy:
    """For scenes ``like`` this one in all but starts and weather; needs the exact net. All that is learned comes from
    ``past``, which is on the scene's tick and has the scene's zones by their names, perhaps among others (KeyError
    where one is missing)."""
    if len(like.series.zones) == 1:
        return Learned.fitted(past, like)
    return JointLearned.fitted(past.only([zone.zone for zone in like.series.zones]), like)
