"""References to secrets, resolved by whoever applies; what is wrong is said without the secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing.problems import InvalidInputError
from router.running.secretrefs import resolved

CANARY = "canary-71c3e0"


def refused(value: str, environment: dict[str, str] | None = None) -> tuple[str, str, str, str]:
    with pytest.raises(InvalidInputError) as caught:
        resolved("bert", [("PLAIN", "1"), ("KEY", value)], environment or {})
    (problem,) = caught.value.problems
    assert CANARY not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return problem.where, problem.field, problem.what, problem.remedy


def test_plain_values_and_secrets_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{CANARY}\nsecond line\n\n", encoding="utf-8")
    pairs = [("BATCH", "512"), ("EMPTY", ""), ("URL", "https://x/secret:env:"), ("KEY", "secret:env:HERE"),
             ("PEM", f"secret:file:{file}")]  # fmt: skip
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
        "job bert", "run.env.KEY", "refers to the variable MISSING, which is not set here", "export MISSING",
    )  # fmt: skip
    assert refused("secret:env:")[1] == "run.env.KEY"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nowhere/key", "No such file or directory"), ("/", "Is a directory"), ("", "Is a directory"),
        ("a\0b", "is no path"), ("~nobody-of-that-name/key", "is no path"),
    ],
)  # fmt: skip
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
