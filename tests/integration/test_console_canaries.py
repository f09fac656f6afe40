"""Secrets that lie in the state or in settings are on no page, in no file, in no answer to a program and in no log."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from fastapi.testclient import TestClient

from pricing.money import Usd
from router.config.job_files import JobText, load_jobs
from router.jobs.job_json import job_json
from router.planning.document.plan_json import plan_content, plan_to_json
from router.state.access_tokens import NewToken, TokenKind
from tests.support.console import NIGHT, console_client, query_context
from tests.support.scenes import NORTH, plan_of
from tests.support.state_values import attempt, entry, node

CANARY = "canary-7d1f"
_JOB = f"""\
name: leaky
team: research
steps: 300
workload: {{profile: {{accelerators: "H100:8", steps_per_hour: 100}}}}
gang: {{accelerators: "H100:8"}}
checkpoint: {{size_gib: 1}}
run:
  command: python train.py
  env: {{HF_TOKEN: {CANARY}-environment}}
"""
_MOST_PAGES = 150


def visit(client: TestClient, paths: list[str]) -> dict[str, str]:
    """Return the answers of these paths and of all that their links lead to."""
    seen, waiting, found = set(paths), list(paths), dict[str, str]()
    while waiting:
        path = waiting.pop(0)
        answer = client.get(path, headers={"Accept": "text/html, */*"})
        assert answer.status_code < 500, path
        found[path] = answer.content.decode("utf-8", "replace") + str(answer.headers)
        for link in re.findall(
            r'(?:href|hx-get)="([^"#]+)"', answer.text if "html" in answer.headers["content-type"] else ""
        ):
            target = urlsplit(urljoin(path, link.replace("&amp;", "&")))
            there = target.path + (f"?{target.query}" if target.query else "")
            # The price history of one accelerator is like that of another.
            is_new = there not in seen and not there.startswith("/prices/history?")
            if not target.netloc and is_new and len(seen) < _MOST_PAGES:
                seen.add(there)
                waiting.append(there)
    return found


def test_no_canary_is_on_any_page_export_answer_or_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with query_context(tmp_path) as context:
        store = context.store
        (job,) = load_jobs((JobText(_JOB),), NIGHT).jobs
        assert CANARY in job_json(job)  # the state holds it, since the machines get it
        plan = plan_of([job], [NORTH])
        digest: str = plan_content(plan)["digest"]
        store.plans.put_jobs({job.digest: job_json(job)}, NIGHT)
        store.plans.put_plan(digest, plan_to_json(plan), NIGHT)
        store.made_plans.put(digest, plan_to_json(plan), plan.as_of, NIGHT, "ana@desk", "night")
        store.attempts.add(attempt("leaky-1", job="leaky", job_digest=job.digest, plan=digest), [node("leaky-1")])
        store.ledger.add([entry("one", job="leaky", attempt="leaky-1", start=NIGHT, end=NIGHT + timedelta(hours=1))])
        store.audit.add("ana@desk", "apply", digest, Usd(10**9), NIGHT)
        new = NewToken(TokenKind.TOKEN, "ci", ("viewer",), NIGHT + timedelta(hours=1), note="for CI")
        secret, record = store.access_tokens.make(new, "ana@desk", NIGHT)
        client = console_client(context)
        described = client.get("/api/v1/openapi.json").json()["paths"]
        api = [path for path, methods in described.items() if "get" in methods and "{" not in path]
        found = visit(client, ["/", "/budgets", "/quotes/new", "/quotes/new?job=leaky", *api])
        assert {"/jobs", f"/plans/{digest}", "/attempts/leaky-1", "/plans.csv", "/audit.json"} <= found.keys()
        for path, text in found.items():
            for kept in (CANARY, secret, record.digest):
                assert kept not in text, f"{path} has {kept}"
    assert "leaky" in "".join(found.values())
    assert CANARY not in caplog.text
    assert secret not in caplog.text
