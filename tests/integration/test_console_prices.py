"""The pages and the API of prices: the book in use, clouds, regions on a map, history; figures of the command line."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from pricing.book_file import embedded_book
from pricing.offers import mark_stale
from pricing.places import Market
from pricing.pool_experience import ExperienceKind, PoolExperience
from providers.errors import PermissionDeniedError
from router.app.queries.context import QueryContext
from router.app.queries.prices import list_regions, sources_of
from router.prices import history
from router.prices.bookstore import BookStore
from router.prices.merge import CloudCounts
from router.prices.refresh_record import MOST_FAILURES, read_records, write_records
from router.prices.report import CloudReport, RefreshFailure, RefreshReport, RefreshStatus
from router.render.figures import day_clock
from tests.support import command
from tests.support.console import console_client, identity_with, query_context
from tests.support.page_reader import read_page
from tests.support.price_points import a_point

PAGE = {"Accept": "text/html"}
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
BOOK_AT = datetime(2026, 11, 25, 9, tzinfo=UTC)
ODD = "<script>alert(1)</script>"
POOL = ("aws", "us-east-1", None, "p5.48xlarge", Market.SPOT)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[QueryContext, Path]]:
    """A stored book of two clouds, of which one did not answer, and some history; tests read it alone."""
    folder = tmp_path_factory.mktemp("prices")
    store = BookStore(folder / "books")
    book = embedded_book()
    offers = [
        mark_stale(offer, BOOK_AT.date()) if offer.cloud == "azure" else offer
        for offer in book.offers
        if offer.cloud in ("aws", "azure")
    ]
    older = replace(book, as_of=BOOK_AT - timedelta(days=1), offers=tuple(offers[1:]))
    priors = tuple(replace(p, source=f"{p.source} {ODD}") if p.market == "spot" else p for p in book.priors)
    at = BOOK_AT - timedelta(hours=2)
    record = PoolExperience(*POOL, 1, 40.0, 9.0, 2.0, 3, at, at, ExperienceKind.AVAILABILITY)
    with store.lock():
        store.commit(older)
        store.commit(replace(book, as_of=BOOK_AT, offers=tuple(offers), priors=priors, records=(record,)))
    write_records(store, refresh_report())
    points = [a_point(hours, f"{20 + hours % 5}", source=ODD) for hours in range(-24, 48, 6)]
    looks = [a_point(hours / 4, None, available=float(hours % 40 > 3), source="probe") for hours in range(400)]
    history.append(folder / "history", [*points, *looks, a_point(3, "98.32", market=Market.ON_DEMAND, zone=None)])
    with query_context(folder, clock=lambda: NOW) as context:
        yield context, folder


@pytest.fixture(scope="module")
def client(stored: tuple[QueryContext, Path]) -> TestClient:
    return console_client(stored[0])


def refresh_report() -> RefreshReport:
    denied = PermissionDeniedError("azure", f"no right to read {ODD}", remedy="grant Reader")
    failures = tuple(RefreshFailure(f"azure/region-{n}", "spot prices", denied) for n in range(MOST_FAILURES + 5))
    aws = CloudReport("aws", RefreshStatus.FRESH, 3, 3, 900, CloudCounts(fresh=361), (), (), (), (), 9, 0, 1.0)
    failed = CloudReport("azure", RefreshStatus.FAILED, 0, 25, 0, CloudCounts(), failures, (), (), (), 30, 4, 2.0)
    return RefreshReport(BOOK_AT, (), 0, (aws, failed))


def told(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    monkeypatch.setenv("STEPFARE_HOME", str(folder))
    result = command.run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_the_answer_is_how_old_how_many_the_cheapest_and_who_failed(
    client: TestClient, stored: tuple[QueryContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = client.get("/prices", headers=PAGE).text
    sentence = re.sub(r"<[^>]+>", "", shown.split("<h1>")[1].split("</h1>")[0])
    words = ("offers", "--accelerator", "H100", "--sort", "accelerator-hour", "--limit", 0, "-o", "json")
    offers = json.loads(told(stored[1], monkeypatch, *words))["offers"]
    cheapest = {
        market: next(each for each in offers if each["market"] == market and each["provisionable"])
        for market in ("spot", "on_demand")
    }
    every = json.loads(told(stored[1], monkeypatch, "offers", "--limit", 0, "-o", "json"))["offers"]
    ages = [(NOW.date() - date.fromisoformat(each["as_of"])).days for each in every if each["as_of"] is not None]
    spot, sure = (f"{float(cheapest[market]['usd_per_accelerator_hour']):.2f}" for market in ("spot", "on_demand"))
    weak = {market: "~" if cheapest[market]["weak"] else "" for market in cheapest}
    dearer = [
        market for market in cheapest if next(each for each in offers if each["market"] == market) != cheapest[market]
    ]
    able = " that can be ordered" if dearer else ""
    assert sentence == (
        f"Prices are {min(ages)} to {max(ages)} days old: 897 offers of 2 clouds; "
        f"an H100{able} costs from {weak['spot']}${spot} an hour on spot, "
        f"{weak['on_demand']}${sure} on demand; azure did not answer in full."
    )


def test_every_map_of_regions_has_the_coast_behind_its_marks(client: TestClient) -> None:
    """It is drawn once on the page; a map that uses an id that is not there would show bare columns."""
    page = read_page(client.get("/prices", headers=PAGE).text)
    (coast,) = page.every(lambda each: each.attributes.get("id") == "coast")
    outline = coast.attributes.get("d") or "".join(path.attributes["d"] or "" for path in coast.tags("path"))
    assert outline.startswith("M")
    assert len(re.findall(r"-?\d+", outline)) > 1000
    uses = [each for each in page.tags("use") if each.attributes["href"] == "#coast"]
    maps = [each for each in page.tags("svg") if "map" in (each.attributes.get("aria-label") or "").lower()]
    assert len(uses) == len(maps) == 3


def test_a_cloud_that_failed_says_what_and_why(client: TestClient) -> None:
    shown = client.get("/prices", headers=PAGE).text
    row = shown.split('data-cloud="azure"')[1].split("</tr>")[0]
    assert ">did not answer<" in row
    assert "no right to read &lt;script&gt;" in row
    assert "grant Reader" in row
    assert "and 5 more failures" in row
    assert "536 not refreshed" in row
    assert "all of it answered" in shown.split('data-cloud="aws"')[1].split("</tr>")[0]
    clouds = {each["cloud"]: each for each in client.get("/api/v1/prices/books").json()["clouds"]}
    assert clouds["azure"]["not_refreshed"] == clouds["azure"]["offers"] == 536
    assert clouds["azure"]["last_refresh"]["failed"] == MOST_FAILURES + 5
    assert clouds["aws"]["last_refresh"]["failures"] == []


def test_every_region_of_the_map_is_in_the_table(client: TestClient, stored: tuple[QueryContext, Path]) -> None:
    for accelerator in ("H100", "L4", "B200"):
        shown = client.get(f"/prices?accelerator={accelerator}").text
        drawn = [part.split("</div>")[0] for part in shown.split("<figure>")[1].split("<div class=")[1:4]]
        table = set(re.findall(r'data-region="([^"]+)"', shown))
        regions = list_regions(sources_of(stored[0]), accelerator, NOW)
        assert table == {str(each.id) for each in regions}
        for picture in drawn:
            marked = re.findall(r'data-regions="([^"]*)"', html.unescape(picture))
            assert set(" ".join(marked).split()) == {str(each.id) for each in regions if each.position is not None}


def test_books_and_offers_are_those_of_the_command_line(
    client: TestClient, stored: tuple[QueryContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = stored
    listed = json.loads(told(folder, monkeypatch, "prices", "list", "-o", "json"))["books"]
    answer = client.get("/api/v1/prices/books").json()
    assert answer["books"] == listed
    assert [book["latest"] for book in listed] == [True, False]
    assert answer["in_use"]["digest"] == listed[0]["digest"]
    asked = ("offers", "--accelerator", "H100", "--market", "spot", "-o", "json", "--now", "2026-11-25T12:00Z")
    assert client.get("/api/v1/prices/latest?accelerator=H100&market=spot").text == told(folder, monkeypatch, *asked)
    rows = list(csv.DictReader(io.StringIO(client.get("/api/v1/prices/latest?cloud=aws&format=csv").text)))
    assert {row["cloud"] for row in rows} == {"aws"}
    old = client.get(f"/prices?book={listed[1]['digest']}").text
    assert "896 offers" in old


def test_history_is_that_of_the_command_line(
    client: TestClient, stored: tuple[QueryContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("prices", "history", "--accelerator", "H100", "--now", "2026-11-25T12:00Z")
    for form in ("json", "csv"):
        answer = client.get(f"/api/v1/prices/history?accelerator=H100&format={form}").text
        assert answer == told(stored[1], monkeypatch, *asked, "-o", form)
    shown = client.get("/prices/history?accelerator=H100&region=aws/us-east-1", headers=PAGE).text
    series = client.get("/api/v1/prices/history?accelerator=H100").json()["series"]
    assert shown.count("<polyline") == 3 * len(series)  # each in three widths
    spot = next(each for each in series if each["market"] == "spot")
    for name in ("min", "max", "mean"):
        assert f"${float(spot[f'{name}_usd_per_hour']):.2f}" in shown
    # Ten times a pool with machines was next seen without: at 40, 80, ... quarters of an hour.
    assert "spot pools ran dry 9 times" in shown
    assert "9 in 9" in shown
    heading = re.sub(r"<[^>]+>", "", shown.split("<h1", 1)[1].split("</h1>")[0])
    last = float(spot["last_usd_per_hour"])
    assert f"cheapest now ${last / 8:.2f} an hour each, ${last:.2f} for the machine of 8, in aws/us-east-1" in heading
    assert "1 Nov 2026" not in client.get("/prices/history?market=spot&since=1d").text


def test_risks_are_those_of_the_command_line(
    client: TestClient, stored: tuple[QueryContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("prices", "risk", "--accelerator", "H100", "--now", "2026-11-25T12:00Z")
    for form in ("json", "csv"):
        answer = client.get(f"/api/v1/prices/risk?accelerator=H100&format={form}").text
        assert answer == told(stored[1], monkeypatch, *asked, "-o", form)
    pools = client.get("/api/v1/prices/risk?accelerator=H100&cloud=aws&region=us-east-1&limit=1").json()["pools"]
    assert len(pools) == 1
    shown = client.get("/prices", headers=PAGE).text
    section = shown.split('id="risk"')[1].split("</section>")[0]
    rows = section.split('data-pool="')[1:]
    everything = client.get("/api/v1/prices/risk?accelerator=H100").json()["pools"]
    assert f"{len(everything)} spot pools, the calmest first" in section
    assert len(rows) == min(len(everything), 100)
    assert [row.split('"')[0] for row in rows] == [f"{p['cloud']}/{p['region']}" for p in everything[: len(rows)]]
    for row, pool in zip(rows, everything, strict=False):
        assert f"{pool['no_interruption']['24h']:.0%}"[:-1] in row
        assert ("<small>nobody has published any" in row) == pool["unpublished"]
        assert all(each["level"] in row for each in pool["evidence"])
    (own,) = (row for row in rows if row.startswith("aws/us-east-1") and ">p5.48xlarge<" in row)
    assert "2 in 40 h" in own
    assert "own availability: 2 interruptions in 40.0 h of 3 lives" in own
    assert re.findall(r"lost by ([^<]*)", own) == [
        "capacity: 2",
        *(f"{reason}: not recorded" for reason in ("own price limit", "maintenance", "host failure")),
    ]
    assert section.count("lost by capacity") == sum(
        pool["own"]["losses"]["capacity"] is not None for pool in everything
    )


def test_risks_are_read_without_scripts_and_none_is_said(client: TestClient) -> None:
    shown = client.get("/prices", headers=PAGE).text
    section = shown.split('id="risk"')[1].split("</section>")[0]
    assert section.count("<details>") == section.count("</details>") == section.count("<summary>")
    assert "hidden" not in section
    assert "alert(1)" in section, "the source of a prior is shown, as text"
    assert "No offer of it is on spot." in client.get("/prices?accelerator=GB200", headers=PAGE).text


def test_markup_in_names_is_text(client: TestClient) -> None:
    for url in ("/prices", "/prices/history?accelerator=H100", f"/prices/history?accelerator=H100&region={quote(ODD)}"):
        shown = client.get(url, headers=PAGE)
        assert shown.status_code == 200
        assert "<script>alert" not in shown.text
    shown = client.get(f"/prices?accelerator={quote(ODD)}", headers=PAGE)
    assert shown.status_code == 400
    assert "<script>alert" not in shown.text


@pytest.mark.parametrize(
    "url",
    [
        "/prices?book=/etc/passwd", "/prices?book=../x", "/prices?book=deadbeef", "/prices?book=sandbox",
        "/prices?accelerator=H1000", "/prices?accelerator=%00", "/prices/history?since=-3d",
        "/prices/history?since=999999d",
        "/prices/history?since=9999999999999999d", "/prices/history?since=soon", "/prices/history?market=free",
        "/prices/history?region=%00", "/prices/history?accelerator=%0a",
        "/prices/risk?accelerator=H1000", "/prices/risk?cloud=%00", "/prices/risk?book=/etc/passwd",
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_what_to_do(client: TestClient, url: str) -> None:
    page = client.get(url, headers=PAGE)
    assert page.status_code == (404 if "/risk" in url else 400)
    api = url.replace("/prices?", "/prices/latest?")
    answer = client.get(f"/api/v1{api}")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("name", "written", "words"),
    [
        ("since", "soon", "write 30d or 12h"),
        ("since", "-3d", "write 30d or 12h"),
        ("since", "999999d", "write 30d or 12h"),
        ("accelerator", "H1000", "unknown accelerator 'H1000'"),
    ],
)
def test_a_field_of_the_history_that_cannot_be_says_so_beside_it(
    client: TestClient, name: str, written: str, words: str
) -> None:
    asked = {"accelerator": "H100", "region": "aws/us-east-1", "market": "spot", "since": "12d", name: written}
    answer = client.get("/prices/history", params=asked, headers=PAGE)
    assert answer.status_code == 400
    fields = {each.attributes["name"]: each.attributes for each in read_page(answer.text).tags("input")}
    assert {field: fields[field]["value"] for field in ("accelerator", "region", "since")} == {
        field: asked[field] for field in ("accelerator", "region", "since")
    }
    assert [field for field, found in fields.items() if "aria-invalid" in found] == [name]
    (wrong,) = read_page(answer.text).every(lambda each: each.attributes.get("id") == fields[name]["aria-describedby"])
    assert words in wrong.words


def test_no_file_of_the_server_is_a_book(client: TestClient, tmp_path: Path) -> None:
    file = tmp_path / "book.csv"
    file.write_text("cloud,region\n", encoding="utf-8")
    answer = client.get(f"/api/v1/prices/latest?book={file}")
    assert answer.status_code == 400
    assert "is no price book" in answer.json()["error"]["message"]


def test_who_may_not_read_prices_is_refused(stored: tuple[QueryContext, Path]) -> None:
    nobody = console_client(stored[0], lambda: identity_with())
    for url in (
        "/prices",
        "/prices/history",
        "/api/v1/prices/books",
        "/api/v1/prices/latest",
        "/api/v1/prices/history",
        "/api/v1/prices/risk",
    ):
        assert nobody.get(url).status_code == 403
    one_team = console_client(stored[0], lambda: identity_with("viewer:speech"))
    assert one_team.get("/prices").status_code == 200  # prices belong to no team


def test_the_command_of_a_history_has_every_filter_of_the_page(
    client: TestClient, stored: tuple[QueryContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "accelerator=H100&region=aws/us-east-1&market=on_demand&since=90d"
    shown = client.get(f"/prices/history?{url}", headers=PAGE).text
    (line,) = re.findall(r"Same figures as <code[^>]*>stepfare (.*?)</code>", shown)
    assert line == "prices history --accelerator H100 --region aws/us-east-1 --market on_demand --since 90d"
    said = told(stored[1], monkeypatch, *line.split(), "--now", "2026-11-25T12:00Z", "-o", "json")
    assert said == client.get(f"/api/v1/prices/history?{url}").text
    odd = client.get("/prices/history", params={"region": "a b"}, headers=PAGE).text
    assert "--region &#39;a b&#39;" in odd


def test_the_embedded_prices_beside_a_history_say_of_when_its_points_are(tmp_path: Path) -> None:
    history.append(tmp_path / "history", [a_point(0, "20", source=ODD), a_point(30, "21", source=ODD)])
    with query_context(tmp_path, clock=lambda: NOW) as context:
        shown = re.sub(r"<[^>]+>", "", console_client(context).get("/prices").text)
    assert "Nothing was ever fetched" not in shown
    assert "No price book was fetched here" in shown
    first, last = (day_clock(a_point(hours, "1").at) for hours in (0, 30))
    assert f"has points of its own, from {first} to {last} UTC" in shown
    # The cheapest of all is an offer of a cloud that cannot be asked for machines.
    assert "an H100 that can be ordered costs from" in shown
    assert "; advisory, not to be ordered: ~$" in shown


def test_without_a_refresh_it_shows_the_embedded_prices_and_says_so(tmp_path: Path) -> None:
    with query_context(tmp_path, clock=lambda: NOW) as context:
        empty = console_client(context)
        shown = empty.get("/prices").text
        assert "no cloud was refreshed here yet" in shown
        assert "never refreshed here" in shown
        assert f"{len(embedded_book().sold_only().offers):,} offers" in shown
        assert "There is no price history yet" in empty.get("/prices/history").text


def test_a_record_stays_until_its_cloud_is_asked_again(tmp_path: Path) -> None:
    store = BookStore(tmp_path)
    assert read_records(store) == {}
    report = refresh_report()
    write_records(store, report)
    later = replace(report, now=BOOK_AT + timedelta(days=1), clouds=report.clouds[:1])
    write_records(store, later)
    records = read_records(store)
    assert (records["aws"].at, records["azure"].at) == (later.now, BOOK_AT)
    assert len(records["azure"].failures) == MOST_FAILURES
    (tmp_path / "refreshed.json").write_text("{", encoding="utf-8")
    assert read_records(store) == {}
    write_records(store, later)  # a damaged file is replaced
    assert set(read_records(store)) == {"aws"}
