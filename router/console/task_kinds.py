"""Kinds of long work that a server's worker does: a plan is made, a quote simulated, an accepted quote's plan made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pricing.money import Usd
from router.access.identity import Grant, Identity, Role
from router.app.queries.context import QueryContext
from router.app.queries.plan_making import PlanAsked, check_plan_question, make_asked_plan
from router.app.queries.quote_acceptance import (
    AcceptanceInputs,
    QuoteAcceptedError,
    QuoteStaleError,
    QuoteUnplacedError,
    accept_quote,
    check_acceptable,
    present_budgets,
)
from router.app.queries.quote_questions import (
    QuestionLimits,
    QuoteAsked,
    ask_quote,
    check_question,
    prepare_question,
    runs_of_state,
)
from router.app.queries.quotes import find_quote
from router.app.queries.tasks import submit_task
from router.config.plan_files import QuoteAcceptance
from router.console.work import (
    BEGUN_BEFORE,
    Outcome,
    WorkError,
    WorkFunction,
    WorkResult,
    open_worker_store,
    worker_settings,
)
from router.jobs.limits import Limits
from router.jobs.quantities import Moment
from router.planning.document.restricted_limits import limits_text
from router.quotes.quote import LimitsPlan
from router.quotes.quote_json import answers_to_json
from router.state.tasks import TaskRow

PLAN = "plan"
QUOTE = "quote"
QUOTE_ACCEPTANCE = "quote_acceptance"


def submit_plan(context: QueryContext, question: PlanAsked) -> TaskRow:
    """Queue a plan to make, and return its task. InvalidInputError with everything wrong in the documents."""
    team = check_plan_question(context, question)
    request = {
        "question": question.model_dump(),
        "now": context.clock().isoformat(),
        "made_by": context.identity.name,
    }
    return submit_task(context, PLAN, team, request)


def submit_question(context: QueryContext, question: QuoteAsked) -> TaskRow:
    """Queue a quote. AccessDeniedError, InvalidInputError, TooManyTasksError."""
    checked = check_question(context, question)
    plan = checked.limits.plan
    request = {
        "now": context.clock().astimezone(UTC).isoformat(),
        "who": context.identity.name,
        "team": checked.job.team,
        "document": checked.document,
        "by": question.by or ("" if checked.by is None else str(checked.by)),
        "budget": question.budget,
        "limits": limits_text(checked.limits.limits),
        "limits_plan": None if plan is None else {"digest": plan.digest, "as_of": plan.as_of.isoformat()},
    }
    return submit_task(context, QUOTE, checked.job.team, request)


def submit_acceptance(context: QueryContext, name: str, ceiling: Usd | None, *, later: bool) -> TaskRow:
    """Queue the acceptance of a quote; ``later``: also of a plan that starts later than quoted.

    AccessDeniedError, NoSuchQuoteError, QuoteAcceptedError, QuoteStaleError, InvalidInputError, TooManyTasksError.
    """
    now = context.clock()
    stored = check_acceptable(context, name, ceiling, now)
    request = {
        "now": now.astimezone(UTC).isoformat(),
        "who": context.identity.name,
        "team": stored.quote.team,
        "quote": stored.name,
        "ceiling": "" if ceiling is None else str(ceiling),
        "later": later,
    }
    return submit_task(context, QUOTE_ACCEPTANCE, stored.quote.team, request)


def run_plan(request: dict[str, Any], progress: Callable[[str], None]) -> WorkResult:
    """Make the plan that was asked for, and return what it came to; it is stored with the end of the task."""
    now = datetime.fromisoformat(request["now"])
    with open_worker_store(now) as store:
        question = PlanAsked.model_validate(request["question"])
        result, plan = make_asked_plan(store, question, now, request["made_by"], progress)
    return WorkResult(Outcome.DONE, result, made_plan=plan)


def run_question(request: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Make a quote that was checked when it was asked for; return its id and the document of the answer."""
    with _context_of(request) as context:
        by = Moment.parse(request["by"]) if request["by"] else None
        budget = Usd.parse(request["budget"]) if request["budget"] else None
        limits = _limits_of(request)
        asked = ask_quote(context, prepare_question(context, request["document"], by, budget, limits), progress)
    answers = json.loads(answers_to_json([asked.answer]))
    if not asked.name:
        return {"quote": "", "answers": answers}
    url = f"/api/v1/quotes/{asked.name}"
    return {"quote": asked.name, "answers": answers, "url": url, "accept": f"{url}/acceptance"}


def run_acceptance(request: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Make the plan of a quote; return its digest."""
    with _context_of(request) as context:
        now, runs = context.clock(), runs_of_state(context)
        inputs = AcceptanceInputs(now, budgets=present_budgets(context, now), runs=runs, later=request["later"])
        ceiling = Usd.parse(request["ceiling"]) if request["ceiling"] else None
        try:
            acceptance = accept_quote(context, request["quote"], ceiling, inputs, progress)
        except (QuoteStaleError, QuoteUnplacedError) as error:
            field = error.field if isinstance(error, QuoteUnplacedError) else ""
            raise WorkError(f"{error}; {error.remedy}", field=field) from None
        except QuoteAcceptedError as error:
            earlier = _earlier_acceptance(context, request) if BEGUN_BEFORE in request else None
            if earlier is None:
                raise WorkError(str(error)) from None
            acceptance = earlier
    return {
        "quote": acceptance.quote_id,
        "plan": acceptance.plan,
        "ceiling_usd": acceptance.ceiling_usd,
        "job_digest": acceptance.job_digest,
        "url": f"/api/v1/plans/{acceptance.plan}",
    }


def _earlier_acceptance(context: QueryContext, request: dict[str, Any]) -> QuoteAcceptance | None:
    """Return the acceptance that this request came to before its worker was killed; None where it is another's."""
    found = find_quote(context, request["quote"]).acceptance
    if found is None or found.who != request["who"]:
        return None
    return found if datetime.fromisoformat(found.at) == context.clock() else None


def _limits_of(request: dict[str, Any]) -> QuestionLimits:
    plan = request["limits_plan"]
    return QuestionLimits(
        Limits.model_validate_json(request["limits"]),
        None if plan is None else LimitsPlan(plan["digest"], datetime.fromisoformat(plan["as_of"])),
    )


@contextmanager
def _context_of(request: dict[str, Any]) -> Iterator[QueryContext]:
    """Open the state for who asked, confined to the team for which the request was checked, as of that moment."""
    now, grant = datetime.fromisoformat(request["now"]), Grant(Role.JOB_OWNER, request["team"] or None)
    with open_worker_store(now) as store:
        yield QueryContext(worker_settings(), store, lambda: now, Identity(request["who"], (grant,)))


# What does the work of each kind; the words are those of the stored tasks.
FUNCTIONS: Mapping[str, WorkFunction] = {
    PLAN: run_plan,
    QUOTE: run_question,
    QUOTE_ACCEPTANCE: run_acceptance,
}
