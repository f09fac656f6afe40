"""References to secrets, resolved by whoever applies; what is wrong is said without the secret."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from pydantic import ValidationError

from pricing.problems import InvalidInputError
from router.controller.workspace.secret_refs import resolve_environment
from router.deploy.deploy_settings import SecretsEntry
from router.jobs.spec import Job, Run

CANARY = "canary-71c3e0"
ALL = SecretsEntry(env=("HERE", "MISSING", "OTHER"), files=("/nowhere", tempfile.gettempdir(), "~/key"))


def resolved(
    job: str, pairs: Iterable[tuple[str, str]], environment: dict[str, str], allowed: SecretsEntry = ALL
) -> tuple[dict[str, str], dict[str, str]]:
    run = Run.model_construct(env=tuple(pairs))
    return resolve_environment(Job.model_construct(name=job, team="red", run=run), environment, allowed)


def refused(
    value: str, environment: dict[str, str] | None = None, allowed: SecretsEntry = ALL
) -> tuple[str, str, str, str]:
    with pytest.raises(InvalidInputError) as caught:
        resolved("bert", [("PLAIN", "1"), ("KEY", value)], environment or {}, allowed)
    (problem,) = caught.value.problems
    assert CANARY not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return problem.where, problem.field, problem.what, problem.remedy


def test_plain_values_and_secrets_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{CANARY}\nsecond line\n\n", encoding="utf-8")
    pairs = [
        ("BATCH", "512"),
        ("EMPTY", ""),
        ("URL", "https://x/secret:env:"),
        ("KEY", "secret:env:HERE"),
        ("PEM", f"secret:file:{file}"),
    ]
    plain, secret = resolved("bert", pairs, {"HERE": CANARY, "OTHER": "x"})
    assert plain == {"BATCH": "512", "EMPTY": "", "URL": "https://x/secret:env:"}
    assert secret == {"KEY": CANARY, "PEM": f"{CANARY}\nsecond line"}
    assert resolved("bert", (), {}) == ({}, {})


def test_a_file_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").write_text(CANARY, encoding="utf-8")
    assert resolved("bert", [("KEY", "secret:file:~/key")], {})[1] == {"KEY": CANARY}


def test_a_variable_that_is_empty_is_there(tmp_path: Path) -> None:
    assert resolved("bert", [("KEY", "secret:env:HERE")], {"HERE": ""})[1] == {"KEY": ""}


def test_a_variable_that_is_not_set() -> None:
    assert refused("secret:env:MISSING", {"missing": CANARY}) == (
        "job bert",
        "run.env.KEY",
        "refers to the variable MISSING, which is not set here",
        "export MISSING",
    )
    assert refused("secret:env:")[1] == "run.env.KEY"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nowhere/key", "No such file or directory"),
        (tempfile.gettempdir(), "Is a directory"),
        ("a\0b", "is no path"),
        ("~nobody-of-that-name/key", "is no path"),
    ],
)
def test_a_file_that_is_not_there(path: str, reason: str) -> None:
    _, field, what, remedy = refused(f"secret:file:{path}")
    assert field == "run.env.KEY"
    assert reason in what
    assert "give the file" in remedy


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(CANARY.encode() + b"\xff\xfe")
    assert "is not text" in refused(f"secret:file:{file}")[2]


@pytest.mark.parametrize("value", [f"secret:{CANARY}", f"secret:evn:{CANARY}", f"secret:vault:{CANARY}", "secret:"])
def test_a_reference_of_no_known_kind_is_no_plain_value(value: str) -> None:
    """A job would train with the reference in place of the secret, or somebody wrote the secret itself there."""
    _, _, what, remedy = refused(value)
    assert "no reference" in what
    assert "secret:env:NAME" in remedy


def test_what_no_environment_can_hold(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(CANARY.encode() + b"\0")
    assert "zero byte" in refused(f"secret:file:{file}")[2]
    assert "zero byte" in refused(f"{CANARY}\0")[2]


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "STEPFARE_METRICS_TOKEN", "STEPFARE_JOB", "stepfare_job_x", "RED"]
)
def test_a_variable_that_the_deploy_file_does_not_allow(name: str) -> None:
    """Without an entry for the team a job file names what was exported for jobs, and nothing else."""
    _, field, what, remedy = refused(f"secret:env:{name}", {name: CANARY}, SecretsEntry())
    assert (field, what) == ("run.env.KEY", f"refers to the variable {name}, which team red may not")
    assert f"secrets.red.env of the deploy file: [{name}]" in remedy
    assert "STEPFARE_JOB_" in remedy


def test_variables_that_are_allowed() -> None:
    allowed = SecretsEntry(env=("HF_TOKEN", "RED_*"))
    environment = {"HF_TOKEN": "1", "RED_A": "2", "STEPFARE_JOB_B": "3", "HF_TOKENS": CANARY, "RED": CANARY}
    pairs = [(name[-1], f"secret:env:{name}") for name in ("HF_TOKEN", "RED_A", "STEPFARE_JOB_B")]
    assert resolved("bert", pairs, environment, allowed)[1] == {"N": "1", "A": "2", "B": "3"}
    for name in ("HF_TOKENS", "RED"):
        assert "may not" in refused(f"secret:env:{name}", environment, allowed)[2]


def test_no_file_is_allowed_unless_the_deploy_file_says_so(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(CANARY, encoding="utf-8")
    _, _, what, remedy = refused(f"secret:file:{file}", allowed=SecretsEntry())
    assert what == f"refers to {file}, which team red may not"
    assert "secrets.red.files" in remedy
    assert "may not" in refused(f"secret:file:{file}x", allowed=SecretsEntry(files=(str(file),)))[2]


def test_links_and_dots_lead_out_of_no_allowed_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "red", tmp_path / "blue"
    inside.mkdir()
    outside.mkdir()
    (outside / "key").write_text(CANARY, encoding="utf-8")
    (inside / "link").symlink_to(outside / "key")
    (inside / "folder").symlink_to(outside)
    (tmp_path / "redder").write_text(CANARY, encoding="utf-8")
    allowed = SecretsEntry(files=(str(inside),))
    for path in ("red/link", "red/folder/key", "red/../blue/key", "redder", "blue/key"):
        assert "may not" in refused(f"secret:file:{tmp_path}/{path}", allowed=allowed)[2]


def test_an_allowed_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    """Mounted secrets are links to the newest version of their folder."""
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "key").write_text(CANARY, encoding="utf-8")
    (tmp_path / "now").symlink_to(tmp_path / "v2")
    allowed = SecretsEntry(files=(str(tmp_path / "now"),))
    assert resolved("bert", [("KEY", f"secret:file:{tmp_path}/now/key")], {}, allowed)[1] == {"KEY": CANARY}


def test_what_never_ends_or_never_begins_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"x" * 65_537)
    allowed = SecretsEntry(files=(str(tmp_path), "/dev/zero"))
    for path, reason in (
        (tmp_path / "pipe", "no regular file"),
        (Path("/dev/zero"), "no regular file"),
        (tmp_path / "long", "longer than 65536 bytes"),
    ):
        assert reason in refused(f"secret:file:{path}", allowed=allowed)[2]


@pytest.mark.parametrize(
    "entry", [{"env": "A B"}, {"env": ["*"]}, {"env": "A*B"}, {"files": "key"}, {"files": "/"}, {"fils": []}]
)
def test_an_allowance_that_is_none(entry: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SecretsEntry.model_validate(entry)
