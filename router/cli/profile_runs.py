"""Commands ``stepfare profile list``, ``show`` and ``forget``: what plans learn from earlier runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.book_check import did_you_mean
from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.completion import complete_books
from router.cli.console import CommandError, ExitCode
from router.cli.ledger_options import LedgerFormat, print_rows
from router.cli.options import parse_now
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, acting_user, open_state_store
from router.render.tables import format_timestamp

if TYPE_CHECKING:
    from datetime import datetime

    from router.jobs.experience import PoolRun, RunRecords
    from router.state.store import StateStore

Book = Annotated[
    str, typer.Option(metavar="BOOK", autocompletion=complete_books, help="Price book with the machine types.")
]
DeployFile = Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)]
CloudsFile = Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)]
Now = Annotated[str | None, typer.Option(metavar="TIME", help="Runs up to this moment (ISO, with zone).")]
Format = Annotated[LedgerFormat, typer.Option("--output", "-o", help="Format.")]


def list_runs(
    book: Book = "latest",
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
    output: Format = LedgerFormat.TABLE,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write all runs (JSON) for --learned FILE.")
    ] = None,
) -> ExitCode:
    """List the jobs and pools that plans learn from, with the number of runs and the date of the last.

    Older runs count less, half after 30 days, and none after 180.

    \b
    stepfare profile list
    stepfare profile list -o json
    stepfare profile list --out runs.json
    stepfare plan jobs/ --learned runs.json
    """
    from router.app.learned import runs_to_json

    moment = parse_now(now)
    with open_state_store(deploy, clouds, makes=False) as (_, store):
        records = _read(store, book, moment)
        for mark in _forgotten(store):
            console.note(mark)
    if out is not None:
        console.write(runs_to_json(records), out)
        return ExitCode.OK
    rows = [*_job_rows(records), *_pool_rows(records)]
    header = ("what", "runs", "measured", "last")
    print_rows(output, "learned", rows, header, frozenset({"RUNS"}), "nothing was measured yet")
    return ExitCode.OK


def show(
    name: Annotated[str, typer.Argument(metavar="JOB|POOL", help="Name as `profile list` prints it.")],
    book: Book = "latest",
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
    output: Format = LedgerFormat.TABLE,
) -> ExitCode:
    """Show each run of a job, with its measured speed, or of a pool, with the hours it was held.

    \b
    stepfare profile show llama2-7b-sft-chat
    stepfare profile show aws/us-east-1a/p5.48xlarge/spot -o csv
    """
    from router.controller.history.run_records import pool_name

    moment = parse_now(now)
    with open_state_store(deploy, clouds, makes=False) as (_, store):
        records = _read(store, book, moment)
    rows: list[dict[str, object]] = [
        {
            "attempt": run.attempt,
            "on": _gang(run.accelerators, run.accelerator, run.machines, run.fabric),
            "steps_per_hour": f"{run.steps_per_hour:.6g}",
            "ended": _time(run.at, output),
            "signature": run.signature[:12],
        }
        for run in records.speeds
        if run.job == name
    ]
    header: tuple[str, ...] = ("attempt", "on", "steps_per_hour", "ended", "signature")
    if not rows:
        header = ("attempt", "machines", "hours", "interrupted", "ended")
        rows = [
            {
                "attempt": run.attempt,
                "machines": run.machines,
                "hours": f"{run.hours:.2f}",
                "interrupted": "yes" if run.interrupted else "no",
                "ended": _time(run.at, output),
            }
            for run in records.pools
            if pool_name(run) == name
        ]
    if not rows:
        raise _unknown(name, records)
    rows.sort(key=lambda row: str(row["ended"]))
    print_rows(output, "runs", rows, header, frozenset({"STEPS PER HOUR", "MACHINES", "HOURS"}), "")
    return ExitCode.OK


def forget(
    name: Annotated[str, typer.Argument(metavar="JOB|POOL|ATTEMPT", help="Whose runs do not count any more.")],
    undo: Annotated[bool, typer.Option("--undo", help="Make them count again.")] = False,
    book: Book = "latest",
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
) -> ExitCode:
    """Ignore the runs up to now of a job, a pool or one attempt; later runs count.

    Nothing is deleted, and --undo makes them count again. The audit log records both.

    \b
    stepfare profile forget llama2-7b-sft-chat
    stepfare profile forget llama2-7b-sft-chat --undo
    stepfare profile forget llama2-7b-sft-chat-1a2b3c4d5e
    """
    from pricing.money import ZERO
    from router.controller.history.run_records import ForgottenRuns, forget_runs, pool_name, recall_runs

    moment = parse_now(now)
    with open_state_store(deploy, clouds, makes=False) as (_, store):
        if undo:
            if not recall_runs(store, name):
                raise CommandError(f"runs of {name} are not ignored", remedy="`stepfare profile list` says which are")
            store.audit.add(acting_user(), "runs recalled", "", ZERO, moment, name=name)
            console.note(f"runs of {name} count again")
            return ExitCode.OK
        records = _read(store, book, moment)
        found = {run.attempt for run in records.speeds if name in (run.job, run.attempt)}
        found |= {run.attempt for run in records.pools if name in (pool_name(run), run.attempt)}
        if not found:
            raise _unknown(name, records)
        forget_runs(store, ForgottenRuns(name, moment, acting_user()))
        store.audit.add(acting_user(), "runs forgotten", "", ZERO, moment, name=name, runs=len(found))
    console.note(f"runs of {name} up to now are ignored: {len(found)}; `stepfare profile forget {name} --undo`")
    return ExitCode.OK


def _read(store: StateStore, book: str, moment: datetime) -> RunRecords:
    from router.controller.history.run_records import read_runs
    from router.prices.books import load_book

    return read_runs(store, load_book(book), moment)


def _forgotten(store: StateStore) -> list[str]:
    from router.controller.history.run_records import forgotten_runs

    return [
        f"runs of {mark.name} up to {format_timestamp(mark.before)} are ignored ({mark.who})"
        for mark in forgotten_runs(store)
    ]


def _job_rows(records: RunRecords) -> list[dict[str, object]]:
    """Return a row for each job and gang that was measured."""
    groups: dict[tuple[str, str], list[tuple[datetime, float]]] = {}
    for run in records.speeds:
        gang = _gang(run.accelerators, run.accelerator, run.machines, run.fabric)
        groups.setdefault((run.job, gang), []).append((run.at, run.steps_per_hour))
    rows: list[dict[str, object]] = []
    for (job, gang), found in sorted(groups.items()):
        speeds = [speed for _, speed in found]
        span = f"{min(speeds):,.5g}" if len(found) == 1 else f"{min(speeds):,.5g} to {max(speeds):,.5g}"
        last = max(at for at, _ in found)
        rows.append(
            {"what": job, "runs": len(found), "measured": f"{span} steps/h on {gang}", "last": f"{last:%Y-%m-%d}"}
        )
    return rows


def _pool_rows(records: RunRecords) -> list[dict[str, object]]:
    from router.controller.history.run_records import pool_name

    groups: dict[str, list[PoolRun]] = {}
    for run in records.pools:
        groups.setdefault(pool_name(run), []).append(run)
    return [
        {
            "what": name,
            "runs": len(runs),
            "measured": f"{sum(run.interrupted for run in runs)} interruptions in {sum(r.hours for r in runs):,.1f} h",
            "last": f"{max(run.at for run in runs):%Y-%m-%d}",
        }
        for name, runs in sorted(groups.items())
    ]


def _gang(accelerators: int, accelerator: str, machines: int, fabric: str | None) -> str:
    return f"{accelerators} {accelerator}" + (f" in {machines} machines, {fabric}" if fabric else "")


def _time(at: datetime, output: LedgerFormat) -> str:
    return format_timestamp(at) if output is LedgerFormat.TABLE else at.isoformat()


def _unknown(name: str, records: RunRecords) -> InvalidInputError:
    from router.controller.history.run_records import pool_name

    known = sorted({run.job for run in records.speeds} | {pool_name(run) for run in records.pools})
    remedy = did_you_mean(name, known) or "see `stepfare profile list`"
    return InvalidInputError.single(f"no run of {name!r} is known", field="NAME", remedy=remedy)
