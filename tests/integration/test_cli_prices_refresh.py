"""`stepfare prices refresh` as users meet it: no network, a killed process, a full disk, two at once, Ctrl-C, undo."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing.book import PriceBook
from pricing.book_file import embedded_book, write_book
from pricing.history import PricePoint
from pricing.places import Market
from pricing.pool_experience import ExperienceKind
from pricing.problems import InvalidInputError
from providers.protocol import FetchResult
from router.prices import history
from router.prices.bookstore import BookStore
from router.prices.merge import GateLimits
from router.prices.refresh import import_book
from router.prices.refresh_record import read_records
from tests.support import neocloud_service
from tests.support.busy import in_time
from tests.support.clouds import ENDPOINTS, STEPFARE, clouds_file, command, environment, everything_written
from tests.support.command import write_job
from tests.support.console import console_client, query_context
from tests.support.repository import ROOT
from tests.support.service import closed_port, in_thread

LATER = "2026-11-22T18:00:00Z"


def latest(home: Path, *, sandbox: bool = False) -> PriceBook | None:
    store = BookStore(home / "books")
    store = store.sandbox if sandbox else store
    stored = store.latest()
    return None if stored is None else store.load(stored)


@pytest.fixture(scope="module")
def sandbox_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the book of one refresh of the sandbox."""
    home = tmp_path_factory.mktemp("sandbox")
    done = command(home, "prices", "refresh", "--cloud", "sandbox", "--now", "2026-11-21T18:00:00Z")
    assert done.code == 0, done.err
    return home


@pytest.fixture
def home(sandbox_home: Path, tmp_path: Path) -> Path:
    shutil.copytree(sandbox_home, tmp_path / "home")
    return tmp_path / "home"


def test_without_account_and_network_it_ends_soon_and_plans_go_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    nowhere = f"http://127.0.0.1:{closed_port()}"
    file = clouds_file(home, dict.fromkeys(ENDPOINTS, nowhere))
    begin = time.monotonic()
    done = command(home, "prices", "refresh", "--clouds", file, account=False)
    assert in_time(begin, 30)
    assert done.code == 5
    for cloud in ENDPOINTS:
        assert f"{cloud} (" in done.out
    assert done.out.count("failed: ") >= len(ENDPOINTS)
    assert "nothing was stored: the book of before stays" in done.out
    assert latest(home) is None
    records = read_records(BookStore(home / "books"))
    assert {records[cloud].status for cloud in ENDPOINTS} == {"failed"}
    assert all(records[cloud].failures for cloud in ENDPOINTS)
    job = write_job(tmp_path / "jobs", "one")
    planned = command(home, "plan", job, "-o", "json", "--now", "2026-11-21T18:00:00Z", account=False)
    assert planned.code == 0, planned.err
    assert "as_of" in planned.out
    shown = command(home, "plan", job, "--now", "2027-11-21T18:00:00Z", account=False)
    assert shown.code == 0
    assert "2026-11-21, 365 days old" in shown.out


def test_a_refresh_becomes_the_latest_book_of_its_cloud_and_history(sandbox_home: Path) -> None:
    record = read_records(BookStore(sandbox_home / "books"))["sandbox"]
    assert (record.status, record.failed) == ("fresh", 0)
    offers = command(sandbox_home, "offers", "--book", "sandbox", "-o", "json")
    assert {offer["cloud"] for offer in offers.json["offers"]} == {"sandbox"}
    assert all(offer["as_of"] == "2026-11-21" for offer in offers.json["offers"])
    history = command(sandbox_home, "prices", "history", "--cloud", "sandbox", "--now", LATER, "-o", "json")
    assert history.code == 0
    assert "sandbox" in history.out


def test_the_history_of_the_sandbox_is_found_by_accelerator(home: Path) -> None:
    book = latest(home, sandbox=True)
    assert book is not None
    types = {machine.instance_type: machine.accelerator for machine in book.machines}
    known = {machine.instance_type for machine in embedded_book().machines}
    accelerator = next(types[offer.instance_type] for offer in book.offers if offer.instance_type not in known)
    asked = ("prices", "history", "--accelerator", accelerator, "--now", LATER, "-o", "json")
    found = command(home, *asked).json["series"]
    assert found
    assert {types[each["instance_type"]] for each in found} == {accelerator}
    with query_context(home, clock=lambda: datetime.fromisoformat(LATER)) as context:
        client = console_client(context)
        shown = client.get(f"/prices/history?accelerator={accelerator}", headers={"Accept": "text/html"}).text
        assert "No price of" not in shown
        assert "sandbox/" in shown
        told = client.get(f"/api/v1/prices/history?accelerator={accelerator}").json()["series"]
    assert [each["instance_type"] for each in told] == [each["instance_type"] for each in found]
    # A book that is named is asked alone.
    assert command(home, *asked, "--book", "embedded").json["series"] == []


def test_what_the_history_shows_of_interruptions_becomes_a_record_of_the_book(home: Path) -> None:
    first = latest(home, sandbox=True)
    assert first is not None
    offer = next(offer for offer in first.offers if offer.market is Market.SPOT)
    begin = datetime(2026, 11, 21, 0, tzinfo=UTC)
    place = (offer.cloud, offer.region, offer.zone, offer.instance_type, offer.market)
    looks = [
        PricePoint(*place, begin + timedelta(minutes=15 * n), "probes", available=0.0 if n in (8, 20) else 1.0)
        for n in range(40)
    ]
    history.append(home / "history", looks)
    assert command(home, "prices", "refresh", "--cloud", "sandbox", "--now", "2026-11-21T19:00:00Z").code == 0
    book = latest(home, sandbox=True)
    assert book is not None
    (record,) = book.records
    assert (record.concerns(offer), record.kind, record.runs) == (True, ExperienceKind.AVAILABILITY, 3)
    assert 0 < record.interruptions < 2, "they are older than now"
    assert {offer.interruptions_per_hour for offer in book.offers} == {o.interruptions_per_hour for o in first.offers}
    assert command(home, "prices", "refresh", "--cloud", "sandbox", "--now", LATER).code == 0
    later = latest(home, sandbox=True)
    assert later is not None
    assert [each.key for each in later.records] == [record.key]
    assert later.records[0].hours < record.hours, "a day has passed, and nobody looked"


def test_the_older_book_can_be_had_back(home: Path) -> None:
    first = latest(home, sandbox=True)
    assert first is not None
    assert command(home, "prices", "refresh", "--cloud", "sandbox", "--now", LATER).code == 0
    listed = command(home, "prices", "list", "-o", "json").json["books"]
    assert [book["latest"] for book in listed] == [True, False]
    diff = command(home, "prices", "diff", first.digest[:12], "sandbox", "-o", "json").json
    assert diff["before"]["digest"] == first.digest
    assert command(home, "prices", "use", first.digest[:12]).code == 0
    assert latest(home, sandbox=True) == first


def test_a_book_named_by_its_digest_is_that_book_for_ever(home: Path) -> None:
    first = latest(home, sandbox=True)
    assert first is not None
    command(home, "prices", "refresh", "--cloud", "sandbox", "--now", LATER)
    shown = command(home, "offers", "--book", first.digest[:16], "-o", "json").json
    assert shown["book"]["digest"] == first.digest


@pytest.mark.parametrize("delay", [0.3, 0.9, *(pytest.param(late, marks=pytest.mark.slow) for late in (0.6, 1.2))])
def test_killed_at_any_moment_the_book_is_whole(home: Path, delay: float) -> None:
    first = latest(home, sandbox=True)
    words = [str(STEPFARE), "prices", "refresh", "--cloud", "sandbox", "--now", LATER]
    process = subprocess.Popen(words, env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(delay)
    process.kill()
    process.wait(10)
    found = latest(home, sandbox=True)
    assert found == first or (found is not None and found.as_of.isoformat().startswith("2026-11-22"))
    assert command(home, "prices", "refresh", "--cloud", "sandbox", "--now", "2026-11-23T18:00:00Z").code == 0


def _small_files_only() -> None:
    """As a full disk: a file may have 20 kB. Python turns the signal into an error."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def _run(home: Path, before: Callable[[], None]) -> subprocess.CompletedProcess[str]:
    words = [str(STEPFARE), "prices", "refresh", "--cloud", "sandbox", "--now", LATER]
    # Python would leave half of a compiled module behind, at which every later process fails.
    env = {**environment(home), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(words, env=env, preexec_fn=before, capture_output=True, text=True, check=False)


def test_a_full_disk_is_said_and_leaves_the_older_book(home: Path) -> None:
    first = latest(home, sandbox=True)
    done = _run(home, _small_files_only)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert latest(home, sandbox=True) == first


def test_ctrl_c_leaves_the_older_book(home: Path) -> None:
    first = latest(home, sandbox=True)
    script = home / "slow.yaml"
    example = (ROOT / "examples/pool/sandbox.yaml").read_text(encoding="utf-8")
    script.write_text(example.replace("latency_s: 0\n", "latency_s: 30\n"))
    file = clouds_file(home, {}, sandbox={"file": "slow.yaml"})
    words = [str(STEPFARE), "prices", "refresh", "--clouds", str(file), "--cloud", "sandbox", "--now", LATER]
    process = subprocess.Popen(words, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert in_time(begin, 10)
    assert "interrupted" in err
    assert latest(home, sandbox=True) == first


def test_two_at_once_both_count(home: Path) -> None:
    """Each merges into what the other stored: one reads the hosts of one's own, one imports rows of AWS."""
    offers = command(home, "offers", "--cloud", "aws", "--book", "embedded", "-o", "csv", "--limit", "3").out
    lines = offers.splitlines()
    header = lines[0].split(",")
    file = home / "mine.csv"
    file.write_text(offers.replace(lines[1].split(",")[header.index("source")], "mine"))
    env = environment(home)
    pool = str(ROOT / "examples/pool/clouds.yaml")
    words = (
        ["refresh", "--clouds", pool, "--cloud", "static", "--now", LATER],
        ["import", str(file), "--now", LATER, "--accept-jumps"],
    )
    both = [
        subprocess.Popen([str(STEPFARE), "prices", *each], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for each in words
    ]
    ends = [(*process.communicate(timeout=60), process.returncode) for process in both]
    assert [code for _, _, code in ends] == [0, 0], ends
    book = latest(home)
    assert book is not None
    assert any(offer.source == "mine" for offer in book.offers)
    assert any(offer.cloud == "static" for offer in book.offers)


def test_a_whole_book_or_none(home: Path, tmp_path: Path) -> None:
    first = latest(home, sandbox=True)
    file = clouds_file(tmp_path, {"azure": f"http://127.0.0.1:{closed_port()}"})
    words = ("prices", "refresh", "--clouds", file, "--cloud", "sandbox", "--cloud", "azure", "--now", LATER)
    assert command(home, *words, "--whole").code == 5
    assert (latest(home, sandbox=True), latest(home)) == (first, None)
    done = command(home, *words, "-o", "json")
    assert done.code == 5
    assert [(book["name"], book["stored"] is None) for book in done.json["books"]] == [
        ("latest", True),
        ("sandbox", False),
    ]
    found = latest(home, sandbox=True)
    assert found is not None
    assert found != first
    assert latest(home) is None


def test_older_offers_of_a_cloud_that_does_not_answer_are_marked(home: Path, tmp_path: Path) -> None:
    file = clouds_file(
        tmp_path, {"azure": f"http://127.0.0.1:{closed_port()}"}, static={"file": str(ROOT / "examples/pool/pool.yaml")}
    )
    words = ("prices", "refresh", "--clouds", file, "--cloud", "static", "--cloud", "azure", "--now", LATER)
    assert command(home, *words).code == 5
    found = latest(home)
    assert found is not None
    assert all("not refreshed since 2026-11-21" in offer.weak for offer in found.offers if offer.cloud == "azure")


def test_prices_of_the_made_up_cloud_stay_out_of_the_book_of_real_clouds(home: Path) -> None:
    assert latest(home) is None
    real, made_up = (command(home, "offers", "--cloud", "sandbox", *b) for b in ((), ("--book", "sandbox")))
    assert (real.code, made_up.code) == (2, 0)
    alone = latest(home, sandbox=True)
    assert alone is not None
    assert {offer.cloud for offer in alone.offers} == {"sandbox"}
    pool = ROOT / "examples/pool/clouds.yaml"
    done = command(home, "prices", "refresh", "--clouds", pool, "--cloud", "static", "--now", LATER)
    assert done.code == 0, done.out
    stored = latest(home)
    assert stored is not None
    assert {offer.cloud for offer in stored.offers} == {o.cloud for o in embedded_book().offers} | {"static"}
    assert "sandbox" not in {m.cloud for m in stored.machines} | {r.id.cloud for r in stored.regions}


def test_offers_of_the_made_up_cloud_are_not_imported(home: Path) -> None:
    alone = latest(home, sandbox=True)
    assert alone is not None
    found = {"sandbox": FetchResult(offers=alone.offers), "aws": FetchResult(offers=embedded_book().offers[:3])}
    with pytest.raises(InvalidInputError, match="prices of sandbox, a simulated cloud"):
        import_book(found, BookStore(home / "books"), alone.as_of, GateLimits(), replacing=False)
    assert latest(home) is None


def test_without_prices_of_the_sandbox_its_book_is_refused(tmp_path: Path) -> None:
    done = command(tmp_path / "home", "offers", "--book", "sandbox")
    assert (done.code, "prices refresh --cloud sandbox" in done.err) == (2, True)


def test_a_plan_that_mixes_made_up_and_real_clouds_says_so(home: Path, tmp_path: Path) -> None:
    alone = latest(home, sandbox=True)
    assert alone is not None
    book = tmp_path / "mixed.parquet"
    write_book(replace(alone, offers=(*embedded_book().offers, *alone.offers)), book)
    jobs = tmp_path / "jobs"
    write_job(jobs, "real", more="residency: {allow: [aws]}\n")
    write_job(jobs, "toy", more="residency: {allow: [sandbox]}\n")
    words = ("plan", jobs, "--book", book, "--now", LATER)
    shown, told = command(home, *words), command(home, *words, "-o", "json")
    assert (shown.code, told.code) == (0, 0), shown.err
    assert "mixes a made-up cloud (sandbox) with real ones" in shown.out
    notes = {job["job"]: [n for n in job["notes"] if "is made up" in n] for job in told.json["jobs"]}
    assert (len(notes["toy"]), notes["real"]) == (1, [])
    only = command(home, "plan", jobs / "real.yaml", "--book", book, "--now", LATER)
    assert "made-up" not in only.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("clouds: {awz: {}}", "did you mean aws?"),
        ("clouds: {aws: {region: us-east-1}}", "did you mean regions?"),
        ("clouds: {aws: {file: x.yaml}}", "only static and sandbox have a file"),
        ("clouds: [aws]", "is not a mapping"),
        ("refresh: {price_jump: 1}", "must be more than 1"),
        ("clouds: {static: {file: missing.yaml}}", "no such file"),
    ],
)
def test_a_clouds_file_with_a_mistake_is_refused(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "clouds.yaml"
    file.write_text(content)
    done = command(tmp_path / "home", "prices", "refresh", "--clouds", file)
    assert done.code == 2
    assert said in done.err
    assert "clouds.yaml:1:" in done.err or "missing.yaml" in done.err


def test_a_cloud_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = command(tmp_path, "prices", "refresh", "--cloud", "gpc")
    assert (done.code, "did you mean gcp?" in done.err) == (2, True)


def test_nothing_secret_is_written(home: Path) -> None:
    """An account that no service knows: its key must appear in no output and no file."""
    file = clouds_file(home, {"aws": f"http://127.0.0.1:{closed_port()}"})
    for words in (("prices", "refresh"), ("doctor",), ("quotas",)):
        done = command(home, *words, "--clouds", file, "--cloud", "aws")
        assert done.code in {5, 7}
    from tests.support.clouds import CANARY

    assert CANARY.encode() not in everything_written(home)


def test_json_reports_are_json(sandbox_home: Path) -> None:
    done = command(sandbox_home, "prices", "refresh", "--cloud", "sandbox", "--now", LATER, "-o", "json")
    assert done.json["complete"] is True
    assert json.loads(done.out)["clouds"][0]["cloud"] == "sandbox"
    assert list((sandbox_home / "history").iterdir())


def test_without_an_account_public_catalogues_stand_in_and_nothing_is_missed(tmp_path: Path) -> None:
    """Clouds that nobody named: what there is without an account is taken, and what one would add is said."""
    home = tmp_path / "home"
    home.mkdir()
    with in_thread(neocloud_service.make_app()) as url:
        places = {"catalogue": f"{url}/v3", "market": f"{url}/api/v0/bundles/"}
        small = {cloud: {"endpoints": places} for cloud in ("gcp", "lambda", "nebius", "runpod", "verda", "vast")}
        file = clouds_file(home, {}, **small, aws={"enabled": False}, azure={"enabled": False})
        told = command(home, "prices", "refresh", "--clouds", file, "--now", LATER, "-o", "json", account=False)
        assert told.code == 5  # the file names gcp, so its account is missed
    clouds = {cloud["cloud"]: cloud for cloud in told.json["clouds"]}
    assert clouds["gcp"]["offers"] == 12  # two machines, three zones, two markets
    assert [failure["what"] for failure in clouds["gcp"]["failures"]] == ["the account"]
    assert {d["why"]: d["count"] for d in clouds["gcp"]["dropped"]}["accelerators are attached to it at will"] == 12
    book = latest(home)
    assert book is not None
    mine = {(o.zone, o.instance_type, o.market.value): str(o.usd_per_hour) for o in book.offers if o.cloud == "gcp"}
    assert mine[("us-central1-a", "a3-highgpu-8g", "on_demand")] == "88.4908"
    assert mine[("europe-west4-a", "a2-highgpu-1g", "spot")] == "1.80"


def test_an_account_left_alone_is_not_missed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with in_thread(neocloud_service.make_app()) as url:
        file = clouds_file(home, {}, gcp={"endpoints": {"catalogue": f"{url}/v3"}, "credentials": False})
        done = command(home, "prices", "refresh", "--clouds", file, "--cloud", "gcp", "--now", LATER, "-o", "json")
    assert done.code == 0, done.out
    (cloud,) = done.json["clouds"]
    assert (cloud["status"], cloud["hints"][0]["what"]) == ("fresh", "the account")


def test_quotas_are_a_limits_file_that_plan_takes(home: Path, tmp_path: Path) -> None:
    limits = tmp_path / "limits.yaml"
    assert command(home, "quotas", "--cloud", "sandbox", "-o", "limits", "--out", limits).code == 0
    job = write_job(tmp_path / "jobs", "one")
    done = command(home, "plan", job, "--book", "sandbox", "--limits", limits, "--now", LATER, "-o", "json")
    assert done.code == 0, done.err
    table = command(home, "quotas", "--cloud", "sandbox")
    assert "accelerators on spot" in table.out


def test_stock_is_asked_and_kept(home: Path) -> None:
    done = command(home, "stock", "h100.8x", "--machines", "2", "--now", LATER, "-o", "json")
    assert done.code == 0, done.err
    hints = done.json["hints"]
    assert hints
    assert all(hint["machines"] is None or hint["machines"] >= 0 for hint in hints)
    kept = command(
        home, "prices", "history", "--instance-type", "h100.8x", "--since", "1d", "--now", "2026-11-23T00:00Z"
    )
    assert "%" in kept.out
    unknown = command(home, "stock", "h100.9x")
    assert (unknown.code, "did you mean h100.8x?" in unknown.err) == (2, True)


def test_the_doctor_says_who_we_are_and_what_works(home: Path) -> None:
    done = command(home, "doctor", "--cloud", "sandbox", "-o", "json")
    (found,) = done.json["clouds"]
    assert (done.code, found["identity"]) == (0, "sandbox script")
    assert found["offers"] == 12
    lost = clouds_file(home, {"aws": f"http://127.0.0.1:{closed_port()}"})
    failed = command(home, "doctor", "--clouds", lost, "--cloud", "aws")
    assert failed.code == 5
    assert "could not be reached" in failed.out
