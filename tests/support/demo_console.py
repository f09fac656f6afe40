"""The data of ``stepfare serve --demo``: two nights' plans with what ran, bills, quotes and a history of prices.

``python -m tests.support.demo_console`` writes them anew into ``router/demo/console``.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from pricing.book import PriceBook
from pricing.book_file import EMBEDDED_AS_OF, embedded_book, write_book
from pricing.history import PricePoint
from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.access.identity import local_operator
from router.app.queries.context import QueryContext
from router.app.queries.quote_questions import QuoteAsked, ask_quote, check_question
from router.app.settings import AppSettings
from router.app.state_restoration import APPROVAL_RULES, DEMO_AT
from router.config.approval_file import load_approval_rules
from router.config.job_files import load_jobs, read_limits
from router.controller.plans import store_limits
from router.deploy.deploy_settings import Deploy
from router.jobs.job_json import parse_job
from router.ledger.budget import Budget, Scope
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_from_json
from router.planning.document.plan_names import NIGHT
from router.prices import history
from router.prices.cloud_settings import Clouds, LoadedClouds
from tests.support.demo_nights import (
    APPROVER,
    EARLIER,
    MIDTRAINING,
    NOVEMBER,
    OCTOBER,
    DemoNights,
    interruptions,
    write_bills,
)
from tests.support.example_quotes import Promise, keep_promises
from tests.support.metered_stage import stage
from tests.support.night import NOW
from tests.support.repository import ROOT

DATA = ROOT / "router" / "demo" / "console"
NIGHTLY = ROOT / "examples" / "nightly"
QUOTED = "transformerxl-sessions"
STEPFARE = Path(sys.executable).with_name("stepfare")
_HOUR = timedelta(hours=1)

#: Jobs of the night before: one is done by tonight, one runs every night, one went on; the others could not begin yet.
YESTERDAY = NOW - 24 * _HOUR
GONE = ROOT / "tests" / "support" / "night_before" / "maskrcnn-shelves.yaml"
NIGHTLY_JOB = "adapters-70b-nightly"
LATER = ("code-34b-pretrain", "llama3-70b-sft-code", "llama3-8b-domain", "mpt-70b-continued", "mpt-7b-pretrain")
#: Spot prices of the night before, made up: tonight's times a factor, by cloud, region and first letters of the type.
EARLIER_PRICES = {
    ("aws", "us-east-1", "p6-b200."): Decimal("1.12"),
    ("aws", "us-west-1", "p5en."): Decimal("1.15"),
    ("aws", "us-east-2", "p5.48xlarge"): Decimal("1.05"),
    ("aws", "eu-south-2", "p5en."): Decimal("0.94"),
    ("gcp", "europe-north1", "a3-highgpu-"): Decimal("0.93"),
}
#: Budgets beside those of the limits file.
BUDGET_OF_ALL = Usd.parse("85000")
#: How often spot pools were looked at.
_LOOK = timedelta(minutes=30)
_SOURCE = "made up for the demo"


def make_files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        # The latest prices of this home are the embedded ones.
        os.environ["STEPFARE_HOME"] = str(home := scratch / "home")
        tonight = _plan(scratch, NOW, {})
        last_night = plan_yesterday(scratch)
        _play(home, scratch, last_night, tonight, folder)
        for made in ("quotes", "history"):
            shutil.rmtree(folder / made, ignore_errors=True)
        shutil.copytree(home / "quotes", folder / "quotes", copy_function=shutil.copyfile)
        history.append(folder / "history", _history((last_night, tonight)))
        (folder / "history" / ".lock").unlink()


def _play(home: Path, scratch: Path, last_night: Plan, tonight: Plan, folder: Path) -> None:
    """Play both months, and write the state as a backup, and the bills."""
    rules = scratch / "approval.yaml"
    rules.write_text(APPROVAL_RULES, encoding="utf-8")
    limits = read_limits(NIGHTLY / "limits.yaml")
    loaded = (load_jobs([scratch / "jobs"], YESTERDAY), load_jobs([NIGHTLY], NOW))
    jobs = {job.digest: job for each in loaded for job in each.jobs}
    settings = AppSettings(Deploy(), LoadedClouds(Clouds(), {}), home, {})
    with stage(home, OCTOBER.begins) as playing:
        store = playing.store
        # A random key would make other bytes of the same nights.
        store.values.set("environments_key", "0" * 64)
        context = QueryContext(settings, store, lambda: playing.now, local_operator(APPROVER))
        nights = DemoNights(playing, context, load_approval_rules(rules), jobs, limits, last_night, tonight)
        nights.play()
        budgets = [(Scope.TEAM, team.team, team.budget) for team in limits.teams]
        for scope, name, usd in (*budgets, (Scope.ALL, "", BUDGET_OF_ALL)):
            at = NOVEMBER.begins
            store.budgets.put(Budget(scope=scope, name=name, since=NOVEMBER, usd=usd, who="finance@demo", at=at))
        store_limits(store, plan_content(tonight)["digest"], limits)
        keep_promises(home, _promises(nights))
        asking = replace(context, clock=lambda: DEMO_AT - timedelta(minutes=20), identity=local_operator("kofi@demo"))
        ask_quote(asking, check_question(asking, QuoteAsked(job=QUOTED)), lambda _: None)
        backup = folder / "state.backup"
        backup.unlink(missing_ok=True)
        store.whole.write(backup, ())
    backup.chmod(0o644)
    write_bills(folder, playing.machines)


def _promises(nights: DemoNights) -> Iterator[Promise]:
    """Yield an accepted quote of a run that cost more than it said, and one of a run that did not."""
    store = nights.stage.store
    prices = {"code-34b-pretrain": ("1240", "1380"), "retinanet-junctions": ("88", "95")}
    for run in EARLIER:
        if run.quoted:
            plan, (p50, p90) = nights.plans[run.job, run.night], prices[run.job]
            (digest,) = {each.job_digest for each in store.attempts.find(job=run.job, plan=plan)}
            job, (place, machines) = parse_job(store.plans.jobs([digest])[digest]), nights.place_of(run, {})
            start = datetime(2026, 11, run.night, 18, 15, tzinfo=UTC)
            yield Promise(job, plan, place, machines, start, timedelta(hours=float(run.hours)), p50, p90)


def _history(plans: tuple[Plan, ...]) -> Iterator[PricePoint]:
    """Yield thirty days of looks at the spot pools of the plans: prices that lead to tonight's, and what was there."""
    lines = [line for plan in plans for line in plan.lines if line.market == Market.SPOT.value]
    places = {(line.cloud, line.region, line.zone, line.instance_type): line.job for line in lines}
    yesterday = {offer.key: offer.usd_per_hour for offer in earlier_book().offers}
    for offer in embedded_book().offers:
        job = places.get((offer.cloud, offer.region, offer.zone, offer.instance_type))
        if job is None or offer.market is not Market.SPOT:
            continue
        chance, dry = random.Random("/".join(map(str, offer.key))), 0
        prices = [UsdPerHour(offer.usd_per_hour.nanos // 10**5 * chance.randint(90, 110) * 1000) for _ in range(28)]
        prices += [yesterday[offer.key], offer.usd_per_hour]
        for number in range(len(prices) * 48):
            at = NOW - NOW.hour * _HOUR - 29 * 24 * _HOUR + number * _LOOK
            dry = max(dry - 1, 0) or (chance.randint(1, 8) if chance.random() < 0.01 else 0)
            if at >= NOW:  # As the gangs of tonight found it.
                dry = any(lost <= at < again for lost, again in interruptions(job))
            if at <= DEMO_AT:
                price, place = prices[number // 48], (offer.cloud, offer.region, offer.zone, offer.instance_type)
                yield PricePoint(*place, offer.market, at, _SOURCE, price, 0.0 if dry else 1.0)


def plan_yesterday(scratch: Path) -> Plan:
    """Return the plan of the night before: the recipe of tonight's, with other jobs and prices."""
    jobs, book = scratch / "jobs", scratch / "book.parquet"
    jobs.mkdir()
    for file in (GONE, *(NIGHTLY / f"{name}.yaml" for name in (NIGHTLY_JOB, MIDTRAINING, *LATER))):
        text = file.read_text(encoding="utf-8")
        if file.stem in LATER and "earliest_start:" not in text:
            text = text.replace("\ndeadline:", f'\nearliest_start: "{NOW:%Y-%m-%dT%H:%MZ}"\ndeadline:')
        # It had been there for two hours.
        (jobs / file.name).write_text(text.replace("steps_done: 5200", "steps_done: 300"), encoding="utf-8")
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


def _plan(scratch: Path, now: datetime, instead: Mapping[str, str]) -> Plan:
    """Return the plan of a night, by the recipe of ``make plan``; ``instead`` replaces words of it."""
    (recipe,) = [
        line.strip().removeprefix("@$(BIN)/stepfare ")
        for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
        if line.startswith("\t@$(BIN)/stepfare plan ")
    ]
    file = scratch / f"plan-{now:%d}.json"
    words = shlex.split(recipe.replace("$(NOW)", now.isoformat()))
    assert instead.keys() <= set(words), recipe
    _run(scratch / "planned", [*(instead.get(word, word) for word in words), "--out", str(file)])
    return replace(plan_from_json(file.read_text(encoding="utf-8"), file.name), name=NIGHT)


def _run(home: Path, words: list[str]) -> None:
    environment = {**os.environ, "STEPFARE_HOME": str(home)}
    subprocess.run([str(STEPFARE), *words], cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    make_files(DATA)
