"""Whatever is sent to the API, it answers as its description says, and never fails.

Slow: the test sends thousands of requests that Hypothesis makes from the description.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from router.access.identity import Identity
from router.app.queries.context import QueryContext
from router.console.answers import AnswerCache
from router.console.app import make_console
from router.console.site import ConsoleSite
from router.planning.document.plan_json import plan_content, plan_to_json
from tests.support import work_kinds
from tests.support.console import NIGHT, OPERATOR, identity_with, query_context
from tests.support.scenes import NORTH, a_job, plan_of

pytestmark = pytest.mark.slow

IDENTITIES = {"operator": OPERATOR, "viewer": identity_with("viewer:red", name="ana")}
# Requests for each operation and identity, once as described and once not: about a minute altogether.
EXAMPLES = 20


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryContext]:
    with query_context(Path(tmp_path_factory.mktemp("fuzz"))) as opened:
        for day in range(2):
            plan = plan_of([a_job(team="red"), a_job("b", team="blue")], [NORTH], now=NIGHT + timedelta(days=day))
            digest = plan_content(plan)["digest"]
            opened.store.made_plans.put(digest, plan_to_json(plan), plan.as_of, plan.as_of, "ana", "night")
        for subject in ("operator", "ana"):
            opened.store.tasks.put(work_kinds.SUM, subject, "red", {"numbers": []}, NIGHT)
        yield opened


@pytest.mark.parametrize("name", IDENTITIES)
def test_every_answer_is_as_described(context: QueryContext, name: str) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, Verbosity, given, settings
    from schemathesis import GenerationMode
    from schemathesis.checks import CHECKS

    identity: Identity = IDENTITIES[name]
    app = make_console(ConsoleSite(context.asked_by(identity), lambda _: identity, AnswerCache()))
    schema: Any = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers={"Host": "127.0.0.1"})
    wanted = [
        check
        for check in CHECKS.get_all()
        if check.__name__
        in ("not_a_server_error", "response_schema_conformance", "content_type_conformance", "status_code_conformance")
    ]
    assert len(wanted) == 4
    asked = 0
    operations = [result.ok() for result in schema.get_all_operations()]
    for operation, mode in itertools.product(operations, (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)):
        try:
            cases = operation.as_strategy(generation_mode=mode)
        except schemathesis.errors.InvalidSchema:
            continue

        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            derandomize=True,
            verbosity=Verbosity.quiet,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases)
        def ask(case: Any) -> None:
            nonlocal asked
            case.call_and_validate(checks=wanted, headers={"Host": "127.0.0.1"})
            asked += 1

        ask()
    assert asked > EXAMPLES * 10
