"""Command ``stepfare estimate``: compare what a step of one job costs on several gangs, without a plan."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pricing.places import Market
from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import OutInsteadOption, WideListFormat, WideListOutput, option_error, parse_now
from router.cli.planning_options import AdvisoryOption, BookOption, LearnedOption, report_experience, run_reader
from router.planning.document.plan_terms import BOOK
from router.render import estimate_text

if TYPE_CHECKING:
    from datetime import datetime

    from router.planning.estimate.gang_estimates import JobEstimate


class EstimateMarket(StrEnum):
    """Market that an estimate asks for."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


LauncherName = Literal["torchrun", "megatron", "deepspeed"]
LayoutChoice = Literal["job", "auto"]


def estimate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file.")],
    gangs: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="NAME:COUNT,...",
            help="Gangs to compare, as `gang.accelerators` in the job file. Default: those of the job file, for which "
            "alone its `gang.machines` holds.",
        ),
    ] = None,
    market: Annotated[
        list[EstimateMarket] | None,
        typer.Option(metavar="spot|on_demand", help="Only this market; repeatable. Default: both."),
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="The job, where the file holds several.")] = None,
    layout: Annotated[LayoutChoice, typer.Option(help="As the job file states, or the fastest that fits.")] = "job",
    launcher: Annotated[
        LauncherName | None, typer.Option(help="Print the cheapest gang's layout as flags of this launcher too.")
    ] = None,
    book: BookOption = BOOK,
    learned: LearnedOption = None,
    advisory: AdvisoryOption = False,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Present moment (ISO, with zone).")] = None,
    output: WideListOutput = "table",
    out: OutInsteadOption = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page: costs and intervals by gang.")
    ] = None,
) -> ExitCode:
    """Compare what a step of a job costs on several gangs, without a plan.

    Speed, dollars a step and a million tokens, the layout, memory. Each gang is the whole job in one run on the
    cheapest offer that may serve it, by the figures of a plan. The job's deadline, limits files and other jobs do not
    count. Intervals hold four times in five.

    \b
    stepfare estimate job.yaml
    stepfare estimate job.yaml --on H100:8,H200:8,MI300X:8
    stepfare estimate job.yaml --on H100:64 --layout auto --launcher megatron
    stepfare estimate job.yaml --on H100:8,B200:8 -o json
    stepfare estimate job.yaml --html estimate.html

    A gang without an answer is a row with the reason. The exit code is 3 if no gang has one.
    """
    from router.app.estimate import EstimateQuestion, estimate_job, parse_gangs

    if launcher is not None and output == "csv":
        raise option_error("--launcher", "flags are not printed beside csv", "choose another -o; json has all of them")
    console.check_output_folders(out, html)
    moment = parse_now(now)
    markets = [Market(each.value) for each in dict.fromkeys(market or EstimateMarket)]
    question = EstimateQuestion(
        file=file,
        job=job,
        gangs=parse_gangs(gangs or ()),
        markets=tuple(markets),
        book=book,
        now=moment,
        runs=run_reader(learned, moment, present=now is None),
        advisory=advisory,
        any_layout=layout == "auto",
    )
    answer, experience = estimate_job(question)
    report_experience(experience)
    if html is not None:
        from router.render.estimate_page import estimate_page

        console.write_output_file(html, estimate_page(answer, moment).encode())
    console.write(_text(answer, moment, output, launcher, out), out)
    if answer.best is None:
        console.note(f"no gang can run {answer.job.name}")
        return ExitCode.UNPLACED
    return ExitCode.OK


def _text(
    answer: JobEstimate, moment: datetime, output: WideListFormat, launcher: LauncherName | None, out: Path | None
) -> str:
    if output == "json":
        from router.planning.estimate.estimate_json import estimate_to_json

        return estimate_to_json(answer, moment)
    if output == "csv":
        return estimate_text.as_csv(answer)
    form = estimate_text.wide if output == "wide" else estimate_text.table
    text = form(answer, console.screen(file=out))
    if launcher is None or answer.best is None:
        return text
    flags = estimate_text.launcher_text(answer.best, launcher)
    if flags is None:
        console.note(f"no {launcher} flags: {answer.job.name} states no `transformer`, so its layout is unknown")
        return text
    return f"{text}\n{flags}\n"
