"""Adapter of a blind policy, as the back-test plays it, to the policy of one running job.

Nothing is remembered between two calls: the blind policy begins anew and is shown the job's past as the observation has
it (:mod:`router.spot.live.replay`), so the same observation gives the same decision, whoever asks. Zones are machines
of one kind and number in one place, whatever the market. Fewer or more accelerators, or other ones, are zones of other
speed and price. Work is counted in seconds of the fastest on-demand option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil, inf, isfinite

import numpy as np

from router.spot.live.replay import HistoryReplay, ReplayedHistory, Reply, SessionMemory, Tenure
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import (
    Decision,
    MoveDecision,
    Observation,
    PastAttempt,
    PlacementOption,
    Policy,
    PolicyEvent,
    PolicyZone,
    ProbeDecision,
    SaveDecision,
    StayDecision,
    WaitDecision,
)
from router.spot.policies.registry import LivePolicy, PoolLookup, find_no_observations
from router.spot.simulator.blind_policy import (
    BlindView,
    LaunchRequest,
    find_blind_on_demand_zone,
)
from router.spot.simulator.inputs import HOUR_S, SimulationSpec, Task, ZoneMoveCosts
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT

_SECOND = timedelta(seconds=1)
_DISTURBED = (PolicyEvent.INTERRUPTION, PolicyEvent.REBALANCE, PolicyEvent.MAINTENANCE, PolicyEvent.HEALTH)


@dataclass(frozen=True, slots=True)
class PolicyAdapter:
    """A policy that decides as the blind policy of ``live``, which is made and begins anew for each decision.

    A job without a deadline, or past it, and a gang that has notice to leave are decided by ``fallback``: hints make it
    save as that policy says. ``watched`` returns the observations of spot pools, for policies that learn from them.

    ``memory``: the memory of a session, for one job that is asked again and again.
    """

    live: LivePolicy
    fallback: Policy = field(default_factory=GreedyPolicy)
    watched: PoolLookup = find_no_observations
    memory: SessionMemory | None = None

    def decide(self, o: Observation) -> Decision:
        places = _options_by_key(o)
        if o.left is None or o.left < o.tick or not places:
            return self.fallback.decide(o)
        if o.here is not None and o.event in _DISTURBED:
            decision_on_notice = self.fallback.decide(o)
            if isinstance(decision_on_notice, SaveDecision | StayDecision):
                return decision_on_notice
        live = self.live
        sites = _build_zones(o, places, live)
        history = _build_history(o, sites, live)
        player = live.factory(history.terms, sites, self.watched).begin(history.terms)
        if live.replays_past and self.memory is not None:
            replay = self.memory.replay_to(player, history)
        else:
            replay = HistoryReplay(history)
            replay.replay_to(player if live.replays_past else None)
        known = replay.now(launched=o.event is PolicyEvent.LAUNCHED)
        wish = player.act(known)
        if o.event is not PolicyEvent.LAUNCHED:
            return _to_decision(o, sites, history, known, wish)
        looks = player.look(replay.after(wish))
        spots = [s.spot for s, ask in zip(sites, [] if looks is None else looks[:, 0].tolist(), strict=False) if ask]
        keys = tuple(place.key for place in spots if place is not None)
        if keys:
            return ProbeDecision(keys)
        return StayDecision() if o.here is not None else WaitDecision(o.now + o.tick)


def _options_by_key(o: Observation) -> dict[str, PlacementOption]:
    here = () if o.here is None else (o.here.place,)
    return {place.key: place for place in (*o.places, *o.closed, *here)}


def _build_zones(o: Observation, places: Mapping[str, PlacementOption], live: LivePolicy) -> list[PolicyZone]:
    """Return the zones by key, so that a fit does not depend on which of them were available lately.

    The order of the options has no influence. On-demand without a zone of its own goes with each spot option of the
    site.
    """
    groups: dict[str, list[PlacementOption]] = {}
    for place in places.values():
        groups.setdefault(place.key if live.models_losses else place.site or place.key, []).append(place)
    zones: list[PolicyZone] = []
    for group in groups.values():
        demand = min((p for p in group if p.sure), key=lambda p: (p.expected_usd, p.key), default=None)
        spots = [p for p in group if not p.sure]
        zones += [PolicyZone(spot, demand) for spot in spots] or [PolicyZone(None, demand)]
    zones.sort(key=lambda site: site.first.key)
    if len(zones) <= live.most_zones:
        return zones
    known = {life.key for life in o.lives} | ({o.here.place.key} if o.here else set())
    sure = [p for p in places.values() if p.sure]
    if sure:
        known |= {min(sure, key=lambda p: p.needs).key, min(sure, key=lambda p: p.expected_usd).key}
    usd = [min(p.expected_usd for p in (s.spot, s.demand) if p is not None) for s in zones]
    first = sorted(range(len(zones)), key=lambda i: (not known & {*zones[i].keys}, usd[i], zones[i].first.key))
    return [zones[i] for i in sorted(first[: live.most_zones])]


def _build_history(o: Observation, sites: list[PolicyZone], live: LivePolicy) -> ReplayedHistory:
    began, deadline = o.began or o.now, o.deadline
    assert deadline is not None
    tick_s = max(1, round(o.tick / _SECOND))
    tick_s *= max(1, ceil((deadline - began) / _SECOND / tick_s / live.most_ticks))
    places = [p for s in sites for p in (s.demand, s.spot) if p is not None]
    first = min([p for p in places if p.sure] or places, key=lambda p: _work_hours(p, live))
    fastest = _work_hours(first, live)
    work_s = max(1, round(first.hours * HOUR_S / o.share))
    launch = [max(_startup_hours(p, live) for p in (s.spot, s.demand) if p is not None) for s in sites]
    launch_s = np.array([round(hours * HOUR_S) for hours in launch], dtype=np.int64)
    terms = SimulationSpec(
        task=Task(work_s, int((deadline - began) / _SECOND), int(launch_s.min())),
        tick_s=tick_s,
        starts=np.zeros(1, dtype=np.int64),
        zones=tuple(s.first.key for s in sites),
        regions=tuple(s.first.region for s in sites),
        ways=_move_costs(sites),
        on_demand_usd=np.array([inf if s.demand is None else s.demand.usd_per_hour.dollars() for s in sites]),
        speed=np.array([fastest / _work_hours(s.first, live) for s in sites]),
        launch_s=launch_s - launch_s.min(),
    )
    is_there = o.here is not None and not o.must_go
    spot = {s.spot.key: i for i, s in enumerate(sites) if s.spot is not None}
    tenures = _tenures(o, sites, spot, began, work_s)
    replies = [
        Reply((a.at - began) / _SECOND, spot[a.key], a.up, a.launch)
        for a in o.answers
        if a.key in spot and began <= a.at <= o.now
    ]
    left_s = o.share * work_s
    if is_there and o.here is not None:
        left_s -= o.here.unsaved_hours / max(o.here.place.hours, o.here.unsaved_hours, 1e-9) * left_s
    now_s = (o.now - began) / _SECOND
    prices = [_price_history(s, began, now_s) for s in sites]
    return ReplayedHistory(terms, now_s, max(1, round(left_s)), is_there and bool(tenures), tenures, replies, prices)


def _work_hours(place: PlacementOption, live: LivePolicy) -> float:
    return place.hours if not live.models_losses or place.chances is None else place.chances.steady_hours


def _startup_hours(place: PlacementOption, live: LivePolicy) -> float:
    lost = 0.0 if not live.models_losses or place.chances is None else place.chances.lost_hours
    return place.startup_hours + lost


def _move_costs(sites: list[PolicyZone]) -> ZoneMoveCosts:
    """Return the costs of moves from the checkpoint's zone as they are known.

    Between two other regions it is the dearer and longer of the moves from the checkpoint's to either of them.
    """
    regions = np.array([s.first.region or s.first.key for s in sites])
    usd = np.array([s.first.moves_usd.dollars() for s in sites])
    seconds = np.array([round(s.first.transfer_hours * HOUR_S) for s in sites], dtype=np.int64)
    different_region = regions[:, None] != regions
    return ZoneMoveCosts(
        np.where(different_region, np.maximum(usd[:, None], usd), 0.0),
        np.where(different_region, np.maximum(seconds[:, None], seconds), 0),
    )


def _price_history(site: PolicyZone, began: datetime, now_s: float) -> tuple[list[float], list[float]]:
    """Return the times from which prices held, and the prices.

    A zone without spot has the on-demand price for spot, and spot there is never available.
    """
    place = site.first
    times = [(at - began) / _SECOND for at, _ in place.earlier_usd]
    since = now_s if times else -inf
    if place.usd_since is not None and times:
        since = (place.usd_since - began) / _SECOND
    starts = [*times, since]
    starts[0] = -inf
    return starts, [*(usd.dollars() for _, usd in place.earlier_usd), place.usd_per_hour.dollars()]


def _tenures(
    o: Observation, sites: list[PolicyZone], spot: Mapping[str, int], began: datetime, work_s: int
) -> list[Tenure]:
    """Return the tenures of the job in these zones.

    Attempts at options that are not known any more are left out. Where the start of the present attempt is not known,
    it is the beginning of the job.
    """
    lives = list(o.lives)
    if o.here is not None and (not lives or lives[-1].until is not None):
        lives.append(PastAttempt(o.here.place.key, began, began, None, False, 1.0, o.share))
    tenures: list[Tenure] = []
    for life in lives:
        kind, zone = SPOT, spot.get(life.key)
        if zone is None:
            kind, zone = ON_DEMAND, _demand_zone(life.key, sites, tenures)
        if zone is None:
            continue
        until, taken = life.until, life.taken
        if until is None and (o.here is None or o.must_go):
            until, taken = o.now, kind == SPOT
        since_s, ready_s = ((at - began) / _SECOND for at in (life.since, life.ready))
        until_s = inf if until is None else (until - began) / _SECOND
        from_s, to_s = life.share_from * work_s, life.share_to * work_s
        tenures.append(Tenure(kind, zone, since_s, ready_s, until_s, taken, from_s, to_s))
    return tenures


def _demand_zone(key: str, sites: list[PolicyZone], before: list[Tenure]) -> int | None:
    """Return, of the zones that share an on-demand option, the one where the job was last."""
    zones = [i for i, s in enumerate(sites) if s.demand is not None and s.demand.key == key]
    return next((tenure.zone for tenure in reversed(before) if tenure.zone in zones), zones[0] if zones else None)


def _to_decision(
    o: Observation, sites: list[PolicyZone], history: ReplayedHistory, view: BlindView, wish: LaunchRequest
) -> Decision:
    """Return the decision for this request.

    Zones that said no in this tick are not tried again in it, closed ones not at all.
    """
    kind, zone, leave = int(view.kind[0]), int(view.zone[0]), bool(wish.leave[0])
    begins = history.tick * history.terms.tick_s
    no = {s.zone for s in history.replies if s.launch and not s.up and s.at_s >= begins}
    open_ = {place.key for place in o.places} | ({o.here.place.key} if o.here and not o.must_go else set())
    order = wish.spot[:, 0].tolist()
    to: list[str] = []
    stays = False
    for i in sorted((i for i, value in enumerate(order) if isfinite(value)), key=lambda i: (order[i], i)):
        if kind == SPOT and i == zone and not leave:
            stays = True
            break
        spot = sites[i].spot
        if spot is not None and i not in no and spot.key in open_:
            to.append(spot.key)
    demand = int(wish.demand[0])
    if demand != NOWHERE and not stays:
        to += _on_demand_keys(o, sites, history, view, demand, leave=leave)
    keep = kind != IDLE and not leave
    if to or (kind != IDLE and leave):
        return MoveDecision(tuple(to), "as the policy for its deadline wants", keep=keep, ordered=True)
    return (
        StayDecision() if kind != IDLE else WaitDecision(o.now + o.tick, "the policy for its deadline waits for spot")
    )


def _on_demand_keys(
    o: Observation, sites: list[PolicyZone], history: ReplayedHistory, view: BlindView, zone: int, *, leave: bool
) -> list[str]:
    """Return the key of on-demand in the zone or, where it is not sold there, where the rest is cheapest."""
    open_ = {place.key for place in o.places} | ({o.here.place.key} if o.here and not o.must_go else set())
    for at in (zone, int(find_blind_on_demand_zone(history.terms, view)[0])):
        place = sites[at].demand
        if place is not None and place.key in open_:
            same = view.kind[0] == ON_DEMAND and o.here is not None and o.here.place.key == place.key
            return [] if same and not leave else [place.key]
    return []
