"""Everything that ``stepfare plan`` and its readers refuse: place, remedy, exit code 2, nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from pricing.book_file import embedded_book, write_book
from pricing.offer_csv import COLUMNS
from tests.support.command import JOB, plan, run, write_job

GOOD = JOB.format(name="llama-7b", steps=1000, deadline="+18h")
ROW = {
    "cloud": "aws", "region": "us-east-1", "instance_type": "p5.48xlarge", "accelerator": "H100",
    "accelerator_count": "8", "on_demand_usd_per_hour": "55.04", "spot_usd_per_hour": "30",
    "source": "a list", "as_of": "2026-11-20", "spot_as_of": "2026-11-19",
}  # fmt: skip
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{c}: &{c} [{', '.join([f'*{chr(ord(c) - 1)}'] * 10)}]\n" for c in "bcdefghij"
)

JOBS = {
    "unknown field": (GOOD + "dedline: +18h\n", "llama.yaml:8:1: error: dedline", "did you mean deadline?"),
    "wrong unit": (GOOD + "startup: 10\n", "llama.yaml:8:10: error: startup: 10 has no unit", "10m"),
    "past deadline": (GOOD.replace("+18h", "2026-11-20T00:00Z"), "llama.yaml:4:11: error: deadline: has passed", ""),
    "deadline of a century": (
        GOOD.replace("+18h", "2126-11-20T00:00Z"), "llama.yaml:4:11: error: deadline: 2126-11-20T00:00Z is more than",
        "give an earlier one",
    ),
    "no zone": (GOOD.replace("+18h", "2026-11-25T09:00"), "llama.yaml:4:11: error: deadline", "2026-11-25T09:00Z"),
    "zero steps": (GOOD.replace("1000", "0"), "llama.yaml:3:8: error: steps: must be more than 0", ""),
    "duplicate names": (GOOD + "---\n" + GOOD, "llama.yaml:9:7: error: name: 'llama-7b'", "llama.yaml:1:7"),
    "unknown region": (
        GOOD + "data: {uri: s3://a, at: aws/us-eats-1, gib: 1}\n",
        "llama.yaml:8:25: error: data.at", "did you mean aws/us-east-1?",
    ),
    "unknown accelerator": (GOOD.replace("rs: H100", "rs: H1OO"), "llama.yaml:6:22: error: gang.accelerators", "H100"),
    "a size nobody sells": (GOOD.replace("rs: H100:8", "rs: GB200:6"), "nobody sells", "GB200:8"),
    "10 MB": ("# " + "x" * 10_000_000, "llama.yaml: error: is larger than 2 MB", "split"),
    "bomb": (BOMB, "brings the file over 100,000 values", "aliases"),
}  # fmt: skip

LIMITS = {
    "unknown field": ("budgets: []\n", "limits.yaml:1:1: error: budgets", ""),
    "wrong unit": (
        "limits:\n  - {name: a, amount: 8, unit: GPUs}\n", "limits.yaml:2:32: error: limits[0].unit", "accelerators",
    ),
    "negative amount": ("limits:\n  - {name: a, amount: -8, unit: machines}\n", "limits.yaml:2:23: error: ", ""),
    "a name twice": (
        "limits:\n  - {name: a, amount: 8, unit: machines}\n  - {name: a, amount: 9, unit: machines}\n",
        "limits.yaml:", "",
    ),
    "a discount over 100": ("discounts:\n  - {cloud: aws, percent: 120}\n", "limits.yaml:2:27: error: ", ""),
    "a budget in cents": ("teams:\n  - {team: a, budget: lots}\n", "limits.yaml:2:23: error: teams[0].budget", ""),
    "a cloud nobody knows": ("clouds: [aws, gpc]\n", "limits.yaml:1:15: error: clouds[1]", "gcp"),
    "a region nobody knows": (
        "limits:\n  - {name: a, cloud: aws, region: us-eats-1, amount: 8, unit: machines}\n",
        "limits.yaml:2:", "us-east-1",
    ),
    "a reservation of what is not": (
        "reservations:\n  - {name: r, cloud: aws, region: us-east-1, instance_type: p5.48xlarg, machines: 1}\n",
        "limits.yaml:2:61: error: reservations[0].instance_type", "did you mean p5.48xlarge?",
    ),
    "not YAML": ("limits: [\n", "limits.yaml:2:1: error: is not YAML", ""),
    "two documents": ("clouds: [aws]\n---\nclouds: [gcp]\n", "limits.yaml:", "remove the line ---"),
    "bomb": (BOMB, "brings the file over 100,000 values", "aliases"),
    "10 MB": ("# " + "x" * 10_000_000, "limits.yaml: error: is larger than 2 MB", ""),
}  # fmt: skip

ROWS = {
    "a negative price": ({"on_demand_usd_per_hour": "-1"}, "book.csv:2: error: on_demand_usd_per_hour"),
    "a price of zero": ({"on_demand_usd_per_hour": "0"}, "book.csv:2: error: on_demand_usd_per_hour"),
    "spot above on-demand": ({"spot_usd_per_hour": "60"}, "book.csv:2"),
    "a price in words": ({"spot_usd_per_hour": "cheap"}, "book.csv:2: error: spot_usd_per_hour"),
    "an unknown region": ({"region": "us-eats-1"}, "book.csv:2: error: region"),
    "a count of none": ({"accelerator_count": "0"}, "book.csv:2: error: accelerator_count"),
    "a date that is none": ({"as_of": "yesterday"}, "book.csv:2: error: as_of"),
}

OPTIONS = {
    "no zone": (("--now", "2026-11-21T18:00"), "--now", "no time zone"),
    "a length for a moment": (("--now", "+3h"), "--now", "is a point in time"),
    "no unit": (("--horizon", "24"), "--horizon: '24' is no duration", "18h"),
    "no horizon": (("--horizon", "10m"), "--horizon", "is shorter than 1:00:00"),
    "a slot over the horizon": (("--horizon", "1h", "--slot", "2h"), "--horizon", "from one slot up to 14 days"),
    "a far horizon": (("--horizon", "15d"), "--horizon", "from one slot up to 14 days"),
    "no slot": (("--slot", "1m"), "--slot", "is shorter than 0:05:00"),
    "no time": (("--time-limit", "0s"), "--time-limit", "is shorter than 0:00:01"),
    "a wide gap": (("--gap", "2"), "--gap", "0.5"),
    "an unknown solver": (("--solver", "higs"), "--solver", "PuLP knows no solver 'higs'"),
    "a format nobody reads": (("-o", "xml"), "xml", "table"),
    "no book": (("--book", "none.parquet"), "none.parquet", "no such file"),
    "a book of no kind": (("--book", "newest"), "newest", "no name of a price book"),
    "no limits": (("--limits", "none.yaml"), "none.yaml", ""),
    "only old prices": (("--max-age", "0d"), "--max-age", "raise it"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(result: Result, *words: str) -> None:
    """Exit code 2, the words on stderr, and no plan left behind."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.stderr
    assert "pydantic" not in result.stderr
    assert list(Path().rglob("*plan*")) == []


@pytest.mark.parametrize("case", JOBS)
def test_bad_jobs(folder: Path, case: str) -> None:
    text, *words = JOBS[case]
    Path("llama.yaml").write_text(text, encoding="utf-8")
    refused(plan("llama.yaml", "--out", "plan.json"), *words)


@pytest.mark.parametrize("case", LIMITS)
def test_bad_limits(folder: Path, case: str) -> None:
    text, *words = LIMITS[case]
    write_job(Path(), "llama")
    Path("limits.yaml").write_text(text, encoding="utf-8")
    refused(plan("llama.yaml", "--limits", "limits.yaml", "--out", "plan.json"), *words)


def write_csv(row: dict[str, str], header: tuple[str, ...] = COLUMNS) -> str:
    lines = [",".join(header), ",".join(row.get(name, "") for name in header)]
    Path("book.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "book.csv"


@pytest.mark.parametrize("case", ROWS)
def test_bad_rows_of_a_csv(folder: Path, case: str) -> None:
    change, word = ROWS[case]
    write_job(Path(), "llama")
    refused(plan("llama.yaml", "--book", write_csv({**ROW, **change}), "--out", "plan.json"), word)


def test_a_csv_with_wrong_columns(folder: Path) -> None:
    write_job(Path(), "llama")
    short = write_csv(ROW, tuple(name for name in COLUMNS if name != "spot_usd_per_hour"))
    refused(plan("llama.yaml", "--book", short, "--out", "plan.json"), "book.csv", "spot_usd_per_hour")
    Path("book.csv").write_text("price,place\n1,here\n", encoding="utf-8")
    refused(plan("llama.yaml", "--book", "book.csv", "--out", "plan.json"), "book.csv", "accelerator")
    Path("book.csv").write_text("", encoding="utf-8")
    refused(plan("llama.yaml", "--book", "book.csv", "--out", "plan.json"), "book.csv")


def test_a_csv_is_a_book_when_it_is_right(folder: Path) -> None:
    write_job(Path(), "llama")
    header = (*COLUMNS, "machines_cap", "interruptions_per_hour")
    book = write_csv({**ROW, "machines_cap": "2", "interruptions_per_hour": "0.01"}, header)
    result = plan("llama.yaml", "--book", book, "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert [(x["market"], x["usd_per_hour"]) for x in json.loads(result.stdout)["lines"]] == [("spot", "30.00")]


@pytest.mark.parametrize("keep", [100, -100])
def test_a_truncated_parquet(folder: Path, keep: int) -> None:
    write_job(Path(), "llama")
    whole = Path("book.parquet")
    book = embedded_book()
    write_book(book.with_offers(book.offers[:50]), whole)
    whole.write_bytes(whole.read_bytes()[:keep])
    refused(plan("llama.yaml", "--book", "book.parquet", "--out", "plan.json"), "book.parquet", "truncated")


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(folder: Path, case: str) -> None:
    arguments, *words = OPTIONS[case]
    write_job(Path(), "llama")
    now = () if "--now" in arguments else ("--now", "2026-11-21T18:00:00Z")
    refused(run("plan", "llama.yaml", "--out", "plan.json", *now, *arguments), *words)


def test_no_jobs(folder: Path) -> None:
    Path("jobs").mkdir()
    refused(plan("jobs", "--out", "plan.json"), "jobs: error: holds no .yaml or .yml file")
    refused(plan("nowhere", "--out", "plan.json"), "nowhere")
    refused(plan("*.yaml", "--out", "plan.json"), "*.yaml")
    refused(run("plan"), "missing argument")


def test_a_plan_that_cannot_be_written_is_a_failure(folder: Path) -> None:
    write_job(Path(), "llama")
    result = plan("llama.yaml", "--out", "no/where.json")
    assert result.exit_code == 1
    assert "no/where.json: cannot be written" in result.stderr
    assert "Traceback" not in result.output
    assert [path.name for path in Path().iterdir()] == ["llama.yaml"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda text: text.replace("optimal", "feasible"),
            ("digest: was changed after it was made", "make the plan again"),
        ),
        (lambda text: text[:500], ("is not JSON",)),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 9'), ("schema_version 9 is not 1",)),
        (lambda text: "[]", ("is no plan",)),
        (lambda text: "", ("is not JSON",)),
    ],
    ids=["edited", "truncated", "later", "another", "empty"],
)
def test_plans_that_are_none(folder: Path, change: object, words: tuple[str, ...]) -> None:
    assert callable(change)
    write_job(Path("jobs"), "llama")
    good = Path("good.json")
    assert plan("jobs", "--out", good).exit_code == 0
    Path("bad.json").write_text(change(good.read_text(encoding="utf-8")), encoding="utf-8")
    for command in (
        ("plan", "show", "bad.json"),
        ("explain", "bad.json"),
        ("explain", "bad.json", "llama"),
        ("plan", "diff", "good.json", "bad.json"),
        ("plan", "diff", "bad.json", "good.json"),
    ):
        refused(run(*command), "bad.json", *words)
    for command in (
        ("plan", "show", "none.json"),
        ("plan", "diff", "good.json", "none.json"),
        ("explain", "none.json"),
    ):
        refused(run(*command), "none.json: error: no such file")
