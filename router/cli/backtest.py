"""Command ``stepfare backtest``: replay policies against recorded spot availability and compare their costs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pricing.problems import InvalidInputError, Problem
from router.cli import console
from router.cli.completion import complete_books
from router.cli.options import TableOutput, option_error, parse_duration_option, parse_now, parse_option
from router.config.trace_files import Holes, ListPrices, TraceSet, read_trace_sets
from router.jobs.quantities import parse_duration
from router.render import backtest_page, backtest_text

if TYPE_CHECKING:
    from router.app.backtest import BacktestJob


def parse_policies(given: Sequence[str], probes: bool, blocks: int) -> list[str]:
    """Return the names of the policies, each once.

    With ``probes`` every policy must be able to probe zones. A policy that learns needs at least two blocks.
    """
    from router.backtest.windows import POLICIES, find_backtest_policy

    names, problems = list[str](), list[Problem]()
    for word in (word.strip() for text in given for word in text.split(",")):
        try:
            found = find_backtest_policy(word)
        except KeyError as error:
            problems.append(Problem("", "--policy", f"there is no policy {word!r}", str(error.args[0])))
            continue
        if probes and found.asks is None and found.plays is None:
            asking = ", ".join(name for name, policy in POLICIES.items() if policy.asks or policy.plays)
            problems.append(Problem("", "--policy", f"{found.name} cannot ask zones", f"with --probes: {asking}"))
        if found.learns and blocks == 1:
            what = f"{found.name} learns from the past, and with one block there is none"
            problems.append(Problem("", "--blocks", what, "at least 2"))
        names.append(found.name)
    if problems:
        raise InvalidInputError(problems)
    return list(dict.fromkeys(names))


def parse_seconds(option: str, text: str) -> int:
    """Return a duration in whole seconds, at least one."""
    total = parse_option(option, text, parse_duration).total_seconds()
    if total < 1 or total != int(total):
        raise option_error(option, f"{text} is not 1 s or more in whole seconds", "write 90m, 18h or 7d")
    return int(total)


PUBLISHED_POLICIES = ("greedy", "sliced", "up", "up-plain")
DEFAULT_POLICIES = ("ours", *PUBLISHED_POLICIES)
PROBING_POLICIES = ("greedy", "up-s", "lindy", "skynomad")
_MOST_BLOCKS = 100

#: Treatment of a tick without an observation.
MissingTicksOption = Literal["refuse", "down", "last"]


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """Options of the work: of job files, or as they state it themselves."""

    work: Annotated[str | None, typer.Option(metavar="DURATION", help="Without job files: the amount of work.")] = None
    deadline: Annotated[
        list[str] | None, typer.Option(metavar="DURATION", help="Time from the start to the deadline; repeatable.")
    ] = None
    ratio: Annotated[
        list[float] | None, typer.Option(metavar="X", help="Deadline as a multiple of the work; repeatable.")
    ] = None
    changeover: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Time lost and billed at each launch. Default: 12m, or the job's."),
    ] = None
    checkpoint: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Data moved between regions. Default: none.")
    ] = None
    gang: Annotated[int | None, typer.Option(min=1, metavar="N", help="Machines that start together.")] = None
    accelerator: Annotated[
        str | None, typer.Option(metavar="NAME:COUNT", help="With job files: accelerators of a machine of the traces.")
    ] = None
    book: Annotated[
        str,
        typer.Option(
            metavar="BOOK", autocompletion=complete_books, help="With job files: the book that describes the machine."
        ),
    ] = "latest"
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="With job files: moment from which deadlines count.")
    ] = None

    def works(self, jobs: Sequence[str] | None) -> tuple[BacktestJob, ...]:
        """Return the work of the job files, or the one that the other options describe."""
        from router.app.backtest import DEFAULT_CHANGEOVER, GB_PER_GIB, BacktestJob, backtest_jobs_of
        from router.jobs.quantities import parse_gib

        launch = parse_duration_option("--changeover", self.changeover)
        if jobs:
            given = {"--work": self.work, "--checkpoint": self.checkpoint, "--gang": self.gang}
            for option in (option for option, value in given.items() if value is not None):
                raise option_error(option, "the job files say that", f"leave {option} out")
            if self.accelerator is None:
                what = "is missing: how fast a job is depends on the machines of which the traces are"
                raise option_error("--accelerator", what, "e.g. --accelerator H100:8")
            return backtest_jobs_of(jobs, parse_now(self.now), self.book, self.accelerator, launch)
        if self.work is None:
            raise option_error("--work", "is missing", "name job files, or say --work 48h")
        if self.accelerator is not None:
            what = "is for job files; --work is time on the traces' machines"
            raise option_error("--accelerator", what, "leave it out")
        if not self.deadline and not self.ratio:
            remedy = "say --deadline 60h, or --ratio 1.25 for 1.25 times the work"
            raise option_error("--deadline", "is missing", remedy)
        gib = 0.0 if self.checkpoint is None else parse_option("--checkpoint", self.checkpoint, parse_gib)
        if gib < 0:
            raise option_error("--checkpoint", f"{self.checkpoint} is below nothing", "write 50 GB")
        changeover_time = DEFAULT_CHANGEOVER if launch is None else launch
        lost_s = round(changeover_time.total_seconds())
        return (
            BacktestJob(
                f"{self.work} of work", parse_seconds("--work", self.work), lost_s, gib * GB_PER_GIB, self.gang or 1
            ),
        )

    def deadlines(self) -> tuple[list[int], Sequence[float]]:
        """Return the deadlines in seconds from the start, and those as a multiple of the work."""
        deadlines = [parse_seconds("--deadline", text) for text in self.deadline or ()]
        if too_low := [share for share in self.ratio or () if not share >= 1]:
            raise option_error("--ratio", f"{too_low[0]} is below 1", "a deadline of 1.25 times the work: 1.25")
        return deadlines, self.ratio or ()


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Options of how traces are read."""

    prices: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Price files for JSON traces.")] = None
    spot_price: Annotated[
        float | None, typer.Option(metavar="USD", help="Price of a machine hour, for traces without prices.")
    ] = None
    on_demand_price: Annotated[float | None, typer.Option(metavar="USD", help="The same for on-demand.")] = None
    holes: Annotated[
        MissingTicksOption, typer.Option(help="Ticks without an observation: an error, no machine, or as before.")
    ] = "refuse"
    tick: Annotated[str | None, typer.Option(metavar="DURATION", help="Interval between looks.")] = None

    def read(self, paths: Sequence[str]) -> tuple[TraceSet, ...]:
        """Return the traces of these files, folders and globs."""
        return read_trace_sets(
            paths,
            prices=self.prices,
            listed=self.list_prices(),
            holes=Holes(self.holes),
            tick_s=None if self.tick is None else parse_seconds("--tick", self.tick),
        )

    def list_prices(self) -> ListPrices | None:
        """Return the prices of traces that have none, or None if no price was given."""
        if self.spot_price is None and self.on_demand_price is None:
            return None
        if self.spot_price is None or self.on_demand_price is None:
            missing = "--spot-price" if self.spot_price is None else "--on-demand-price"
            raise option_error(missing, "is missing", "give both prices, or neither")
        for option, usd in (("--spot-price", self.spot_price), ("--on-demand-price", self.on_demand_price)):
            if not 0 < usd < float("inf"):
                raise option_error(option, f"{usd} is not a price above zero", "e.g. 0.918")
        return ListPrices(self.spot_price, self.on_demand_price)


def backtest(
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="Job files, folders or globs.")] = None,
    *,
    traces: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Folder, file or 'glob' of traces; repeatable."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="See --list-policies; repeatable, or with commas.")
    ] = None,
    list_policies: Annotated[bool, typer.Option("--list-policies", help="List the policies and exit.")] = False,
    probes: Annotated[bool, typer.Option("--probes", help="All policies probe zones, and pay for it.")] = False,
    zones: Annotated[
        list[str] | None,
        typer.Option(metavar="each|all|grow|A,B", help="Each alone, all joined, 1 to all, or these joined."),
    ] = None,
    work_options: WorkOptions,
    egress: Annotated[float, typer.Option(min=0, metavar="USD", help="Price of a GB from region to region.")] = 0.02,
    transfer: Annotated[
        str | None, typer.Option(metavar="RATE", help="Speed of a move, such as 2 GB/s. Default: instant.")
    ] = None,
    trace_options: TraceOptions,
    every: Annotated[str, typer.Option(metavar="DURATION", help="Interval between windows.")] = "6h",
    blocks: Annotated[
        int,
        typer.Option(
            min=1, max=_MOST_BLOCKS, metavar="N", help="Blocks of time: learn from earlier ones, score the next."
        ),
    ] = 6,
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Parallel processes. Default: all cores.")
    ] = None,
    output: TableOutput = "table",
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write one row per window and policy.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.")] = None,
) -> None:
    """Compare what each policy would have cost on recorded spot availability.

    \b
    stepfare backtest --traces traces/v100 --work 48h --deadline 60h
    stepfare backtest --traces 'traces/*_v100_1.json' --spot-price 0.97 \\
      --on-demand-price 3.06 --work 48h --ratio 1.1 --ratio 1.5 --html b.html
    stepfare backtest jobs/ --traces traces/h100 --accelerator H100:8 \\
      --zones all --policy ours,up-s,skynomad --csv windows.csv
    stepfare backtest --list-policies

    Policies learn only from data recorded before a window begins; see docs/backtest.md.
    """
    from router.app.backtest import GB_PER_GIB, cells_of, run_backtest
    from router.backtest.scores import follow_window, pick_widest_window, pool_windows, score_policies
    from router.backtest.windows import CheckpointMove, WindowLayout
    from router.jobs.quantities import parse_gib_per_s

    if list_policies:
        console.out(backtest_text.policies(console.screen()))
        return
    if not traces:
        raise option_error("--traces", "is missing", "a folder of traces: docs/backtest.md says of which form")
    console.check_output_folders(csv, html)
    windows = WindowLayout(blocks, parse_seconds("--every", every))
    names = parse_policies(
        policy or (PROBING_POLICIES if probes else PUBLISHED_POLICIES if blocks == 1 else DEFAULT_POLICIES),
        probes,
        blocks,
    )
    works = work_options.works(jobs)
    deadlines, ratios = work_options.deadlines()
    rate = None if transfer is None else parse_option("--transfer", transfer, parse_gib_per_s) * GB_PER_GIB
    if rate is not None and not rate > 0:
        raise option_error("--transfer", "is not more than nothing", "write 2 GB/s")
    with console.progress("reading traces"):
        sets = trace_options.read(traces)
    move = CheckpointMove(usd_per_gb=egress)
    cells = cells_of(works, deadlines, ratios, sets, zones or ["each"], move, rate, windows)
    for work_item in works:
        for line in work_item.notes:
            console.note(line)
    count = processes or os.cpu_count() or 1
    with console.parallel_bar("parts played", "--processes") as advance:
        results = run_backtest(cells, windows, names, paid=probes, processes=count, advance=advance)
    pooled = pool_windows(cells, windows, results)
    scored = [(cell, score_policies(cell)) for cell in pooled]
    if csv is not None:
        console.write(backtest_text.rows(pooled), csv)
    if html is not None:
        with console.progress("drawing"):
            example = pick_widest_window(pooled)
            runs = follow_window(example, windows, names, paid=probes)
        console.write_output_file(html, backtest_page.page(scored, windows, example, runs).encode())
    screen = console.screen()
    as_json = output == "json"
    console.out(backtest_text.as_json(scored, windows) if as_json else backtest_text.table(scored, windows, screen))
