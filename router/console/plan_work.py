"""The kind of long work that makes a plan."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from router.app.queries.context import QueryContext
from router.app.queries.plan_making import PlanQuestion, check_plan_question, make_asked_plan
from router.console.work import Lane, Outcome, WorkResult, open_worker_store, register_kind, submit
from router.state.tasks import TaskRow

KIND = "plan"


def submit_plan(context: QueryContext, question: PlanQuestion) -> TaskRow:
    """Queue a plan to make, and return its task. InvalidInputError with everything wrong in the documents."""
    team = check_plan_question(context, question)
    request = {"question": question.content(), "now": context.clock().isoformat(), "made_by": context.identity.name}
    return submit(context, KIND, team, request)


def run_plan(request: dict[str, Any], progress: Callable[[str], None]) -> WorkResult:
    """Make the plan that was asked for, and return what it came to; it is stored with the end of the task."""
    now = datetime.fromisoformat(request["now"])
    with open_worker_store(now) as store:
        question = PlanQuestion.read(request["question"])
        result, writes = make_asked_plan(store, question, now, request["made_by"], progress)
    return WorkResult(Outcome.DONE, result, writes=writes)


register_kind(KIND, run_plan, Lane.LONG)
