"""``stepfare init``: what it finds, asks and writes, and that all of its files appear or none."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path

import pytest
import yaml
from filelock import FileLock
from typer.testing import CliRunner, Result

from providers.registry import CLOUDS, find_credentials
from router.app import starter_folder
from router.cli import init as init_command
from router.cli.main import app
from router.config.job_files import load_jobs, load_limits
from router.config.settings_files import load_clouds, load_deploy
from router.render.starter_files import FILE_NAMES, StarterChoices, starter_files
from tests.support.command import plan, run

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
CANARY = "canary-7f3a91"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without credentials, and an environment without any."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "new" / "fleet"


def contents(folder: Path) -> dict[str, str]:
    """Every file below the folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in folder.rglob("*") if p.is_file()}


def in_terminal(monkeypatch: pytest.MonkeyPatch, folder: Path, answers: str, *options: str) -> Result:
    monkeypatch.setattr(init_command, "_is_terminal", lambda: True)
    return CliRunner().invoke(app, ["init", str(folder), *options], input=answers)


@pytest.mark.parametrize(
    "options",
    [
        *([f"--cloud={cloud}"] for cloud in ("aws", "gcp", "azure")),
        ["--cloud=gcp", "--allow=EEA", "--allow=UK", "--accelerator=L4:4"],
        ["--cloud=aws", "--allow=US", "--accelerator=A10G:8", "--accelerator=H100:8"],
        ["--cloud=azure", "--cloud=lambda", "--allow=anywhere", "--team=a: b=900.50", "--team=true"],
        ["--cloud=aws", "--allow=aws/us-east-1", "--team=#1"],
    ],
    ids=" ".join,
)
def test_what_it_writes_is_valid_and_its_job_is_placed(folder: Path, options: list[str]) -> None:
    made = run("init", folder, "--yes", *options)
    assert made.exit_code == 0, made.output
    assert sorted(contents(folder)) == sorted(FILE_NAMES)
    checked = run(
        "validate", folder / "jobs", folder / "limits.yaml", "--book", "embedded", "--now", "2026-11-21T18:00Z"
    )
    assert checked.exit_code == 0, checked.output
    limits = folder / "limits.yaml"
    placed = plan(folder / "jobs", "--book", "embedded", "--limits", limits, "-o", "json")
    assert placed.exit_code == 0, placed.output
    (line,) = json.loads(placed.stdout)["lines"]
    chosen = [option.removeprefix("--cloud=") for option in options if option.startswith("--cloud=")]
    assert line["cloud"] in (chosen or ["aws", "gcp", "azure"])


def test_the_answer_names_files_undo_and_next_commands_that_work(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".aws").mkdir()
    (home / ".aws/credentials").write_text(f"[default]\naws_access_key_id = {CANARY}\n", encoding="utf-8")
    made = run("init", folder, "--yes", "-o", "json")
    document = json.loads(made.stdout)
    clouds = {entry["cloud"]: entry for entry in document["clouds"]}
    assert clouds["aws"] == {"cloud": "aws", "found": True, "place": "~/.aws/credentials", "remedy": None, "used": True}
    assert not clouds["gcp"]["found"]
    assert "gcloud auth" in clouds["gcp"]["remedy"]
    assert [cloud for cloud, entry in clouds.items() if entry["used"]] == ["aws"]
    assert [entry["path"] for entry in document["written"]] == [str(folder / name) for name in FILE_NAMES]
    assert len(document["next"]) == 4
    assert run(*document["next"][0].split()[1:]).exit_code == 0
    assert run(*document["next"][1].split()[1:], "--now", "2026-11-21T18:00Z").exit_code == 0
    assert os.system(document["undo"][0]) == 0
    assert contents(folder) == {}
    text = run("init", folder, "--yes").stdout
    for part in ("found: ~/.aws/credentials", "gcloud auth", "UNDO", "NEXT", str(folder / "deploy.yaml")):
        assert part in text, part
    assert max(len(line) for line in text.splitlines() if str(folder) not in line) <= 80


def test_questions_have_defaults_and_repeat_after_a_wrong_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = in_terminal(monkeypatch, folder, "awz\ngcp, azure\nvision=1000 search\nEEB\nEEA\n\n")
    assert made.exit_code == 0, made.output
    assert "did you mean aws?" in made.stderr
    assert "'EEB' is no place" in made.stderr
    assert "Accelerators of the example job [H100:8]" in made.stderr
    entries = load_clouds(folder / "clouds.yaml", named=True).clouds.clouds
    assert [name for name, entry in entries.items() if entry.enabled is not False] == ["gcp", "azure"]
    # A refresh asks every cloud that is not named; these were not chosen.
    assert {"aws", "lambda", "vast"} <= entries.keys()
    limits = load_limits(folder / "limits.yaml").limits
    assert [(entry.team, str(entry.budget)) for entry in limits.teams] == [("vision", "1000.00")]
    (job,) = load_jobs((folder / "jobs/example.yaml",), NOW).jobs
    assert (job.team, [str(rule) for rule in job.residency.allow]) == ("vision", ["EEA"])


def test_what_an_option_says_is_not_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = in_terminal(monkeypatch, folder, "\n\n", "--cloud", "aws", "--accelerator", "H200:8")
    assert made.exit_code == 0, made.output
    assert made.stderr.count("]: ") == 2


def test_the_end_of_input_writes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = in_terminal(monkeypatch, folder, "aws\n")
    assert made.exit_code == 2
    assert "the input ended" in made.stderr
    assert not folder.exists()


def test_without_a_terminal_it_says_what_to_add(folder: Path) -> None:
    made = run("init", folder)
    assert made.exit_code == 2
    for option in ("--yes", "--cloud", "--team", "--allow", "--accelerator"):
        assert option in made.stderr
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cloud", "awz"], "did you mean aws?"),
        (["--cloud", "sandbox"], "begin with examples/pool"),
        (["--cloud", "lambda"], "machines can be made in none"),
        (["--team", "a", "--team", "a=3"], "given twice"),
        (["--team", "a=lots"], "--team"),
        (["--team", "a=-5"], "--team"),
        (["--team", "\x00"], "--team"),
        (["--allow", "EEB"], "'EEB' is no place"),
        (["--allow", "EEA", "--allow", "anywhere"], "both given"),
        (["--allow", "a b"], "is no place"),
        (["--accelerator", "H1000:8"], "'H1000' is no accelerator"),
        (["--accelerator", "H100:-1"], "is no number of H100"),
        (["--accelerator", "H100:3", "--cloud", "aws", "--allow", "ZA"], "no machines for H100:3 are on sale in aws"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(folder: Path, options: list[str], message: str) -> None:
    made = run("init", folder, "--yes", *options)
    assert made.exit_code == 2, made.output
    assert message in made.stderr
    assert not folder.exists()


def test_files_that_exist_are_listed_and_kept(folder: Path) -> None:
    (folder / "jobs").mkdir(parents=True)
    (folder / "jobs/example.yaml").write_text("mine", encoding="utf-8")
    (folder / "limits.yaml").symlink_to("nowhere")
    made = run("init", folder, "--yes")
    assert made.exit_code == 2
    assert str(folder / "limits.yaml") in made.stderr
    assert str(folder / "jobs/example.yaml") in made.stderr
    assert "clouds.yaml" not in made.stderr
    assert "--force" in made.stderr
    assert contents(folder) == {"jobs/example.yaml": "mine"}


def test_force_keeps_every_earlier_file(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "limits.yaml").write_text("first", encoding="utf-8")
    assert run("init", folder, "--yes", "--force", "--cloud", "aws").exit_code == 0
    assert contents(folder)["limits.yaml.bak"] == "first"
    second = contents(folder)["limits.yaml"]
    made = run("init", folder, "--yes", "--force", "--cloud", "gcp", "-o", "json")
    after = contents(folder)
    assert after["limits.yaml.bak"] == "first"
    assert after["limits.yaml.bak.2"] == second
    for command in json.loads(made.stdout)["undo"]:
        assert os.system(command) == 0
    assert contents(folder)["limits.yaml"] == second


def test_a_read_only_folder_is_an_error_and_stays_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))  # As root may write everywhere, the mode does not do.

    monkeypatch.setattr(Path, "mkdir", refuse)
    made = run("init", folder, "--yes")
    assert made.exit_code == 1
    assert f"{folder}: Permission denied" in made.stderr
    assert contents(folder) == {}


def _before(number: int, act: Callable[[], None]) -> Callable[[Path, Path], Path]:
    """``Path.rename`` that does something else instead of its N-th call."""
    calls, rename = count(1), Path.rename

    def replacement(self: Path, target: Path) -> Path:
        if next(calls) == number:
            act()
        return rename(self, target)

    return replacement


def _interrupt() -> None:
    raise KeyboardInterrupt


STEPS = (1, 2, 4, 5)  # Of four files and one that is set aside, in the middle and at the ends.


@pytest.fixture
def with_limits(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "limits.yaml").write_text("mine", encoding="utf-8")
    return folder


OTHERS = ("lambda", "nebius", "runpod", "verda", "vast")


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_between_the_files_leaves_none(
    with_limits: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "rename", _before(step, _interrupt))
    assert run("init", with_limits, "--yes", "--force").exit_code == 130
    assert contents(with_limits) == {"limits.yaml": "mine"}
    assert not (with_limits / "jobs").exists()


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_between_the_files_is_taken_back_by_the_next_run(with_limits: Path, step: int) -> None:
    child = os.fork()
    if child == 0:
        Path.rename = _before(step, lambda: os._exit(9))  # type: ignore[assignment,method-assign]
        run("init", with_limits, "--yes", "--force")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    whole = starter_files(StarterChoices(("aws", "gcp", "azure"), {"research": ""}, (), ("H100:8",), OTHERS))
    left = {name: text for name, text in contents(with_limits).items() if not name.startswith(".")}
    assert all(text in ("mine", whole.get(name)) for name, text in left.items())
    assert run("init", with_limits, "--yes").exit_code == 2
    assert contents(with_limits) == {"limits.yaml": "mine"}


def test_a_check_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {**starter_files(StarterChoices(("aws",), {"a": ""}, (), ("H100:8",))), "limits.yaml": "clouds: 3\n"}
    monkeypatch.setattr(init_command, "starter_files", lambda _: broken)
    assert run("init", folder, "--yes").exit_code == 2
    assert not folder.parent.exists()


def test_two_runs_at_once_do_not_meet(folder: Path) -> None:
    staging = folder / starter_folder.STAGING_NAME
    staging.mkdir(parents=True)
    with FileLock(staging / "lock"):
        made = run("init", folder, "--yes")
    assert made.exit_code == 2
    assert "another `stepfare init`" in made.stderr


def test_secrets_appear_nowhere(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_ID"):
        monkeypatch.setenv(name, CANARY)
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "STEPFARE_JOB_TOKEN"):
        monkeypatch.setenv(name, CANARY)
    key = home / f"{CANARY}.json"
    key.write_text(json.dumps({"private_key": CANARY}), encoding="utf-8")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    outputs = [in_terminal(monkeypatch, folder, "\n\n\n\n")]
    outputs += [run("init", folder, "--yes", *more) for more in ([], ["--force"], ["--force", "-o", "json"])]
    assert [made.exit_code for made in outputs] == [0, 2, 0, 0]
    assert [entry["cloud"] for entry in json.loads(outputs[-1].stdout)["clouds"] if entry["found"]] == [
        "aws",
        "gcp",
        "azure",
    ]
    assert [made for made in outputs if CANARY in made.output] == []
    assert len(contents(folder)) == 12
    assert [name for name, text in contents(folder).items() if CANARY in text] == []


@pytest.mark.parametrize(
    ("cloud", "variables", "file", "text", "found"),
    [
        ("aws", {"AWS_ACCESS_KEY_ID": "x"}, "", "", False),
        ("aws", {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}, "", "", True),
        ("aws", {}, ".aws/config", "[default]\nregion = eu-west-1\n", False),
        ("aws", {}, ".aws/config", "[profile p]\nsso_session = corp\n", True),
        ("aws", {"AWS_SHARED_CREDENTIALS_FILE": "HOME/other"}, "other", "[a]\naws_access_key_id=x\n", True),
        ("gcp", {}, ".config/gcloud/application_default_credentials.json", "{}", True),
        ("gcp", {"CLOUDSDK_CONFIG": "HOME/g"}, "g/application_default_credentials.json", "{}", True),
        ("gcp", {"GOOGLE_APPLICATION_CREDENTIALS": "HOME/missing"}, "", "", False),
        ("azure", {}, ".azure/azureProfile.json", '\ufeff{"subscriptions": []}', False),
        ("azure", {}, ".azure/azureProfile.json", '\ufeff{"subscriptions": [{"id": "1"}]}', True),
        ("azure", {"AZURE_CLIENT_ID": "x", "AZURE_TENANT_ID": "y"}, "", "", False),
        ("azure", {"AZURE_CLIENT_ID": "x", "AZURE_TENANT_ID": "y", "AZURE_CLIENT_SECRET": "z"}, "", "", True),
        ("vast", {}, "", "", False),
    ],
)
def test_where_credentials_are_found(
    home: Path, cloud: str, variables: dict[str, str], file: str, text: str, found: bool
) -> None:
    if file:
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(text, encoding="utf-8")
    named = {name: value.replace("HOME", str(home)) for name, value in variables.items()}
    presence = find_credentials(cloud, named, home)
    assert presence.found == found
    assert bool(presence.remedy) != found


def _load(name: str, path: Path) -> object:
    if name == "clouds.yaml":
        return load_clouds(path, named=True)
    if name == "deploy.yaml":
        return load_deploy(path, named=True)
    return load_limits(path) if name == "limits.yaml" else load_jobs((path,), NOW)


_FIELD = re.compile(r" *#[a-z_]+:")
_BLOCK = re.compile(r"^( *)#[a-z_]+:.*(?:\n\1#  .*)*", re.MULTILINE)


@pytest.mark.parametrize("name", FILE_NAMES)
def test_every_field_that_is_left_out_is_a_real_one(name: str, tmp_path: Path) -> None:
    real = tuple(cloud for cloud, entry in CLOUDS.items() if entry.by_default)
    text = starter_files(StarterChoices(real, {"research": "", "a: b": ""}, (), ("H100:8", "L4:4")))[name]
    path = tmp_path / Path(name).name
    left_out = list(_BLOCK.finditer(text))
    assert len(left_out) == sum(bool(_FIELD.match(line)) for line in text.splitlines()) > 3
    path.write_text(text, encoding="utf-8")
    plain = _load(name, path)
    shown = []
    for block in left_out:
        used = block[0].replace(f"{block[1]}#", block[1])
        path.write_text(text[: block.start()] + used + text[block.end() :], encoding="utf-8")
        if _load(name, path) == plain:  # Which a default written out would be too.
            shown.append(used)
    assert shown == []
    path.write_text(_BLOCK.sub(lambda block: block[0].replace(f"{block[1]}#", block[1]), text), encoding="utf-8")
    _load(name, path)


@pytest.mark.parametrize("name", FILE_NAMES)
def test_a_comment_of_one_line_stands_above_every_field(name: str) -> None:
    text = starter_files(StarterChoices(("aws",), {"research": "10"}, ("EEA",), ("H100:8",)))[name]
    lines = text.splitlines()
    assert yaml.safe_load(text)
    for above, line in pairwise(lines):
        inside = re.match(r" {4}(?!disk|enabled)[a-z_]+:", line) and name == "jobs/example.yaml"
        if re.match(r" *#?[a-z_]+:", line) and not inside and line != "  aws:":
            assert re.match(r" *# \S.*\.$", above), line
    assert max(map(len, lines)) <= 120


def test_it_needs_no_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.current_thread()

    def refuse(*_: object) -> None:
        if threading.current_thread() is here:
            raise AssertionError("a connection was opened")
        raise OSError("no network")  # for a thread of an earlier test that has not ended yet

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert run("init", folder, "--yes").exit_code == 0


def test_a_cloud_without_offers_in_the_embedded_book_is_refused_by_its_name(tmp_path: Path) -> None:
    refused = run("init", tmp_path / "new", "--yes", "--cloud", "aws", "--cloud", "vast")
    assert refused.exit_code == 2
    assert "--cloud: vast has no offer" in refused.stderr
    assert not (tmp_path / "new").exists()
