"""A checkpoint that is to be in the next region: whether, from where, at what price, within what time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pricing.money import Usd
from pricing.places import RegionId
from router.agent import protocol
from router.checkpoints.object_store import CheckpointStore, FolderStore, StorageError, StoreReader
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import AttemptHistory, ResumePoint, history_of
from router.controller.provision.checkpoint_transfer import (
    CheckpointTransfer,
    egress_usd,
    plan_transfer,
    prepare_resume_point,
    with_resume_point,
)
from router.controller.release.release import release
from router.controller.supervise.handover import hand_over
from router.coordinator.gang_session import blocking_attempt
from router.deploy.deploy_settings import Deploy
from router.jobs.limits import Limits
from router.ledger.entry import GB, CostItem
from router.state.records import Attempt, Phase
from tests.support.bare_site import bare_site
from tests.support.made_up_book import book
from tests.support.narrowed import present
from tests.support.repository import ROOT
from tests.support.scenes import NORTH, NOW
from tests.support.state_values import attempt, node
from tests.support.stored_checkpoints import newest, save

BOOK = book([NORTH])
SIZE = 3010  # of what `save` writes
JOB = "llama"


def deploy(regions: dict[str, str], copy: str = "15m", **more: Any) -> Deploy:
    """By region of a cloud: where its checkpoints are kept."""
    entries = {name: {"checkpoint_url": url} for name, url in regions.items()}
    return Deploy.model_validate(
        {"clouds": {"aws": {"regions": entries, **more}}, "timeouts": {"checkpoint_copy": copy}}
    )


def chain(*lives: tuple[str, int, str]) -> AttemptHistory:
    """Lives by region, each with its last step and manifest."""
    made = [attempt(f"a{n}", job=JOB, number=n, region=region) for n, (region, _, _) in enumerate(lives, 1)]
    return AttemptHistory(tuple(made), tuple(step for _, step, _ in lives), tuple(manifest for _, _, manifest in lives))


def following(region: str, cloud: str = "aws") -> Attempt:
    return attempt("next", job=JOB, cloud=cloud, region=region)


STORES = deploy({"north-1": "s3://north/x", "south-1": "s3://south/x?region=south-1", "alps-1": "file:///stores/alps"})
IN_NORTH = "s3://north/x/llama/step-00000040.manifest.json"


def test_what_lies_in_another_regions_store_is_carried() -> None:
    known = chain(("north-1", 40, IN_NORTH))
    north, south, alps = (RegionId("aws", name) for name in ("north-1", "south-1", "alps-1"))
    url = "s3://north/x/llama"
    assert plan_transfer(STORES, known, following("south-1")) == CheckpointTransfer(
        url, "s3://south/x/llama?region=south-1", north, south, 40
    )
    assert plan_transfer(STORES, known, following("alps-1")) == CheckpointTransfer(
        url, "file:///stores/alps/llama", north, alps, 40
    )
    from_a_folder = chain(("alps-1", 40, "/stores/alps/llama/step-00000040.manifest.json"))
    assert plan_transfer(STORES, from_a_folder, following("north-1")) == CheckpointTransfer(
        "file:///stores/alps/llama", url, alps, north, 40
    )


@pytest.mark.parametrize(
    ("manifest", "region"),
    [
        ("", "south-1"),  # nothing was saved
        (IN_NORTH, "north-1"),  # there already
        (IN_NORTH, "fjord-1"),  # a region without a store
        ("s3://mine/run-7/step-00000040.manifest.json", "south-1"),  # the training's own
        ("/mnt/bucket/step-00000040.manifest.json", "south-1"),
        ("s3://north/x/llama-2/step-00000040.manifest.json", "south-1"),  # another job's
    ],
)
def test_what_is_not_carried(manifest: str, region: str) -> None:
    assert plan_transfer(STORES, chain(("north-1", 40, manifest)), following(region)) is None


def test_what_was_copied_once_is_gone_on_from_there() -> None:
    """The newest copy of the last step counts, and its region is where planning finds the checkpoint."""
    copy = "s3://south/x/llama/step-00000040.manifest.json"
    known = chain(("north-1", 40, IN_NORTH), ("south-1", 40, copy), ("south-1", 40, copy))
    assert known.before == ResumePoint("a3", 40, copy)
    assert known.saved_by.id == "a2"
    assert plan_transfer(STORES, known, following("south-1")) is None
    found = present(plan_transfer(STORES, known, following("alps-1")))
    assert (found.source, found.origin) == ("s3://south/x/llama?region=south-1", RegionId("aws", "south-1"))


def test_egress_is_what_the_planner_counts() -> None:
    wanted = present(plan_transfer(STORES, chain(("north-1", 40, IN_NORTH)), following("south-1")))
    assert egress_usd(wanted, 3 * 10**9, BOOK, Limits.none()) == Usd.parse("0.06")
    abroad = replace(wanted, to=RegionId("gcp", "lake-1"))
    # The month's free gigabytes are not counted on; what was moved before decides the tier.
    assert egress_usd(abroad, 10**9, BOOK, Limits.none()) == Usd.parse("0.09")
    busy = Limits.model_validate({"egress_month_to_date_gb": {"aws": 400}})
    assert egress_usd(abroad, 10**9, BOOK, busy) == Usd.parse("0.05")
    assert egress_usd(replace(wanted, to=RegionId("aws", "nowhere")), 1, BOOK, Limits.none()) is None


class Scene:
    """A job that saved step 40 in the north, and is about to be made in the south; nothing is made of it."""

    def __init__(self, site: ControllerContext, folder: Path, said: list[str]) -> None:
        self.site, self.said = site, said
        self.north, self.south = (folder / name / JOB for name in ("north", "south"))
        save(self.north, 40)
        manifest = str(self.north / "step-00000040.manifest.json")
        self.old = attempt("a1", job=JOB, region="north-1", phase=Phase.FAILED, met_at=NOW, machines=1, reason="lost")
        site.store.attempts.add(self.old, [node("a1", saved_step=40, saved_manifest=manifest)])
        self.new = attempt(
            "a2", job=JOB, region="south-1", number=2, resumes="a1", first_step=40, first_manifest=manifest, machines=1
        )
        site.store.attempts.add(self.new, [node("a2")])

    def go(self, opens: Callable[[str], CheckpointStore] | None = None) -> ResumePoint:
        return prepare_resume_point(self.site, BOOK, self.new, history_of(self.site.store, self.new), opens)

    def noted(self, what: str) -> list[dict[str, object]]:
        return [dict(e.details) for e in self.site.store.journal.entries(self.new.id) if e.what == what]


@contextmanager
def scene(folder: Path, copy: str = "15m") -> Iterator[Scene]:
    said: list[str] = []
    stores = {f"{name}-1": f"file://{folder / name}" for name in ("north", "south")}
    with bare_site(folder, said, deploy=deploy(stores, copy)) as site:
        yield Scene(site, folder, said)


def test_it_is_copied_priced_and_said(tmp_path: Path) -> None:
    with scene(tmp_path) as one:
        before = one.go()
        assert before == ResumePoint("a2", 40, str(one.south / "step-00000040.manifest.json"))
        assert newest(one.south) == 40
        (entry,) = one.noted("copied")
        assert (entry["bytes"], entry["kept"], entry["step"], entry["usd"]) == (SIZE, 0, 40, "0.00000006")
        assert (entry["from"], entry["to"]) == (f"file://{one.north}", f"file://{one.south}")
        assert one.said[-1].startswith(f"llama: step 40 is in file://{one.south}: 0.0 MB in ")
        assert one.said[-1].endswith("egress $0.00000006")
        (egress,) = one.site.store.ledger.entries()
        assert (egress.what, egress.unit, egress.usd, egress.attempt) == (
            CostItem.EGRESS,
            GB,
            Usd.parse("0.00000006"),
            "a2",
        )
        assert (egress.region, egress.quantity) == ("north-1", Fraction(SIZE, 10**9))
        # Whoever is killed here comes again, and copies nothing twice.
        assert one.go() == before
        assert [entry["bytes"] for entry in one.noted("copied")] == [SIZE, 0]
        assert one.site.store.ledger.entries() == (egress,)
        one.site.store.attempts.update(one.new.id, partial(with_resume_point, before))
        assert history_of(one.site.store, one.new).before.manifest == before.manifest
        assert one.go() == before
        assert len(one.noted("copied")) == 2


def test_a_newer_one_that_nobody_confirmed_is_better_still_and_an_older_one_will_not_do(tmp_path: Path) -> None:
    with scene(tmp_path) as one:
        save(one.north, 30)
        save(one.north, 55)
        assert one.go().manifest == str(one.south / "step-00000055.manifest.json")
    with scene(tmp_path / "torn") as one:
        save(one.north, 30)
        next((one.north / "step-00000040").rglob("state")).write_bytes(b"x" * 3000)
        assert one.go().manifest == str(one.north / "step-00000040.manifest.json")
        assert newest(one.south) is None
        (entry,) = one.noted("not copied")
        assert str(entry["why"]).startswith("step 40: ")
        assert one.said[-1].startswith(f"llama: step 40 is read from file://{one.north}, not copied: step 40: ")


def test_a_store_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.checkpoints.transfer._PAUSES", (0.0, 0.0, 0.0))
    with scene(tmp_path) as one:
        one.south.parent.write_text("no folder")
        found = one.go()
        assert found == one.go()
        assert found.manifest == one.new.first_manifest
        assert "not copied: " in one.said[-1]


@pytest.mark.parametrize("trouble", [StorageError("no such bucket"), ImportError("no pyarrow"), KeyError("odd")])
def test_whatever_a_stores_client_does_the_job_goes_on(tmp_path: Path, trouble: Exception) -> None:
    with scene(tmp_path) as one:
        assert one.go(Mock(side_effect=trouble)).manifest == one.new.first_manifest
        (entry,) = one.noted("not copied")
        assert str(trouble) in str(entry["why"])


class Hanging(FolderStore):
    """One that answers nothing before it may."""

    def __init__(self, path: Path, may: threading.Event) -> None:
        super().__init__(path)
        self._may = may

    def names(self) -> list[str]:
        self._may.wait(30)
        return super().names()


def test_a_store_that_does_not_answer_keeps_nobody_for_longer_than_the_time(tmp_path: Path) -> None:
    may = threading.Event()
    with scene(tmp_path, "0.1s") as one:
        began = time.monotonic()
        assert one.go(lambda url: Hanging(Path(url.removeprefix("file://")), may)).manifest == one.new.first_manifest
        assert time.monotonic() - began < 10
        assert one.noted("not copied")[0]["why"] == "the time was over"
        may.set()


@pytest.mark.parametrize("how", ["stop", "released"])
def test_it_ends_at_once_when_nobody_wants_it_any_more(tmp_path: Path, how: str) -> None:
    may = threading.Event()
    with scene(tmp_path) as one:

        def opens(url: str) -> CheckpointStore:
            if how == "stop":
                one.site.stop.set()
            else:
                one.site.store.attempts.update(one.new.id, lambda a: replace(a, phase=Phase.RELEASING))
            return Hanging(Path(url.removeprefix("file://")), may)

        began = time.monotonic()
        assert one.go(opens).manifest == one.new.first_manifest
        assert time.monotonic() - began < 10
        assert one.noted("copied") == one.noted("not copied") == []
        may.set()


class Cut(FolderStore):
    """One that gives so many bytes, then says so and gives no more before it may."""

    def __init__(self, path: Path, count: int, gave: threading.Event, may: threading.Event) -> None:
        super().__init__(path)
        self._count, self._gave, self._may = count, gave, may

    @contextmanager
    def open(self, path: str) -> Iterator[StoreReader]:
        with super().open(path) as reader:
            yield CutReader(reader, self)

    def pass_on(self, count: int) -> None:
        if self._count <= 0:
            self._gave.set()
            self._may.wait(60)
        self._count -= count


@dataclass
class CutReader:
    """The reader of such a store."""

    reader: StoreReader
    store: Cut

    def read_at(self, count: int, offset: int) -> bytes:
        self.store.pass_on(count)
        return self.reader.read_at(count, offset)


def test_what_a_copy_moved_that_was_cut_short_is_metered(tmp_path: Path) -> None:
    """As by a stop, after some of the files; the note of a process that was killed stands in the same place."""
    gave, may = threading.Event(), threading.Event()
    with scene(tmp_path) as one:
        cut = Cut(one.north, 1, gave, may)
        whole = [file.stat().st_size for file in (one.north).rglob("*") if file.is_file()]

        def stop() -> None:
            assert gave.wait(60)
            one.site.stop.set()

        stopping = threading.Thread(target=stop)
        stopping.start()
        one.go(lambda url: cut if url.endswith(f"north/{JOB}") else FolderStore(one.south))
        stopping.join()
        may.set()
        assert one.noted("copied") == one.noted("not copied") == []
        one.site.stop.clear()
        assert release(one.site, one.new, "crashed", "").phase is Phase.FAILED
        (note,) = one.noted("not copied")
        assert (note["step"], note["why"]) == (40, "the copy was interrupted")
        assert 0 < int(str(note["bytes"])) < sum(whole)
        (egress,) = one.site.store.ledger.entries()
        assert (egress.what, egress.quantity) == (CostItem.EGRESS, Fraction(int(str(note["bytes"])), 10**9))


def test_what_an_attempt_goes_on_from_never_becomes_less() -> None:
    one = attempt(first_step=50, first_manifest="/m/50", phase=Phase.PROVISIONING)
    assert with_resume_point(ResumePoint("a1", 40, "/m/40"), one) is None
    assert with_resume_point(ResumePoint("a1", 60, "/m/60"), one) == replace(one, first_step=60, first_manifest="/m/60")
    assert with_resume_point(ResumePoint("a1", 60, "/m/60"), replace(one, phase=Phase.RELEASING)) is None


def test_a_gang_that_takes_over_waits_for_the_last_checkpoint(tmp_path: Path) -> None:
    """The old one saves once more when it is stopped. Until that is copied, nobody tells the new one to begin."""
    with scene(tmp_path) as one:
        site = one.site
        site.store.attempts.update("a1", lambda a: replace(a, phase=Phase.MIGRATING, reason="moved"))
        site.store.attempts.update("a2", lambda a: replace(a, phase=Phase.PROVISIONING, met_at=NOW))
        save(one.north, 60)
        saved = str(one.north / "step-00000060.manifest.json")
        site.store.journal.note(
            "a1", "saved", NOW, rank=0, id="move-a2", saved_step=60, saved_manifest=saved, seconds=1.0
        )
        site.store.attempts.set_node("a1", 0, saved_step=60, saved_manifest=saved, ended_reason=protocol.STOPPED)
        old, new = (site.store.attempts.get(name) for name in ("a1", "a2"))
        assert old is not None
        assert new is not None
        assert blocking_attempt(site.store, new) == "a1"
        hand_over(site, old, new, "moved", "cheaper", BOOK)
        after = present(site.store.attempts.get("a2"))
        assert (after.first_step, after.first_manifest) == (60, str(one.south / "step-00000060.manifest.json"))
        assert blocking_attempt(site.store, new) == "a1", "whoever was told less still waits"
        assert blocking_attempt(site.store, after) == ""


def test_watching_needs_no_client_of_any_store() -> None:
    code = "import sys, router.controller.supervise.supervisor; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


class InPlace:
    """A job that claims step 40 in the north, and is to go on there: nothing has to be copied."""

    def __init__(self, site: ControllerContext, folder: Path, said: list[str]) -> None:
        self.site, self.said, self.store = site, said, folder / "north" / JOB
        manifest = str(self.store / "step-00000040.manifest.json")
        old = attempt("a1", job=JOB, region="north-1", phase=Phase.FAILED, met_at=NOW, machines=1, reason="lost")
        site.store.attempts.add(replace(old, kept_step=40), [node("a1", saved_step=40, saved_manifest=manifest)])
        new = attempt(
            "a2", job=JOB, region="north-1", number=2, resumes="a1", first_step=40, first_manifest=manifest, machines=1
        )
        site.store.attempts.add(new, [node("a2")])

    def go(self, opens: Callable[[str], CheckpointStore] | None = None) -> tuple[int, str]:
        mine = present(self.site.store.attempts.get("a2"))
        before = prepare_resume_point(self.site, BOOK, mine, history_of(self.site.store, mine), opens)
        after = self.site.store.attempts.update("a2", lambda one: with_resume_point(before, one))
        assert (after.first_step, after.first_manifest) == (before.step, before.manifest)
        return before.step, before.manifest

    def noted(self) -> list[tuple[str, dict[str, object]]]:
        return [(e.what, dict(e.details)) for e in self.site.store.journal.entries("a2")]

    def in_the_way(self) -> str:
        mine = present(self.site.store.attempts.get("a2"))
        return blocking_attempt(self.site.store, mine)


@pytest.fixture
def in_place(tmp_path: Path) -> Iterator[InPlace]:
    said: list[str] = []
    stores = deploy({"north-1": f"file://{tmp_path}/north", "south-1": f"file://{tmp_path}/south"})
    with bare_site(tmp_path, said, deploy=stores) as site:
        yield InPlace(site, tmp_path, said)


def test_a_checkpoint_that_is_whole_is_gone_on_from(in_place: InPlace) -> None:
    save(in_place.store, 30)
    save(in_place.store, 40)
    assert in_place.go() == (40, str(in_place.store / "step-00000040.manifest.json"))
    assert (in_place.noted(), in_place.in_the_way()) == ([], "")


@pytest.mark.parametrize("harm", ["never there", "a file is gone", "no manifest"])
def test_a_checkpoint_that_was_only_claimed_counts_nowhere(in_place: InPlace, harm: str) -> None:
    """Machines would cost money for a step that nobody can go on from."""
    save(in_place.store, 20)
    save(in_place.store, 30)
    if harm != "never there":
        save(in_place.store, 40)
    if harm == "a file is gone":
        for file in (in_place.store / "step-00000040").rglob("*"):
            if file.is_file():
                file.unlink()
    if harm == "no manifest":
        (in_place.store / "step-00000040.manifest.json").write_text("root:x:0:0")
    good = str(in_place.store / "step-00000030.manifest.json")
    assert in_place.go() == (30, good)
    assert in_place.noted() == [("checkpoint not whole", {"step": 40, "instead": 30})]
    assert "resuming after step 30" in in_place.said[-1]
    # The gang is let go, and whoever comes after it hears the same.
    assert in_place.in_the_way() == ""
    assert in_place.go() == (30, good)


def test_where_nothing_is_whole_it_begins_anew(in_place: InPlace) -> None:
    for _ in range(2):
        assert in_place.go() == (0, "")
        assert in_place.in_the_way() == ""


def test_a_store_that_cannot_be_read_leaves_the_claim(in_place: InPlace) -> None:
    assert in_place.go(Mock(side_effect=OSError("no way")))[0] == 40
    assert in_place.noted() == [("checkpoint not confirmed", {"step": 40, "why": "OSError"})]
