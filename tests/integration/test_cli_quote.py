"""``stepfare quote`` and ``stepfare quotes``: formats, what is stored, acceptance, errors, exit codes."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.dom.minidom import parseString

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from typer.testing import Result

from pricing.history import PricePoint
from pricing.money import Usd
from pricing.places import Market
from router.app.quotes import keep_to_places
from router.cli.console import ExitCode
from router.config.job_files import load_jobs
from router.config.plan_files import read_plan
from router.jobs.gang import GangOption
from router.prices import history
from router.quotes.quote import Somewhere
from router.quotes.quote_json import quote_schema
from router.render.tables import format_usd
from router.spot.live.selection import default_run_policy
from router.spot.policies import QUOTED_RULE
from tests.support.command import NOW, run, write_job
from tests.support.repository import ROOT

BOOK = ("--book", "embedded")
LATER = "2026-11-21T19:00:00Z"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is kept but for the test."""
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def quote(*arguments: object) -> Result:
    """At a fixed moment, over the embedded book."""
    return run("quote", *arguments, *BOOK, "--now", NOW)


def test_the_answer_is_in_the_first_line(tmp_path: Path) -> None:
    result = quote(write_job(tmp_path, "llama-7b", steps=9000), "--by", "2026-11-23T18:00Z")
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.match(
        r"llama-7b by 2026-11-23 18:00Z: \$[\d,.]+ expected, in 9 of 10 cases\s+up to\s+\$[\d,.]+;\s+on\s+time",
        result.stdout,
    )
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80
    first = re.findall(r"\$([\d,.]+) expected", result.stdout)
    assert first == [first[0], first[0]]  # of the parts, too
    for words in (
        "WHAT IT COSTS",
        "half of the cases cost no more",
        "DONE BY",
        "INSTEAD",
        "COUNTS ON",
        "HOLDS IF",
        "knee",
        "valid until 2026-11-22 00:00Z",
    ):
        assert words in result.stdout


@pytest.mark.slow
def test_a_ticket_gets_one_line(tmp_path: Path) -> None:
    result = quote(write_job(tmp_path, "llama-7b"), "-o", "line", "--no-keep")
    assert len(result.stdout.splitlines()) == 1
    assert result.stdout.startswith("llama-7b by 2026-11-22 12:00Z: $")
    assert "quote-" not in result.stdout


def test_json_keeps_its_schema_and_is_what_is_stored(tmp_path: Path, home: Path) -> None:
    write_job(tmp_path / "jobs", "fits")
    write_job(tmp_path / "jobs", "rush", deadline="+30m")
    result = quote(tmp_path / "jobs", "-o", "json")
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert [e.message[:200] for e in Draft202012Validator(quote_schema()).iter_errors(found)] == []
    assert ([q["job"] for q in found["quotes"]], [r["job"] for r in found["refused"]]) == (["fits"], ["rush"])
    stored = home / "quotes" / f"{found['quotes'][0]['quote_id']}.json"
    assert json.loads(stored.read_text(encoding="utf-8")) == found["quotes"][0]


@pytest.mark.slow
def test_a_folder_gives_a_table_and_says_what_could_not_be(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_job(tmp_path / "jobs", name)
    write_job(tmp_path / "jobs", "rush", deadline="+30m")
    open_end = write_job(tmp_path / "jobs", "whenever")
    open_end.write_text(open_end.read_text(encoding="utf-8").replace("deadline: +18h\n", ""), encoding="utf-8")
    result = quote(tmp_path / "jobs")
    assert result.exit_code == 3
    assert [row.split()[0] for row in result.stdout.splitlines()[:3]] == ["JOB", "one", "two"]
    assert "2 jobs, expected $" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "job rush: error: cannot be done by then: " in result.stderr
    assert "at the earliest 2026-11-2" in result.stderr
    assert "job whenever: error: has no deadline" in result.stderr


@pytest.mark.slow
def test_many_jobs_on_two_processors_are_as_on_one(tmp_path: Path) -> None:
    for i in range(4):
        write_job(tmp_path / "jobs", f"job-{i}", steps=500 + 600 * i)
    one, two = (quote(tmp_path / "jobs", "-o", "json", "--processes", n).stdout for n in (1, 2))
    assert one == two
    assert len(json.loads(one)["quotes"]) == 4


def test_a_page_that_has_no_place_is_refused_before_anything_is_quoted(tmp_path: Path, home: Path) -> None:
    result = quote(write_job(tmp_path, "llama-7b"), "--html", tmp_path / "none" / "quote.html")
    assert result.exit_code == ExitCode.FAILURE
    assert "cannot be written: there is no folder" in result.stderr
    assert not (home / "quotes").exists()


@pytest.mark.slow
def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "quote.html"
    assert quote(write_job(tmp_path, "llama-7b", steps=9000), "--by", "+2d", "--html", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"<script|src=|https?://", text)
    assert re.findall(r'href="(.*?)"', text) == ["data:,", "#main"]
    pictures = re.findall(r'<svg [^>]*role="img".*?</svg>', text, re.DOTALL)
    titles = [parseString(p).getElementsByTagName("svg")[0].getAttribute("aria-label") for p in pictures]
    each = [title.split(" as ")[0].split(",")[0].split(":")[0] for title in titles]
    assert each == [name for name in ("Cost by deadline", "Spread of the cost", "One typical run") for _ in range(3)]
    assert all("nan" not in p and "inf" not in p.replace('inv"', "") for p in pictures)


@pytest.mark.slow
def test_the_page_shows_the_json_s_figures_and_who_was_refused(tmp_path: Path) -> None:
    page = tmp_path / "quote.html"
    write_job(tmp_path / "jobs", "fits")
    write_job(tmp_path / "jobs", "rush", deadline="+30m")
    told = json.loads(quote(tmp_path / "jobs", "-o", "json", "--html", page).stdout)
    (fits,) = told["quotes"]
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"<h1>.*?</h1>", text, re.DOTALL)[0].count("<data") == 2
    for amount in (fits["usd"]["mean"], fits["usd"]["p90"]):
        assert f'<data value="{amount}">' in text
    assert fits["quote_id"] in text
    assert "Could not be quoted" in text
    assert told["refused"][0]["what"] in text


@pytest.mark.slow
def test_a_budget_is_answered_in_steps(tmp_path: Path) -> None:
    path = write_job(tmp_path, "llama-7b", steps=90_000)
    result = quote(path, "--by", "+2d", "--budget", "200")
    assert result.exit_code == 0
    assert re.match(r"llama-7b for \$200.00 by 2026-11-23 18:00Z: [\d,]+ steps, 80% sure", result.stdout)
    steps = [int(n.replace(",", "")) for n in re.findall(r"% sure\s+([\d,]+) ", result.stdout)]
    assert steps == sorted(steps, reverse=True)
    assert len(steps) == 3
    assert "steps" in quote(path, "--by", "+2d", "--budget", "200", "-o", "line").stdout
    assert "STEPS AT 80%" in quote(path, "--by", "+2d", "--budget", "200", "-o", "table").stdout


def test_a_budget_that_is_enough_for_no_step_is_no_answer(tmp_path: Path) -> None:
    path = write_job(tmp_path, "llama-7b", steps=90_000)
    result = quote(path, "--by", "+2d", "--budget", "0.10")
    assert (result.exit_code, result.stdout) == (ExitCode.UNPLACED, "")
    assert "not one step for $0.10" in result.stderr


def test_a_quote_is_listed_shown_and_accepted(tmp_path: Path) -> None:
    path = write_job(tmp_path, "llama-7b", steps=9000)
    assert run("quotes", "list").stderr == "no quotes are stored\n"
    identity = json.loads(quote(path, "--by", "+2d", "-o", "json").stdout)["quotes"][0]["quote_id"]
    assert run("quotes", "show", identity).stdout.startswith("llama-7b by 2026-11-23 18:00Z")
    assert identity in run("quotes", "show", identity[6:12], "-o", "line").stdout
    out = tmp_path / "plan.json"
    result = run("quote", "--accept", identity, "--out", out, *BOOK, "--now", LATER)
    assert result.exit_code == 0, result.stderr
    plan = read_plan(out)
    assert [j.job for j in plan.jobs] == ["llama-7b"]
    assert plan.jobs[0].deadline == datetime(2026, 11, 23, 18, tzinfo=UTC)
    runs = default_run_policy(QUOTED_RULE)
    assert {line.policy for line in plan.lines} == {runs}
    assert f"run by {runs}, which the quote was made for" in " ".join(result.stderr.split())
    assert f"run by {runs}" in " ".join(run("quotes", "show", identity).stdout.split())
    quoted = json.loads(run("quotes", "show", identity, "-o", "json").stdout)
    listed = json.loads(run("quotes", "list", "-o", "json").stdout)["quotes"]
    ceiling = listed[0]["accepted"]["ceiling_usd"]
    # A plan on one place may expect more than nine in ten runs of the policy cost.
    assert float(ceiling) == pytest.approx(max(float(quoted["usd"]["p90"]), 1.05 * float(quoted["plan_usd"])), abs=0.01)
    assert float(str(plan.cost_usd)) <= float(ceiling)
    assert f"${ceiling}" in run("quotes", "list", "--job", "llama-7b").stdout
    assert "accepted 2026-11-21T19:00:00Z" in run("quotes", "show", identity).stdout


@pytest.mark.slow
def test_the_deadline_asked_for_counts_and_not_the_job_s_own_that_has_passed(tmp_path: Path) -> None:
    path = write_job(tmp_path, "llama-7b", steps=9000)
    text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("deadline:"))
    path.write_text(text + "\ndeadline: 2026-11-01T00:00Z\n")
    assert "has passed" in quote(path, "--no-keep").stderr
    result = quote(path, "--by", "+2d", "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    identity = json.loads(result.stdout)["quotes"][0]["quote_id"]
    out = tmp_path / "plan.json"
    assert run("quote", "--accept", identity, "--out", out, *BOOK, "--now", LATER).exit_code == 0
    assert read_plan(out).jobs[0].deadline == datetime(2026, 11, 23, 18, tzinfo=UTC)


@pytest.mark.slow
def test_what_is_accepted_is_the_gang_and_the_market_that_were_quoted(tmp_path: Path) -> None:
    """Acceptance takes no other gang or market, though the plan alone might."""
    path = write_job(tmp_path, "llama-7b", steps=9000)
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("gang: {accelerators: H100:8}", "gang: {accelerators: {H100: [8, 16]}}"), encoding="utf-8"
    )
    options = [GangOption(accelerator="H100", count=count) for count in (8, 16)]
    (job,) = load_jobs([path], datetime(2026, 11, 21, 18, tzinfo=UTC)).jobs
    assert job.gang.options == tuple(options)
    for option in options:
        for market in (Market.SPOT, Market.ON_DEMAND):
            place = Somewhere("x", market.value, option.accelerator, option.count, Usd(1), 1.0, "", "", "")
            kept = keep_to_places(job, (place,))
            assert kept.gang.options == (option,)
            assert kept.market.spot == (job.market.spot if market is Market.SPOT else "never")
    identity = json.loads(quote(path, "--by", "+2d", "-o", "json").stdout)["quotes"][0]["quote_id"]
    out = tmp_path / "plan.json"
    assert run("quote", "--accept", identity, "--out", out, *BOOK, "--now", LATER).exit_code == 0
    places = json.loads(run("quotes", "show", identity, "-o", "json").stdout)["places"]
    quoted = {(place["accelerator"], place["accelerators"], place["market"]) for place in places}
    assert {(line.accelerator, line.accelerators, line.market) for line in read_plan(out).lines} <= quoted


@pytest.mark.slow
def test_a_plan_that_costs_something_else_than_the_quote_said_of_a_plan_says_why(tmp_path: Path) -> None:
    """A plan of the job alone may fall back on 16 H100, which the quote does not count on, and nothing will start."""
    path = tmp_path / "job.yaml"
    path.write_text(
        """name: nordic-13b-sft
team: nordic
steps: 6000
deadline: +60h
budget: "$1500"
workload:
  transformer: {parameters: 13B, layers: 40, hidden: 5120, sequence_length: 4096, tokens_per_step: 524288}
gang: {accelerators: {H100: [8, 16], H200: 8, A100-80GB: [16, 32]}}
checkpoint: {write_gib_per_s: 2}
data: {uri: "s3://nordic/text", at: aws/eu-west-1, gib: 120}
residency: {allow: [EEA]}
""",
        encoding="utf-8",
    )
    asked = json.loads(quote(path, "-o", "json").stdout)["quotes"][0]
    out = tmp_path / "plan.json"
    accepted = run("quote", "--accept", asked["quote_id"], "--out", out, *BOOK, "--now", NOW)
    assert accepted.exit_code == 0, accepted.stderr
    plan = read_plan(out)
    fallbacks = {(line.fallback.accelerator, line.fallback.accelerators) for line in plan.lines if line.fallback}
    assert fallbacks <= {(place["accelerator"], place["accelerators"]) for place in asked["places"]}
    note = (
        f"the quote says {format_usd(Usd.parse(asked['plan_usd']))} for a plan, and this one expects "
        f"{format_usd(plan.cost_usd)}: it keeps to the gangs and markets that the quote counts on (8 x H200), also for "
        "its fallback"
    )
    assert note in " ".join(accepted.stderr.split())
    assert note in " ".join(run("quotes", "show", asked["quote_id"]).stdout.split())
    assert json.loads(run("quotes", "list", "-o", "json").stdout)["quotes"][0]["accepted"]["note"] == note


@pytest.mark.slow
def test_a_plan_that_costs_what_the_quote_said_has_no_note(tmp_path: Path) -> None:
    path = write_job(tmp_path, "llama-7b", steps=9000)
    asked = json.loads(quote(path, "--by", "+2d", "-o", "json").stdout)["quotes"][0]
    out = tmp_path / "plan.json"
    accepted = run("quote", "--accept", asked["quote_id"], "--out", out, *BOOK, "--now", NOW)
    assert accepted.exit_code == 0, accepted.stderr
    assert format_usd(read_plan(out).cost_usd) == format_usd(Usd.parse(asked["plan_usd"]))
    assert "the quote says" not in accepted.stderr
    assert "note" not in json.loads(run("quotes", "list", "-o", "json").stdout)["quotes"][0]["accepted"]
    again = run("quote", "--accept", asked["quote_id"], "--out", out, *BOOK, "--now", LATER)
    assert "less time is left" in " ".join(again.stderr.split())


@pytest.mark.slow
def test_an_accepted_quote_takes_no_reservation_that_it_does_not_count_on(tmp_path: Path) -> None:
    """Tonight's plan may fill the reservation already."""
    path = write_job(tmp_path, "llama-7b", steps=9000)
    identity = json.loads(quote(path, "--by", "+2d", "-o", "json").stdout)["quotes"][0]["quote_id"]
    limits = tmp_path / "limits.yaml"
    held = {"name": "ours", "cloud": "aws", "region": "us-east-1", "instance_type": "p5.48xlarge", "machines": 4}
    limits.write_text(json.dumps({"reservations": [held]}), encoding="utf-8")
    out = tmp_path / "plan.json"
    done = run("quote", "--accept", identity, "--out", out, "--limits", limits, *BOOK, "--now", LATER)
    assert done.exit_code == 0, done.stderr
    assert {line.market for line in read_plan(out).lines}.isdisjoint({Market.RESERVED.value})


@pytest.mark.slow
def test_an_accepted_quote_is_planned_beside_the_night(tmp_path: Path) -> None:
    """The machines that tonight's plan gives to another job are not given away twice."""
    path, other = write_job(tmp_path, "llama-7b", steps=9000), write_job(tmp_path, "other", steps=9000, deadline="+2d")
    limits = tmp_path / "limits.yaml"
    limits.write_text(
        json.dumps({"limits": [{"name": "h100", "accelerator": "H100", "amount": 8, "unit": "accelerators"}]}),
        encoding="utf-8",
    )
    identity = json.loads(quote(path, "--by", "+2d", "--limits", limits, "-o", "json").stdout)["quotes"][0]["quote_id"]
    words = ("--out", tmp_path / "plan.json", "--limits", limits, *BOOK, "--now", LATER)
    trial = run("plan", other, "--out", tmp_path / "night.json", "--limits", limits, *BOOK, "--now", NOW)
    assert trial.exit_code == 0, trial.stderr
    assert run("quote", "--accept", identity, *words).exit_code == 0
    night = run("plan", other, "--name", "night", *words[:1], tmp_path / "night.json", *words[2:-1], NOW)
    assert night.exit_code == 0, night.stderr
    full = run("quote", "--accept", identity, *words)
    said = " ".join(full.stderr.split())
    assert (full.exit_code, "beside what other jobs hold or are planned to" in said) == (3, True), said
    limits.write_text(limits.read_text(encoding="utf-8").replace('"amount": 8', '"amount": 16'), encoding="utf-8")
    assert run("quote", "--accept", identity, *words).exit_code == 0


@pytest.mark.slow
def test_a_plan_that_starts_later_than_quoted_is_accepted_only_where_that_is_meant(tmp_path: Path) -> None:
    """Tonight's plan leaves four of twelve accelerators, and the job needs eight: it would be in the outlook alone."""
    path = write_job(tmp_path, "llama-7b", steps=9000, deadline="+5d")
    other = write_job(tmp_path, "other", steps=9000, deadline="+1d")
    limits = tmp_path / "limits.yaml"
    limits.write_text(
        json.dumps({"limits": [{"name": "h100", "accelerator": "H100", "amount": 12, "unit": "accelerators"}]}),
        encoding="utf-8",
    )
    asked = quote(path, "--by", "+5d", "--limits", limits, "-o", "json")
    identity = json.loads(asked.stdout)["quotes"][0]["quote_id"]
    under = ("--limits", limits, *BOOK, "--now")
    night = run("plan", other, "--name", "night", "--out", tmp_path / "night.json", *under, NOW)
    assert night.exit_code == 0, night.stderr
    out = tmp_path / "plan.json"
    words = ("quote", "--accept", identity, "--out", out, *under, LATER)
    refused = run(*words)
    said = " ".join(refused.stderr.split())
    assert (refused.exit_code, out.exists()) == (2, False)
    assert "--later: llama-7b would start later than quoted: at 2026-11-22 19:00Z, so that nothing is ordered" in said
    assert "other jobs hold its machines, or are planned to" in said
    assert "(quoted: 9 of 10 by 2026-11-2" in said
    taken = run(*words, "--later")
    assert taken.exit_code == 0, taken.stderr
    assert {line.orderable for line in read_plan(out).lines} == {False}


@pytest.mark.slow
def test_what_cannot_be_accepted(tmp_path: Path) -> None:
    path = write_job(tmp_path, "llama-7b", steps=9000)
    identity = json.loads(quote(path, "--by", "+2d", "-o", "json").stdout)["quotes"][0]["quote_id"]
    out = tmp_path / "plan.json"

    def accept(*more: object, now: str = LATER) -> Result:
        return run("quote", "--accept", identity, *more, *BOOK, "--now", now)

    assert accept().exit_code == 2
    assert "--out" in accept().stderr
    late = accept("--out", out, now="2026-11-22T01:00:00Z")
    assert (late.exit_code, "was valid until" in late.stderr) == (6, True)
    poor = accept("--out", out, "--ceiling", "1")
    assert (poor.exit_code, "cannot be planned within $1.00" in poor.stderr) == (3, True)
    path.write_text(path.read_text(encoding="utf-8").replace("steps: 9000", "steps: 9001"), encoding="utf-8")
    changed = accept("--out", out)
    assert (changed.exit_code, "was changed since it was quoted" in changed.stderr) == (2, True)
    path.unlink()
    assert accept("--out", out).exit_code == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--by", "2026-11-20T09:00Z"), "--by: 2026-11-20T09:00Z has passed"),
        (("--by", "2126-11-20T09:00Z"), "--by: 2126-11-20T09:00Z is more than 366 days away"),
        (("--by", "+2000d"), "--by: +2000d is more than 366 days away"),
        (("--by", "9999-12-31T23:59Z"), "--by: 9999-12-31T23:59Z lies outside the years 1970 to 2999"),
        (("--by", "tomorrow"), "--by: 'tomorrow' is no point in time"),
        (("--by", "36h"), "write +36h"),
        (("--budget", "lots"), "--budget"),
        (("--out", "x.json"), "--out: belongs to --accept"),
        (("--accept", "quote-1234", "--by", "+1d"), "does not go with --accept"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    result = quote(write_job(tmp_path, "llama-7b"), *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_without_a_job_it_says_how() -> None:
    result = quote()
    assert (result.exit_code, "no job is named" in result.stderr) == (2, True)
    assert run("quotes", "show", "feed").exit_code == 2


@pytest.mark.slow
def test_history_is_looked_at_where_there_is_any(tmp_path: Path, home: Path) -> None:
    path = write_job(tmp_path, "llama-7b", steps=9000)
    before = json.loads(quote(path, "--by", "+2d", "-o", "json").stdout)["quotes"][0]
    spot = next(p for p in before["places"] if p["market"] == "spot")
    cloud, region, *zone, kind = spot["where"].split("/")
    now = datetime(2026, 11, 21, 18, tzinfo=UTC)
    points = [
        PricePoint(
            cloud,
            region,
            zone[0] if zone else None,
            kind,
            Market.SPOT,
            now - timedelta(minutes=10 * i),
            "a prober",
            available=1.0,
        )
        for i in range(1, 2000)
    ]
    history.append(home / "history", points)
    after = json.loads(quote(path, "--by", "+2d", "-o", "json").stdout)["quotes"][0]
    availability = {p["where"]: p["weather"] for p in after["places"] if p["market"] == "spot"}
    assert availability[spot["where"]].startswith("observed 333 h over 13 days")
    assert float(after["usd"]["p90"]) <= float(before["usd"]["p90"])


def test_the_schema_is_printed() -> None:
    published = (ROOT / "docs" / "schema" / "quote.json").read_text(encoding="utf-8")
    assert run("schema", "quote").stdout == published
