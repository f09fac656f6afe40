"""What the watcher's policy hears of the past, and what becomes of its wishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from pricing.places import Market
from router.controller.accept.run_policies import RecordedPolicies
from router.controller.context import ControllerContext, apply_lock
from router.controller.history.attempt_history import history_of
from router.controller.history.heartbeats import take_snapshot
from router.controller.history.job_history import with_history
from router.controller.supervise.policy_runner import Adviser
from router.controller.supervise.replanner import TICK, PendingGang, PlacementAccepted, PlacementDeferred, Replanner
from router.controller.supervise.supervisor import Supervisor
from router.deploy.deploy_settings import Deploy
from router.jobs.job_json import job_json, parse_job
from router.planning.improve.replacement import PlacementRequest, place_gangs
from router.planning.program.solver import PulpSolver
from router.spot.live.selection import build_named_policy, build_policy, default_run_policy
from router.spot.policies import Rule
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import Decision, MoveDecision, Observation, PolicyEvent, StayDecision, WaitDecision
from router.state.records import Attempt, Phase, Shortage
from tests.bench.storm import HERE, book, fill, site_of
from tests.support.narrowed import present
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, NOW

ONE = "gang-000"  # it has a deadline
MINUTE = timedelta(minutes=1)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    """A few gangs that run on spot in one zone."""
    with open_state(tmp_path / "state.db", NOW) as store:
        fill(store, 12, 2)
        yield site_of(store, tmp_path)


@dataclass
class Told:
    """Decides as it is told; ``seen``: what it was shown."""

    decision: Decision = field(default_factory=StayDecision)
    seen: list[Observation] = field(default_factory=list)

    def decide(self, o: Observation) -> Decision:
        self.seen.append(o)
        return self.decision


def first(site: ControllerContext) -> Attempt:
    return present(site.store.attempts.get(ONE))


def later(site: ControllerContext, by: timedelta) -> None:
    moment = site.clock() + by
    object.__setattr__(site, "clock", lambda: moment)


def ask(site: ControllerContext, policy: Told) -> tuple[Decision, ...]:
    """At the next tick, about the one."""
    adviser = Adviser(Replanner(site, book, policy), most_s=10.0)
    adviser.advise([first(site)], take_snapshot(site.store))
    later(site, TICK)
    return tuple(advice.decision for advice in adviser.advise([first(site)], take_snapshot(site.store)))


def on_demand_here(site: ControllerContext) -> None:
    """The one runs on demand now."""
    for node in site.store.attempts.nodes(ONE):
        site.store.attempts.set_node(ONE, node.rank, market=Market.ON_DEMAND, usd_per_hour=node.usd_per_hour)


def test_who_decides_is_told_what_was(site: ControllerContext) -> None:
    policy = Told()
    site.store.attempts.set_node(ONE, 0, saved_step=2_000, step=2_000)
    began = first(site).created_at
    region, kind = "south-1", "p9.48xlarge"
    short = Shortage("aws", region, "south-1a", kind, Market.SPOT, 2, site.clock(), site.clock() + HOUR, "short")
    site.store.shortages.remember(short)
    ask(site, policy)
    (o,) = policy.seen
    assert o.event is PolicyEvent.TICK
    assert o.here is not None
    assert o.began == began
    assert o.share == pytest.approx(0.9)
    (life,) = o.lives
    assert (life.key, life.until, life.share_from) == (o.here.place.key, None, 1.0)
    assert life.share_to == pytest.approx(0.9)
    assert o.age == o.now - life.since
    (closed,) = o.closed
    assert closed.region == "aws/south-1"
    assert closed.key not in {place.key for place in o.places}
    no = [answer for answer in o.answers if not answer.up]
    assert [(answer.key, answer.launch, answer.at) for answer in no] == [(closed.key, False, short.at)]
    sites = {place.site for place in o.places if place.region == closed.region}
    assert sites == {closed.site}
    assert {place.market for place in o.places if place.site == closed.site} == {Market.SPOT, Market.ON_DEMAND}


def test_what_was_is_read_from_attempts_alone(site: ControllerContext) -> None:
    """One that could not be had, one that was taken, one that runs."""
    store, one = site.store, first(site)
    replanner = Replanner(site, book)
    nodes = store.attempts.nodes(ONE)
    at = one.created_at
    over = {"phase": Phase.FAILED, "kept_step": 0}
    store.attempts.change(one, reason="interrupted", gone_at=at + 30 * MINUTE, **over)
    two = replace(
        one,
        id="two",
        number=2,
        created_at=at + 31 * MINUTE,
        met_at=None,
        made_at=None,
        resumes=ONE,
        phase=Phase.FAILED,
        reason="short",
        gone_at=at + 40 * MINUTE,
        kept_step=0,
    )
    three = replace(
        one,
        id="three",
        number=3,
        created_at=at + 41 * MINUTE,
        met_at=at + 50 * MINUTE,
        made_at=at + 42 * MINUTE,
        resumes="two",
        first_step=500,
    )
    for made in (two, three):
        store.attempts.add(made, [replace(node, attempt=made.id, name=f"{made.id}-{node.rank}") for node in nodes])
    chain = history_of(store, three)
    job = present(replanner.left_of(chain))
    found = replanner.finder(replanner.limits_of(one)).find(job)[0]
    now = Observation(at + HOUR, None, TICK, PolicyEvent.TICK, None, ())
    past = with_history(now, chain, job, found, ())
    assert past == with_history(now, history_of(store, three), job, found, ())
    key = past.lives[0].key
    assert [(a.key, a.at - at, a.up, a.launch) for a in past.answers] == [
        (key, 0 * MINUTE, True, True),
        (key, 40 * MINUTE, False, True),
        (key, 42 * MINUTE, True, True),
    ]
    assert [(life.until, life.taken) for life in past.lives] == [(at + 30 * MINUTE, True), (None, False)]
    assert past.lives[1].ready == at + 50 * MINUTE
    assert past.lives[1].share_from == pytest.approx(1 - 500 / job.steps)


def test_what_runs_is_not_stopped_to_be_made_anew(site: ControllerContext) -> None:
    policy = Told()
    ask(site, policy)
    o = policy.seen[-1]
    assert o.here is not None
    key, other = o.here.place.key, o.places[0].key
    assert ask(site, Told(MoveDecision((key, other), ordered=True))) == ()
    assert ask(site, Told(MoveDecision((other, key), ordered=True))) == (
        MoveDecision((other,), keep=True, ordered=True),
    )


def test_a_wish_keeps_its_order_and_what_runs(site: ControllerContext) -> None:
    """Where none can be had the gang goes on; one that is to stop, stops."""
    replanner = Replanner(site, book, Told())
    policy = Told()
    ask(site, policy)
    keys = sorted((p.key for p in policy.seen[-1].places), key=lambda key: -len(key))[:3]
    chain = history_of(site.store, first(site))
    for order in (tuple(keys), tuple(reversed(keys))):
        (go,) = replanner.replan([PendingGang(chain, None, MoveDecision(order, keep=True, ordered=True))])
        assert isinstance(go, PlacementAccepted)
        (alone,) = replanner.replan([PendingGang(chain, None, MoveDecision(order[:1], keep=True, ordered=True))])
        assert isinstance(alone, PlacementAccepted)
        assert go.request.choices[0] == alone.request.choices[0]
    (nowhere,) = replanner.replan([PendingGang(chain, None, MoveDecision(("none",), keep=True, ordered=True))])
    assert isinstance(nowhere, PlacementDeferred)
    for decision, phase in (
        (MoveDecision(("none",), keep=True, ordered=True), Phase.RUNNING),
        (MoveDecision(()), Phase.CHECKPOINTING),
    ):
        told = Replanner(site, book, Told(decision))
        watcher = Supervisor(site, told, Adviser(told, most_s=10.0), lambda: apply_lock(site))
        watcher.reconcile()
        later(site, TICK)
        watcher.reconcile()
        watcher.close()
        assert first(site).phase is phase


def test_places_in_an_order_count_for_more_than_money(site: ControllerContext) -> None:
    replanner = Replanner(site, book)
    chain = history_of(site.store, first(site))
    job = present(replanner.left_of(chain))
    limits = replanner.limits_of(first(site))
    found = replanner.finder(limits).find(job)[0]
    dear = sorted(found, key=lambda c: -c.usd_per_hour.nanos)
    order = tuple(c.key for c in dear)
    want = PlacementRequest(job, found, frozenset(order), order=order)
    assert place_gangs([want], limits, solver=PulpSolver("highs")).placed[want.name].key == order[0]
    cheap = replace(want, order=())
    assert place_gangs([cheap], limits, solver=PulpSolver("highs")).placed[want.name].key != order[0]


def test_uniform_progress_leaves_on_demand_for_spot_where_greedy_stays(site: ControllerContext) -> None:
    on_demand_here(site)
    site.store.attempts.set_node(ONE, 0, saved_step=9_000, step=9_000)  # far ahead of its deadline in three days
    adviser = {rule: Replanner(site, book, build_named_policy(rule)) for rule in (Rule.GREEDY, Rule.UNIFORM_PROGRESS)}
    found = {}
    for rule, replanner in adviser.items():
        asked = Adviser(replanner, most_s=10.0)
        asked.advise([first(site)], take_snapshot(site.store))
        later(site, TICK)
        (advice,) = asked.advise([first(site)], take_snapshot(site.store))
        found[rule] = advice.decision
    assert isinstance(found[Rule.GREEDY], StayDecision)
    move = found[Rule.UNIFORM_PROGRESS]
    assert isinstance(move, MoveDecision)
    assert move.keep
    assert move.ordered
    assert all("spot" in key for key in move.to)


def test_each_gang_is_run_by_the_policy_that_it_was_begun_with(site: ControllerContext) -> None:
    """Whatever the deploy file says by now; its next attempt too."""
    on_demand_here(site)
    site.store.attempts.set_node(ONE, 0, saved_step=9_000, step=9_000)
    recorded = RecordedPolicies(build_policy, site.tell)
    found = {}
    for rule in (Rule.GREEDY, Rule.UNIFORM_PROGRESS):
        site.store.attempts.change(first(site), policy=default_run_policy(rule).text)
        other = Rule.UNIFORM_PROGRESS if rule is Rule.GREEDY else Rule.GREEDY
        object.__setattr__(site, "deploy", Deploy(policy=other))
        replanner = Replanner(site, book, build_named_policy(other), recorded=recorded)
        asked = Adviser(replanner, most_s=10.0)
        asked.advise([first(site)], take_snapshot(site.store))
        later(site, TICK)
        (advice,) = asked.advise([first(site)], take_snapshot(site.store))
        found[rule] = type(advice.decision)
        (go,) = replanner.replan([PendingGang(history_of(site.store, first(site)), first(site))])
        assert isinstance(go, PlacementAccepted)
        assert go.request.policies == (default_run_policy(rule).text, "")
    assert found == {Rule.GREEDY: StayDecision, Rule.UNIFORM_PROGRESS: MoveDecision}


def test_uniform_progress_waits_where_greedy_takes_on_demand(site: ControllerContext) -> None:
    """All spot pools are short, and the job is ahead of time."""
    site.store.attempts.set_node(ONE, 0, saved_step=9_000, step=9_000)
    one = first(site)
    offers = {(o.cloud, o.region, o.instance_type) for o in book().offers if o.market is Market.SPOT}
    moment = site.clock()
    shortages = [Shortage(*pool[:2], None, pool[2], Market.SPOT, 2, moment, moment + HOUR, "short") for pool in offers]
    site.store.shortages.remember(*shortages)
    chain = history_of(site.store, one)
    assert HERE[0] == "aws"
    (waits,) = Replanner(site, book, build_named_policy(Rule.UNIFORM_PROGRESS)).replan([PendingGang(chain, one)])
    (goes,) = Replanner(site, book, build_named_policy(Rule.GREEDY)).replan([PendingGang(chain, one)])
    assert isinstance(waits, PlacementDeferred)
    assert "waits for spot" in waits.why
    assert isinstance(goes, PlacementAccepted)


@pytest.mark.slow
def test_foresight_waits_with_much_slack_and_takes_on_demand_with_none(site: ControllerContext) -> None:
    """All spot pools are short. Of three days the job needs a few hours, or nearly all."""
    one = first(site)
    offers = {(o.cloud, o.region, o.instance_type) for o in book().offers if o.market is Market.SPOT}
    moment = site.clock()
    shortages = [Shortage(*pool[:2], None, pool[2], Market.SPOT, 2, moment, moment + HOUR, "short") for pool in offers]
    site.store.shortages.remember(*shortages)
    replanner = Replanner(site, book, build_named_policy(Rule.FORESIGHT))
    site.store.attempts.set_node(ONE, 0, saved_step=9_000, step=9_000)
    (waits,) = replanner.replan([PendingGang(history_of(site.store, one), one)])
    assert isinstance(waits, PlacementDeferred)
    assert "waits for spot" in waits.why
    chain = history_of(site.store, one)
    job = present(replanner.left_of(chain))
    assert job.deadline is not None
    hours = min(c.reserved_hours(job.steps_left) for c in replanner.finder(replanner.limits_of(one)).find(job)[0])
    later(site, job.deadline.at(moment) - timedelta(hours=hours + 0.5) - site.clock())
    site.store.shortages.remember(*[replace(s, at=site.clock(), until=site.clock() + HOUR) for s in shortages])
    (goes,) = replanner.replan([PendingGang(chain, one)])
    assert isinstance(goes, PlacementAccepted)


def test_a_job_that_may_be_late_goes_on_after_its_deadline(site: ControllerContext) -> None:
    """Its deadline passed yesterday: it is placed where it is done soonest."""
    one = first(site)
    text = present(site.store.plans.job(one.job_digest))
    job = parse_job(text).model_copy(update={"late": "allowed"})
    site.store.plans.put_jobs({job.digest: job_json(job)}, site.clock())
    known = history_of(site.store, one)
    chain = replace(known, attempts=tuple(replace(each, job_digest=job.digest) for each in known.attempts))
    later(site, timedelta(days=4))
    (goes,) = Replanner(site, book).replan([PendingGang(chain, one)])
    assert isinstance(goes, PlacementAccepted)
    assert goes.request.job.late == "allowed"
    assert goes.request.choices[0].start == site.clock()


def test_who_waits_for_spot_is_not_forgotten_before_its_deadline(site: ControllerContext) -> None:
    one = first(site)
    site.store.attempts.change(one, phase=Phase.FAILED, reason="interrupted", gone_at=site.clock(), kept_step=0)
    other = present(site.store.attempts.get("gang-001"))  # without a deadline
    site.store.attempts.change(other, phase=Phase.FAILED, reason="interrupted", gone_at=site.clock(), kept_step=0)
    later(site, timedelta(days=2))
    assert kept(site, Rule.GREEDY) == set()
    assert kept(site, Rule.UNIFORM_PROGRESS) == {ONE}
    for rule, those in ((Rule.UNIFORM_PROGRESS, {ONE}), (Rule.GREEDY, set())):
        site.store.attempts.change(first(site), policy=default_run_policy(rule).text)
        assert kept(site, Rule.GREEDY) == kept(site, Rule.UNIFORM_PROGRESS) == those
    site.store.attempts.change(first(site), policy="")
    later(site, timedelta(days=2))
    assert kept(site, Rule.UNIFORM_PROGRESS) == set()


def kept(site: ControllerContext, rule: Rule) -> set[str]:
    """Attempts whose job is still to go on."""
    object.__setattr__(site, "deploy", Deploy(policy=rule))
    replanner = Replanner(site, book, GreedyPolicy())
    watcher = Supervisor(site, replanner, Adviser(replanner), lambda: apply_lock(site))
    return {chain.last.id for chain in watcher._waiting()}


def test_without_a_deadline_nothing_is_different(site: ControllerContext) -> None:
    other = present(site.store.attempts.get("gang-001"))
    chain = history_of(site.store, other)
    answers = [Replanner(site, book, build_named_policy(rule)).replan([PendingGang(chain, other)]) for rule in Rule]
    assert all(isinstance(answer[0], PlacementAccepted) for answer in answers)
    assert (
        len({answer[0].request.choices[0].place for answer in answers if isinstance(answer[0], PlacementAccepted)}) == 1
    )


def test_what_waits_says_until_when(site: ControllerContext) -> None:
    (later_,) = Replanner(site, book, Told(WaitDecision(site.clock(), "because"))).replan(
        [PendingGang(history_of(site.store, first(site)), first(site))]
    )
    assert later_ == PlacementDeferred("because")
