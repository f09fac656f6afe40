"""``stepfare ledger close``: the books of a month are closed, for good."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.ledger_options import month_of
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store, who


def close(
    month: Annotated[str, typer.Argument(metavar="MONTH", help="Such as 2026-10.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also while machines of that month are not metered yet.")
    ] = False,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Close the books of a month, for good: there is no way to open them again.

    What becomes known later goes into open books as a correction of that month. Months are closed in order.

    \b
    stepfare ledger close 2026-10
    stepfare ledger close 2026-10 --anyway
    """
    from pricing.money import Usd
    from router.cli.clock import chosen_clock

    period, now = month_of("MONTH", month), chosen_clock()()
    with opened_store(deploy, clouds) as (_, store):
        found = store.ledger.verify()
        if found.problems:
            raise CommandError(f"the ledger is not what was written: {'; '.join(found.problems)}")
        _, nodes = store.overview.alive()
        open_ones = [node for node in nodes if node.made_at is not None and node.made_at < period.ends]
        if open_ones and not anyway:
            raise CommandError(
                f"{len(open_ones)} machines were there in {period} and are not metered yet",
                remedy="wait until they are released, or close --anyway: what they cost corrects it in open books",
            )
        done = store.periods.close(period, who=who(), at=now)
        store.audit(done.who, "ledger close", done.hash, Usd(0), now, period=str(period), head=done.head)
    console.note(f"{period} is closed, with {done.head} entries; note the hash of the last one elsewhere:")
    console.out(done.hash)
    return ExitCode.OK
