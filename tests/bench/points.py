"""Check speeds that are fitted to a few measured points against the published step times that were not used.

    python -m tests.bench.points

Step times: 7 points on up to three machines of each job (1 and 4 accelerators at the smallest and largest batch, one
on each of three machines, four on each of three at both batches) predict all other rows of profile_step_times.csv.
Scaling: 1 and 2 workers predict 4 and 8 of gavel_throughputs.csv. Runs: the smallest one or two numbers of accelerators
of a published run on NVLink machines predict up to four times as many (published_training_runs.csv). Beside each: the
power law that is used for points without batch and placement. Errors are relative to the published figure; coverage is
the share inside the 80 % interval.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from router.jobs.point_model import PointLinks, StepMeasurement, StepPlace, fit_form
from router.jobs.profile_point import ProfilePoint
from router.jobs.speed import Speed, _from_profile

FACTS: Final = Path(__file__).resolve().parents[3] / "shared/facts"
PLACES: Final = (("1", 0), ("1", -1), ("4", 0), ("4", -1), ("111", 0), ("444", 0), ("444", -1))
WITHIN_80: Final = 1.2816  # standard deviations of a normal
ERROR: Final = 0.05
LINKS: Final = PointLinks(switched=False, rdma=False)
RDMA: Final = PointLinks(switched=True, rdma=True)


@dataclass(frozen=True, slots=True)
class PredictionScore:
    """Relative errors of predictions, and how many lie inside the 80 % interval (None: no interval is given)."""

    errors: tuple[float, ...]
    inside: int | None

    @property
    def median(self) -> float:
        return statistics.median(self.errors)

    @property
    def high(self) -> float:
        """Return the 90th percentile, between ranks."""
        return statistics.quantiles(self.errors, n=10, method="inclusive")[-1]

    def __str__(self) -> str:
        covered = "" if self.inside is None else f", coverage {self.inside / len(self.errors):.0%}"
        return f"median {self.median:.3f}, p90 {self.high:.3f}{covered} ({len(self.errors)} rows)"


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """A row of a table: seconds of a step at a place."""

    place: StepPlace
    seconds: float
    placement: str = ""


def main() -> None:
    if not FACTS.is_dir():
        print("SPEED FROM POINTS: skipped, the shared facts are not here")
        return
    for line in report():
        print(line, flush=True)


def report() -> Iterator[str]:
    jobs = step_times()
    yield "SPEED FROM POINTS: 7 points on up to 3 machines, all other step times (reference fit .092 / .275)"
    for name, rows in jobs.items():
        yield f"  {name:10} {score_step_times([rows])}"
    yield f"  all        {score_step_times(jobs.values())}"
    yield f"  power law  {score_step_times_by_law(jobs.values())}"
    for consolidated in ("yes", "no"):
        kind = "one machine" if consolidated == "yes" else "a machine each"
        for workers in (("k80", "p100", "v100"), ("k80", "p100")):
            curves = scaling_curves(consolidated, workers)
            yield f"SCALING: 1 and 2 workers predict 4 and 8, {kind}, {', '.join(workers)}"
            yield f"  fitted     {score_scaling(curves, apart=consolidated == 'no')}"
            yield f"  power law  {score_scaling_by_law(curves)}"
    for number in (1, 2):
        form, law = score_runs(number)
        yield f"RUNS: the smallest {number} of a published run predict up to 4 times as many accelerators"
        yield f"  fitted     {form}"
        yield f"  power law  {law}"


def step_times() -> dict[str, list[PublishedStep]]:
    jobs: dict[str, list[PublishedStep]] = {}
    with (FACTS / "profile_step_times.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            machines = int(row["nodes"])
            place = StepPlace(machines, int(row["gpus"]) / machines, float(row["local_batch"]))
            published = PublishedStep(place, float(row["step_time_s"]), row["placement"])
            jobs.setdefault(row["app"], []).append(published)
    return jobs


def profile_of(rows: Iterable[PublishedStep]) -> list[PublishedStep]:
    """Return the seven rows that stand for what a user measures."""
    by_place: dict[str, list[PublishedStep]] = {}
    for row in rows:
        by_place.setdefault(row.placement, []).append(row)
    largest = max(row.place.batch for row in by_place["444"])
    found = []
    for placement, end in PLACES:
        sizes = sorted((r for r in by_place[placement] if r.place.batch <= largest), key=lambda r: r.place.batch)
        found.append(sizes[end])
    return found


def score_step_times(jobs: Iterable[list[PublishedStep]]) -> PredictionScore:
    """Return the errors of the form over all rows that are not in the profile of their job."""
    errors: list[float] = []
    inside = 0
    for rows in jobs:
        profile = profile_of(rows)
        form = fit_form(tuple(StepMeasurement(r.place, r.seconds, ERROR) for r in profile), LINKS)
        for row in rows:
            if row not in profile:
                seconds, error = form.predict(row.place)
                errors.append(abs(seconds / row.seconds - 1))
                inside += abs(math.log(seconds / row.seconds)) < WITHIN_80 * error
    return PredictionScore(tuple(errors), inside)


def score_step_times_by_law(jobs: Iterable[list[PublishedStep]]) -> PredictionScore:
    """Return the errors of the power law through the same points, in samples an hour: it knows no batch."""
    errors: list[float] = []
    for rows in jobs:
        profile = profile_of(rows)
        by_count = {int(r.place.accelerators): r for r in profile}  # the law has one point a count: the last is kept
        points = [_law_point(count, 3600 * _samples(r) / r.seconds) for count, r in sorted(by_count.items())]
        for row in rows:
            if row not in profile:
                speed = _from_profile(points, round(row.place.accelerators))
                if isinstance(speed, Speed):
                    errors.append(abs(3600 * _samples(row) / speed.steps_per_hour / row.seconds - 1))
    return PredictionScore(tuple(errors), None)


def _samples(row: PublishedStep) -> float:
    return row.place.batch * row.place.accelerators


def _law_point(count: int, steps_per_hour: float) -> ProfilePoint:
    return ProfilePoint(accelerator="T4", count=count, steps_per_hour=steps_per_hour)


def scaling_curves(consolidated: str, workers: Iterable[str]) -> list[Mapping[int, float]]:
    """Return steps a second of all workers by their number, for each job, batch and accelerator."""
    curves: dict[tuple[str, str, str], dict[int, float]] = {}
    with (FACTS / "gavel_throughputs.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            if row["consolidated"] == consolidated and row["worker_type"] in workers:
                key = (row["worker_type"], row["job_type"], row["batch_size"])
                curves.setdefault(key, {})[int(row["scale_factor"])] = float(row["steps_per_s"])
    return [curve for _, curve in sorted(curves.items()) if {1, 2, 4, 8} <= curve.keys()]


def score_scaling(curves: Iterable[Mapping[int, float]], *, apart: bool) -> PredictionScore:
    """Return the errors of the form at 4 and 8 workers; each has the same batch, whatever their number."""
    errors: list[float] = []
    inside = 0
    for curve in curves:
        points = (StepMeasurement(_workers(n, apart=apart), n / curve[n], ERROR) for n in (1, 2))
        form = fit_form(tuple(points), LINKS)
        for n in (4, 8):
            seconds, error = form.predict(_workers(n, apart=apart))
            errors.append(abs(n / seconds / curve[n] - 1))
            inside += abs(math.log(n / seconds / curve[n])) < WITHIN_80 * error
    return PredictionScore(tuple(errors), inside)


def _workers(number: int, *, apart: bool) -> StepPlace:
    return StepPlace(number, 1, 1.0) if apart else StepPlace(1, number, 1.0)


def score_scaling_by_law(curves: Iterable[Mapping[int, float]]) -> PredictionScore:
    """Return the errors of the power law at 4 and 8 workers."""
    errors: list[float] = []
    for curve in curves:
        points = [_law_point(n, 3600 * curve[n]) for n in (1, 2)]
        for n in (4, 8):
            speed = _from_profile(points, n)
            if isinstance(speed, Speed):
                errors.append(abs(speed.steps_per_hour / (3600 * curve[n]) - 1))
    return PredictionScore(tuple(errors), None)


def published_runs() -> list[list[PublishedStep]]:
    """Return published runs that differ in the number of accelerators and the batch alone, on 8 of a machine."""
    keys = ("source", "model", "accelerator", "precision", "seq_len", "tensor_parallel", "pipeline_parallel")
    runs: dict[tuple[str, ...], list[PublishedStep]] = {}
    with (FACTS / "published_training_runs.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            count, batch, tokens = row["accelerators"], row["global_batch_sequences"], row["tokens_per_s"]
            if not (count and batch and tokens) or row["accelerator"].startswith("TPU"):
                continue
            machines = -(-int(count) // 8)
            place = StepPlace(machines, int(count) / machines, float(batch) / int(count))
            seconds = float(batch) * float(row["seq_len"]) / float(tokens)
            runs.setdefault(tuple(row[key] for key in keys), []).append(PublishedStep(place, seconds))
    return [sorted(run, key=lambda r: (r.place.accelerators, r.place.batch)) for _, run in sorted(runs.items())]


def score_runs(number: int) -> tuple[PredictionScore, PredictionScore]:
    """Return the errors of the form and of the power law from the smallest ``number`` sizes of each run."""
    errors: list[float] = []
    by_law: list[float] = []
    inside = 0
    for run in published_runs():
        first = {round(r.place.accelerators): r for r in reversed(run)}  # the smallest batch of each size
        sizes = sorted(first)[:number]
        larger = [r for r in run if sizes[-1] < r.place.accelerators <= 4 * sizes[-1]]
        form = fit_form(tuple(StepMeasurement(first[n].place, first[n].seconds, ERROR) for n in sizes), RDMA)
        points = [_law_point(n, 3600 * _samples(first[n]) / first[n].seconds) for n in sizes]
        for row in larger if len(sizes) == number else ():
            seconds, error = form.predict(row.place)
            errors.append(abs(row.seconds / seconds - 1))
            inside += abs(math.log(seconds / row.seconds)) < WITHIN_80 * error
            speed = _from_profile(points, round(row.place.accelerators))
            assert isinstance(speed, Speed)
            by_law.append(abs(speed.steps_per_hour * row.seconds / 3600 / _samples(row) - 1))
    return PredictionScore(tuple(errors), inside), PredictionScore(tuple(by_law), None)


if __name__ == "__main__":
    main()
