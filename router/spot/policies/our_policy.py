"""The product's own policy, made in one place: back-tests call it "ours". And the one that quotes are for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import Outlook
from router.spot.policies.baselines import Greedy
from router.spot.policies.foresight_policies import Foreseen, ForeseenAsking
from router.spot.policies.learned import Learned
from router.spot.policies.market import SAME
from router.spot.policies.on_demand_now import AtOnce
from router.spot.simulator.blind_policy import Explorer, Terms
from router.spot.simulator.inputs import Scene
from router.spot.simulator.simulation import VectorPolicy
from router.spot.simulator.traces import Ints, Series, ZoneSeries

QUOTED: Final = "foresight in the exact safety net"


def policy_for(outlook: Outlook, like: Scene) -> VectorPolicy:
    """For weather of this outlook, which is of the zones of ``like``, and scenes like that one in all but starts,
    weather and prices, with deadlines up to its own; needs the exact net. Prices of spot in ``like`` are what is
    expected, the same all the time."""
    return _simple(outlook, like) or Foreseen.fitted(outlook, like)


def quoted_policy_for(outlook: Outlook, like: Scene) -> VectorPolicy:
    """What quotes are for: the same on few zones, fitted in a hurry. It goes by what is left, not by what passed."""
    return _simple(outlook, like) or Foreseen.quickly(outlook, like)


def _simple(outlook: Outlook, like: Scene) -> VectorPolicy | None:
    """Where nothing as fast as the reference is sold on demand there is nothing to fall back on: any spot is taken, the
    cheapest first. Where spot never comes on-demand begins at once."""
    if not (np.isfinite(like.on_demand_usd) & (like.speed >= 1 - SAME)).any():
        return Greedy()
    return None if outlook.comes().size else AtOnce()


def policy_from(past: Series, scene: Scene) -> VectorPolicy:
    """The same, with all that is expected taken from ``past``, which is on the scene's tick and has the scene's zones
    by their names (KeyError where one is missing), perhaps among others, from which is learned too. Of the scene's
    weather and prices it sees nothing. In one zone the induction is exact."""
    which = {zone.zone: i for i, zone in enumerate(past.zones)}
    own = np.array([which[zone.zone] for zone in scene.series.zones], dtype=np.int64)
    if own.size == 1:
        return Learned.fitted(past, scene)
    return policy_for(Outlook.of(past, scene.task.size).only(own), expected(past, scene))


def explorer_from(past: Series, scene: Scene) -> Explorer:
    """The same for a world in which zones must be asked; needs the exact guard."""
    which = {zone.zone: i for i, zone in enumerate(past.zones)}
    own = np.array([which[zone.zone] for zone in scene.series.zones], dtype=np.int64)
    prices = expected(past, scene).spot_usd[:, 0]
    return ForeseenAsking.fitted(Outlook.of(past, scene.task.size).only(own), Terms.of(scene), prices)


def expected(past: Series, scene: Scene) -> Scene:
    """One window like those of the scene, in which there is no spot and its price in each zone is what it last was in
    ``past``."""
    known = past.only([zone.zone for zone in scene.series.zones])
    zones = tuple(_blank(zone, was, scene.ticks) for zone, was in zip(scene.series.zones, known.zones, strict=True))
    return Scene.of(scene.task, Series(scene.tick_s, zones), [0], scene.ways, scene.speed, scene.launch_s)


def _blank(zone: ZoneSeries, past: ZoneSeries, ticks: int) -> ZoneSeries:
    usd = past.spot_usd_per_hour[-1]
    none: Ints = np.zeros(ticks, dtype=np.int64)
    return replace(zone, counts=none, spot_usd_per_hour=np.full(ticks, usd))
