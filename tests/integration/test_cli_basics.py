"""The command as a process: help, version, exit codes, streams, interruptions; nothing of it looks like a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from providers.errors import NotReachedError, ProviderError
from providers.protocol import Diagnosis
from router.app.state_restoration import write_demo_home
from router.cli.commands import TABLE
from router.cli.console import ExitCode
from router.cli.groups import WORDS_OF_OTHERS, load_command
from tests.support import command
from tests.support.forked import run_forked
from tests.support.repository import ROOT

COMMAND = [sys.executable, "-c", "from router.cli.main import main; main()"]


def run(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_forked(arguments, environment={**os.environ, "COLUMNS": "80", **environment}, folder=cwd)


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """By an interpreter that has imported nothing yet."""
    known = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, env=known, capture_output=True, text=True, check=False)


def test_help_lists_every_command_in_80_columns_and_the_exit_codes() -> None:
    done = started("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert {name.partition(" ")[0] for name in TABLE.commands} == {
        w for words in TABLE.sections.values() for w in words
    }
    assert all(f"  {word} " in done.stdout for words in TABLE.sections.values() for word in words)
    shown = " ".join(done.stdout.split())
    for name in TABLE.commands:
        group, _, word = name.partition(" ")
        assert not word or re.search(rf" {group} [^()]*\([^()]*\b{word}\b", shown), name
    assert max(map(len, done.stdout.splitlines())) <= 80
    text = done.stdout.split("Exit codes:")[1]
    assert all(f"{code.value} " in text for code in ExitCode)


def test_help_needs_nothing_heavy() -> None:
    code = "import sys, router.cli.main; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    heavy = {"pandas", "pyarrow", "numpy", "scipy", "pydantic", "pulp", "highspy", "rich", "yaml"}
    assert heavy & set(done.stdout.split()) == set()


def test_status_of_running_gangs_loads_only_what_it_shows(tmp_path: Path) -> None:
    """One of the gangs runs, so that it also says that nobody watches."""
    write_demo_home(tmp_path / "home")
    at_end = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    done = subprocess.run(
        [sys.executable, "-c", f"{at_end}; from router.cli.main import main; main()", "status"],
        cwd=ROOT,
        env={**os.environ, "STEPFARE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "running" in done.stdout
    said, loaded = done.stderr.splitlines()[0], set(done.stderr.splitlines()[-1].split())
    assert "nobody watches running gangs" in said
    heavy = {"numpy", "pandas", "pyarrow", "duckdb", "scipy", "pulp", "highspy", "alembic", "tenacity", "jinja2"}
    servers = {"uvicorn", "starlette", "fastapi", "prometheus_client", "psutil"}
    ours = {"router.planning.document.plan", "router.controller.context", "router.state.state_backup", "pricing.book"}
    assert (heavy | servers | ours | {"sqlalchemy.dialects.postgresql"}) & loaded == set()
    assert "router.controller.report.report" in loaded


def test_an_option_has_one_meaning_in_all_commands() -> None:
    values: dict[str, set[str]] = {}
    for name in TABLE.commands:
        for option in load_command(TABLE, name).params:
            if option.param_type_name == "option":
                # The first name is the one that help and messages use; others are earlier spellings and letters.
                values.setdefault(option.opts[0], set()).add("flag" if option.is_flag else option.metavar or "value")
    assert values["--by"] == {"TIME"}
    assert values["--from"] == {"2026-12"}
    assert values["--now"] == {"TIME"}
    assert [name for name, kinds in values.items() if {"TIME", "DURATION"} <= kinds] == []
    # What is kept: quotes, a folder, the newest N checkpoints.
    assert [name for name, kinds in values.items() if "flag" in kinds and len(kinds) > 1] == ["--keep"]


@pytest.mark.parametrize("group", TABLE.groups)
def test_a_group_lists_its_commands(group: str) -> None:
    asked, bare = run(group, "--help"), run(group)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert (bare.returncode, bare.stdout) == (ExitCode.INVALID_INPUT, "")
    assert asked.stdout.strip() == bare.stderr.strip()
    assert asked.stdout.startswith(f"Usage: stepfare {group} ")
    for child in TABLE.children(group):
        line = next(line for line in asked.stdout.splitlines() if line.startswith(f"  {child} "))
        assert line.split(maxsplit=1)[1] == TABLE.commands[f"{group} {child}"].help


@pytest.mark.parametrize("name", TABLE.commands)
def test_every_command_has_help_with_an_example(name: str) -> None:
    done = run(*name.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: stepfare {name} ")
    assert f"stepfare {name} " in done.stdout.split("\n", 1)[1]
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_version_is_that_of_the_distribution() -> None:
    done = started("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("stepfare 0.")


@pytest.mark.parametrize("word", ["plan", "showback"])
def test_a_command_lists_those_that_begin_with_its_word(word: str) -> None:
    shown = " ".join(command.run(word, "-h").stdout.partition("Further commands:")[2].split())
    for child in TABLE.children(word):
        assert f"{word} {child} {TABLE.commands[f'{word} {child}'].help}" in shown


def test_words_of_other_tools_lead_to_commands_that_are_there() -> None:
    first_words = {name.split()[0] for name in TABLE.commands} | set(TABLE.groups)
    meant = {word: TABLE.suggestion(word).rpartition("stepfare ")[2] for word in WORDS_OF_OTHERS}
    assert set(meant.values()) <= first_words
    assert not first_words & set(WORDS_OF_OTHERS)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("valdate",), "did you mean validate?"),
        (("ps",), "what other tools call ps is here: stepfare status"),
        (("launch", "x.yaml"), "what other tools call launch is here: stepfare apply"),
        (("show-gpus",), "what other tools call show-gpus is here: stepfare offers"),
        (("import", "x.yaml"), "did you mean import sky?"),
        (("ledger", "lst"), "no such command 'ledger lst'; did you mean ledger list?"),
        (("validate",), "missing argument"),
        (("validate", "x", "--nonsense"), "no such option"),
        (("schema", "jobs"), "'job', 'limits', 'clouds', 'pool', 'sandbox', 'deploy', 'plan'"),
        (("validate", "x", "-o", "xml"), "table"),
        (("validate", "x", "--now", "2026-11-21"), "no time zone"),
        (("validate", "examples/nightly", "--book", "nowhere.parquet"), "nowhere.parquet"),
    ],
)
def test_wrong_usage_is_2_with_what_was_meant(arguments: tuple[str, ...], word: str) -> None:
    done = run(*arguments)
    assert done.returncode == ExitCode.INVALID_INPUT
    assert done.stdout == ""
    assert word in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["job", "limits"])
def test_schemas_are_those_in_the_docs(kind: str, tmp_path: Path) -> None:
    published = (ROOT / "docs" / "schema" / f"{kind}.json").read_text(encoding="utf-8")
    assert run("schema", kind).stdout == published
    done = run("schema", kind, "--out", str(tmp_path / "x.json"))
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == published


def test_a_file_that_cannot_be_written_is_a_failure_and_leaves_nothing(tmp_path: Path) -> None:
    done = run("schema", "job", "--out", str(tmp_path / "no" / "x.json"))
    assert done.returncode == ExitCode.FAILURE
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "schema", "job"], stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interruption_is_130_without_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "job.yaml"
    os.mkfifo(pipe)  # a file whose reading waits for ever
    process = subprocess.Popen(
        [*COMMAND, "validate", str(pipe)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    with pipe.open("w"):  # opens as soon as the command has opened its end
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=20)
    assert process.returncode == ExitCode.INTERRUPTED
    assert stdout == ""
    assert "interrupted" in stderr
    assert "Traceback" not in stderr


def test_a_sky_task_becomes_a_job_and_says_what_is_missing(tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    task.write_text(
        "name: My Train\nresources: {accelerators: H100:8, use_spot: true}\nservice_account: x\n"
        "run: |\n  echo one\n  python train.py\n",
        encoding="utf-8",
    )
    job = tmp_path / "job.yaml"
    done = run("import", "sky", str(task), "--out", str(job))
    assert done.returncode == 0, done.stderr
    assert "not carried over:\n  service_account" in done.stderr
    assert "to be filled in:\n  team\n  steps\n" in done.stderr
    assert "accelerators:\n  - H100:8\n" in job.read_text(encoding="utf-8")
    refused = run("validate", str(job))
    assert refused.returncode == ExitCode.INVALID_INPUT
    assert f"{job}:6:3: error: steps: is still to be filled in" in refused.stderr


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "is empty"), ("service: {}\nrun: b\n", "service"), ("- a", "no SkyPilot task"), ("a: [", "is not YAML")],
)
def test_what_is_no_sky_task_is_refused_with_its_place(tmp_path: Path, text: str, word: str) -> None:
    task = tmp_path / "task.yaml"
    task.write_text(text, encoding="utf-8")
    done = run("import", "sky", str(task))
    assert done.returncode == ExitCode.INVALID_INPUT
    assert str(task) in done.stderr
    assert word in done.stderr
    assert done.stdout == ""


def test_colours_are_for_terminals_only_and_json_stays_json() -> None:
    done = run("validate", "examples/nightly", "--now", "2026-11-21T18:00Z", "-o", "json")
    assert "\x1b" not in done.stdout + done.stderr
    assert json.loads(done.stdout)["valid"] is True


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_output_that_cannot_be_written_does_not_change_the_exit_code() -> None:
    code = """
import sys
from router.cli.console import CommandError, CommandExitError, ExitCode, handle_command_errors, out
try:
    with handle_command_errors():
        out("1 released")
        raise CommandError("the state cannot be written", ExitCode.PARTIAL, "make room")
except CommandExitError as stopped:
    sys.exit(int(stopped.code))
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert (done.returncode, done.stderr) == (5, "error: the state cannot be written\n    make room\n")


def test_a_home_that_is_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a-file"
    file.touch()
    monkeypatch.setenv("STEPFARE_HOME", str(file))
    for words in (("status",), ("prices", "list"), ("doctor", "--cloud", "sandbox")):
        refused = command.run(*words)
        assert refused.exit_code == ExitCode.INVALID_INPUT, words
        assert f"{file}: error: is no folder" in refused.stderr.replace("\n", " ")


READING = (
    ("status",), ("logs", "a-job"), ("plan", "list"), ("quotes", "list"), ("quotes", "show", "1a2b"), ("showback",),
    ("showback", "accuracy"), ("ledger", "list"), ("ledger", "periods"), ("ledger", "verify"), ("bills", "list"),
    ("bills", "reconcile", "--month", "2026-11"), ("budget", "list"), ("budget", "check"), ("token", "list"),
    ("approvals", "show"), ("prices", "list"), ("audit",), ("destroy", "--all"), ("profile", "list"),
)  # fmt: skip


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_home_that_does_not_exist_is_an_error_for_commands_that_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Somebody misspelt it: an empty answer would be taken for the truth."""
    (tmp_path / "home").mkdir()
    home = tmp_path / "hmoe"
    monkeypatch.setenv("STEPFARE_HOME", str(home))
    refused = command.run(*words)
    assert (refused.exit_code, refused.stdout) == (ExitCode.INVALID_INPUT, ""), refused.stderr
    assert f"{home}: error: no such folder" in refused.stderr.replace("\n", " ")
    assert "correct STEPFARE_HOME" in " ".join(refused.stderr.split())
    assert not home.exists()


def test_a_home_that_does_not_exist_is_made_by_commands_that_store_and_they_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, fees = tmp_path / "home", tmp_path / "fees.yaml"
    fees.write_text("entries:\n  - {kind: fee, usd: 5, period: 2026-12, reason: support}\n", encoding="utf-8")
    monkeypatch.setenv("STEPFARE_HOME", str(home))
    said = [" ".join(command.run("ledger", "add", fees).stderr.split()) for _ in range(2)]
    assert [f"{home}, which STEPFARE_HOME names, is new" in each for each in said] == [True, False]
    assert (home / "state.db").is_file()
    assert command.run("ledger", "list").exit_code == ExitCode.OK


JOB, AT = (
    ROOT / "examples" / "nightly" / "bert-large-pretraining.yaml",
    ("--book", "embedded", "--now", "2026-11-21T18:00Z"),
)
FIRST = (
    ("plan", JOB, *AT, "--out", "plan.json"),
    ("quote", JOB, *AT),
    ("prices", "refresh", "--cloud", "sandbox"),
    ("bills", "import", ROOT / "examples" / "showback" / "bill-aws.csv"),
    ("ledger", "add", "fees.yaml"),
    ("budget", "set", "500", "--team", "research"),
    ("token", "make", "ana", "--grant", "viewer"),
    ("quotas", "--cloud", "sandbox"),
)


@pytest.mark.parametrize("words", FIRST, ids=lambda words: " ".join(map(str, words[:2])))
def test_all_folders_of_a_home_are_for_its_user_alone_whichever_command_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str | Path, ...]
) -> None:
    (tmp_path / "fees.yaml").write_text("entries:\n  - {kind: fee, usd: 5, period: 2026-12, reason: support}\n")
    home = tmp_path / "above" / "home"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPFARE_HOME", str(home))
    before = os.umask(0o022)
    try:
        done = command.run(*words)
    finally:
        os.umask(before)
    assert done.exit_code == ExitCode.OK, done.stderr
    folders = [home.parent, home, *(path for path in home.rglob("*") if path.is_dir())]
    assert {str(path): path.stat().st_mode & 0o777 for path in folders} == dict.fromkeys(map(str, folders), 0o700)


def test_the_doctor_does_not_say_that_all_is_well_where_no_cloud_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody named a cloud, so that each alone may be out of reach; one that answers is enough."""
    answering: list[str] = []

    def diagnose(names: Sequence[str], *_: object) -> dict[str, Diagnosis | ProviderError]:
        works = Diagnosis("somebody", None, (), None, None, ())
        return {name: works if name in answering else NotReachedError(name, "is away") for name in names}

    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STEPFARE_CLOUDS", str(tmp_path / "clouds.yaml"))
    monkeypatch.setattr("router.cli.clouds.query_clouds", diagnose)
    assert command.run("doctor").exit_code == ExitCode.PARTIAL
    answering.append("aws")
    assert command.run("doctor").exit_code == ExitCode.OK
