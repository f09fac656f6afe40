"""Command ``stepfare quote --accept``: turn a quote into a plan of one job with a cost ceiling."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import CommandError, ExitCode

if TYPE_CHECKING:
    from pricing.money import Usd


def accept_stored_quote(
    name: str, ceiling: Usd | None, out: Path | None, book: str, limits: Path | None, now: datetime, *, tonight: bool
) -> int:
    """Write the plan of a quote and record the acceptance.

    ``tonight`` says that ``now`` is the present, so that budgets apply. Raises InvalidInputError and CommandError.
    """
    from router.app.accept_quote import plan_request_of, with_quoted_policy
    from router.app.budgets import BudgetConstraints
    from router.cli.site_options import acting_user, load_shortages_and_budgets, store_planned_jobs
    from router.config.limits_file import read_limits
    from router.config.quote_files import QuoteAcceptance, find_quote, store_acceptance
    from router.planning.plan_json import plan_content, plan_to_json
    from router.planning.planner import make_plan
    from router.prices.data_folders import quotes_folder
    from router.render.plan_text import table

    if out is None:
        raise InvalidInputError.single("the plan has to go somewhere", field="--out", remedy="name a file: plan.json")
    folder = quotes_folder()
    identity, quote = find_quote(folder, name)
    if now > quote.valid_until:
        what = f"{identity} was valid until {quote.valid_until:%Y-%m-%d %H:%MZ}"
        raise CommandError(what, ExitCode.STALE, "ask for the quote again")
    limit = ceiling if ceiling is not None else quote.usd.p90
    if limit is None:
        what = "the quote names no upper cost: the job may never be done on spot alone"
        raise InvalidInputError.single(what, field="--ceiling", remedy="say what it may cost")
    budgets = load_shortages_and_budgets(now)[1] if tonight else BudgetConstraints()
    request = plan_request_of(quote, limit, book, limits, now, budgets.limits)
    with console.progress(f"planning {quote.job}") as show_phase:
        plan = make_plan(request, progress=show_phase)
    if plan.unplaced:
        left_out = plan.unplaced[0]
        hints = "; ".join(f"{r.change}: {r.detail}" for r in left_out.relaxations)
        raise CommandError(
            f"{quote.job} cannot be planned within ${limit.dollars():,.2f}: {left_out.reason}",
            ExitCode.UNPLACED,
            hints or "raise --ceiling, or quote again",
        )
    plan = with_quoted_policy(plan, quote.run_policy)
    console.write(plan_to_json(plan), out)
    digest: str = plan_content(plan)["digest"]
    store_planned_jobs(request.jobs, digest, None if limits is None else read_limits(limits), now)
    store_acceptance(
        folder,
        QuoteAcceptance(
            identity, now.isoformat().replace("+00:00", "Z"), acting_user(), digest, request.jobs[0].digest, str(limit)
        ),
    )
    console.note(
        f"{identity} accepted: {quote.job} by {quote.deadline:%Y-%m-%d %H:%MZ} for at most ${limit.dollars():,.2f}"
    )
    if quote.run_policy is not None:
        console.note(f"run by {quote.run_policy}, which the quote was made for")
    elif quote.spot_share > 0:
        console.note(f"the quote counts on {quote.policy}, and an earlier version wrote no parameters: quote again")
    console.out(table(plan, console.screen()))
    return int(ExitCode.OK)
