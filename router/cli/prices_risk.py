"""Command ``stepfare prices risk``: how often spot pools are interrupted, and what that rests on."""

from __future__ import annotations

from typing import Annotated

import typer

from router.cli import console
from router.cli.offer_options import (
    AcceleratorOption,
    CloudOption,
    LimitOption,
    MachineTypeOption,
    RegionOption,
    count_rows,
)
from router.cli.options import parse_now
from router.cli.output_options import OutInsteadOption, WideListOutput
from router.cli.planning_options import BookOption, LearnedOption, run_reader
from router.planning.document.plan_terms import BOOK
from router.prices.books import load_book
from router.render.offers_text import OfferFilters


def risk(
    pool: Annotated[
        str | None,
        typer.Argument(metavar="POOL", help="One pool: aws/us-east-1/p5.48xlarge, or its zone in place of the region."),
    ] = None,
    cloud: CloudOption = None,
    region: RegionOption = None,
    accelerator: AcceleratorOption = None,
    instance_type: MachineTypeOption = None,
    learned: LearnedOption = None,
    limit: LimitOption = None,
    book: BookOption = BOOK,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Moment of the answer (ISO, with zone).")] = None,
    output: WideListOutput = "table",
    out: OutInsteadOption = None,
) -> None:
    """Show how often spot machines are interrupted and what that rests on, the calmest pools first.

    With POOL it shows all evidence about that pool, the rate by age, and what would change it. Figures are of one
    machine, since the whole of a gang is hit more often; docs/interruptions.md explains them.

    \b
    stepfare prices risk --accelerator H100
    stepfare prices risk aws/us-east-1/p5.48xlarge
    stepfare prices risk --cloud gcp -o csv --out risk.csv
    """
    from router.app.queries.pool_risk import find_pool_risks, list_pool_risks
    from router.jobs.experience import count_losses, learn_pools
    from router.render import pool_risk_text

    moment = parse_now(now)
    source = load_book(book)
    runs = run_reader(learned, moment, present=now is None)(source)
    known = source.risk.with_records(learn_pools(runs.pools, moment))
    losses = count_losses(runs.pools, moment)
    filters = OfferFilters(
        clouds=tuple(cloud or ()),
        regions=tuple(region or ()),
        accelerators=tuple(accelerator or ()),
        instance_types=tuple(instance_type or ()),
    )
    if pool is None:
        found = list_pool_risks(source, known, filters, moment.date(), prefix="--", losses=losses)
    else:
        if filters != OfferFilters():
            console.note("POOL names one pool: the filters are not used", "warning")
        found = find_pool_risks(source, known, pool, losses)
    machine_readable = output in {"json", "csv"}
    rows = count_rows(limit, machine_readable=machine_readable)
    shown = found[:rows] if rows else found
    if not found:
        console.note("no spot offer passes the filters")
    if len(shown) < len(found):
        console.note(f"{len(shown)} of {len(found)} pools; --limit 0 shows all")
    if pool is not None and len(found) > 1:
        console.note(f"{len(found)} zones; `stepfare prices risk {found[0].pool}` shows all that is known of one")
    if shown or machine_readable:
        writers = {
            "table": lambda: (
                pool_risk_text.ledger(shown[0], console.screen(file=out))
                if pool is not None and len(found) == 1
                else pool_risk_text.table(shown, console.screen(file=out))
            ),
            "wide": lambda: pool_risk_text.wide(shown, console.screen(file=out)),
            "json": lambda: pool_risk_text.as_json(shown, source, moment),
            "csv": lambda: pool_risk_text.as_csv(shown),
        }
        console.write(writers[output](), out)
