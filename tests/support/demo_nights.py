"""The two months of the demo: earlier runs of tonight's jobs, then last night's and tonight's plan as they run.

All of it is one world: jobs, teams and places are those of the plans, and what a team has spent until tonight is what
the limits file says. Nothing is random: the same records come out again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from pricing.book_file import embedded_book
from pricing.money import UsdPerHour
from pricing.places import Market, RegionId
from router.app.queries.approvals import approve_plan
from router.app.queries.context import QueryContext
from router.app.state_restoration import DEMO_AT
from router.controller.accept.accept import AcceptedOrders, record_acceptance, requests_of
from router.controller.accept.approval import ApprovalRules
from router.controller.plans import orders_of
from router.controller.provision.provision_order import ProvisionRequest
from router.controller.workspace.placement_options import GangPlacement, fill_list_prices
from router.jobs.job_json import job_json, parse_job
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.jobs.speed import Speed, gang_speed
from router.ledger.month import Month
from router.planning.document.plan import Line, Plan
from router.planning.document.plan_json import plan_content, plan_to_json
from router.planning.document.plan_names import NIGHT, QUOTE
from router.planning.document.plan_terms import TRIAL
from router.state.records import Attempt, NodeRecord, NoticeRecord
from tests.support.made_up_bill import Account, Row, write_bill
from tests.support.metered_stage import HOUR, MINUTE, Life, Place, Stage, planned

OCTOBER, NOVEMBER = Month(2026, 10), Month(2026, 11)
MIDTRAINING = "gpt-oss-120b-midtraining"
MAKER, APPROVER, APPLIER = "nightly@demo", "ana", "mira@desk"
#: Plans are made at six, applied soon, and what begins at once is there a quarter of an hour later.
_APPLIED_AFTER, _MADE_AFTER = 12 * MINUTE, 15 * MINUTE
#: What was billed by now.
_BILLED_UNTIL = datetime(2026, 11, 20, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """An earlier run of a job: the night of November whose plan ordered it, planned hours, and hours more or fewer.

    ``offset``: hours after the first gangs of the night. ``lost_after``: hours until its machines were interrupted,
    once. ``at``: the job whose place it had, None its own.
    ``deadline`` "": some hours after its planned end. ``settles``: its price is such that the team has spent what
    the limits file says. ``quoted``: in November its plan is that of a quote that was accepted.
    """

    job: str
    night: int
    hours: Fraction
    more: Fraction = Fraction(0)
    offset: int = 0
    lost_after: int = 0
    at: str | None = None
    deadline: str = ""
    settles: bool = False
    quoted: bool = False


def _run(job: str, night: int, hours: str, more: str = "0", **changes: object) -> EarlierRun:
    return EarlierRun(job, night, Fraction(hours), Fraction(more), **changes)  # type: ignore[arg-type]


#: Those of October are the same a month before, half as long.
EARLIER = (
    _run("mpt-70b-continued", 2, "120"),
    _run("eval-sweep-7b", 3, "60"),
    _run(MIDTRAINING, 4, "60"),
    _run("qwen3-30b-math", 4, "96"),
    _run("llama2-13b-sft-legal", 5, "7.8"),
    _run("flux-product-shots", 6, "2.4", deadline="+8h"),
    _run("scaling-law-125m", 6, "120"),
    _run("bert-reranker-squad", 6, "6"),
    _run("resnet50-weekly", 7, "1.8", deadline="+24h"),
    _run("llama3-70b-lora-support", 7, "15", "2", deadline="+16h"),
    _run("mpt-7b-pretrain", 8, "72"),
    _run("retinanet-junctions", 8, "7.6", quoted=True),
    _run("mpt-13b-pretrain", 9, "150", "18", lost_after=70),
    _run("faq-7b-lora", 9, "10"),
    _run("tts-voices", 9, "30", lost_after=12),
    _run("eval-sweep-7b", 10, "60"),
    _run("unet3d-crossvalidation", 11, "8.4"),
    _run("bert-large-pretraining", 11, "64"),
    _run("llama3-70b-sft-code", 12, "7.2"),
    _run("transformerxl-sessions", 12, "20"),
    _run("qwen3-30b-math", 12, "160", settles=True),
    _run("flux-product-shots", 13, "2.4", deadline="+8h"),
    _run("llama3-8b-domain", 13, "60"),
    _run("resnet50-weekly", 14, "1.8", deadline="+24h"),
    _run("code-34b-pretrain", 14, "26", "4", quoted=True),
    _run("llama2-7b-sft-chat", 14, "16", at="embed-catalogue", settles=True),
    _run("mpt-70b-continued", 15, "100", settles=True),
    _run("bert-large-pretraining", 15, "80", settles=True),
    _run("eval-sweep-7b", 17, "28"),
    *(_run("embed-catalogue", night, "3", deadline="+36h") for night in range(2, 20, 2)),
    *(_run("adapters-70b-nightly", night, "12", offset=3, deadline="+24h") for night in (17, 18, 19)),
)
#: Gangs of tonight that were interrupted: after how long, and whether they were there again soon.
INTERRUPTED = {"bert-large-pretraining": (96 * MINUTE, True), "faq-7b-lora": (240 * MINUTE, False)}
_LOST, _AWAY = "interrupted", 12 * MINUTE


@dataclass
class DemoNights:
    """The demo's evening and the months before it, played on the stage.

    ``context`` asks as who approves plans. ``jobs`` are those of both nights, by digest. ``plans``: the plan that
    ordered an earlier run of November, by job and night.
    """

    stage: Stage
    context: QueryContext
    rules: ApprovalRules
    jobs: Mapping[str, Job]
    limits: Limits
    last_night: Plan
    tonight: Plan
    plans: dict[tuple[str, int], str] = field(default_factory=dict)

    def play(self) -> None:
        """Play October, which is closed on the fourth of November, November, and both nights until now."""
        self._play_month(OCTOBER.begins - NOVEMBER.begins, Fraction(1, 2), {})
        self.stage.store.periods.close(OCTOBER, who="finance@demo", at=NOVEMBER.begins + 81 * HOUR)
        self._play_month(timedelta(0), Fraction(1), self._settled_prices())
        self._begin_midtraining()
        for plan in (self.last_night, self.tonight):
            self._apply(plan)

    def _play_month(self, shift: timedelta, share: Fraction, prices: Mapping[EarlierRun, str]) -> None:
        """Accept a plan for each night, then play its runs in the order in which they end."""
        played: list[tuple[EarlierRun, str, Job, Line, list[Life]]] = []
        for night, quoted in sorted({(run.night, run.quoted and not shift) for run in EARLIER}, key=_first_quoted):
            evening = datetime(2026, 11, night, 18, tzinfo=UTC) + shift
            own = [
                (run, self._earlier_job(run))
                for run in EARLIER
                if (run.night, run.quoted and not shift) == (night, quoted)
            ]
            lines = []
            for run, job in own:
                place, machines = self.place_of(run, prices)
                begun = evening + _MADE_AFTER + run.offset * HOUR
                lines.append(_line(job, place, begun, run.hours * share, machines))
            # A quote is accepted an hour before its run begins.
            as_of = evening + _MADE_AFTER - HOUR if quoted else evening
            digest = self._accept(as_of, [job for _, job in own], lines, QUOTE if quoted else NIGHT)
            played += [
                (run, digest, job, line, _earlier_lives(run, job, line.start, share))
                for (run, job), line in zip(own, lines, strict=True)
            ]
            self.plans |= {(run.job, night): digest for run, _ in own}
        for run, digest, job, line, lives in sorted(played, key=lambda each: (_end(each[4]), each[0].job)):
            place, machines = self.place_of(run, prices)
            for life in lives:
                self.stage.run(digest, job, place, life, machines, line.end)

    def _begin_midtraining(self) -> None:
        """Begin the gang that tonight's job file says to run, with as many steps done at six as it says."""
        job = self._job(MIDTRAINING)
        status = job.status
        assert status is not None
        assert status.running is not None
        assert status.running.since is not None
        begun, first = status.running.since, _changed(job, status=None)
        place, machines = self.place_of(EarlierRun(MIDTRAINING, 20, Fraction(100)), {})
        line = _line(first, place, begun, Fraction(100), machines)
        plan = self._accept(begun - 30 * MINUTE, [first], [line], TRIAL)
        pace = status.steps_done / ((self.tonight.as_of - begun - first.startup) / HOUR)
        self.stage.run(plan, first, place, _life(first, begun, pace), machines, line.end)

    def _apply(self, plan: Plan) -> None:
        """Approve and accept a plan, and play its orders that begin until now; a gang that runs is left alone."""
        digest: str = plan_content(plan)["digest"]
        store, jobs = self.stage.store, {each.job: self.jobs[each.job_digest] for each in plan.jobs}
        store.made_plans.put(digest, plan_to_json(plan), plan.as_of, plan.as_of, MAKER, NIGHT)
        store.plans.put_jobs({job.digest: job_json(job) for job in jobs.values()}, plan.as_of)
        self.stage.now = plan.as_of + _APPLIED_AFTER
        approve_plan(self.context, self.rules, plan, digest, name=APPROVER, login=APPROVER, note="as every night")
        accepted = self._accepted(plan)
        specs = {job.digest: job_json(job) for job in jobs.values()}
        record_acceptance(self.stage.site, accepted, plan_to_json(plan), APPLIER, APPROVER, specs, self.limits)
        for request, choice, lives in self._begun(plan):
            for life in lives:
                attempt = self.stage.live(digest, request.job, request.order, choice, life)
                if life.reason == _LOST and life.gone is not None:
                    at = life.gone - MINUTE
                    store.notices.add(NoticeRecord(attempt.id, 0, "n1", "interruption", "imds", 30.0, "", at))

    def _accepted(self, plan: Plan) -> AcceptedOrders:
        digest, jobs = plan_content(plan)["digest"], {each.job: self.jobs[each.job_digest] for each in plan.jobs}
        return requests_of(plan, digest, orders_of(plan), jobs, embedded_book(), 1, self.limits)

    def _begun(self, plan: Plan) -> list[tuple[ProvisionRequest, GangPlacement, list[Life]]]:
        """Return the orders of a plan that began by now, and until tonight's if it is the earlier one.

        One that runs already is left alone.
        """
        found = []
        for request in self._accepted(plan).requests:
            if request.order.job != MIDTRAINING and request.order.start < min(DEMO_AT, plan.as_of + 24 * HOUR):
                choice = fill_list_prices(request.choices[0], embedded_book())
                lives = _begun_lives(request.job, choice, request.order.start + _MADE_AFTER)
                found.append((request, choice, lives))
        return sorted(found, key=lambda each: (_end(each[2]), each[0].order.job))

    def _accept(self, as_of: datetime, jobs: Sequence[Job], lines: Sequence[Line], name: str = NIGHT) -> str:
        digest = self.stage.accept(as_of, jobs, lines, APPLIER)
        text = self.stage.store.plans.plan(digest)
        assert text is not None
        self.stage.store.made_plans.put(digest, text, as_of, as_of, MAKER, name)
        return digest

    def _job(self, name: str) -> Job:
        return self.jobs[next(each.job_digest for each in self.tonight.jobs if each.job == name)]

    def _earlier_job(self, run: EarlierRun) -> Job:
        """Return the job as it was then, with as many steps as its hours had room for."""
        job, (place, machines) = self._job(run.job), self.place_of(run, {})
        steps = max(1, round(_speed(job, place.cloud, place.instance_type, machines) * float(run.hours)))
        deadline = run.deadline or f"+{math.ceil(run.hours * Fraction(6, 5)) + 6}h"
        return _changed(job, status=None, earliest_start=None, deadline=deadline, steps=steps)

    def place_of(self, run: EarlierRun, prices: Mapping[EarlierRun, str]) -> tuple[Place, int]:
        """Return the place that tonight's plan has first for the job, and how many machines; of a mixed gang, spot."""
        lines = [line for line in self.tonight.lines if line.job == (run.at or run.job)]
        gang = [line for line in lines if (line.gang, line.start) == (lines[0].gang, lines[0].start)]
        line = min(gang, key=lambda each: each.market != Market.SPOT.value)
        rate = line.amortised_usd_per_hour if line.market == Market.RESERVED.value else line.usd_per_hour
        assert rate is not None
        own = UsdPerHour(rate.nanos // line.machines)
        listed = embedded_book().on_demand(RegionId(line.cloud, line.region), line.zone, line.instance_type) or own
        place = Place(
            line.cloud, line.region, line.zone or "", line.instance_type, Market(line.market),
            prices.get(run, str(own)), str(listed), line.accelerator, line.accelerators // line.machines,
        )  # fmt: skip
        return place, sum(each.machines for each in gang)

    def _settled_prices(self) -> dict[EarlierRun, str]:
        """Return the prices with which the teams of the limits file have spent what it says, until tonight."""
        spent = {each.team: Decimal(each.spent.nanos) / 10**9 for each in self.limits.teams}
        for run in EARLIER:
            if not run.settles and (team := self._job(run.job).team) in spent:
                place, machines = self.place_of(run, {})
                lives = _earlier_lives(run, self._earlier_job(run), NOVEMBER.begins, Fraction(1))
                spent[team] -= Decimal(place.usd) * machines * _hours(lives)
        for request, choice, lives in self._begun(self.last_night):
            if request.job.team in spent:
                spent[request.job.team] -= Decimal(str(choice.usd_per_hour)) * _hours(lives)
        found = {}
        for run in EARLIER:
            if run.settles:
                _, machines = self.place_of(run, {})
                price = spent[self._job(run.job).team] / machines / int(run.hours)
                assert price == price.quantize(Decimal("1e-9")), f"{run.job}: {price} is no price"
                found[run] = f"{price.normalize():f}"
        return found


def _line(job: Job, place: Place, start: datetime, hours: Fraction, machines: int) -> Line:
    """Return a line whose steps take all of its hours."""
    pace = job.steps / float(hours)
    return planned(job, place, start, str(hours), machines=machines, steps=job.steps, steps_per_hour=pace)


def _first_quoted(night: tuple[int, bool]) -> tuple[int, bool]:
    """Return the order of plans: that of a quote is made before the one of the night."""
    return night[0], not night[1]


def interruptions(job: str) -> Iterator[tuple[datetime, datetime]]:
    """Yield from when until when the pool of a job of tonight had no machines."""
    if job in INTERRUPTED:
        lost_after, is_back = INTERRUPTED[job]
        lost = datetime(2026, 11, 21, 18, tzinfo=UTC) + _MADE_AFTER + lost_after
        yield lost, lost + _AWAY if is_back else DEMO_AT + MINUTE


def write_bills(folder: Path, machines: Sequence[tuple[Attempt, NodeRecord]]) -> None:
    """Write what the clouds sent until two days ago: each machine of November at its price, support and tax."""
    for cloud, (title, support) in _CLOUDS.items():
        account = Account(
            issuer=f"{title} (made up)", provider=title, number="111122223333", sub_account="training", month=NOVEMBER
        )
        rows: list[Row] = []
        for attempt, node in machines:
            if attempt.cloud == cloud and node.gone_at is not None and node.gone_at > NOVEMBER.begins:
                price = f"{(Decimal(node.usd_per_hour.nanos) / 10**9).normalize():f}"
                paid = {"BilledCost": "0"} if node.market is Market.RESERVED else {}
                rows += [{**row, **paid} for row in account.machine(attempt, node, price, "Machines", _BILLED_UNTIL)]
        fee = ("Management and Governance", "Support", "Support")
        said = {"ChargeCategory": "Purchase", "ChargeFrequency": "Recurring", "ChargeDescription": "support, a month"}
        rows.append(account.row(NOVEMBER.begins, NOVEMBER.ends, Decimal(support), fee, **said))
        write_bill(folder / f"bill-{cloud}.csv", sorted(rows, key=lambda row: row["ChargePeriodStart"]))


_CLOUDS = {
    "aws": ("Example AWS", "400"), "gcp": ("Example Google Cloud", "250"), "azure": ("Example Microsoft", "100")
}  # fmt: skip


def _earlier_lives(run: EarlierRun, job: Job, begun: datetime, share: Fraction) -> list[Life]:
    """Return the lives of a gang that finishes after the hours that it took."""
    gone = begun + _span(share * (run.hours + run.more))
    pace = job.steps / ((gone - begun - job.startup) / HOUR)
    if not run.lost_after:
        return [_life(job, begun, pace, gone)]
    lost = _life(job, begun, pace, begun + _span(share * run.lost_after), reason=_LOST)
    return [lost, _life(job, begun + _span(share * run.lost_after) + _AWAY, pace, gone, lost.saved or 0)]


def _begun_lives(job: Job, choice: GangPlacement, made: datetime) -> list[Life]:
    """Return the lives of a gang of a plan until now: it is done, trains, or was interrupted."""
    pace = _speed(job, choice.cloud, choice.seats[0].instance_type, len(choice.seats))
    if job.name not in INTERRUPTED or made.date() != DEMO_AT.date():
        gone = made + _span(Fraction(job.startup // MINUTE + 3, 60) + Fraction(job.steps) / Fraction(pace))
        return [_life(job, made, pace, gone if gone < DEMO_AT else None)]
    lost_after, is_back = INTERRUPTED[job.name]
    lost = _life(job, made, pace, made + lost_after, reason=_LOST)
    return [lost, _life(job, made + lost_after + _AWAY, pace, first=lost.saved or 0)] if is_back else [lost]


def _life(
    job: Job, made: datetime, pace: float, gone: datetime | None = None, first: int = 0, reason: str = "finished"
) -> Life:
    """Return the life of a gang that trains at a pace from its first step on, until it is gone, or now."""
    met, is_done = made + job.startup, gone is not None and reason != _LOST
    end = DEMO_AT - timedelta(seconds=4) if gone is None else gone - 3 * MINUTE if is_done else gone
    apart = max(40 * MINUTE, (end - met) / 24)
    saves = [] if job.checkpoint is None else [met + n * apart for n in range(1, (end - met) // apart + 1)]
    saved_at = [(at, _step(first, pace, at - met)) for at in saves]
    step, saved = _step(first, pace, end - met), saved_at[-1][1] if saved_at else None
    return Life(
        made=made, gone=gone, met=met, ended=end, reason=reason, first=first, step_seconds=3600 / pace,
        saved_at=saved_at, step=job.steps if is_done else step, saved=job.steps if is_done else saved,
    )  # fmt: skip


def _step(first: int, pace: float, trained: timedelta) -> int:
    return first + round(pace * (trained / HOUR))


def _speed(job: Job, cloud: str, instance_type: str, machines: int) -> float:
    """Return the steps an hour that the job's file says of these machines."""
    book = embedded_book()
    machine = book.machine(cloud, instance_type)
    assert machine is not None
    accelerator = book.accelerator(machine.accelerator)
    assert accelerator is not None
    speed = gang_speed(job.workload, machine, machines, accelerator, tuple(book.accelerators))
    assert isinstance(speed, Speed), speed
    return speed.steps_per_hour


def _changed(job: Job, **changes: object) -> Job:
    return parse_job(json.dumps({**json.loads(job_json(job)), **changes}))


def _end(lives: Sequence[Life]) -> datetime:
    return lives[-1].gone or DEMO_AT


def _span(hours: Fraction) -> timedelta:
    """Return the time in whole three minutes, as bills of the demo have it."""
    return round(hours * 20) * 3 * MINUTE


def _hours(lives: Sequence[Life]) -> Decimal:
    return sum((Decimal((each.gone - each.made) // MINUTE) / 60 for each in lives if each.gone), Decimal(0))
