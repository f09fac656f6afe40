"""Command ``stepfare status``: show gangs, machines and costs as they are now."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from router.cli import console
from router.cli.completion import complete_plans
from router.cli.console import CommandError, ExitCode
from router.cli.output_options import OUTPUT
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store, own_context

if TYPE_CHECKING:
    from router.controller.report.report import StatusReport

_SECONDS = 1.0


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
) -> ExitCode:
    """Show gangs, their machines and attempts, and their cost so far, without asking any cloud.

    \b
    stepfare status
    stepfare status llama2-7b-sft-chat -o wide
    stepfare status -o json
    """
    from router.app.queries.jobs import report_status
    from router.cli.options import chosen_clock
    from router.render import status_text

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
        if any(gang.waits or not gang.attempt.phase.is_over for gang in first.gangs):
            from router.app.coordinator_address import is_coordinator_reachable

            if not is_coordinator_reachable(opened, store):
                console.note("nobody listens to these gangs: run `stepfare watch`", "warning")
        write: Callable[[StatusReport], str] = {
            "json": status_text.as_json,
            "wide": lambda report: status_text.as_wide(report, console.screen()),
            "table": lambda report: status_text.as_table(report, console.screen()),
        }[output]
        if watch:
            _refresh(lambda: write(look()))
        else:
            console.out(write(first))
    return ExitCode.OK


def _refresh(text: Callable[[], str]) -> None:
    while True:
        console.out(console.replace_screen(text()))
        time.sleep(_SECONDS)
