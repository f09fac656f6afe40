"""A gang whose rows of attempts or machines cannot be read is settled like any other, and no message quotes a row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pricing.money import UsdPerHour
from pricing.places import Market
from providers.fleet import FleetListing
from router.controller.context import ControllerContext
from router.controller.release.damaged_rows import mend_gang
from router.controller.release.release import release
from router.controller.sweep import find_orphans, release_orphans
from router.ledger.entry import CostItem
from router.state.errors import UnreadableError
from router.state.records import Attempt, NodeRecord, Phase
from router.state.tables import ATTEMPTS, NODES
from tests.support.bare_site import bare_site
from tests.support.narrowed import present
from tests.support.state_values import NOW, attempt, node

MINUTE = timedelta(minutes=1)
END = NOW + 70 * MINUTE
CANARY = "canary-5d11"
BROKEN = f"CAST(x'{CANARY.encode().hex()}ff' AS TEXT)"
# Whoever damages a key has made another row of it.
ATTEMPT_COLUMNS = sorted(column.name for column in ATTEMPTS.columns if column.name != "id")
NODE_COLUMNS = sorted(column.name for column in NODES.columns if not column.primary_key)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def site(tmp_path: Path, told: list[str]) -> Iterator[ControllerContext]:
    """Two gangs of two machines that have run for an hour and ten minutes; b1's run directory and plan are there."""
    with bare_site(tmp_path, told, clock=lambda: END) as site:
        lived: dict[str, Any] = {"made_at": NOW, "heard_at": END, "machine_id": "i-1"}
        for name in ("a1", "b1"):
            one = attempt(name, job=name[0], phase=Phase.RUNNING, made_at=NOW, directory=name)
            site.store.attempts.add(one, (node(name, 0, **lived), node(name, 1, **lived)))
            site.store.journal.note(name, "provisioning", NOW)
        b1 = present(site.store.attempts.get("b1"))
        line = {"job": "b", "gang": b1.gang, "cloud": b1.cloud, "region": b1.region, "market": "spot"}
        site.store.plans.put_plan(b1.plan, json.dumps({"as_of": NOW.isoformat(), "lines": [line], "jobs": []}), NOW)
        folder = site.directory("b1")
        folder.mkdir(parents=True)
        tags = {"stepfare_plan": b1.plan[:12], "stepfare_job": "b", "team": b1.team}
        (folder / "terraform.tfvars.json").write_text(json.dumps({"region": b1.region, "tags": tags, "nodes": []}))
        yield site


def spoil(tmp_path: Path, table: str, column: str, where: str) -> None:
    with sqlite3.connect(tmp_path / "state.db") as connection:
        statement = f'UPDATE {table} SET "{column}" = {BROKEN} WHERE {where}'
        assert connection.execute(statement).rowcount == 1


def settle(site: ControllerContext, name: str) -> Attempt:
    return release(site, mend_gang(site, name), "stopped", "")


def metered(site: ControllerContext, name: str) -> set[tuple[int | None, int]]:
    found: dict[int | None, int] = {}
    for each in site.store.ledger.entries(attempt=name):
        if each.what is CostItem.MACHINE:
            found[each.rank] = found.get(each.rank, 0) + (each.end - each.start) // MINUTE
    return set(found.items())


@pytest.mark.parametrize("column", ATTEMPT_COLUMNS)
def test_an_attempt_with_any_unreadable_column_is_settled(
    site: ControllerContext, tmp_path: Path, told: list[str], column: str
) -> None:
    spoil(tmp_path, "attempts", column, "id = 'b1'")
    gone = settle(site, "b1")
    assert (gone.phase, gone.job, gone.cloud) == (Phase.FAILED, "b", "aws")
    assert metered(site, "b1") == {(0, 70), (1, 70)}
    (said,) = (text for text in told if "cannot be read" in text)
    assert said.startswith(f"b: attempts b1: the database holds what cannot be read of it ({_field(column)}); ")
    assert "`stepfare state restore`" in said
    assert CANARY not in f"{told}{site.store.journal.entries()}{site.store.ledger.entries()}"
    assert site.store.ledger.verify().problems == ()
    assert find_orphans(site, [], {}).gaps == ()
    assert settle(site, "a1").phase is Phase.FAILED


@pytest.mark.parametrize("column", NODE_COLUMNS)
def test_a_gang_with_any_unreadable_column_of_a_machine_is_settled(
    site: ControllerContext, tmp_path: Path, told: list[str], column: str
) -> None:
    spoil(tmp_path, "nodes", column, "attempt = 'b1' AND rank = 1")
    one = present(site.store.attempts.get("b1"))
    assert release(site, one, "stopped", "").phase is Phase.FAILED
    assert metered(site, "b1") == {(0, 70), (1, 70)}
    entries = [each for each in site.store.ledger.entries(attempt="b1") if each.what is CostItem.MACHINE]
    assert {(each.market, each.accelerator, each.usd_per_hour) for each in entries} == {
        (Market.SPOT, "H100", node("b1", 0).usd_per_hour)
    }
    (said,) = (text for text in told if "cannot be read" in text)
    assert said.startswith(f"b: nodes b1 1: the database holds what cannot be read of it ({_field(column)}); ")
    assert CANARY not in f"{told}{site.store.journal.entries()}{site.store.ledger.entries()}"


def _field(column: str) -> str:
    return {"start_at": "start", "end_at": "end"}.get(column, column.removesuffix("_nanos"))


def test_a_gang_with_all_but_its_keys_unreadable_is_settled_by_directory_and_plan(
    site: ControllerContext, tmp_path: Path, told: list[str]
) -> None:
    for column in ATTEMPT_COLUMNS:
        if column != "plan":
            spoil(tmp_path, "attempts", column, "id = 'b1'")
    gone = settle(site, "b1")
    assert (gone.phase, gone.job, gone.team, gone.region) == (Phase.FAILED, "b", "research", "us-east-1")
    assert gone.usd_per_hour == UsdPerHour(2 * node("b1", 0).usd_per_hour.nanos)
    assert metered(site, "b1") == {(0, 70), (1, 70)}


def test_without_a_place_only_a_backup_helps(site: ControllerContext, tmp_path: Path) -> None:
    spoil(tmp_path, "attempts", "cloud", "id = 'a1'")
    spoil(tmp_path, "attempts", "plan", "id = 'a1'")
    with pytest.raises(UnreadableError, match=r"^attempts a1: ") as refused:
        mend_gang(site, "a1")
    assert "`stepfare state restore`" in refused.value.remedy
    assert site.store.attempts.salvage("a1")[0].unreadable == ("plan", "cloud")


def test_what_was_settled_before_its_row_broke_is_over(site: ControllerContext, tmp_path: Path) -> None:
    one = present(site.store.attempts.get("b1"))
    release(site, one, "stopped", "")
    before = site.store.ledger.entries()
    spoil(tmp_path, "attempts", "phase", "id = 'b1'")
    assert settle(site, "b1").phase is Phase.FAILED
    assert site.store.ledger.entries() == before


def test_a_sweep_goes_on_beside_a_machine_that_cannot_be_read(site: ControllerContext, tmp_path: Path) -> None:
    """It names what settles the gang, and releases one that is half done."""
    spoil(tmp_path, "nodes", "market", "attempt = 'b1' AND rank = 0")
    spoil(tmp_path, "nodes", "market", "attempt = 'a1' AND rank = 1")
    half = present(site.store.attempts.get("a1"))
    site.store.attempts.change(half, phase=Phase.PROVISIONING)
    with_cloud = find_orphans(_asked(site), ["aws"], {})
    (gap,) = with_cloud.gaps
    assert gap.startswith("nodes b1 0: the database holds what cannot be read of it (`stepfare destroy b1` settles it")
    assert "`stepfare state restore`" in gap
    assert [orphan.attempt for orphan in with_cloud.orphans] == ["a1"]
    assert [trouble for _, trouble in release_orphans(site, with_cloud.orphans)] == [""]
    assert metered(site, "a1") == {(0, 70), (1, 70)}
    one = present(site.store.attempts.get("b1"))
    release(site, one, "stopped", "")
    assert find_orphans(_asked(site), ["aws"], {}).gaps == ()


@pytest.mark.parametrize("spec", [BROKEN, '\'{"policy": "canary-5d11\''], ids=["no text", "cut off"])
def test_a_sweep_settles_a_half_made_gang_whose_job_cannot_be_read(
    site: ControllerContext, tmp_path: Path, told: list[str], spec: str
) -> None:
    half = present(site.store.attempts.get("a1"))
    site.store.plans.put_jobs({half.job_digest: "{}"}, NOW)
    site.store.attempts.change(half, phase=Phase.PROVISIONING)
    with sqlite3.connect(tmp_path / "state.db") as connection:
        assert connection.execute(f"UPDATE jobs SET spec = {spec}").rowcount == 1
    swept = find_orphans(_asked(site), ["aws"], {})
    assert [orphan.attempt for orphan in swept.orphans] == ["a1"]
    assert [trouble for _, trouble in release_orphans(site, swept.orphans)] == [""]
    assert metered(site, "a1") == {(0, 70), (1, 70)}
    (said,) = (text for text in told if "cannot be read" in text)
    assert "a1 is metered by what else is known of it" in said
    assert "`stepfare state restore`" in said
    assert CANARY not in f"{told}{site.store.journal.entries()}{site.store.ledger.entries()}"


def _asked(site: ControllerContext) -> ControllerContext:

    class Fleet:
        cloud = "aws"

        def found(self, regions: object) -> FleetListing:
            return FleetListing(())

        def zones_that_sell(self, region: str, instance_types: object) -> None:
            raise AssertionError

        def release(self, resources: object) -> tuple[None, ...]:
            raise AssertionError

    return replace(site, fleet=lambda _: Fleet())


def test_machines_are_alike(site: ControllerContext) -> None:
    """Columns that another machine of the gang tells are those that all of them share."""
    machines: tuple[NodeRecord, ...] = site.store.attempts.nodes("b1")
    assert len({(each.market, each.accelerator, each.usd_per_hour) for each in machines}) == 1
