"""From a plan to requests: jobs that are missing or changed, budgets, and what is written down when it is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pricing.money import Usd, UsdPerHour
from pricing.problems import InvalidInputError
from router.controller.accept.accept import budget_refusals, hash_environments, record_acceptance, requests_of
from router.controller.accept.approval import at_risk_by_team
from router.controller.accept.guardrails import Refusal, RefusalReason
from router.controller.context import ControllerContext
from router.controller.plans import Order, limits_json, orders_of
from router.controller.workspace.placement_options import maximum_cost
from router.jobs.job_json import job_json, parse_job
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.ledger.budget import Budget, Scope
from router.ledger.entry import LedgerEntry, LedgerEntryKind
from router.ledger.month import Month
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_to_json
from router.state.audit import verify_chain
from router.state.records import Attempt, Phase
from tests.support.bare_site import bare_site
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import NOW, a_job, plan_of
from tests.support.state_values import attempt, entry

OFFERS = (
    offer("aws/north-1", "p9.48xlarge", "on_demand", "60"),
    offer("aws/south-1", "p9.48xlarge", "on_demand", "70"),
)
BOOK = book(OFFERS)
RUN: dict[str, Any] = {"command": "python train.py", "env": {"API_KEY": "secret:env:API_KEY"}}
HOUR = timedelta(hours=1)


def make_jobs(**more: Any) -> dict[str, Job]:
    return {name: a_job(name, run=RUN, **more) for name in ("a", "b")}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(list(make_jobs().values()), OFFERS)


def requests(plan: Plan, jobs: dict[str, Job], tries: int = 3, limits: Limits | None = None) -> Any:
    return requests_of(plan, "d" * 64, orders_of(plan), jobs, BOOK, tries, limits)


def problems(plan: Plan, jobs: dict[str, Job]) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidInputError) as caught:
        requests(plan, jobs)
    return [(p.where, p.what, p.remedy) for p in caught.value.problems]


def test_one_errand_a_gang_with_the_money_that_it_puts_at_risk(plan: Plan) -> None:
    jobs = make_jobs()
    accepted = requests(plan, jobs)
    assert [(e.order.job, e.plan, e.digest, e.job) for e in accepted.requests] == [
        (name, "d" * 64, jobs[name].digest, jobs[name]) for name in ("a", "b")
    ]
    assert [len(e.choices) for e in accepted.requests] == [2, 2]
    assert accepted.expected_usd == plan.orders_usd
    assert accepted.at_risk_usd == Usd.total(maximum_cost(e.choices) for e in accepted.requests)
    assert accepted.at_risk_by_team == {"red": accepted.at_risk_usd}
    assert accepted.at_risk_usd > Usd.total(order.at_risk_usd for order in orders_of(plan))


def test_the_money_at_risk_is_the_plans_whatever_is_for_sale_and_however_many_places_are_tried(plan: Plan) -> None:
    """An approver sees the figure before anybody says how many tries there are."""
    jobs = make_jobs()
    one = requests(plan, jobs, tries=1)
    assert [len(e.choices) for e in one.requests] == [1, 1]
    assert one.at_risk_by_team == requests(plan, jobs).at_risk_by_team == at_risk_by_team(plan, jobs)
    assert at_risk_by_team(plan, {})["red"] >= one.at_risk_usd


def test_a_fallback_is_at_risk_although_it_is_no_next_place() -> None:
    """The deadline guard sends a gang to a dearer place than its own."""
    jobs = make_jobs(deadline="+8h")
    offers = [offer("aws/south-1", "p9.48xlarge", market, usd) for market, usd in (("spot", "24"), ("on_demand", "70"))]
    plan = plan_of(list(jobs.values()), offers)
    dearer = [replace(line, max_usd_per_hour=line.usd_per_hour) for line in plan.lines]
    assert all(line.fallback is not None for line in dearer)
    one = requests(replace(plan, lines=tuple(dearer)), jobs, tries=1)
    assert [len(e.choices) for e in one.requests] == [1, 1]
    assert one.at_risk_usd >= Usd.total(UsdPerHour.parse(70).over(line.end - line.start) for line in dearer)
    assert one.at_risk_usd > Usd.total(maximum_cost(e.choices) for e in one.requests)


def test_limits_decide_what_next_places_cost_now() -> None:
    limits = {"discounts": [{"cloud": "aws", "percent": 10}]}
    jobs = make_jobs()
    plan = plan_of(list(jobs.values()), OFFERS, limits)
    assert [len(e.choices) for e in requests(plan, jobs, limits=make_limits(limits)).requests] == [2, 2]
    assert [len(e.choices) for e in requests(plan, jobs).requests] == [1, 1]


def test_a_job_that_nobody_knows(plan: Plan) -> None:
    jobs = make_jobs()
    del jobs["b"]
    assert problems(plan, jobs) == [
        ("job b", "the specification of this job is not known", "give its file with --jobs PATH")
    ]


def test_a_job_that_was_changed_since_it_was_planned(plan: Plan) -> None:
    jobs = make_jobs()
    jobs["a"] = a_job("a", run={**RUN, "command": "python other.py"})
    (problem,) = problems(plan, jobs)
    assert problem == (
        "job a",
        "the job was changed since it was planned",
        "plan again, or give the file that was planned",
    )


def test_another_value_of_a_variable_is_no_other_job() -> None:
    plain = {name: a_job(name, run={**RUN, "env": {"BATCH": "1"}}) for name in ("a", "b")}
    plan = plan_of(list(plain.values()), OFFERS)
    plain["a"] = a_job("a", run={**RUN, "env": {"BATCH": "2"}})
    assert len(requests(plan, plain).requests) == 2


@pytest.mark.parametrize("value", ["secret:env:OTHER", "secret:file:/etc/passwd", "plain"])
def test_another_reference_is_another_job(plan: Plan, value: str) -> None:
    """Else a file given with --jobs would have other secrets sent to the machines than were planned with."""
    jobs = make_jobs()
    jobs["a"] = a_job("a", run={**RUN, "env": {"API_KEY": value}})
    assert [what for _, what, _ in problems(plan, jobs)] == ["the job was changed since it was planned"]


def test_what_is_accepted_says_its_references(plan: Plan) -> None:
    accepted = requests(plan, make_jobs())
    assert accepted.secrets == tuple((name, "red", (("API_KEY", "secret:env:API_KEY"),)) for name in ("a", "b"))


def test_a_job_that_starts_nothing_and_every_problem_at_once() -> None:
    jobs = {"a": a_job("a"), "b": a_job("b", run=RUN)}
    plan = plan_of(list(jobs.values()), OFFERS)
    found = problems(plan, {"a": jobs["a"]})
    assert [(where, what) for where, what, _ in found] == [
        ("job a", "has no `run`: there is nothing to start"),
        ("job b", "the specification of this job is not known"),
    ]
    assert "command:" in found[0][2]


def test_a_plan_without_orders_has_no_errands(plan: Plan) -> None:
    outlook = replace(plan, lines=tuple(replace(line, kind="outlook") for line in plan.lines))
    accepted = requests(outlook, {})
    assert (accepted.requests, accepted.expected_usd, accepted.at_risk_usd) == ((), Usd(0), Usd(0))


def budgets(
    plan: Plan,
    *,
    team: str = "",
    spent: str = "0",
    job: str | None = None,
    ledger: tuple[LedgerEntry, ...] = (),
    running: tuple[Attempt, ...] = (),
    now: datetime = NOW,
    orders: tuple[Order, ...] | None = None,
) -> list[str]:
    jobs = make_jobs(budget=f"${job}") if job else make_jobs()
    teams = [{"team": "red", "budget": f"${team}", "spent": f"${spent}"}] if team else []
    found: tuple[Refusal, ...] = budget_refusals(
        orders_of(plan) if orders is None else orders, plan, jobs, make_limits({"teams": teams}), ledger, running, now
    )
    assert {refusal.cause for refusal in found} <= {RefusalReason.BUDGET}
    return [f"{refusal.job}: {refusal.what}" for refusal in found]


def cost(plan: Plan) -> Usd:
    return Usd.total(order.expected_usd for order in orders_of(plan))


def test_a_teams_budget_holds_to_the_nano_dollar(plan: Plan) -> None:
    wanted = cost(plan)
    assert budgets(plan, team=str(wanted)) == []
    assert budgets(plan, team=str(Usd(wanted.nanos - 1))) == [
        f": team red would come to ${wanted.dollars():,.2f} of a budget of ${wanted.dollars():,.2f}"
    ]


def metered(usd: str, start: datetime = NOW, hours: int = 1, **more: Any) -> LedgerEntry:
    rate = Usd.parse(usd)
    return entry(
        f"{start} {usd} {more}",
        team=more.pop("team", "red"),
        start=start,
        end=start + hours * HOUR,
        quantity=Fraction(hours),
        usd_per_hour=UsdPerHour(rate.nanos // hours),
        usd=rate,
        **more,
    )


def held(
    plan: Plan, *budgets_: Budget, ledger: tuple[LedgerEntry, ...] = (), team: str = "", project: str = ""
) -> list[str]:
    teams = [{"team": "red", "budget": f"${team}"}] if team else []
    jobs = make_jobs(project=project) if project else make_jobs()
    found = budget_refusals(orders_of(plan), plan, jobs, make_limits({"teams": teams}), ledger, (), NOW, budgets_)
    return [refusal.what.partition(" would")[0] for refusal in found]


def hard(scope: Scope, name: str, usd: Usd, *, is_hard: bool = True) -> Budget:
    return Budget(scope=scope, name=name, since=Month.of(NOW), usd=usd, hard=is_hard, at=NOW)


def test_hard_budgets_hold_to_the_nano_dollar_and_soft_ones_do_not(plan: Plan) -> None:
    enough, short = cost(plan), Usd(cost(plan).nanos - 1)
    for scope, name in ((Scope.TEAM, "red"), (Scope.ALL, ""), (Scope.PROJECT, "asr")):
        assert held(plan, hard(scope, name, enough), project="asr") == []
        assert held(plan, hard(scope, name, short), project="asr") == [f"{scope.value} {name}".strip()]
        assert held(plan, hard(scope, name, short, is_hard=False), project="asr") == []
    assert held(plan, hard(Scope.PROJECT, "tts", short), hard(Scope.TEAM, "blue", short), project="asr") == []


def test_the_lower_of_the_files_and_the_hard_budget_counts(plan: Plan) -> None:
    enough, short = cost(plan), Usd(cost(plan).nanos - 1)
    assert held(plan, hard(Scope.TEAM, "red", short), team=str(enough)) == ["team red"]
    assert held(plan, hard(Scope.TEAM, "red", enough), team=str(short)) == ["team red"]
    assert held(plan, hard(Scope.TEAM, "red", enough), team=str(enough)) == []


def test_what_was_metered_counts_towards_a_hard_budget(plan: Plan) -> None:
    room = cost(plan) + Usd.parse(100)
    spent = (metered("60", project="asr"), metered("41", NOW - HOUR, team="blue"))
    assert held(plan, hard(Scope.ALL, "", room), ledger=spent) == ["all"]
    assert held(plan, hard(Scope.PROJECT, "asr", room), ledger=spent, project="asr") == []


def test_what_the_ledger_says_was_spent_this_month_counts(plan: Plan) -> None:
    room = str(cost(plan) + Usd.parse(100))
    assert budgets(plan, team=room, ledger=(metered("60"), metered("40", NOW - HOUR))) == []
    assert len(budgets(plan, team=room, ledger=(metered("60"), metered("40.01", NOW - HOUR)))) == 1
    assert budgets(plan, team=room, ledger=(metered("500", team="blue"),)) == []
    earlier = metered("500", datetime(2026, 10, 31, 20, tzinfo=UTC))
    assert budgets(plan, team=room, ledger=(earlier,)) == []
    planned = metered("500", kind=LedgerEntryKind.PLANNED, attempt="", rank=None)
    assert budgets(plan, team=room, ledger=(planned,)) == []


def test_of_time_that_runs_over_the_end_of_a_month_this_months_part_counts(plan: Plan) -> None:
    over = metered("100", datetime(2026, 10, 31, 22, tzinfo=UTC), hours=10)  # 8 of 10 hours in November
    assert budgets(plan, team=str(cost(plan) + Usd.parse(80)), ledger=(over,)) == []
    assert len(budgets(plan, team=str(cost(plan) + Usd.parse("79.99")), ledger=(over,))) == 1
    october = datetime(2026, 10, 31, 23, tzinfo=UTC)
    assert budgets(plan, team=str(cost(plan) + Usd.parse(20)), ledger=(over,), now=october) == []
    december = metered("100", datetime(2026, 12, 31, 23, tzinfo=UTC), hours=2)
    assert len(budgets(plan, team=str(cost(plan)), ledger=(december,), now=december.start)) == 1


def test_what_the_limits_file_says_was_spent_counts_where_it_is_more(plan: Plan) -> None:
    room = str(cost(plan) + Usd.parse(100))
    assert budgets(plan, team=room, spent="100", ledger=(metered("90"),)) == []
    assert len(budgets(plan, team=room, spent="100.01", ledger=(metered("90"),))) == 1
    assert len(budgets(plan, team=room, spent="10", ledger=(metered("101"),))) == 1


def test_what_runs_counts_with_all_that_it_may_cost(plan: Plan) -> None:
    room = str(cost(plan) + Usd.parse(100))
    runs = attempt("x", team="red", phase=Phase.RUNNING, at_risk_usd=Usd.parse(100))
    assert budgets(plan, team=room, running=(runs,)) == []
    assert len(budgets(plan, team=room, running=(replace(runs, at_risk_usd=Usd.parse("100.01")),))) == 1
    assert budgets(plan, team=room, running=(replace(runs, team="blue", at_risk_usd=Usd.parse(999)),)) == []


def test_an_attempt_that_is_taken_up_again_counts_once(plan: Plan) -> None:
    """A command that was killed left it half made; the order that is carried out again is the same money."""
    order = orders_of(plan)[0]
    half = attempt(
        "x",
        team="red",
        phase=Phase.PROVISIONING,
        job=order.job,
        gang=order.gang,
        start=order.start,
        at_risk_usd=Usd.parse(1000),
    )
    assert budgets(plan, team=str(cost(plan)), running=(half,)) == []
    assert len(budgets(plan, team=str(cost(plan)), running=(replace(half, start=NOW - HOUR),))) == 1


def test_a_team_over_its_budget_stops_only_what_costs_it(plan: Plan) -> None:
    assert budgets(plan, team="1", orders=()) == []
    free = tuple(
        replace(order, lines=tuple(replace(line, cost_usd=Usd(0)) for line in order.lines)) for order in orders_of(plan)
    )
    assert budgets(plan, team="1", spent="2", orders=free) == []


def test_a_jobs_budget(plan: Plan) -> None:
    wanted = orders_of(plan)[0].expected_usd
    assert budgets(plan, job=str(wanted)) == []
    (first, second) = budgets(plan, job=str(Usd(wanted.nanos - 1)))
    assert first.startswith("a: the job would come to $")
    assert second.startswith("b: ")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    with bare_site(tmp_path) as site:
        yield site


def test_what_was_accepted_is_written_down_and_again_adds_to_the_audit_log_alone(
    site: ControllerContext, plan: Plan
) -> None:
    jobs = make_jobs()
    digest = plan_content(plan)["digest"]
    accepted = requests_of(plan, digest, orders_of(plan), jobs, BOOK, 3)
    specs = {job.digest: job_json(job) for job in jobs.values()}
    for _ in range(2):
        record_acceptance(site, accepted, plan_to_json(plan), "ada", "grace", specs, Limits.none())
    assert site.store.plans.plan(digest) == plan_to_json(plan)
    assert {name: parse_job(site.store.plans.job(job.digest) or "") for name, job in jobs.items()} == jobs
    entries = site.store.ledger.entries(kind=LedgerEntryKind.PLANNED)
    assert Usd.total(e.usd for e in entries) == plan.orders_usd
    log = site.store.audit.entries()
    assert [(line.who, line.what, line.digest, line.usd) for line in log] == [
        ("ada", "apply", digest, accepted.at_risk_usd)
    ] * 2
    assert log[0].details == {
        "gangs": 2,
        "expected_usd": str(accepted.expected_usd),
        "approved_by": "grace",
        "at_risk_by_team": {"red": str(accepted.at_risk_usd)},
        "secrets": {name: {"API_KEY": "secret:env:API_KEY"} for name in ("a", "b")},
    }
    verify_chain(log)


def test_the_hash_of_values_is_of_plain_ones_and_each_state_has_a_key_of_its_own(
    site: ControllerContext, tmp_path: Path
) -> None:
    def jobs(mode: str) -> list[Job]:
        return [a_job("a", run={**RUN, "env": {**RUN["env"], "MODE": mode}}), a_job("b")]

    first = hash_environments(site.store, jobs("train"))
    assert first == hash_environments(site.store, jobs("train")) != hash_environments(site.store, jobs("other"))
    assert hash_environments(site.store, make_jobs().values()) == ""
    (tmp_path / "another").mkdir()
    with bare_site(tmp_path / "another") as other:
        assert hash_environments(other.store, jobs("train")) != first


def test_without_limits_a_job_stays_in_the_clouds_that_were_shown_and_given_ones_are_kept(
    site: ControllerContext, plan: Plan
) -> None:
    digest = plan_content(plan)["digest"]
    accepted = requests_of(plan, digest, orders_of(plan), make_jobs(), BOOK, 3)

    def kept(limits: Limits) -> Limits:
        record_acceptance(site, accepted, plan_to_json(plan), "ada", "", {}, limits)
        return Limits.model_validate_json(limits_json(site.store, digest))

    shown = tuple(sorted({choice.cloud for request in accepted.requests for choice in request.choices}))
    assert kept(Limits.none()) == Limits.none().model_copy(update={"clouds": shown})
    given = Limits.model_validate({"clouds": [*shown, "sandbox"], "default_cap_machines": 7})
    assert kept(given) == given
    assert kept(Limits.none()) == given
