"""What is quoted is what runs: one policy in quote, plan line and attempt; a deploy file that differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.app.quotes import with_quoted_policy
from router.controller.accept.accept import AcceptedOrders, record_acceptance, requests_of
from router.controller.accept.guardrails import RefusalReason
from router.controller.accept.run_policies import AssignedPolicy, RecordedPolicies, assign_policy, policy_refusals
from router.controller.context import ControllerContext
from router.controller.plans import orders_of
from router.controller.workspace.workspaces import new_attempt
from router.deploy.deploy_settings import Deploy
from router.jobs.limits import Limits
from router.jobs.run_policy import RunPolicy
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_from_json, plan_to_json
from router.quotes.quote_json import quote_content, quote_from_json, quote_to_json
from router.spot.live.policy_adapter import PolicyAdapter
from router.spot.live.selection import build_named_policy, build_policy, default_run_policy
from router.spot.policies import QUOTED_RULE, Rule
from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import Policy
from tests.support.asked_quotes import a_quote
from tests.support.bare_site import bare_site
from tests.support.made_up_book import book, offer
from tests.support.narrowed import present, typed
from tests.support.scenes import NORTH, NORTH_SPOT, NOW, a_job, plan_of
from tests.support.state_values import attempt

OFFERS = (offer("aws/north-1", "p9.48xlarge", "on_demand", "60"),)
BOOK = book(OFFERS)
FORESIGHT, GREEDY = default_run_policy(Rule.FORESIGHT), default_run_policy(Rule.GREEDY)
TIMED, UNTIMED = "timed", "untimed"
JOBS = {
    TIMED: a_job(TIMED, deadline="+20h", run={"command": "true"}),
    UNTIMED: a_job(UNTIMED, run={"command": "true"}),
}
NUMBERS = st.one_of(st.integers(-(10**12), 10**12), st.floats(allow_nan=False, allow_infinity=False))
NAMES = st.text(min_size=1, max_size=8)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(list(JOBS.values()), OFFERS)


def of(plan: Plan, deploy: Deploy, *, override: bool = False) -> AcceptedOrders:
    return requests_of(
        plan,
        plan_content(plan)["digest"],
        orders_of(plan),
        JOBS,
        BOOK,
        1,
        None,
        lambda order, job: assign_policy(order, job, deploy, override=override),
    )


@given(NAMES, st.dictionaries(NAMES, NUMBERS, max_size=4))
def test_a_policy_is_the_same_as_text_and_as_json(name: str, parameters: dict[str, Any]) -> None:
    one = RunPolicy(name, tuple(sorted(parameters.items())))
    assert RunPolicy.parse(one.text) == RunPolicy.read(one.content) == RunPolicy.recorded(one.text) == one


@pytest.mark.parametrize(
    "text",
    [
        "",
        "greedy",
        "{}",
        "[]",
        '{"name":"x"}',
        '{"name":"","parameters":{}}',
        '{"name":1,"parameters":{}}',
        '{"name":"x","parameters":{"a":"1"}}',
        '{"name":"x","parameters":{"a":true}}',
        '{"name":"x","parameters":{"a":NaN}}',
    ],
)
def test_a_record_that_holds_no_policy_is_none(text: str) -> None:
    assert RunPolicy.recorded(text) is None


def test_what_a_deploy_file_without_a_policy_means_is_what_quotes_are_made_for() -> None:
    quote = a_quote(a_job(), 24, [NORTH, NORTH_SPOT])
    assert quote.run_policy == default_run_policy(Deploy().policy) == default_run_policy(QUOTED_RULE)
    assert not Deploy().names_policy
    assert Deploy(policy=QUOTED_RULE).names_policy


@pytest.mark.parametrize("rule", Rule)
def test_every_name_is_run_with_the_parameters_that_are_written_down(rule: Rule) -> None:
    assert type(build_policy(default_run_policy(rule))) is type(build_named_policy(rule)) is DeadlineGuard


def test_parameters_are_what_runs() -> None:
    inner = typed(DeadlineGuard, build_policy(RunPolicy.of("foresight", clock_ticks=20, draws=50, places=3, ticks=99)))
    assert isinstance(inner.inner, PolicyAdapter)
    assert (inner.inner.live.most_zones, inner.inner.live.most_ticks) == (3, 99)
    greedy = typed(
        DeadlineGuard,
        build_policy(RunPolicy.of("greedy", least_saving_share=0.25, least_saving_usd=2.5), heeds_hints=True),
    )
    assert isinstance(greedy.inner, GreedyPolicy)
    assert (greedy.inner.saving.dollars(), float(greedy.inner.share), greedy.inner.heeds_hints) == (2.5, 0.25, True)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (RunPolicy("oracle"), "knows no policy oracle"),
        (RunPolicy("foresight"), "the parameters of foresight are clock_ticks, draws, places, ticks"),
        (RunPolicy.of("skynomad", gb=1), "the parameters of skynomad are none"),
        (RunPolicy.of("time-sliced", slices=0), "above zero"),
    ],
)
def test_what_this_version_cannot_run_is_said(chosen: RunPolicy, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build_policy(chosen)


def test_a_quote_carries_it() -> None:
    quote = a_quote(a_job(), 24, [NORTH, NORTH_SPOT])
    assert quote_content(quote)["run_policy"] == FORESIGHT.content
    assert quote_from_json(quote_to_json(quote)) == quote


def test_a_plan_line_carries_it_and_one_without_keeps_its_bytes(plan: Plan) -> None:
    assert "policy" not in plan_content(plan)["lines"][0]
    bound = with_quoted_policy(plan, FORESIGHT)
    assert {str(line["policy"]) for line in plan_content(bound)["lines"]} == {str(FORESIGHT.content)}
    assert plan_from_json(plan_to_json(bound)) == bound
    assert plan_from_json(plan_to_json(plan)) == plan
    assert plan_content(with_quoted_policy(bound, None))["digest"] == plan_content(plan)["digest"]


def test_without_a_quote_the_deploy_file_decides_and_without_a_deadline_greedy(plan: Plan) -> None:
    for deploy, runs in ((Deploy(), FORESIGHT), (Deploy(policy=Rule.SKYNOMAD), default_run_policy(Rule.SKYNOMAD))):
        assert policy_refusals(orders_of(plan), JOBS, deploy) == ()
        assert of(plan, deploy).policies == {TIMED: AssignedPolicy(runs), UNTIMED: AssignedPolicy(GREEDY)}


def test_what_was_quoted_runs_where_the_deploy_file_names_no_other(plan: Plan) -> None:
    """With the parameters of the quote, which may be those of an earlier version."""
    older = RunPolicy.of("foresight", clock_ticks=100, draws=500, places=8, ticks=240)
    for quoted, deploy in ((older, Deploy()), (older, Deploy(policy=Rule.FORESIGHT)), (GREEDY, Deploy())):
        bound = with_quoted_policy(plan, quoted)
        assert policy_refusals(orders_of(bound), JOBS, deploy) == ()
        accepted = of(bound, deploy)
        assert {found.policy for found in accepted.policies.values()} == {quoted}
        assert {found.overridden for found in accepted.policies.values()} == {None}
        assert {request.policies for request in accepted.requests} == {(quoted.text, "")}


def test_another_policy_in_the_deploy_file_is_refused_or_wins_where_that_is_asked_for(plan: Plan) -> None:
    bound, deploy = with_quoted_policy(plan, FORESIGHT), Deploy(policy=Rule.UNIFORM_PROGRESS)
    refused = policy_refusals(orders_of(bound), JOBS, deploy)
    assert [(r.cause, r.job) for r in refused] == [(RefusalReason.POLICY, TIMED), (RefusalReason.POLICY, UNTIMED)]
    assert "made for foresight" in refused[0].what
    assert "policy: uniform-progress" in refused[0].what
    assert "--override-policy" in refused[0].remedy
    assert policy_refusals(orders_of(bound), JOBS, deploy, override=True) == ()
    own = default_run_policy(Rule.UNIFORM_PROGRESS)
    accepted = of(bound, deploy, override=True)
    assert accepted.policies[TIMED] == AssignedPolicy(own, FORESIGHT)
    assert accepted.policies[TIMED].overridden == FORESIGHT
    assert {e.policies for e in accepted.requests if e.order.job == TIMED} == {(own.text, FORESIGHT.text)}


def test_a_quote_for_what_this_version_cannot_run_is_refused(plan: Plan) -> None:
    (refused, *_) = policy_refusals(orders_of(with_quoted_policy(plan, RunPolicy("oracle"))), JOBS, Deploy())
    assert refused.cause is RefusalReason.POLICY
    assert "knows no policy oracle" in refused.what


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    with bare_site(tmp_path) as site:
        yield site


def test_the_audit_log_and_the_attempt_say_which_policy_runs_and_which_was_quoted(
    site: ControllerContext, plan: Plan
) -> None:
    bound = with_quoted_policy(plan, FORESIGHT)
    accepted = of(bound, Deploy(policy=Rule.SKYNOMAD), override=True)
    record_acceptance(site, accepted, plan_to_json(bound), "ada", "", {}, Limits.none())
    (entry,) = site.store.audit.entries()
    skynomad = default_run_policy(Rule.SKYNOMAD)
    assert entry.details["policies"] == {TIMED: skynomad.content, UNTIMED: GREEDY.content}
    assert entry.details["overridden_policies"] == {TIMED: FORESIGHT.content, UNTIMED: FORESIGHT.content}
    request = next(e for e in accepted.requests if e.order.job == TIMED)
    made, nodes = new_attempt(
        "a1",
        request.plan,
        request.order,
        request.choices[0],
        1,
        request.job,
        request.digest,
        "t",
        NOW,
        policies=request.policies,
    )
    site.store.attempts.add(made, nodes)
    kept = present(site.store.attempts.get("a1"))
    assert (RunPolicy.recorded(kept.policy), RunPolicy.recorded(kept.quoted_policy)) == (skynomad, FORESIGHT)


def test_each_attempt_is_run_by_its_own_policy_made_once() -> None:
    made: list[RunPolicy] = []
    said: list[str] = []

    def make(chosen: RunPolicy) -> Policy:
        made.append(chosen)
        return build_policy(chosen)

    found = RecordedPolicies(make, lambda job, text: said.append(f"{job}: {text}"))
    greedy, other = attempt(policy=GREEDY.text), attempt(policy=default_run_policy(Rule.UNIFORM_PROGRESS).text)
    assert found(attempt()) is None
    assert found(greedy) is found(replace(greedy, id="x"))
    assert found(other) is not found(greedy)
    assert made == [GREEDY, default_run_policy(Rule.UNIFORM_PROGRESS)]
    for text in (RunPolicy("oracle").text, "no json"):
        for _ in range(2):
            assert found(attempt(policy=text)) is None
    assert len(said) == 2
    assert "knows no policy oracle" in said[0]
