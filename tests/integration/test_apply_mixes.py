"""A gang of two machine types on the sandbox: planned, made, watched, paid for, and placed again."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from router.ledger.entry import LedgerEntryKind
from router.state.records import Phase
from tests.support.deployed import REGION, SANDBOX, TYPE, ZONE_A, NewSite, Site, Template, job
from tests.support.deployed_checks import disagreements
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine

pytestmark = needs_engine

OTHER = "h100m.1x"


def cloud() -> dict[str, Any]:
    """A zone with two spot machines of one type and two of another, which costs more."""
    spot = {"region": REGION, "zone": ZONE_A, "market": "spot"}
    prices = [
        {"machine": kind, **spot, "steps": [{"at": "0h", "usd": usd}]}
        for kind, usd in ((TYPE, "2.10"), (OTHER, "2.30"))
    ]
    stock = [{"machine": kind, **spot, "steps": [{"at": "0h", "machines": 2}]} for kind in (TYPE, OTHER)]
    machines = [{**SANDBOX["machines"][0], "type": kind} for kind in (TYPE, OTHER)]
    return {**SANDBOX, "machines": machines, "prices": prices, "stock": stock}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    # Nothing is sold on demand there, so that the job has to be as sure as it asks on spot alone.
    calm: dict[str, Any] = {"gang": {"accelerators": "H100:3", "mixed": True}, "interruptions": {"per_hour": 0.05}}
    return Template(tmp_path_factory.mktemp("mixes") / "planned", [job("walk", machines=3, **calm)], cloud=cloud())


@pytest.fixture
def site(template: Template, new_site: NewSite) -> Site:
    return new_site(template)


def types(site: Site, attempt: str) -> Counter[str]:
    """How many machines of each type an attempt has in the state."""
    with site.store() as store:
        return Counter(node.instance_type for node in store.attempts.nodes(attempt))


@pytest.mark.slow
def test_a_gang_of_two_types_is_made_whole_and_paid_by_type(site: Site) -> None:
    shown = site.run("plan", "show", site.plan)
    assert f"walk: one gang of 2x {TYPE} + 1x {OTHER}" in shown.said
    with SeenMachines() as seen_machines:
        ran = site.apply("-o", "json")
        assert ran.code == 0, ran.err
        (gang,) = ran.json["gangs"]
        assert (gang["result"], gang["machines"]) == ("ready", 3)
        assert types(site, gang["attempt"]) == {TYPE: 2, OTHER: 1}
        wide = site.run("status", "-o", "wide").out
        assert all(kind in wide for kind in (TYPE, OTHER))
        assert disagreements(site, seen_machines) == []
        assert site.run("destroy", "--all", "--yes").code == 0
        assert disagreements(site, seen_machines) == []
    with site.store() as store:
        metered = [e for e in store.ledger.entries(kind=LedgerEntryKind.METERED) if e.rank is not None]
    assert sorted({(entry.rank, entry.instance_type, str(entry.usd_per_hour)) for entry in metered}) == [
        (0, OTHER, "2.30"),
        (1, TYPE, "2.10"),
        (2, TYPE, "2.10"),
    ]
    report = site.run("showback", "--month", f"{datetime.now(UTC):%Y-%m}", "--by", "instance_type")
    assert all(kind in report.out for kind in (TYPE, OTHER)), report.said


def test_a_type_that_is_short_releases_the_whole_gang(site: Site) -> None:
    site.stock(f"{REGION} {ZONE_A} {OTHER} spot 0")
    ran = site.apply("-o", "json")
    assert ran.code == 5
    assert f"no {OTHER} spot left in {ZONE_A}" in ran.said
    with site.store() as store:
        (attempt,) = store.attempts.find()
        assert (attempt.phase, attempt.reason) == (Phase.FAILED, "short")
    assert disagreements(site) == []
