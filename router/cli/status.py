"""Commands ``stepfare status`` and ``logs``: gangs, machines and costs as they are now, and the output of ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from router.cli import console
from router.cli.completion import complete_jobs, complete_plans
from router.cli.console import CommandError, ExitCode
from router.cli.options import OUTPUT, chosen_clock
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store, own_context
from router.render import status_text

if TYPE_CHECKING:
    from router.controller.report.report import StatusReport
    from router.state.records import Attempt
    from router.state.store import StateStore

_REFRESH_S = 1.0
StatusFormat = Literal["table", "wide", "json"]


def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB|ATTEMPT|PLAN]...",
            autocompletion=complete_plans,
            help="Jobs, attempts or plans to show. Default: all.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Include earlier attempts of each job.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second, until Ctrl-C.")] = False,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: Annotated[StatusFormat, OUTPUT] = "table",
) -> None:
    """Show gangs, their machines and attempts, and their cost so far, without asking any cloud.

    \b
    stepfare status
    stepfare status llama2-7b-sft-chat -o wide
    stepfare status -o json
    """
    from router.app.queries.jobs import report_status

    clock = chosen_clock()
    with open_state_store(settings_files, makes=False) as (opened, store):
        context = own_context(opened, store, clock)

        def look() -> StatusReport:
            return report_status(context, names or (), everything=every)

        first = look()
        if names and not first.gangs:
            raise CommandError(
                f"nothing was ever made for {', '.join(names)}", ExitCode.INVALID_INPUT, "see `status --all`"
            )
        write: Callable[[StatusReport], str] = {
            "json": status_text.as_json,
            "wide": lambda report: status_text.as_wide(report, console.screen()),
            "table": lambda report: status_text.as_table(report, console.screen()),
        }[output]
        if not watch:
            console.out(write(first))
        while watch:
            console.out(console.replace_screen(write(look())))
            time.sleep(_REFRESH_S)


_FOLLOW_S = 0.5


def logs(
    job_or_attempt: Annotated[
        str,
        typer.Argument(
            metavar="JOB|ATTEMPT", autocompletion=complete_jobs, help="An attempt, or a job: its newest attempt."
        ),
    ],
    rank: Annotated[
        int | None, typer.Option(min=0, help="Only this rank. Default: all, each line with its rank.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="LINES", help="Only the last lines of each rank.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines until the attempt or job is over.")
    ] = False,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Print the output of a training, as the coordinator on this machine received it.

    \b
    stepfare logs llama2-7b-sft-chat --rank 0 --follow
    stepfare logs llama2-7b-sft-chat --tail 50
    """
    from router.controller.history.lifecycle import RESUMABLE_REASONS

    with open_state_store(settings_files, makes=False) as (opened, store):
        attempt = _attempt(store, job_or_attempt)
        readers = _readers(opened.logs, attempt, rank)
        for reader in readers:
            reader.show(tail)
        while follow:
            now = store.attempts.get(attempt.id)
            over = now is None or now.phase.is_over
            for reader in readers:
                reader.show(None)
            newest = _attempt(store, job_or_attempt)
            if newest.id != attempt.id and over:
                console.note(f"{newest.job} continues as {newest.id}")
                attempt, readers = newest, _readers(opened.logs, newest, rank)
            elif over and not (job_or_attempt == newest.job and newest.reason in RESUMABLE_REASONS):
                break
            time.sleep(_FOLLOW_S)
        if not any(reader.offset for reader in readers):
            console.note(f"{attempt.id} has printed nothing yet ({attempt.phase})")


def _readers(folder: Path, attempt: Attempt, rank: int | None) -> list[_Reader]:
    ranks = [rank] if rank is not None else list(range(attempt.machines))
    if ranks[-1] >= attempt.machines:
        raise CommandError(f"{attempt.id} has ranks 0 to {attempt.machines - 1}", ExitCode.INVALID_INPUT)
    return [_Reader(folder / attempt.id / f"rank-{r}.log", "" if len(ranks) == 1 else f"[{r}] ") for r in ranks]


def _attempt(store: StateStore, job_or_attempt: str) -> Attempt:
    attempts = [a for a in store.attempts.find() if job_or_attempt in (a.id, a.job)]
    if not attempts:
        raise CommandError(
            f"no job and no attempt is called {job_or_attempt}", ExitCode.INVALID_INPUT, "see `stepfare status --all`"
        )
    return attempts[-1]


class _Reader:
    def __init__(self, path: Path, prefix: str) -> None:
        self._path, self._prefix = path, prefix
        self.offset = 0
        self._rest = ""

    def show(self, tail: int | None) -> None:
        """Print the whole lines added since the last call, or only the last ``tail`` of them."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self.offset)
                data = stream.read()
        except FileNotFoundError:
            return
        self.offset += len(data)
        lines = (self._rest + data.decode("utf-8", "replace")).split("\n")
        self._rest = lines.pop()
        for line in lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]:
            console.out(f"{self._prefix}{line}")
