"""Plan every night with Airflow, over the HTTP API of `stepfare serve`: a DAG of one task.

Place it with `api_client.py` (the folder above) among the DAGs. The connection `stepfare` has the console's URL as its
host and a token as its password (`stepfare token make airflow --grant planner`); the variable `stepfare_jobs` is a
folder of job files with `limits.yaml`, which the worker reads. Airflow 3; it needs the library requests.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.exceptions import AirflowException, AirflowSkipException
from airflow.sdk import Connection, Variable, dag, task
from api_client import Console


def make_night(console: Console, folder: Path, **options: object) -> dict[str, Any]:
    """Return the plan of a folder's jobs, made under the name `night` near the last one."""
    files = sorted(path for path in folder.glob("*.yaml") if path.name != "limits.yaml")
    jobs = "\n---\n".join(path.read_text(encoding="utf-8") for path in files)
    limits = (folder / "limits.yaml").read_text(encoding="utf-8")
    asked = console.ask_plan(jobs, limits=limits, name="night", keep_last=True, **options)
    for step in console.follow(asked):
        if isinstance(step, str):
            print(step)
        elif step["state"] == "done":
            return console.document(step["links"]["result"])
        else:
            raise AirflowException(f"the plan {step['state']}: {step['message']}")
    raise AirflowException("the plan did not end")


@dag(
    schedule="0 18 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
)
def nightly_plan() -> None:
    """Make tonight's plan. A night that leaves jobs out ends as skipped: worth reading, nothing to try again."""

    @task
    def plan() -> str:
        connection = Connection.get("stepfare")
        made = make_night(Console(connection.host, connection.password), Path(Variable.get("stepfare_jobs")))
        name = f"plan-{made['digest'][:12]}"
        print(f"{name} costs {made['cost_usd']} USD")
        if made["unplaced"]:
            raise AirflowSkipException(f"{name} leaves out {', '.join(job['job'] for job in made['unplaced'])}")
        return name

    plan()


nightly_plan()
