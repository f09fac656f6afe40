"""The example of a client, against a real server; and a server that is killed while it works."""

from __future__ import annotations

import importlib.util
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest
import uvicorn

from router.app.queries.context import QueryContext
from router.console.answers import AnswerCache
from router.console.app import make_console
from router.console.site import ConsoleSite
from router.state.store import StateStore
from router.state.tasks import SILENT, TaskState
from tests.support import work_kinds
from tests.support.console import NIGHT, query_context, task_runner
from tests.support.repository import ROOT


@contextmanager
def live_console(context: QueryContext) -> Iterator[str]:
    """Serve while the block runs, to whoever the context is of, and return the URL."""
    app = make_console(ConsoleSite(context, lambda _: context.identity, AnswerCache()))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(5)


JOB = ROOT / "examples/nightly/faq-7b-lora.yaml"


def load_example(path: str) -> ModuleType:
    """Return an example as a module of its own."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "examples" / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def client_module() -> ModuleType:
    return load_example("api_client.py")


def test_the_example_asks_offers_a_plan_and_a_month(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = itertools.count()
    with query_context(tmp_path, clock=lambda: NIGHT + timedelta(milliseconds=next(seconds))) as context:
        runner = task_runner(context)
        with live_console(context) as url, runner.running():
            code = client_module().main(url, str(JOB), book="embedded")
        said = capsys.readouterr()
        assert "... pricing and explaining" in said.out
        digest = context.store.made_plans.newest(1)[0].digest
        assert f"plan-{digest[:12]} costs " in said.out
        assert (code, said.err) == (0, "")
        assert "2026" in said.out.splitlines()[-1]


def test_the_example_says_what_was_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "job.yaml"
    wrong.write_text("name: x\n", encoding="utf-8")
    with query_context(tmp_path) as context, live_console(context) as url:
        assert client_module().main(url, str(wrong)) == 1
        task = context.store.tasks.newest(1, "operator", own_kinds=None, teams={})
    assert task == ()
    assert "400: " in capsys.readouterr().err


def dag_module(monkeypatch: pytest.MonkeyPatch, connection: object, folder: Path) -> ModuleType:
    """Return the example of a DAG, with stand-ins for what it takes from Airflow; its task runs where it is called."""
    sdk, exceptions = ModuleType("airflow.sdk"), ModuleType("airflow.exceptions")
    vars(sdk).update(
        dag=lambda **_: lambda _: lambda: None,
        task=lambda run: run,
        Connection=SimpleNamespace(get={"stepfare": connection}.__getitem__),
        Variable=SimpleNamespace(get={"stepfare_jobs": str(folder)}.__getitem__),
    )
    vars(exceptions).update(AirflowException=RuntimeError, AirflowSkipException=KeyboardInterrupt)
    for name, module in (("airflow", ModuleType("airflow")), ("airflow.sdk", sdk), ("airflow.exceptions", exceptions)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "api_client", client_module())
    return load_example("schedule/airflow_dag.py")


def test_the_example_of_a_dag_makes_tonights_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / JOB.name).write_text(JOB.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "limits.yaml").write_text("limits: []\n", encoding="utf-8")
    seconds = itertools.count()
    with query_context(tmp_path, clock=lambda: NIGHT + timedelta(milliseconds=next(seconds))) as context:
        runner = task_runner(context)
        with live_console(context) as url, runner.running():
            dag = dag_module(monkeypatch, SimpleNamespace(host=url, password=""), folder)
            made = dag.make_night(dag.Console(url, ""), folder, book="embedded")
        (row,) = context.store.made_plans.newest(name="night")
    assert (made["digest"], row.name) == (row.digest, "night")
    assert [job["job"] for job in made["jobs"]] == [JOB.stem]


_SERVER = """
import sys, threading
from datetime import UTC, datetime
from pathlib import Path
from router.console.work import ProcessWorker, TaskRunner
from router.state.store import StateStore
from tests.support import work_kinds
from tests.support.console import query_context
if __name__ == "__main__":
    clock = lambda: datetime.now(UTC)
    with query_context(Path(sys.argv[1]), clock=clock) as context:
        TaskRunner(context.store, ProcessWorker(context.settings), clock, work_kinds.FUNCTIONS).start()
        threading.Event().wait()
"""


@pytest.mark.slow
def test_a_killed_server_takes_its_child_along_and_leaves_the_task_to_another(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(_SERVER, encoding="utf-8")
    url, now = f"sqlite:///{tmp_path}/state.db", datetime.now(UTC)
    with StateStore.open(url, now=now) as store:
        task = store.tasks.put(work_kinds.FOREVER, "operator", "", {}, now)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=environment) as server:
            try:
                child = _reported_process(store, task.id)
            finally:
                server.kill()  # else a server that takes too long to begin would be waited for until it ends: never
        child.wait(60)
        found = store.tasks.find(task.id)
        assert found is not None
        assert found.state is TaskState.RUNNING
        later = datetime.now(UTC) + SILENT + timedelta(seconds=1)
        taken = store.tasks.take("another", [work_kinds.FOREVER], later)
        assert taken is not None
        assert (taken.id, taken.tries) == (task.id, 2)


def _reported_process(store: StateStore, task_id: str) -> psutil.Process:
    waited = threading.Event()
    for _ in range(2400):
        task = store.tasks.find(task_id)
        assert task is not None
        texts = [event.text for event in task.events if event.what == "progress"]
        if texts:
            return psutil.Process(int(texts[0].removeprefix("process ")))
        waited.wait(0.05)
    raise AssertionError("the task never began")
