"""Tests of quotes on any database: each is kept once, found by team, and accepted once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from router.planning.document.plan_json import plan_content, plan_to_json
from router.state import plans
from router.state.quotes import QuoteRow
from router.state.store import StateStore
from tests.support.scenes import NORTH, a_job, plan_of
from tests.support.state_suite import StateSuite, together
from tests.support.state_values import NOW

HOUR = timedelta(hours=1)
ROW = QuoteRow("quote-aa11", "letters", "red", NOW, "ana@desk", '{"usd": "1.50"}', "name: lettres é\n")
PLAN = plan_of([a_job()], [NORTH])


class QuotesSuite(StateSuite):
    """Quotes, and the plans that are made of them."""

    def test_a_quote_stays_as_it_was(self, store: StateStore) -> None:
        store.quotes.put(ROW)
        store.quotes.accept(ROW.id, "{}")
        store.quotes.put(replace(ROW, text="another", document="another"))
        assert store.quotes.get(ROW.id) == replace(ROW, acceptance="{}")
        assert store.quotes.get("quote-bb22") is None

    def test_quotes_are_found_by_team_job_moment_and_beginning(self, store: StateStore) -> None:
        rows = [
            replace(ROW, id=f"quote-a{i}%_", job=f"job-{i % 2}", team=team, asked_at=NOW + i * HOUR)
            for i, team in enumerate(("red", "blue", "red", "green"))
        ]
        for row in rows:
            store.quotes.put(row)
        newest = tuple(reversed(rows))
        assert store.quotes.find() == newest
        assert store.quotes.find(("red", "green")) == (rows[3], rows[2], rows[0])
        assert store.quotes.find(()) == ()
        assert store.quotes.find(("red",), "job-0", NOW + HOUR) == (rows[0],)
        assert store.quotes.find(count=1) == (rows[3],)
        assert store.quotes.ids("quote-a") == tuple(row.id for row in rows)
        assert store.quotes.ids("quote-%") == ()

    def test_of_many_acceptances_one_is_taken(self, store: StateStore) -> None:
        store.quotes.put(ROW)
        taken: list[bool] = []
        together(6, lambda number: taken.append(store.quotes.accept(ROW.id, f'{{"who": {number}}}')))
        assert sorted(taken) == [False] * 5 + [True]
        assert store.quotes.accept(ROW.id, "{}", replaces=True)
        assert not store.quotes.accept("quote-none", "{}", replaces=True)
        found = store.quotes.get(ROW.id)
        assert found is not None
        assert found.acceptance == "{}"

    def test_a_plan_may_stand_under_several_names(self, store: StateStore) -> None:
        digest, made = plan_content(PLAN)["digest"], store.made_plans
        for number, name in enumerate(("quote", "night", "trial", "night")):
            made.put(digest, plan_to_json(PLAN), PLAN.as_of, NOW + number * HOUR, f"ana {number}", name)
        assert [(row.name, row.made_by) for row in made.newest()] == [
            ("night", "ana 3"),
            ("trial", "ana 2"),
            ("quote", "ana 0"),
        ]
        assert [row.digest for row in made.newest(name="night")] == [digest]
        assert made.newest(name="night", before=PLAN.as_of) == ()
        assert made.oldest() == dict.fromkeys(("night", "trial", "quote"), PLAN.as_of)
        assert made.digests(digest[:6], 2) == (digest,)
        found = made.row(digest)
        assert found is not None
        assert (found.name, made.text(digest)) == ("night", plan_to_json(PLAN))

    def test_plans_of_one_name_push_out_none_of_another(
        self, store: StateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(plans, "PLANS_KEPT", 2)
        text = plan_to_json(PLAN)
        store.made_plans.put("night", text, PLAN.as_of, NOW, "ana", "night")
        for number in range(3):
            store.made_plans.put(f"trial {number}", text, PLAN.as_of, NOW + number * HOUR, "ana", "trial")
        assert {row.digest for row in store.made_plans.newest()} == {"night", "trial 1", "trial 2"}
