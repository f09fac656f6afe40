"""Data that are to be near: whether they are copied, from where, at what price; who knows of a copy, and how long."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pricing.money import Usd
from pricing.places import RegionId
from router.agent.starters import gang_environment
from router.checkpoints.object_store import CheckpointStore, FolderStore, ListedFile, StorageError, StoreReader
from router.controller.context import ControllerContext, apply_lock
from router.controller.plans import Order, as_planned, with_known_copies
from router.controller.provision.checkpoint_transfer import CopyRoute, display_url
from router.controller.provision.data_transfer import (
    NoTransfer,
    attempts_using,
    copies_in_progress,
    data_location,
    plan_data_transfer,
    prepare_data,
)
from router.controller.provision.provision_order import ProvisionStatus, existing_result, is_abandoned
from router.controller.release.release import release
from router.controller.sweep import find_orphans
from router.controller.workspace.bootstrap import CoordinatorEndpoint
from router.controller.workspace.workspaces import _config
from router.deploy.cloud_settings import CloudDeploy
from router.deploy.deploy_settings import Deploy
from router.jobs.job_json import job_json
from router.jobs.spec import Job
from router.ledger.entry import GB, CostItem
from router.planning.find.transfers import transfers_into
from router.state.data_copies import DataCopy
from router.state.records import Attempt, Phase
from tests.support.bare_site import bare_site
from tests.support.busy import eventually
from tests.support.made_up_book import book
from tests.support.narrowed import present
from tests.support.scenes import NORTH, NOW, SOUTH, a_job
from tests.support.state_values import attempt, node

BOOK = book([NORTH, SOUTH])
CANARY = "canary-7d21"
URI = "s3://corpus/tokens"
STORE = f"s3://near/x?endpoint_override={CANARY}"
FILES = {"a": b"one", "deep/b": b"twenty-two" * 100_000}
SIZE = 1_000_003
THERE = RegionId("aws", "south-1")
USD = "0.00002"


def job(uri: str = URI, *, status: dict[str, Any] | None = None, **more: Any) -> Job:
    data = {"uri": uri, "at": "aws/north-1", "gib": 10, **more}
    known: dict[str, Any] = {} if status is None else {"status": status}
    return a_job("llama", data=data, run={"engine": "command", "command": "true"}, **known)


def deploy(url: str | None = STORE, **timeouts: str) -> Deploy:
    regions = {} if url is None else {"south-1": {"data_url": url}}
    return Deploy.model_validate({"clouds": {"aws": {"regions": regions}}, "timeouts": timeouts, "data_keep": "2d"})


class Scene:
    """A job whose data lie in the north, about to be made in the south; stores are folders, by bucket."""

    def __init__(self, site: ControllerContext, folder: Path, said: list[str]) -> None:
        self.site, self.said, self._folder = site, said, folder
        for name, content in FILES.items():
            file = folder / "corpus" / "tokens" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        self.new = self.attempt("a1")

    def attempt(self, name: str, **more: Any) -> Attempt:
        made = attempt(name, region="south-1", machines=1, directory=name, **more)
        self.site.store.attempts.add(made, [node(name)])
        return made

    def opens(self, url: str) -> CheckpointStore:
        return FolderStore(self._folder / url.partition("?")[0].removeprefix("s3://"))

    def prepare(
        self, job: Job, one: Attempt | None = None, opens: Callable[[str], CheckpointStore] | None = None
    ) -> None:
        prepare_data(self.site, BOOK, one or self.new, job, opens or self.opens)

    def known(self, uri: str = URI) -> DataCopy | None:
        return self.site.store.data_copies.get(uri, THERE)

    def noted(self, what: str, name: str = "a1") -> list[dict[str, object]]:
        return [dict(e.details) for e in self.site.store.journal.entries(name) if e.what == what]


@contextmanager
def scene(folder: Path, settings: Deploy | None = None) -> Iterator[Scene]:
    said: list[str] = []
    with bare_site(folder, said, deploy=settings or deploy()) as site:
        yield Scene(site, folder, said)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def test_the_name_of_a_copy_follows_from_its_uri_alone() -> None:
    entry = CloudDeploy.model_validate({"data_url": STORE})
    name = present(entry.data_store_of(URI))
    assert name.startswith("s3://near/x/tokens-")
    assert name.endswith(f"?endpoint_override={CANARY}")
    assert entry.data_store_of(URI) == name
    others = [
        entry.data_store_of(uri) for uri in ("s3://other/tokens", f"{URI}/", f"{URI}?region=x", "s3://b/tö kens%")
    ]
    assert len({name, *others}) == 5
    assert all(each is not None and each.count("/") == 4 for each in others)
    assert CloudDeploy().data_store_of(URI) is None


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (job(mode="stream"), ""),
        (job(at="aws/south-1"), ""),
        (a_job("llama"), ""),
        (job(status={"data_in": ["aws/south-1"]}), "the state knows no copy there"),
        (job("https://hub/x"), "no s3://"),
        (job("file:///etc"), "only buckets"),
        (job(f"s3://key:{CANARY}@corpus/tokens"), "holds credentials"),
    ],
)
def test_what_is_not_copied(one: Scene, job: Job, why: str) -> None:
    found = plan_data_transfer(one.site, one.new, job)
    assert isinstance(found, NoTransfer)
    assert why in found.why
    assert bool(found.why) == bool(why)
    one.prepare(job)
    assert (one.known(), len(one.said), len(one.noted("data not copied"))) == (None, bool(why), bool(why))
    assert one.site.store.ledger.entries() == ()
    assert CANARY not in json.dumps([one.said, one.noted("data not copied")])


def test_without_a_store_the_apply_says_what_the_plan_counted(tmp_path: Path) -> None:
    with scene(tmp_path, deploy(None)) as one:
        one.prepare(job())
        (said,) = one.said
        assert said.startswith(
            f"llama: data are read from {URI} in aws/north-1, not copied: the deploy file names no data_url"
        )
        assert "the plan's egress is that of one copy" in said
        assert data_location(one.site.store, job(), THERE) == URI


def test_data_are_copied_priced_recorded_and_said(one: Scene) -> None:
    one.prepare(job())
    found = plan_data_transfer(one.site, one.new, job())
    assert isinstance(found, CopyRoute)
    made = one.known()
    assert made == DataCopy(
        URI, "aws", "south-1", found.target, "research", SIZE, 2, NOW, NOW, one.new.end + timedelta(days=2)
    )
    folder = Path(one.opens(found.target).url) / "files"
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == FILES
    (note,) = one.noted("data copied")
    assert (note["bytes"], note["kept"], note["from"], note["usd"]) == (SIZE, 0, URI, USD)
    (egress,) = one.site.store.ledger.entries()
    assert (egress.what, egress.unit, egress.usd, egress.attempt) == (CostItem.EGRESS, GB, Usd.parse(USD), "a1")
    assert (egress.region, egress.quantity) == ("north-1", Fraction(SIZE, 10**9))
    assert one.said[0] == f"llama: copying 0.0 GB of data from {URI} to {found.target.partition('?')[0]}"
    assert one.said[-1].startswith(f"llama: data are in {found.target.partition('?')[0]}, 2 files: 1.0 MB in ")
    assert CANARY not in json.dumps([one.said, note, egress.reference])
    assert list(one.site.runs.with_name("copies").iterdir()) == []


def test_a_second_job_uses_the_copy_pays_nothing_and_keeps_it_longer(one: Scene) -> None:
    one.prepare(job())
    second = one.attempt("a2", job="other", team="speech", end=one.new.end + timedelta(days=1))
    one.prepare(job(), second)
    made = present(one.known())
    assert (made.team, made.until) == ("research", second.end + timedelta(days=2))
    assert one.noted("data copied", "a2")[0]["bytes"] == 0
    assert len(one.site.store.ledger.entries()) == 1
    assert one.said[-1].endswith("nothing had to be copied")
    location = data_location(one.site.store, job(), THERE)
    assert location.startswith("s3://near/x/tokens-")
    assert location.endswith(f"/files?endpoint_override={CANARY}")


def test_a_copy_is_found_where_it_is_whatever_the_deploy_file_says(one: Scene) -> None:
    one.prepare(job())
    made = present(one.known())
    elsewhere = replace(one.site, deploy=deploy("s3://another"))
    assert plan_data_transfer(elsewhere, one.new, job()) == CopyRoute(URI, made.url, RegionId("aws", "north-1"), THERE)
    # The plan that knew the copy wrote its region into the job.
    assert isinstance(plan_data_transfer(one.site, one.new, job(status={"data_in": ["aws/south-1"]})), CopyRoute)


def test_a_whole_copy_serves_when_its_source_is_gone(one: Scene, tmp_path: Path) -> None:
    one.prepare(job())
    (tmp_path / "corpus").rename(tmp_path / "gone")
    one.prepare(job(), one.attempt("a2"))
    assert "as they were copied: " in one.said[-1]
    assert data_location(one.site.store, job(), THERE) != URI


def test_what_fails_leaves_no_copy_that_counts(one: Scene, tmp_path: Path) -> None:
    (tmp_path / "near").write_text("no folder")
    one.prepare(job(), opens=lambda url: _Impatient(one.opens(url)))
    made = present(one.known())
    assert (made.made_at, one.site.store.data_copies.usable(NOW)) == (None, ())
    assert data_location(one.site.store, job(), THERE) == URI
    (note,) = one.noted("data not copied")
    assert "no folder" in str(note["why"]) or "Not a directory" in str(note["why"])
    assert one.said[-1].startswith(f"llama: data are read from {URI}, not copied: ")


class _Impatient(FolderStore):
    """One whose errors no second try mends."""

    def __init__(self, store: CheckpointStore) -> None:
        super().__init__(Path(store.url))

    def names(self) -> list[str]:
        raise StorageError("no folder")

    def files(self) -> list[ListedFile]:
        if self.path.parts[-2:] != ("corpus", "tokens"):
            return []
        return super().files()

    def read(self, path: str, max_bytes: int) -> bytes:
        raise FileNotFoundError(path)

    def create(self, path: str) -> Any:
        raise StorageError(f"{path}: no folder")


class _Hanging(FolderStore):
    """One that lists nothing before it may."""

    def __init__(self, path: Path, may: threading.Event) -> None:
        super().__init__(path)
        self._may = may

    def files(self) -> list[ListedFile]:
        self._may.wait(30)
        return super().files()


def test_a_copy_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    may = threading.Event()
    with scene(tmp_path, deploy(data_copy="0.1s")) as one:
        one.prepare(job(), opens=lambda url: _Hanging(Path(one.opens(url).url), may))
        assert one.noted("data not copied")[0]["why"] == "the time was over"
        may.set()


@pytest.mark.parametrize("how", ["stop", "released"])
def test_it_ends_when_nobody_wants_it_any_more(one: Scene, how: str) -> None:
    may = threading.Event()

    def opens(url: str) -> CheckpointStore:
        if how == "stop":
            one.site.stop.set()
        else:
            one.site.store.attempts.update("a1", lambda a: replace(a, phase=Phase.RELEASING))
        return _Hanging(Path(one.opens(url).url), may)

    one.prepare(job(), opens=opens)
    assert one.noted("data copied") == one.noted("data not copied") == []
    may.set()


def test_one_copy_is_made_at_a_time_and_waiting_ends_with_the_site(one: Scene) -> None:
    one.site.copying.acquire()
    one.site.stop.set()
    one.prepare(job())
    assert one.known() is None


def test_two_that_want_the_same_copy_make_it_once_and_nobody_takes_the_first_for_dead(
    one: Scene, tmp_path: Path
) -> None:
    """Two processes, as far as the state can tell: each with a lock and workers of its own."""
    lists, may = threading.Event(), threading.Event()

    class Slow(_Hanging):
        def files(self) -> list[ListedFile]:
            lists.set()
            return super().files()

    def slow(url: str) -> CheckpointStore:
        return Slow(Path(one.opens(url).url), may)

    heard: list[str] = []
    with bare_site(tmp_path, heard, deploy=deploy()) as other, ThreadPoolExecutor(2) as pool:
        workers = one.site.workers
        with workers.held(apply_lock(one.site), lambda: apply_lock(one.site)):
            first = workers.submit(pool, lambda: one.prepare(job(), opens=slow))
            assert lists.wait(60)
            # The lock is free, and who has it takes the attempt for no dead one.
            with apply_lock(other):
                planned = present(other.store.attempts.get("a1"))
                assert not is_abandoned(other, planned)
                order = Order(planned.job, planned.gang, planned.start, planned.end, ())
                found = present(existing_result(other, planned.plan, order, NOW))
                assert (found.result, found.attempt) == (ProvisionStatus.RUNS, planned)
                elsewhere = present(existing_result(other, "another plan", order, NOW))
                assert elsewhere.result is ProvisionStatus.ELSEWHERE
                assert find_orphans(other, (), {}).orphans == ()
            assert list(copies_in_progress(other.store, [_copy(url=STORE)], lambda: NOW)) == []
            second = one.attempt("a2", job="other")
            waits = pool.submit(prepare_data, other, BOOK, second, job(), one.opens)
            eventually(lambda: heard != [], 60, why="for who waits")
            assert heard[0].endswith(": waiting for it")
            assert f"process {os.getpid()} on" in heard[0]
            may.set()
            first.result(60)
            assert workers.holds_lock
        assert waits.result(60)
    assert [note["bytes"] for note in one.noted("data copied")] == [SIZE]
    assert [note["bytes"] for note in one.noted("data copied", "a2")] == [0]
    assert is_abandoned(one.site, one.new), "nobody prepares it any more"
    assert len(one.site.store.ledger.entries()) == 1


def test_who_is_stopped_while_another_has_the_lock_leaves_the_attempt_to_the_next(one: Scene, tmp_path: Path) -> None:
    lists, may = threading.Event(), threading.Event()

    class Slow(_Hanging):
        def files(self) -> list[ListedFile]:
            lists.set()
            return super().files()

    prepared = []
    with bare_site(tmp_path, [], deploy=deploy()) as other, ThreadPoolExecutor(1) as pool:
        workers = one.site.workers

        def prepare() -> None:
            stores = lambda url: Slow(Path(one.opens(url).url), may)  # noqa: E731
            prepared.append(prepare_data(one.site, BOOK, one.new, job(), stores))

        with workers.held(apply_lock(one.site), lambda: apply_lock(one.site)):
            worker = workers.submit(pool, prepare)
            assert lists.wait(60)
            with apply_lock(other):
                one.site.stop.set()
                worker.result(60)
                assert prepared == [False]
                may.set()
                left = present(other.store.attempts.get("a1"))
                assert is_abandoned(other, left)


def test_a_gang_that_is_released_while_its_data_are_copied_is_metered_to_the_byte(one: Scene) -> None:
    """As by `destroy` of another process: it notes what was moved by then, and who copies notes the rest."""
    meter = one.site.runs.with_name("copies") / "a1.json"

    class Late(FolderStore):
        """One whose small file is read once the large one is metered and the gang released."""

        @contextmanager
        def open(self, path: str) -> Iterator[StoreReader]:
            if path == "a":
                eventually(lambda: f'"bytes": {SIZE - 3}' in meter.read_text(), 60, why="for the large file")
                with apply_lock(one.site):
                    release(one.site, one.new, "stopped", "destroyed on request")
            with super().open(path) as reader:
                yield reader

    def opens(url: str) -> CheckpointStore:
        return Late(Path(one.opens(url).url)) if url == URI else one.opens(url)

    with ThreadPoolExecutor(1) as pool, one.site.workers.held(apply_lock(one.site), lambda: apply_lock(one.site)):
        one.site.workers.submit(pool, lambda: one.prepare(job(), opens=opens)).result(60)
    cut, *rest = one.noted("data not copied")
    ended = [*one.noted("data copied"), *rest]
    assert (cut["bytes"], cut["why"]) == (SIZE - 3, "the copy was interrupted")
    # A look whether it is still wanted may come before the last three bytes or after them.
    assert [note["bytes"] for note in ended] in ([3], [0])
    metered = sum(entry.quantity for entry in one.site.store.ledger.entries())
    assert metered == Fraction(sum(int(str(note["bytes"])) for note in (cut, *ended)), 10**9)
    assert list(one.site.runs.with_name("copies").glob("*.json")) == []


def test_what_a_killed_process_moved_is_metered_when_its_attempt_is_released(one: Scene) -> None:
    folder = one.site.runs.with_name("copies")
    folder.mkdir()
    details = {"from": URI, "to": "s3://near/x/t", "origin": "aws/north-1", "bytes": 7, "seconds": 1.5, "usd": "0.5"}
    (folder / "a1.json").write_text(json.dumps(details) + "   ")
    (folder / "a2.json").write_text('{"torn')
    for name in ("a1", "a2"):
        released = one.site.store.attempts.get(name) or one.attempt("a2")
        assert release(one.site, released, "crashed", "").phase is Phase.FAILED
    (egress,) = one.site.store.ledger.entries()
    assert (egress.attempt, egress.quantity, egress.usd) == ("a1", Fraction(7, 10**9), Usd.parse("0.5"))
    assert one.noted("data not copied")[0]["why"] == "the copy was interrupted"
    assert list(folder.iterdir()) == []


def test_a_copy_that_ended_is_metered_once(one: Scene) -> None:
    one.prepare(job())
    folder = one.site.runs.with_name("copies")
    (folder / "a1.json").write_text(json.dumps(one.noted("data copied")[0]))
    release(one.site, one.new, "crashed", "")
    assert len(one.site.store.ledger.entries()) == 1


def _copy(**more: Any) -> DataCopy:
    fields = {
        "uri": URI,
        "cloud": "aws",
        "region": "south-1",
        "url": "s3://near/t",
        "team": "red",
        "bytes": 1,
        "files": 1,
    }
    return DataCopy(**{**fields, "begun_at": NOW, "made_at": NOW, "until": NOW + timedelta(hours=1), **more})


def test_a_plan_finds_copies_in_data_in() -> None:
    known = with_known_copies(job(status={"data_in": ["aws/alps-1"]}), [_copy(), _copy(uri="s3://other", region="x")])
    assert known.status is not None
    assert known.status.data_in == (RegionId("aws", "alps-1"), THERE)
    south = present(BOOK.region(THERE))
    assert (transfers_into(job(), south, BOOK) != (), transfers_into(known, south, BOOK)) == (True, ())
    for same in (job(mode="stream"), a_job(), job(at="aws/south-1"), job(status={"data_in": ["aws/south-1"]})):
        assert with_known_copies(same, [_copy()]) is same


def test_a_job_file_is_the_planned_job_but_for_copies() -> None:
    planned = with_known_copies(job(), [_copy()])
    assert planned.digest != job().digest
    assert as_planned(job(), planned).digest == planned.digest
    assert as_planned(job(gib=11), planned) == job(gib=11)
    assert as_planned(job(), None) == as_planned(job(), job()) == job()


def test_copies_in_use_are_those_of_gangs_that_are_alive(one: Scene) -> None:
    one.site.store.plans.put_jobs({one.new.job_digest: job_json(job())}, NOW)
    elsewhere = _copy(region="alps-1")
    assert attempts_using(one.site.store, [_copy(), elsewhere, _copy(uri="s3://b")]) == {_copy(): one.new}
    release(one.site, one.new, "crashed", "")
    assert attempts_using(one.site.store, [_copy()]) == {}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://b/x?secret=1", "s3://b/x"),
        (f"s3://key:{CANARY}@b/x", "s3://b/x"),
        (f"abfs://container:{CANARY}@account/x@y", "abfs://container@account/x@y"),
        ("file:///a@b/c", "file:///a@b/c"),
        ("/a/b", "/a/b"),
    ],
)
def test_no_secret_of_a_url_is_shown(url: str, shown: str) -> None:
    assert display_url(url) == shown


def test_the_training_hears_where_its_data_are() -> None:
    run = present(job().run)
    home = CoordinatorEndpoint("http://127.0.0.1:1", "0" * 64)
    config = _config(attempt(), node(), run, Deploy(), home, "s3://near/t/files")
    assert gang_environment(config)["STEPFARE_DATA"] == "s3://near/t/files"
    assert "STEPFARE_DATA" not in gang_environment(replace(config, data=""))
