"""Options of ``stepfare backtest`` as values. Each function raises an InvalidInputError that names the option."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError, Problem
from router.cli.options import option_error, parse_duration_option, parse_now

if TYPE_CHECKING:
    from router.app.backtest_jobs import BacktestJob
    from router.config.trace_values import ListPrices


def parse_policies(given: Sequence[str], probes: bool, blocks: int) -> list[str]:
    """Return the names of the policies, each once.

    With ``probes`` every policy must be able to probe zones. A policy that learns needs at least two blocks.
    """
    from router.backtest.catalogue import POLICIES, find_backtest_policy

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


def build_works(
    jobs: Sequence[str] | None,
    work: str | None,
    deadline: Sequence[str] | None,
    ratio: Sequence[float] | None,
    changeover: str | None,
    checkpoint: str | None,
    gang: int | None,
    accelerator: str | None,
    book: str,
    now: str | None,
) -> tuple[BacktestJob, ...]:
    """Return the work of the job files, or the one that the other options describe."""
    from router.app.backtest_jobs import DEFAULT_CHANGEOVER, GB_PER_GIB, BacktestJob, backtest_jobs_of
    from router.jobs.quantities import parse_gib

    launch = parse_duration_option("--changeover", changeover)
    if jobs:
        given = {"--work": work, "--checkpoint": checkpoint, "--gang": gang}
        for option in (option for option, value in given.items() if value is not None):
            raise InvalidInputError.single("the job files say that", field=option, remedy=f"leave {option} out")
        if accelerator is None:
            what = "is missing: how fast a job is depends on the machines of which the traces are"
            raise InvalidInputError.single(what, field="--accelerator", remedy="e.g. --accelerator H100:8")
        return backtest_jobs_of(jobs, parse_now(now), book, accelerator, launch)
    if work is None:
        raise InvalidInputError.single("is missing", field="--work", remedy="name job files, or say --work 48h")
    if accelerator is not None:
        what = "is for job files; --work is time on the traces' machines"
        raise InvalidInputError.single(what, field="--accelerator", remedy="leave it out")
    if not deadline and not ratio:
        remedy = "say --deadline 60h, or --ratio 1.25 for 1.25 times the work"
        raise InvalidInputError.single("is missing", field="--deadline", remedy=remedy)
    try:
        gib = 0.0 if checkpoint is None else parse_gib(checkpoint)
    except ValueError as error:
        raise option_error("--checkpoint", error) from None
    if gib < 0:
        raise InvalidInputError.single(f"{checkpoint} is below nothing", field="--checkpoint", remedy="write 50 GB")
    changeover_time = DEFAULT_CHANGEOVER if launch is None else launch
    lost_s = round(changeover_time.total_seconds())
    return (BacktestJob(f"{work} of work", parse_seconds("--work", work), lost_s, gib * GB_PER_GIB, gang or 1),)


def parse_seconds(option: str, text: str, least: int = 1) -> int:
    """Return a duration in whole seconds, at least ``least``."""
    duration = parse_duration_option(option, text)
    assert duration is not None
    total = duration.total_seconds()
    if total < least or total != int(total):
        what = f"{text} is not {least} s or more in whole seconds"
        raise InvalidInputError.single(what, field=option, remedy="write 90m, 18h or 7d")
    return int(total)


def parse_list_prices(spot: float | None, on_demand: float | None) -> ListPrices | None:
    """Return the prices of traces that have none, or None if no price was given."""
    from router.config.trace_values import ListPrices

    if spot is None and on_demand is None:
        return None
    if spot is None or on_demand is None:
        missing = "--spot-price" if spot is None else "--on-demand-price"
        raise InvalidInputError.single("is missing", field=missing, remedy="give both prices, or neither")
    for option, usd in (("--spot-price", spot), ("--on-demand-price", on_demand)):
        if not 0 < usd < float("inf"):
            raise InvalidInputError.single(f"{usd} is not a price above zero", field=option, remedy="e.g. 0.918")
    return ListPrices(spot, on_demand)
