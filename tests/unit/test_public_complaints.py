"""What people complained about in public threads of other tools, each as a test. Those about reports, their
formats and sharing are with these; #1751, #2769, #1645 and #1670 of metering are in test_running_stretches.py too."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.controller.accept.accept import budget_refusals
from router.controller.accept.guardrails import CostLimits, RefusalReason, current_prices, find_refusals
from router.controller.history.metering import disk_entries, metered_entries
from router.controller.plans import orders_of
from router.controller.workspace.placement_options import placements_of
from router.jobs.limits import Limits
from router.ledger.entry import CostItem, LedgerEntry
from router.planning.find.listings import listings_by_accelerator
from router.render.showback_page import page
from router.showback.focus.charge_files import write_csv
from router.showback.focus.survey import check_file
from router.showback.focus_from_ledger import ClosedBooks, UnpricedEntries, charges_of_entries
from router.state.store import StateStore
from tests.support.asked_quotes import a_quote
from tests.support.command import plan as plan_command
from tests.support.command import run, write_job
from tests.support.golden_charges import golden_charges, of_job
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits, simple_job
from tests.support.metered_month import ACCOUNTS, OCTOBER, START, month
from tests.support.new_state import open_state
from tests.support.scenes import NOW, a_job, plan_of
from tests.support.showback_reports import cost, exact_rows, report_of_rows, short_forms
from tests.support.state_values import HOUR, attempt, entry, node

SPOT = offer("aws/north-1", "p9.48xlarge", "spot", "0.98")
HERE = offer("aws/north-1", "p9.48xlarge", "on_demand", "1.20")
YEAR = timedelta(days=365)


def charged(entries: list[LedgerEntry]) -> list[Any]:
    return list(charges_of_entries(entries, ACCOUNTS, ClosedBooks(closed=OCTOBER)))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def store(home: Path) -> Iterator[StateStore]:
    with open_state(home / "state.db", NOW) as opened:
        yield opened


class TestSkyPilot:
    def test_1751_a_launch_that_never_got_capacity_costs_what_was_billed(self) -> None:
        """It showed as 880 dollars of cost: "now" less the moment of the request."""
        refused = node(rank=0, market=Market.SPOT)
        lonely = node(rank=1, made_at=START, gone_at=START + HOUR / 10, usd_per_hour=UsdPerHour.parse("20"))
        found = charged(list(metered_entries(attempt(), [refused, lonely], START + YEAR)))
        assert [(one.x_waste_kind, one.billed_cost) for one in found] == [("failed_launch", 2)]

    def test_2769_1645_what_was_stopped_costs_nothing_more(self) -> None:
        gone = node(made_at=START, gone_at=START + HOUR)
        runs = node(rank=1, made_at=START)
        at = [charged(list(metered_entries(attempt(), [gone, runs], START + days * YEAR))) for days in (1, 9)]
        assert at[0] == at[1]
        assert {one.charge_period_end for one in at[0]} == {START + HOUR}

    def test_1644_the_disk_of_a_machine_that_did_nothing_is_not_missing(self) -> None:
        """It is there with its size and time, and what it cost is said to be unknown."""
        failed = node(made_at=START, gone_at=START + 2 * HOUR)
        (disk,) = disk_entries(attempt(), [failed], 500, START + YEAR)
        assert (disk.what, disk.unpriced, disk.quantity == 1000) == (CostItem.DISK, True, True)
        left = UnpricedEntries()
        assert list(charges_of_entries([disk], ACCOUNTS, unpriced=left)) == []
        assert left.quantities == {(CostItem.DISK, "GiB-Hours"): 1000}

    def test_1670_1669_a_spot_job_costs_the_sum_of_its_attempts_and_each_is_seen(self) -> None:
        by_attempt: dict[str | None, Decimal] = defaultdict(Decimal)
        for one in charged(month()):
            if one.x_job_id == "whisper" and one.service_category == "Compute":
                by_attempt[one.x_attempt] += one.billed_cost
        assert by_attempt == {"spot": 384, "later": 162, "late": 24}

    def test_2312_a_quote_shows_the_price_of_the_jobs_machines(self) -> None:
        """It showed 0.38 dollars an hour, the controller's, for a job of 12.8 an hour."""
        job = simple_job("a", ("H100", 32), steps=300, steps_per_hour=100)
        quote = a_quote(job, 24, [offer("aws/north-1", "p9.48xlarge", "on_demand", "3.20")])
        (place,) = quote.places
        assert (place.accelerators, place.usd_per_hour) == (32, Usd.parse("12.80"))
        assert quote.usd.p50 is not None
        assert quote.usd.p50.dollars() == pytest.approx(3 * 12.80, rel=0.1)

    def test_6680_what_nobody_knows_is_never_printed_as_0(self, home: Path, store: StateStore) -> None:
        """On-premises clusters showed as $0.00."""
        disk = entry("d", what=CostItem.DISK, use=None, unit="GiB-Hours", usd=Usd(0), usd_per_hour=None, unpriced=True)
        store.ledger.add([disk])
        listed = run("ledger", "list")
        assert "not known" in listed.stdout
        assert "$0.00" not in listed.stdout
        (row,) = json.loads(run("ledger", "list", "-o", "json").stdout)["entries"]
        assert row["unpriced"] is True
        periods = run("ledger", "periods")
        assert "not known" in periods.stdout
        assert "1 entry without a price, in no sum" in periods.stderr
        exported = run("ledger", "export", home / "all.csv")
        assert "0 charges" in exported.stderr
        assert "nobody knows its price: disk" in exported.stderr

    def test_6681_without_a_filter_everybodys_cost_is_shown(self, store: StateStore) -> None:
        store.ledger.add([entry(f"k{team}", team=team, attempt=f"of {team}") for team in ("blue", "red", "green")])
        rows = json.loads(run("ledger", "list", "-o", "json").stdout)["entries"]
        assert [row["team"] for row in rows] == ["blue", "red", "green"]
        mine = json.loads(run("ledger", "list", "--team", "red", "-o", "json").stdout)["entries"]
        assert [row["team"] for row in mine] == ["red"]

    def test_4503_cost_is_asked_for_like_jobs_are(self, store: StateStore) -> None:
        """By job and by attempt, as rows with every field, for programs."""
        store.ledger.add(month()[:5])
        rows = json.loads(run("ledger", "list", "--job", "whisper", "-o", "json").stdout)
        assert (rows["schema_version"], len(rows["entries"])) == (1, 5)
        row = rows["entries"][1]
        wanted = {
            "job": "whisper",
            "attempt": "spot",
            "rank": 0,
            "use": "work",
            "usd": "144.00",
            "resource": "i-spot-0",
        }
        assert {name: row[name] for name in wanted} == wanted
        assert sum((one.usd for one in store.ledger.entries(attempt="spot")), Usd(0)) == Usd.parse("204")


class TestDstack:
    """1886: a user said yes to 0.98 an hour, got a machine of 1.52, and was still shown 0.98."""

    def test_1886_a_price_above_what_was_agreed_is_refused_at_launch(self) -> None:
        plan = plan_of([a_job()], [SPOT])
        orders = orders_of(plan)
        (most,) = {order.ceiling for order in orders}
        assert UsdPerHour.parse("0.98") <= most < UsdPerHour.parse("1.52")
        dearer = book([replace(SPOT, usd_per_hour=UsdPerHour.parse("1.52"))])
        prices = current_prices(orders, dearer, Limits.none())
        found = find_refusals(plan, prices, CostLimits(), plan.as_of, at_risk=orders[0].at_risk_usd, book=dearer)
        assert {refusal.cause for refusal in found} == {RefusalReason.PRICE}
        assert "costs $1.52 an hour now, above the plan's ceiling" in found[0].what

    def test_1886_no_next_place_costs_more_than_was_shown(self) -> None:
        job = a_job()
        plan = plan_of([job], [SPOT, HERE])
        order = orders_of(plan)[0]
        now = [replace(each, usd_per_hour=UsdPerHour.parse("1.52")) for each in (SPOT, HERE)]
        places = placements_of(order, plan, job, listings_by_accelerator(book(now), Limits.none()), 9)
        assert [choice.rank for choice in places] == [0]  # the plan's own, which is re-checked above
        assert all(seat.max_usd_per_hour <= UsdPerHour.parse("1.52") for seat in places[0].seats)

    def test_1886_what_is_metered_is_the_price_of_that_machine(self) -> None:
        """Each machine carries its own price from the moment it is chosen, not the plan's."""
        machine = node(made_at=START, gone_at=START + HOUR, usd_per_hour=UsdPerHour.parse("1.52"))
        (charge,) = charged(list(metered_entries(attempt(usd_per_hour=UsdPerHour.parse("0.98")), [machine], START)))
        assert (charge.billed_cost, charge.contracted_unit_price) == (Decimal("1.52"),) * 2

    def test_2571_tables_are_narrow(self, tmp_path: Path) -> None:
        """80 columns, whatever the names: machines as one word, spot beside the price."""
        offers = run("offers", "--book", "embedded", "--accelerator", "H100", "--limit", "40")
        assert (offers.exit_code, max(map(len, offers.stdout.splitlines())) <= 80) == (0, True)
        assert "8xH100" in offers.stdout
        write_job(tmp_path, f"{'a-long-name-' * 4}job")
        planned = plan_command(tmp_path, "--book", "embedded")
        assert (planned.exit_code, max(map(len, planned.stdout.splitlines())) <= 80) == (0, True)


class TestInfracost:
    def test_463_1727_the_budget_is_looked_at_before_money_is_spent(self) -> None:
        """The estimate itself counts, on top of what was spent and what runs."""
        job = a_job(run={"command": "train"})
        plan = plan_of([job], [HERE])
        orders = orders_of(plan)
        expected = Usd.total(order.expected_usd for order in orders)
        spent = entry(team=job.team, start=NOW, end=NOW + HOUR, usd=Usd.parse("10"))
        for room, refused in ((expected + Usd.parse("10"), False), (expected + Usd.parse("9.99"), True)):
            limits = make_limits({"teams": [{"team": job.team, "budget": f"${room}"}]})
            found = budget_refusals(orders, plan, {job.name: job}, limits, [spent], [], NOW)
            assert [refusal.cause for refusal in found] == ([RefusalReason.BUDGET] if refused else [])


class TestTokens:
    """FOCUS 1941, 2018, 2488: billing by the token, and what a token of one's own training costs."""

    def test_1022_how_busy_accelerators_were_is_not_measured_and_no_zero(self) -> None:
        """A cost beside a utilisation of 0 % reads as waste."""
        report = report_of_rows([cost("50", hours=Decimal(1), gpu_hours=Decimal(8), use="work", team="red")])
        texts = {**short_forms(report), "html": page(report)}
        for form, text in texts.items():
            assert "not measured" in text, form
        for sections in exact_rows(report).values():
            head = {row["name"]: row for row in dict(sections)["head"]}
            assert head["utilisation"]["value"] == "not measured"

    def test_1941_a_charge_by_the_token_keeps_every_rule(self, tmp_path: Path) -> None:
        bought = [one for one in golden_charges() if one.pricing_unit == "1000 Tokens"]
        made = [one for one in of_job(golden_charges(), "rank") if one.x_useful_unit == "Tokens"]
        assert bought[0] in made
        assert len(made) > 1
        write_csv(tmp_path / "tokens.csv", made)
        assert check_file(tmp_path / "tokens.csv").counts == {}

    def test_2018_which_model_it_was_is_told_by_its_sku(self) -> None:
        (bought,) = [one for one in golden_charges() if one.pricing_unit == "1000 Tokens"]
        assert (bought.sku_id, bought.service_subcategory) == ("model-1", "Generative AI")

    def test_2488_a_million_tokens_have_a_cost(self) -> None:
        made = [one for one in of_job(golden_charges(), "rank") if one.pricing_category == "Dynamic"]
        tokens = sum((one.x_useful_units or Decimal(0) for one in made), Decimal(0))
        assert sum(one.effective_cost for one in made) / tokens * 10**6 == 25


class TestTerraform:
    def test_23542_a_difference_is_no_failure(self, tmp_path: Path) -> None:
        """Exit code 2 for "there are changes" broke every pipeline that stops at what is not 0."""
        write_job(tmp_path / "jobs", "a")
        (tmp_path / "limits.yaml").write_text("clouds: [gcp]\n", encoding="utf-8")
        first, other = tmp_path / "first.json", tmp_path / "other.json"
        assert plan_command(tmp_path / "jobs", "--book", "embedded", "--out", first).exit_code == 0
        limits = ("--limits", tmp_path / "limits.yaml")
        assert plan_command(tmp_path / "jobs", "--book", "embedded", *limits, "--out", other).exit_code == 0
        moved = run("plan", "diff", first, other)
        assert (moved.exit_code, "1 changed" in moved.stdout) == (0, True)
