"""The data of ``stepfare serve --demo``: two nights' plans, a quote, the example month and a gang that runs.

``python -m tests.support.demo_console`` writes them anew into ``router/demo/console``.
"""

from __future__ import annotations

import gzip
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from pricing.book import PriceBook
from pricing.book_file import EMBEDDED_AS_OF, embedded_book, write_book
from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.access.identity import local_operator
from router.app.console_demo import BOOKS_AT, BUDGETS, NIGHT_AT
from router.app.settings import AppSettings
from router.config.added_file import read_added_entries
from router.config.job_files import read_jobs
from router.config.limits_file import read_limits
from router.controller.deploy_settings import Deploy
from router.controller.plan_limits import store_limits
from router.controller.workspaces import job_json
from router.ledger.budget import Budget
from router.ledger.month import Month
from router.planning.plan_json import plan_content, plan_from_json
from router.planning.restricted_limits import restrict_limits
from router.prices.cloud_settings import Clouds, LoadedClouds
from router.queries.context import QueryContext
from router.queries.quote_limits import QuestionLimits
from router.queries.quote_questions import QuoteQuestion, ask_quote, check_question
from router.quotes.quote import LimitsPlan
from router.state.store import StateStore
from tests.support.example_month import CODE, EAST, TTS, WHISPER, ExampleMonth
from tests.support.example_quotes import keep_promises
from tests.support.live_gangs import resume_whisper
from tests.support.metered_stage import planned, stage
from tests.support.night import NOW
from tests.support.repository import ROOT

DATA = ROOT / "router" / "demo" / "console"
NIGHTLY = ROOT / "examples" / "nightly"
MONTH = ROOT / "examples" / "showback"
BILLS = ("bill-aws.csv", "bill-gcp.csv", "bill-azure.csv")
QUOTED = "llama2-13b-sft-legal"
STEPFARE = Path(sys.executable).with_name("stepfare")
_HOUR = timedelta(hours=1)

#: What was different the night before: a job that is done by tonight, jobs that nobody had sent yet, spot prices.
YESTERDAY = NOW - 24 * _HOUR
GONE = ROOT / "tests" / "support" / "night_before" / "maskrcnn-shelves.yaml"
NEW = (QUOTED, "qwen3-30b-math")
#: Spot prices of the night before, made up: tonight's times a factor, by cloud, region and first letters of the type.
EARLIER_PRICES = {
    ("aws", "us-east-1", "p6-b200."): Decimal("1.12"),
    ("aws", "us-east-2", "p5.48xlarge"): Decimal("1.05"),
    ("aws", "eu-south-2", "p5en."): Decimal("0.94"),
    ("gcp", "europe-north1", "a3-highgpu-"): Decimal("0.93"),
}


def make_files(folder: Path) -> None:
    """Write all files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in BILLS:
        shutil.copyfile(MONTH / name, folder / name)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        # The latest prices of this home are the embedded ones.
        os.environ["STEPFARE_HOME"] = str(home)
        tonight = _plan(Path(scratch), NOW, {})
        for name, text in (("plan", tonight), ("plan-before", plan_yesterday(Path(scratch)))):
            (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        _play(home, tonight, folder / "state.backup")
        shutil.rmtree(folder / "quotes", ignore_errors=True)
        shutil.copytree(home / "quotes", folder / "quotes", copy_function=shutil.copyfile)


def _play(home: Path, tonight: str, backup: Path) -> None:
    """Play the example month and a night after it, and write the state as a backup."""
    start = BOOKS_AT - 5 * _HOUR
    with stage(home, datetime(2026, 10, 1, tzinfo=UTC)) as playing:
        month = ExampleMonth(playing)
        month.play()
        keep_promises(home, month.plans, CODE, TTS)
        store = playing.store
        store.ledger.add(
            read_added_entries(MONTH / "added.yaml", "finance@demo", datetime(2026, 12, 2, 10, tzinfo=UTC))
        )
        for scope, name, dollars in BUDGETS:
            at = datetime(2026, 11, 1, tzinfo=UTC)
            usd = Usd.parse(dollars)
            store.budgets.put(Budget(scope=scope, name=name, since=Month(2026, 11), usd=usd, who="finance@demo", at=at))
        plan = playing.accept(start - _HOUR, [WHISPER], [planned(WHISPER, EAST, start, 6, steps=WHISPER.steps)])
        # The last night of the month, begun again: what runs is in no month's books yet.
        last = max(store.attempts.find(job=WHISPER.name), key=lambda each: each.created_at)
        resume_whisper(store, last.id, start, BOOKS_AT, plan=plan)
        jobs = read_jobs([NIGHTLY], NOW)
        store.plans.put_jobs({job.digest: job_json(job) for job in jobs}, NIGHT_AT)
        digest = plan_content(plan_from_json(tonight, "tonight"))["digest"]
        store_limits(store, digest, read_limits(NIGHTLY / "limits.yaml"))
        _quote(home, store, digest)
        backup.unlink(missing_ok=True)
        store.whole.write(backup, ())
    backup.chmod(0o644)


def plan_yesterday(scratch: Path) -> str:
    """Return the plan of the night before as a file: the recipe of tonight's, with other jobs and prices."""
    jobs, book = scratch / "jobs", scratch / "book.parquet"
    jobs.mkdir()
    for file in (GONE, *sorted(NIGHTLY.glob("*.yaml"))):
        if file.stem not in (*NEW, "limits"):
            shutil.copyfile(file, jobs / file.name)
    write_book(earlier_book(), book)
    return _plan(scratch, YESTERDAY, {"examples/nightly": str(jobs), "embedded": str(book)})


def earlier_book() -> PriceBook:
    """Return the embedded book with the spot prices of a day before."""
    tonight, as_of = embedded_book(), EMBEDDED_AS_OF - 24 * _HOUR
    offers = list(tonight.offers)
    for (cloud, region, machines), factor in EARLIER_PRICES.items():
        changed = [
            n
            for n, offer in enumerate(offers)
            if (offer.cloud, offer.region, offer.market) == (cloud, region, Market.SPOT)
            and offer.instance_type.startswith(machines)
        ]
        assert changed, f"no offer of {cloud} {region} {machines}"
        for n in changed:
            price = UsdPerHour.parse(f"{Decimal(str(offers[n].usd_per_hour)) * factor:.4f}")
            offers[n] = replace(
                offers[n], usd_per_hour=price, source="made up for the demo", as_of=as_of.date(), not_before=False
            )
    return replace(tonight, as_of=as_of, offers=tuple(offers))


def _plan(scratch: Path, now: datetime, instead: Mapping[str, str]) -> str:
    """Return the plan of a night as a file, by the recipe of ``make plan``; ``instead`` replaces words of it."""
    (recipe,) = [
        line.strip().removeprefix("@$(BIN)/stepfare ")
        for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
        if line.startswith("\t@$(BIN)/stepfare plan ")
    ]
    file = scratch / f"plan-{now:%d}.json"
    words = shlex.split(recipe.replace("$(NOW)", now.isoformat()))
    assert instead.keys() <= set(words), recipe
    _run(scratch / "planned", [*(instead.get(word, word) for word in words), "--out", str(file)])
    return file.read_text(encoding="utf-8")


def _quote(home: Path, store: StateStore, plan: str) -> None:
    """Ask for a quote under the limits of tonight's plan as the console does; it is in the state with its job."""
    settings = AppSettings(Deploy(), LoadedClouds(Clouds(), {}), home, {})
    context = QueryContext(settings, store, lambda: NOW, local_operator("ana@demo"))
    document = (NIGHTLY / f"{QUOTED}.yaml").read_text(encoding="utf-8")
    checked = check_question(context, QuoteQuestion(document=document))
    # The plan itself is put into the state when the demo begins.
    limits = restrict_limits(read_limits(NIGHTLY / "limits.yaml"), checked.job.team)
    checked = replace(checked, limits=QuestionLimits(limits, LimitsPlan(plan, NOW)))
    ask_quote(context, checked, lambda _: None)


def _run(home: Path, words: list[str]) -> None:
    environment = {**os.environ, "STEPFARE_HOME": str(home)}
    subprocess.run([str(STEPFARE), *words], cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    make_files(DATA)
