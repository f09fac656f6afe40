"""People hear of plans: that one was made, what it leaves out, that it waits for an approval; each once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pricing.money import Usd
from router.app.queries.approvals import approve_plan
from router.app.queries.context import QueryContext
from router.app.queries.plan_news import find_plan_news
from router.app.settings import AppSettings
from router.controller.accept.accept import APPLY
from router.controller.accept.approval import ApprovalRules
from router.controller.history.events import EventLevel
from router.controller.report.notify import NEWS_WINDOW, Notifier, open_channels
from router.deploy.deploy_settings import Deploy
from router.deploy.notify_settings import EventKind
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_to_json
from router.prices.cloud_settings import Clouds, LoadedClouds
from router.state.store import StateStore
from tests.support.console import OPERATOR
from tests.support.coordinations import Clock
from tests.support.listeners import webhook
from tests.support.new_state import open_state
from tests.support.scenes import NORTH, a_job, plan_of

PLAN = plan_of([a_job("trains"), a_job("waits", deadline="+1h")], [NORTH])
DIGEST = plan_content(PLAN)["digest"]
NAME = f"plan-{DIGEST[:12]}"
NOW = PLAN.as_of
RULES = ApprovalRules.model_validate({"approvers": [{"name": "ana"}]})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with open_state(tmp_path / "state.db", NOW) as store:
        yield store


def put(store: StateStore, name: str, plan: Plan = PLAN) -> None:
    store.made_plans.put(plan_content(plan)["digest"], plan_to_json(plan), plan.as_of, NOW, "carl@desk", name)


def found(store: StateStore, rules: ApprovalRules | None = None, after: timedelta = timedelta(0)) -> set[EventKind]:
    return {event.what for event in find_plan_news(store, rules, NOW + after)}


def test_a_night_is_told_with_what_it_costs_and_leaves_out(store: StateStore) -> None:
    put(store, "night")
    made, out = find_plan_news(store, None, NOW)
    assert made.text == (
        f"night ({NAME}) is made for {NOW:%Y-%m-%d %H:%M} UTC: 1 of 2 jobs placed for ${PLAN.cost_usd.dollars():,.2f}, "
        f"orders ${PLAN.orders_usd.dollars():,.2f}"
    )
    assert (out.level, out.text) == (
        EventLevel.WARNING,
        f"night ({NAME}) leaves out 1 job: waits; see `stepfare explain`",
    )


def test_trials_and_what_was_made_long_ago_are_no_news(store: StateStore) -> None:
    put(store, "trial")
    assert found(store, RULES) == set()
    put(store, "night")
    assert found(store, RULES) == {EventKind.PLAN, EventKind.LEFT_OUT, EventKind.APPROVAL}
    assert found(store, RULES, 2 * NEWS_WINDOW) == set()


def test_who_accepts_a_quote_hears_only_that_its_plan_waits(store: StateStore) -> None:
    put(store, "quote")
    assert (found(store), found(store, RULES)) == (set(), {EventKind.APPROVAL})


def test_a_plan_waits_until_it_is_approved_applied_or_over(store: StateStore) -> None:
    put(store, "night")
    waits = next(event for event in find_plan_news(store, RULES, NOW) if event.what is EventKind.APPROVAL)
    assert "is at risk, which somebody must approve, and nobody did" in waits.text
    assert waits.text.endswith(f"`stepfare plan approve {NAME}`")
    cheap = RULES.model_copy(update={"no_approval_up_to": Usd.parse("100000")})
    assert EventKind.APPROVAL not in found(store, cheap)
    assert EventKind.APPROVAL not in found(store, RULES, PLAN.expires_at - NOW + timedelta(seconds=1))
    settings = AppSettings(Deploy(), LoadedClouds(Clouds(), {}), Path(), {})
    approve_plan(
        QueryContext(settings, store, lambda: NOW, OPERATOR), RULES, PLAN, DIGEST, name="ana", login="ana", note=""
    )
    assert EventKind.APPROVAL not in found(store, RULES)


def test_what_was_applied_waits_for_nobody(store: StateStore) -> None:
    put(store, "night")
    store.audit.add("carl", APPLY, DIGEST, Usd(0), NOW)
    assert EventKind.APPROVAL not in found(store, RULES)


def test_channels_hear_of_it_once(store: StateStore) -> None:
    put(store, "night")
    clock = Clock(NOW)
    with webhook() as hook:
        for _ in range(2):
            to, wanted = open_channels([hook.url]), [EventKind.PLAN, EventKind.APPROVAL]
            notifier = Notifier(
                store,
                to,
                wanted,
                clock,
                print,
                ticks=clock.ticks,
                find_more=lambda now: find_plan_news(store, RULES, now),
            )
            for _ in range(2):
                notifier.look()
                notifier.send()
    (message,) = hook.came
    assert message["title"] == "stepfare: night: 2 events"
    assert message["message"].count(NAME) == 3
