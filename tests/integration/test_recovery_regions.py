"""A region goes down: the job goes on in the next one from a checkpoint that was copied there before its machines were
made, or, where it could not be copied, from the one that it reads across regions."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pricing.book_file import write_book
from pricing.egress import SAME_CONTINENT, Tariff, Tier
from pricing.money import UsdPerGb
from providers.sandbox.stock import StockFile
from router.prices.bookstore import BookStore
from router.state.records import Attempt, JournalEntry
from tests.support import slow_saver
from tests.support.busy import eventually
from tests.support.clouds import STEPFARE
from tests.support.deployed import NewSite, Running, Site, Template
from tests.support.deployed_checks import disagreements
from tests.support.recovered import (
    JOB,
    TIMEOUTS,
    attempts,
    journal,
    lasting,
    repeated,
    set_off,
    sped_up,
    stop,
    taken_back,
    until_finished,
)
from tests.support.repository import ROOT
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine
from tests.support.training import metrics

pytestmark = [needs_engine, pytest.mark.slow]

STEPS, LONGER, EVERY = 240, 900, 40
# A wish moves nobody in its first half hour, which passes in some seconds of life here.
SPEED, SETTLED_S, BOOK = 120, 16, "book.parquet"
EAST, WEST, TYPE = "sandbox-east", "sandbox-west", "h100.1x"
_PLACES = {"country": "US", "continent": "NA", "geo": "NA", "residency_group": "US", "city": "Springfield"}
TARIFF = Tariff("sandbox", SAME_CONTINENT, "any", "any", (Tier(0, None, UsdPerGb.parse("0.02")),), "a test", "", "")
_SAVER = shlex.join([sys.executable, str(ROOT / "tests" / "support" / "slow_saver.py")])


def command(steps: int) -> str:
    """The training. Each life has a disk of its own: what is not in a store is lost with it."""
    return (
        'disk="${STEPFARE_SANDBOX%/*}/disks/$STEPFARE_ATTEMPT"; '
        f'exec {STEPFARE} checkpoint run "$disk/checkpoints" -- {_SAVER} "$disk/checkpoints" {steps} {EVERY} 0 100 0'
    )


def _cloud() -> dict[str, Any]:
    """Two regions of one zone each; the east is cheaper."""

    def price(region: str, usd: str, **more: str) -> dict[str, Any]:
        return {"machine": TYPE, "region": region, "steps": [{"at": "0h", "usd": usd}], **more}

    return {
        "start": "2026-01-01T00:00:00Z",
        "regions": [{"name": region, **_PLACES, "zones": [f"{region}-a"]} for region in (EAST, WEST)],
        "machines": [
            {
                "type": TYPE,
                "accelerator": "H100",
                "accelerators": 1,
                "vcpus": 24,
                "memory_gib": 256,
                "fabric": "ethernet",
                "inter_node_gbps": 25,
            }
        ],
        "prices": [
            *(price(region, usd) for region, usd in ((EAST, "5.60"), (WEST, "5.80"))),
            *(price(r, usd, zone=f"{r}-a", market="spot") for r, usd in ((EAST, "2.10"), (WEST, "2.50"))),
        ],
    }


def planned(folder: Path, steps: int, **more: Any) -> Template:
    """A job of so many steps, planned; beside it a book that knows what moving bytes costs on a made-up cloud."""
    made = Template(folder, [lasting(JOB, command(steps), steps, slow_saver.STEP_S, 1, **more)], cloud=_cloud())
    books = BookStore(folder / "home" / "books").sandbox
    stored = books.latest()
    assert stored is not None
    book = books.load(stored)
    write_book(replace(book, tariffs=(*book.tariffs, TARIFF)), folder / BOOK)
    return made


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return planned(tmp_path_factory.mktemp("regions") / "planned", STEPS)


@pytest.fixture
def site(template: Template, new_site: NewSite) -> Site:
    return new_site(template)


def stores(site: Site) -> dict[str, Path]:
    return {region: site.folder / "stores" / region for region in (EAST, WEST)}


def begun(site: Site, book: Path, environment: Mapping[str, str] | None = None, **timeouts: str) -> Running:
    """Whoever watches; the job trains in the east and has saved something there."""
    regions = {region: {"checkpoint_url": f"file://{folder}"} for region, folder in stores(site).items()}
    site.deploy(timeouts={**TIMEOUTS, **timeouts}, clouds={"sandbox": {"regions": regions}})
    watcher = site.start("watch", "--book", book, environment=environment)
    eventually(lambda: "listening at" in watcher.err, 30, why="for a watcher")
    set_off(site, environment)
    eventually(lambda: any((stores(site)[EAST] / JOB).glob("*.manifest.json")), 60, why="for a checkpoint")
    return watcher


def done_by(site: Site, one: Attempt) -> list[dict[str, Any]]:
    """A line for each step of one life."""
    return metrics(site.folder / "disks" / one.id / "checkpoints")


def wrong(site: Site, seen_machines: SeenMachines, steps: int = STEPS) -> list[str]:
    """What is not as it has to be."""
    rows = [row for one in attempts(site) for row in done_by(site, one)]
    last = {row["step"]: row["loss"] for row in rows}
    found = [] if last.get(steps) == slow_saver.digest_after(steps) else ["another end"]
    if sorted(last) != list(range(1, steps + 1)):
        found.append(f"steps are missing: {len(last)}")
    return [*found, *repeated(site, steps, rows), *disagreements(site, seen_machines)]


def east_goes_down(site: Site) -> None:
    """Nothing is to be had there any more, and the machine is taken back, after a notice."""
    StockFile(site.folder / "cloud").close(EAST, None, "night")
    with taken_back(site, 0, 10):
        eventually(lambda: len(attempts(site)) == 2, 60, why="for a next place")
        eventually(lambda: bool(journal(site, "copied") + journal(site, "not copied")), 60, why="for the copy")


def _price(entry: JournalEntry) -> str:
    return str(TARIFF.cost_of(0, int(str(entry.details["bytes"])), 0))


def test_the_checkpoint_is_there_before_the_machines_are(site: Site, template: Template) -> None:
    with SeenMachines() as seen_machines:
        watcher = begun(site, template.folder / BOOK)
        east_goes_down(site)
        # Nobody can read there any more.
        stores(site)[EAST].rename(site.folder / "stores" / "gone")
        until_finished(site)
        stop(watcher)
        assert wrong(site, seen_machines) == []
    first, second = attempts(site)
    (copied,) = journal(site, "copied")
    assert (first.region, second.region) == (EAST, WEST)
    assert second.first_step == first.kept_step == copied.details["step"]
    assert second.first_manifest == str(stores(site)[WEST] / JOB / f"step-{second.first_step:08d}.manifest.json")
    assert (copied.details["from"], copied.details["to"]) == tuple(
        f"file://{stores(site)[r]}/{JOB}" for r in (EAST, WEST)
    )
    assert int(str(copied.details["bytes"])) > 0
    assert copied.details["usd"] == _price(copied)
    (began,) = [one for one in journal(site, "provisioning") if one.attempt == second.id]
    assert copied.seq < began.seq
    assert done_by(site, second)[0]["step"] == second.first_step + 1
    assert f"step {second.first_step} is in file://{stores(site)[WEST]}/{JOB}: " in watcher.err


def test_what_cannot_be_copied_in_time_is_read_across_regions(site: Site, template: Template) -> None:
    with SeenMachines() as seen_machines:
        watcher = begun(site, template.folder / BOOK, checkpoint_copy="0.001s")
        east_goes_down(site)
        until_finished(site)
        stop(watcher)
        assert wrong(site, seen_machines) == []
    first, second = attempts(site)
    (entry,) = journal(site, "not copied")
    assert journal(site, "copied") == []
    assert entry.details["why"]
    assert (second.region, second.first_step) == (WEST, first.kept_step)
    assert second.first_manifest.startswith(f"{stores(site)[EAST]}/{JOB}/")
    assert done_by(site, second)[0]["step"] == second.first_step + 1
    assert "not copied: " in watcher.err
    # From then on it is kept where the job is.
    assert any((stores(site)[WEST] / JOB).glob("*.manifest.json"))


def test_a_gang_that_takes_over_has_the_last_checkpoint_in_its_region(tmp_path: Path) -> None:
    """The old one trains on while the new one is made, saves once more when it is stopped, and that is what counts."""
    template = planned(tmp_path / "planned", LONGER, planned_s=SPEED * slow_saver.STEP_S)
    site = template.site(tmp_path / "site")
    fast = sped_up(site, SPEED)
    try:
        with SeenMachines() as seen_machines:
            watcher = begun(site, template.folder / BOOK, fast, quarantine="2h", shortage="2h")
            time.sleep(SETTLED_S)
            hinted = site.run("drill", "notice", JOB, "--rebalance", environment=fast)
            assert hinted.code == 0, hinted.said
            until_finished(site, 120)
            stop(watcher)
            assert wrong(site, seen_machines, LONGER) == []
        first, second = attempts(site)
        (copied,) = journal(site, "copied")
    finally:
        site.end()
    assert (first.reason, second.region, second.first_step) == ("moved", WEST, first.kept_step)
    assert second.first_manifest == str(stores(site)[WEST] / JOB / f"step-{second.first_step:08d}.manifest.json")
    assert copied.details["step"] == second.first_step
    assert done_by(site, second)[0]["step"] == second.first_step + 1
