"""Ask `stepfare serve` for offers, a plan and the costs of a month, over its HTTP API.

    stepfare serve &
    export STEPFARE_TOKEN=$(stepfare token make example --grant planner)
    python examples/api_client.py http://127.0.0.1:8321 examples/nightly/faq-7b-lora.yaml

It needs the library requests. `GET /api/v1/openapi.json` describes all that can be asked.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict, cast

import requests


class Offer(TypedDict):
    """An offer, as `stepfare offers -o json` has it. Money is a decimal string, exact."""

    cloud: str
    region: str
    instance_type: str
    market: str
    usd_per_hour: str


class Task(TypedDict):
    """Long work: `state` is queued, running, done, failed or cancelled."""

    id: str
    state: str
    progress: str
    message: str
    result: dict[str, Any] | None
    links: dict[str, str]


class ApiError(Exception):
    """An answer that is an error; the message says what to do."""

    def __init__(self, status: int, message: str, remedy: str) -> None:
        super().__init__(f"{status}: {message}" + (f" ({remedy})" if remedy else ""))
        self.status = status


class Console:
    """A console at a URL, asked with a token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def offers(self, accelerator: str, limit: int = 5) -> list[Offer]:
        """Return the cheapest offers of an accelerator."""
        found = self._ask("GET", "/api/v1/offers", params={"accelerator": accelerator, "limit": limit}).json()
        return cast("list[Offer]", found["offers"])

    def ask_plan(self, jobs: str, **options: object) -> Task:
        """Ask for a plan of job documents; a repeated request with the same key makes no second plan."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        return cast("Task", self._ask("POST", "/api/v1/plans", json={"jobs": jobs, **options}, headers=headers).json())

    def follow(self, task: Task) -> Iterator[Task | str]:
        """Yield the progress of a task while it runs, and the task at its end."""
        last = ""
        while True:
            headers = {"Last-Event-ID": last} if last else {}
            with self._ask("GET", task["links"]["events"], headers=headers, stream=True) as stream:
                event = ""
                for line in stream.iter_lines(decode_unicode=True):
                    name, _, value = line.partition(": ")
                    if name == "id":
                        last = value
                    elif name == "event":
                        event = value
                    elif name == "data" and event == "end":
                        yield cast("Task", json.loads(value))
                        return
                    elif name == "data" and event == "progress":
                        yield str(json.loads(value)["progress"])
            # The server ends a stream after some minutes, or when it stops: ask again from the last event on.

    def document(self, path: str, **query: str) -> dict[str, Any]:
        """Return a document, such as a plan or the report of a month."""
        return cast("dict[str, Any]", self._ask("GET", path, params=query).json())

    def _ask(self, method: str, path: str, **how: Any) -> requests.Response:
        answer = self._session.request(method, self._url + path, timeout=60, **how)
        if answer.status_code >= 400:
            error = answer.json()["error"]
            raise ApiError(error["status"], error["message"], error["remedy"])
        return answer


def main(url: str, job_file: str, **options: object) -> int:
    """Print the cheapest offers, make the plan of a job file, and print what the month has cost."""
    console = Console(url, os.environ.get("STEPFARE_TOKEN", ""))
    try:
        for offer in console.offers("H100"):
            print(f"{offer['usd_per_hour']:>12} $/h  {offer['cloud']}/{offer['region']} {offer['instance_type']}")
        task = console.ask_plan(Path(job_file).read_text(encoding="utf-8"), **options)
        for step in console.follow(task):
            if isinstance(step, str):
                print(f"... {step}")
            else:
                task = step
        if task["state"] != "done":
            print(f"the plan {task['state']}: {task['message']}", file=sys.stderr)
            return 1
        plan = console.document(task["links"]["result"])
        print(f"plan-{plan['digest'][:12]} costs {plan['cost_usd']} USD, {len(plan['unplaced'])} jobs have no place")
        report = console.document("/api/v1/showback", by="team")
        print(f"{report['title']}: {', '.join(report['sections'])}")
    except ApiError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
